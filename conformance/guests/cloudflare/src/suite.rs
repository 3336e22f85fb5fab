//! The conformance suite's routes.

use tollgate_core::{Error, Limiter};
use tollgate_guest_protocol::{Reply, Route, serve};
use worker::{Request, Response};

use crate::reply::response;

pub(crate) async fn answer<L: Limiter>(limiter: &L, mut request: Request, path: &str) -> worker::Result<Response> {
    if path == "_tollgate/panic" {
        panic!("the suite asked for it");
    }
    let Some(route) = Route::of(&format!("/{path}")) else { return Response::error("not found", 404) };
    sent(serve(limiter, route, &request.bytes().await?).await)
}

/// That there is no limiter to ask.
pub(crate) fn failed(error: &Error) -> worker::Result<Response> {
    sent(Reply::error(error))
}

fn sent(Reply { status, headers, body }: Reply) -> worker::Result<Response> {
    response(status, headers.iter().map(|(name, value)| (name.as_str(), value.as_str())), body)
}
