//! The conformance suite's routes.

use tidegate_core::{Error, Limiter};
use tidegate_guest_protocol::{Reply, Route, serve};
use worker::Env;
use worker::wasm_bindgen::JsValue;
use worker::wasm_bindgen_futures::JsFuture;
use worker::web_sys::Request;

use crate::reply::response;
use crate::{in_test_mode, not_found};

/// Whether a path is one of the suite's routes.
pub(crate) fn asks(path: &str, env: &Env) -> bool {
    path.starts_with("_tidegate/") && in_test_mode(env)
}

/// Answers a route. If there is no limiter, the answer is the error.
pub(crate) async fn answer<L: Limiter>(limiter: Result<L, Error>, request: &Request, path: &str) -> JsValue {
    if path == "_tidegate/panic" {
        panic!("the suite asked for it");
    }
    let limiter = match limiter {
        Ok(limiter) => limiter,
        Err(error) => return sent(Reply::error(&error)),
    };
    let Some(route) = Route::of(&format!("/{path}")) else { return not_found() };
    let asked = match request.text() {
        Ok(text) => JsFuture::from(text).await.ok().and_then(|text| text.as_string()).unwrap_or_default(),
        Err(_) => String::new(),
    };
    sent(serve(&limiter, route, asked.as_bytes()).await)
}

fn sent(Reply { status, headers, body }: Reply) -> JsValue {
    let fields = headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    response(status, fields, &String::from_utf8_lossy(&body))
}
