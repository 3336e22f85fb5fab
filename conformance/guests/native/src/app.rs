//! The service: what a user would write, and the conformance suite's routes beside it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Extension, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tollgate_core::{Check, Key, Limiter as _, Millis, Policy, UnixMillis};
use tollgate_guest_protocol::{Reply, Route, serve};

use crate::store::Store;

/// What every request shares.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) store: Store,
    pub(crate) policy: Option<Policy>,
}

/// The routes; those of the suite only in test mode.
pub(crate) fn router(app: Arc<App>, test_mode: bool) -> Router {
    let mut router = Router::new().route("/", get(home));
    if test_mode {
        for route in Route::ALL {
            router = router.route(route.path(), post(suite));
        }
    }
    router.with_state(app)
}

/// What is limited: by the client's address, a 429 with the time to wait, and open where the store does not answer.
async fn home(State(app): State<Arc<App>>, Extension(peer): Extension<SocketAddr>) -> Response {
    let Some(policy) = &app.policy else { return "unlimited\n".into_response() };
    let key = Key::new(&format!("ip:{}", peer.ip()));
    match app.store.check(Check::new(policy, &key, now())).await {
        Ok(decision) if decision.is_allowed() => "allowed\n".into_response(),
        Ok(decision) => {
            let retry_after = decision.retry_after().map(Millis::as_secs_ceil).map(|secs| secs.to_string());
            let fields = retry_after.map(|secs| [("retry-after", secs)]);
            (StatusCode::TOO_MANY_REQUESTS, fields.map(IntoResponse::into_response).unwrap_or_default()).into_response()
        }
        Err(error) => {
            eprintln!("open, for the store did not answer: {error:?}");
            "allowed\n".into_response()
        }
    }
}

async fn suite(State(app): State<Arc<App>>, uri: Uri, body: Bytes) -> Response {
    match Route::of(uri.path()) {
        Some(route) => response(serve(&app.store, route, &body).await),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

fn response(reply: Reply) -> Response {
    let mut response = Response::builder().status(reply.status);
    for (name, value) in reply.headers {
        response = response.header(name, value);
    }
    response.body(Body::from(reply.body)).unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
}

fn now() -> UnixMillis {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMillis::new(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
}
