//! The conformance suite's routes.

use std::env;

use spin_sdk::http::{IncomingRequest, Response};
use tidegate_core::{Error, Limiter};
use tidegate_guest_protocol::{Answer, Mode, Reply, Route, serve};

use crate::reply::{not_found, response};

/// What the variable says, which is a [`Mode`].
fn mode() -> String {
    env::var("TIDEGATE_TEST_MODE").unwrap_or_default()
}

/// Whether a request is the suite's.
pub(crate) fn asks(request: &IncomingRequest, path: &str) -> bool {
    let sent = || request.headers().get(Mode::FIELD).into_iter().next();
    path.starts_with("_tidegate/")
        && Mode::of(&mode()).admits(sent().and_then(|key| String::from_utf8(key).ok()).as_deref())
}

/// Whether the time comes from the requests.
pub(crate) fn in_test_mode() -> bool {
    Mode::of(&mode()).is_on()
}

pub(crate) async fn answer<L: Limiter>(limiter: &L, request: IncomingRequest, path: &str) -> Response {
    let Some(route) = Route::of(&format!("/{path}")) else { return not_found() };
    let Ok(asked) = request.into_body().await else { return response(400, [], "no body\n".into()) };
    reply(serve(limiter, route, &asked).await)
}

/// The answer to every route if there is no limiter.
pub(crate) fn failed(error: &Error) -> Response {
    reply(Reply::new(503, &Answer::Error(error.into())))
}

fn reply(Reply { status, headers, body }: Reply) -> Response {
    response(status, headers.iter().map(|(name, value)| (name.as_str(), value.as_str())), body)
}
