//! The service: what a user would write, and the conformance suite's routes beside it.

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
    BodyFormat, Check, ClientIpSource, Identity, Limiter, Policy, Rejection, ResponseFields, UnixMillis,
};
use tidegate_guest_protocol::{Reply, Route, serve};

/// What every request shares.
pub(crate) struct App<L> {
    pub(crate) limiter: L,
    pub(crate) policy: Option<Policy>,
    pub(crate) client_ip: ClientIpSource,
}

/// The routes; those of the suite only in test mode.
pub(crate) fn router<L: Limiter + 'static>(app: Arc<App<L>>, test_mode: bool) -> Router {
    let mut router = Router::new().route("/", get(home::<L>));
    if test_mode {
        for route in Route::ALL {
            router = router.route(route.path(), post(suite::<L>));
        }
    }
    router.with_state(app)
}

/// What is limited: by the client's address, with a proper 429, and open where the store does not answer.
async fn home<L: Limiter>(
    State(app): State<Arc<App<L>>>,
    Extension(peer): Extension<SocketAddr>,
    headers: HeaderMap,
) -> Response {
    let Some(policy) = &app.policy else { return "unlimited\n".into_response() };
    let client_ip = app.client_ip.find(&headers, Some(peer.ip())).ok();
    let key = Identity { client_ip, ..Identity::default() }.resolve();
    let decision = match app.limiter.check(Check::new(policy, &key, now())).await {
        Ok(decision) => decision,
        Err(error) => {
            eprintln!("open, for the store did not answer: {error:?}");
            return "allowed\n".into_response();
        }
    };
    match Rejection::denied(policy, &decision, BodyFormat::Json) {
        Some(rejection) => response(rejection.status_code(), rejection.fields().iter(), rejection.body().to_string()),
        None => response(200, ResponseFields::new(policy, &decision).iter(), "allowed\n"),
    }
}

async fn suite<L: Limiter>(State(app): State<Arc<App<L>>>, uri: Uri, body: Bytes) -> Response {
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
