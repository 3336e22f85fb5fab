//! The service as a user would write it, and the conformance suite's routes.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use tidegate_core::ErasedLimiter;
use tidegate_core::gate::Gate;
use tidegate_guest_protocol::{Reply, Route, serve};
use tidegate_tower::RateLimitLayer;

/// Answers every request, as often as the gate's rules allow.
pub(crate) fn limited(gate: Gate<'static>) -> Router {
    let layer = RateLimitLayer::with_peer(gate, |extensions| extensions.get().map(SocketAddr::ip));
    Router::new().fallback(|| async { "allowed\n" }).layer(layer)
}

/// The suite's routes.
pub(crate) fn suite(limiter: Arc<dyn ErasedLimiter>) -> Router {
    let mut router = Router::new();
    for route in Route::ALL {
        router = router.route(route.path(), post(answer));
    }
    router.with_state(limiter)
}

async fn answer(State(limiter): State<Arc<dyn ErasedLimiter>>, uri: Uri, body: Bytes) -> Response {
    let Some(route) = Route::of(uri.path()) else { return StatusCode::NOT_FOUND.into_response() };
    let Reply { status, headers, body } = serve(&limiter, route, &body).await;
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(name, value);
    }
    response.body(body.into()).unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
}
