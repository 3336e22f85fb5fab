//! The conformance suite's routes.

use spin_sdk::http::{IncomingRequest, Response};
use tidegate_core::{Error, Limiter};
use tidegate_guest_protocol::{Answer, Reply, Route, serve};

use crate::reply::{not_found, response};

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
