//! The conformance suite's routes.

use tollgate_core::Limiter;
use tollgate_guest_protocol::{Reply, Route, serve};
use worker::js_sys::JsString;
use worker::wasm_bindgen_futures::JsFuture;
use worker::web_sys::{Request, Response};

use crate::not_found;
use crate::reply::response;

pub(crate) async fn answer<L: Limiter>(limiter: &L, request: &Request, path: &str) -> worker::Result<Response> {
    if path == "_tollgate/panic" {
        panic!("the suite asked for it");
    }
    let Some(route) = Route::of(&format!("/{path}")) else { return not_found() };
    let asked = String::from(JsString::from(JsFuture::from(request.text()?).await?));
    let Reply { status, headers, body } = serve(limiter, route, asked.as_bytes()).await;
    let fields = headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    response(status, fields, &String::from_utf8_lossy(&body))
}
