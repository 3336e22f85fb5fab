//! The conformance suite's routes.

use spin_sdk::http::{IncomingRequest, Response};
use tidegate_core::Limiter;
use tidegate_guest_protocol::{Reply, Route, serve};

use crate::reply::{not_found, response};

pub(crate) async fn answer<L: Limiter>(limiter: &L, request: IncomingRequest, path: &str) -> Response {
    let Some(route) = Route::of(&format!("/{path}")) else { return not_found() };
    let Ok(asked) = request.into_body().await else { return response(400, [], "no body\n".into()) };
    let Reply { status, headers, body } = serve(limiter, route, &asked).await;
    response(status, headers.iter().map(|(name, value)| (name.as_str(), value.as_str())), body)
}
