//! The conformance suite's routes.

use tidegate_core::{Error, Limiter};
use tidegate_guest_protocol::{Mode, Reply, Route, serve};
use worker::Env;
use worker::wasm_bindgen::JsValue;
use worker::wasm_bindgen_futures::JsFuture;
use worker::web_sys::Request;

use crate::not_found;
use crate::policies::variable;
use crate::reply::response;

/// The variable with the mode.
const TEST_MODE: &str = "TIDEGATE_TEST_MODE";

/// Whether a request is the suite's.
pub(crate) fn asks(request: &Request, path: &str, env: &Env) -> bool {
    let sent = || request.headers().get(Mode::FIELD).ok().flatten();
    path.starts_with("_tidegate/") && Mode::of(&variable(env, TEST_MODE)).admits(sent().as_deref())
}

/// Whether the time comes from the requests.
pub(crate) fn in_test_mode(env: &Env) -> bool {
    Mode::of(&variable(env, TEST_MODE)).is_on()
}

/// Whether Workers KV is the suite's own, on virtual time. A deployed Worker has the platform's.
pub(crate) fn has_emulated_kv(env: &Env) -> bool {
    Mode::of(&variable(env, TEST_MODE)) == Mode::Open
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
