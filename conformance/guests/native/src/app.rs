//! The service as a user would write it, and the conformance suite's routes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tidegate_core::{
    BodyFormat, Check, ClientIpSource, ErasedLimiter, Error, Identity, Limiter as _, Policy, Rejection, ResponseFields,
    UnixMillis,
};
use tidegate_guest_protocol::{Reply, Route, serve};

/// The state that all requests share.
pub(crate) struct App {
    pub(crate) limiter: Box<dyn ErasedLimiter>,
    pub(crate) policy: Option<Policy>,
    pub(crate) client_ip: ClientIpSource,
}

/// The routes. The suite's routes exist in test mode only.
pub(crate) fn router(app: Arc<App>, test_mode: bool) -> Router {
    let mut router = Router::new().route("/", get(home));
    if test_mode {
        for route in Route::ALL {
            router = router.route(route.path(), post(suite));
        }
    }
    router.with_state(app)
}

/// Limited by the client's address. Admits requests without a limit while the store is down, and only then.
async fn home(State(app): State<Arc<App>>, Extension(peer): Extension<SocketAddr>, headers: HeaderMap) -> Response {
    let Some(policy) = &app.policy else { return "unlimited\n".into_response() };
    let client_ip = app.client_ip.find(&headers, Some(peer.ip())).ok();
    let key = Identity { client_ip, ..Identity::default() }.resolve();
    let decision = match app.limiter.check(Check::new(policy, &key, now())).await {
        Ok(decision) => decision,
        Err(error) => return failed(&error),
    };
    match Rejection::denied(policy, &decision, BodyFormat::Json) {
        Some(rejection) => rejected(&rejection),
        None => response(200, ResponseFields::new(policy, &decision).iter(), "allowed\n"),
    }
}

/// A client can cause every error that is not a store failure, so no other error admits a request.
fn failed(error: &Error) -> Response {
    let kind = error.kind();
    eprintln!("the limiter failed: {error:?}");
    if kind.is_store_failure() {
        return response(200, ResponseFields::failed_open(kind).iter(), "allowed\n");
    }
    rejected(&Rejection::unavailable(kind))
}

fn rejected(rejection: &Rejection) -> Response {
    response(rejection.status_code(), rejection.fields().iter(), rejection.body().to_string())
}

async fn suite(State(app): State<Arc<App>>, uri: Uri, body: Bytes) -> Response {
    let Some(route) = Route::of(uri.path()) else { return StatusCode::NOT_FOUND.into_response() };
    let Reply { status, headers, body } = serve(&app.limiter, route, &body).await;
    response(status, headers.iter().map(|(name, value)| (name.as_str(), value.as_str())), body)
}

fn response<'n, 'v>(status: u16, fields: impl Iterator<Item = (&'n str, &'v str)>, body: impl Into<Body>) -> Response {
    let response =
        fields.fold(Response::builder().status(status), |response, (name, value)| response.header(name, value));
    response.body(body.into()).unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
}

fn now() -> UnixMillis {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMillis::new(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
}
