//! The service that tells a sender what it has used.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use tidegate_core::gate::Refusal;
use tower_service::Service;

use crate::layer::Settings;
use crate::service::write;

/// Answers with what the sender of a request has used of its limits, as JSON: [`Usage::to_json`](tidegate_core::gate::Usage::to_json).
/// [`RateLimitLayer::usage`](crate::RateLimitLayer::usage) creates it.
///
/// Nothing is charged, and the answer has no key and no identity. A request without an identity gets what its address has. The response
/// is never stored (`cache-control: no-store`). A store that is down makes it a 503, whatever `on_failure` says. It answers `GET` and
/// `HEAD`, and others with a 405.
///
/// It is limited as any other path is: put it inside the layer, and give its path a rule.
///
/// ```
/// use std::net::SocketAddr;
///
/// use axum::Router;
/// use axum::extract::ConnectInfo;
/// use tidegate_tower::{ClientIpSource, Error, Gate, MemoryLimiter, Platform, RateLimitLayer, Rules};
/// # fn app() -> Result<Router, Error> {
/// let rules = Rules::parse("rules.json", r#"{
///     "limits": {
///         "api": { "quotas": [{ "algorithm": "fixed_window", "limit": 1000, "window_ms": 3600000 }] },
///         "usage": { "quotas": [{ "algorithm": "token_bucket", "capacity": 10, "refill": 1, "per_ms": 1000 }] }
///     },
///     "rules": [{ "path": "/api/*", "limits": ["api"] }, { "path": "/usage", "limits": ["usage"] }]
/// }"#)?;
/// let gate = Gate::new(rules, MemoryLimiter::new(), ClientIpSource::new(Platform::Direct))?;
/// let limited =
///     RateLimitLayer::with_peer(gate, |extensions| extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip()));
/// let usage = limited.usage()?;
/// Ok(Router::new().route_service("/usage", usage).layer(limited))
/// # }
/// # app().unwrap();
/// ```
#[derive(Clone)]
pub struct UsageService(Arc<Settings>);

impl UsageService {
    pub(crate) const fn new(settings: Arc<Settings>) -> Self {
        Self(settings)
    }
}

impl fmt::Debug for UsageService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UsageService(…)")
    }
}

impl<B> Service<Request<B>> for UsageService {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (settings, (head, _)) = (Arc::clone(&self.0), request.into_parts());
        Box::pin(async move {
            if !matches!(head.method, Method::GET | Method::HEAD) {
                let mut response = answered(StatusCode::METHOD_NOT_ALLOWED, String::new());
                response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
                return Ok(response);
            }
            let prepared = settings.on(&head, |request, _| settings.gate.prepare_usage(&request));
            let told = match prepared {
                Ok(pending) => settings.gate.tell_usage(&pending, &*settings.clock).await,
                Err(refusal) => Err(refusal),
            };
            Ok(match told {
                Ok(usage) => {
                    let mut response = answered(StatusCode::OK, usage.to_json());
                    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                    response
                }
                Err(refusal) => refused(*refusal),
            })
        })
    }
}

/// A response that nobody stores.
fn answered(status: StatusCode, body: String) -> Response<String> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn refused(refusal: Refusal) -> Response<String> {
    let rejection = refusal.into_rejection();
    let status = StatusCode::from_u16(rejection.status_code()).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
    let mut response = answered(status, rejection.body().to_string());
    write(rejection.fields().clone(), response.headers_mut());
    response
}
