//! The conformance suite's routes.

use spin_sdk::http::{IntoResponse as _, Response};
use spin_sdk::wasip3::http::types::{ErrorCode, Request, Response as Sent};
use spin_sdk::wasip3::wit_future;
use tidegate_guest_protocol::{Mode, Reply, Route, serve};

use crate::settings::{Settings, variable};

/// The route, if the request is the suite's.
pub(crate) fn route(request: &Request) -> Option<Route> {
    let route = Route::of(&request.get_path_with_query()?)?;
    let mode = variable("tidegate_test_mode").ok().flatten().unwrap_or_default();
    let sent = request.get_headers().get(Mode::FIELD).into_iter().next();
    let sent = sent.and_then(|key| String::from_utf8(key).ok());
    Mode::of(&mode).admits(sent.as_deref()).then_some(route)
}

pub(crate) async fn answer(route: Route, request: Request) -> Result<Sent, ErrorCode> {
    let (_read, is_read) = wit_future::new(|| Ok(()));
    let (body, _trailers) = Request::consume_body(request, is_read);
    let body = body.collect().await;
    let reply = match Settings::read().and_then(|settings| settings.store.limiter()) {
        Ok(limiter) => serve(&limiter, route, &body).await,
        Err(error) => Reply::error(&error),
    };
    let mut response = Response::builder().status(reply.status);
    for (name, value) in reply.headers {
        response = response.header(name, value);
    }
    let body = String::from_utf8_lossy(&reply.body).into_owned();
    response.body(body).map_err(|error| ErrorCode::InternalError(Some(error.to_string())))?.into_response()
}
