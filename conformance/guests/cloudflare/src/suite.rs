//! The conformance suite's routes.

use tollgate_core::{Error, Limiter};
use tollgate_guest_protocol::{Reply, Route, serve};
use worker::Env;
use worker::js_sys::JsString;
use worker::wasm_bindgen_futures::JsFuture;
use worker::web_sys::{Request, Response};

use crate::reply::response;
use crate::{in_test_mode, not_found};

/// Whether a path is one of the suite's.
pub(crate) fn asks(path: &str, env: &Env) -> bool {
    path.starts_with("_tollgate/") && in_test_mode(env)
}

pub(crate) async fn answer<L: Limiter>(limiter: &L, request: &Request, path: &str) -> worker::Result<Response> {
    if path == "_tollgate/panic" {
        panic!("the suite asked for it");
    }
    let Some(route) = Route::of(&format!("/{path}")) else { return not_found() };
    let asked = String::from(JsString::from(JsFuture::from(request.text()?).await?));
    sent(serve(limiter, route, asked.as_bytes()).await)
}

/// That there is no limiter to ask.
pub(crate) fn failed(error: &Error) -> worker::Result<Response> {
    sent(Reply::error(error))
}

fn sent(Reply { status, headers, body }: Reply) -> worker::Result<Response> {
    let fields = headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    response(status, fields, &String::from_utf8_lossy(&body))
}
