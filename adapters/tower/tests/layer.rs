//! The layer around a service: keys, response fields, failures, delays, readiness.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderValue, Request, Response};
use support::Failing;
use tidegate_core::{
    BodyFormat, ClientIpSource, ErrorKind, Key, MemoryLimiter, Millis, Platform, Policy, Quota, UnixMillis,
};
use tidegate_tower::{ApiKey, FailMode, KeyExtractor, RateLimit, RateLimitLayer, ResponseBody, Subject, Verdict};
use tokio::time::Instant;
use tower::ServiceExt as _;
use tower::util::service_fn;
use tower_layer::Layer as _;

fn policy(limit: u64) -> Policy {
    Policy::new("api", [Quota::fixed_window(limit, Millis::from_secs(60)).unwrap()]).unwrap()
}

fn key_extractor() -> KeyExtractor {
    KeyExtractor::new(ClientIpSource::new(Platform::Vercel))
}

fn layer(limit: u64) -> RateLimitLayer<MemoryLimiter> {
    let layer =
        RateLimitLayer::new(Arc::new(MemoryLimiter::new()), policy(limit), key_extractor(), FailMode::Closed).unwrap();
    layer.clock(|| UnixMillis::new(1_800_000_000_000))
}

/// A request from one address, with the extensions that earlier layers inserted.
fn request(put: impl FnOnce(&mut http::Extensions)) -> Request<String> {
    let mut request = Request::new(String::new());
    request.headers_mut().insert("x-vercel-forwarded-for", HeaderValue::from_static("192.0.2.9"));
    put(request.extensions_mut());
    request
}

/// The response of a service that says whether it found a verdict.
async fn ask<L: tidegate_core::Limiter + 'static>(
    layer: &RateLimitLayer<L>,
    request: Request<String>,
) -> Response<String> {
    let service = service_fn(|request: Request<String>| async move {
        let told = request.extensions().get::<Verdict>().is_some();
        let response = Response::builder().header("x-ratelimit-limit", "the service's own").body(told.to_string());
        Ok::<_, Infallible>(response.unwrap())
    });
    layer.layer(service).oneshot(request).await.unwrap().map(ResponseBody::into_inner)
}

#[tokio::test]
async fn the_most_trusted_identity_selects_the_key() {
    let layer = layer(1);
    // Each identity has its own limit, although all requests come from one address.
    let subject = || request(|known| drop(known.insert(Subject("alice".into()))));
    let api_key = || request(|known| drop(known.insert(ApiKey("secret".into()))));
    let own = || request(|known| drop(known.insert(Key::new("tenant:7"))));
    let both = || {
        request(|known| {
            known.insert(Subject("alice".into()));
            known.insert(ApiKey("another".into()));
        })
    };
    for (request, status) in [
        (subject(), 200),
        (subject(), 429),
        (both(), 429),
        (api_key(), 200),
        (api_key(), 429),
        (own(), 200),
        (own(), 429),
        (request(|_| {}), 200),
        (request(|_| {}), 429),
    ] {
        assert_eq!(ask(&layer, request).await.status(), status);
    }
    assert!(!format!("{:?}", ApiKey("secret".into())).contains("secret"));
}

#[tokio::test]
async fn responses_carry_the_fields_and_the_verdict() {
    let layer = layer(1).body_format(BodyFormat::Problem);
    let allowed = ask(&layer, request(|_| {})).await;
    // The service found the verdict, and the layer replaced its field.
    assert_eq!(allowed.body(), "true");
    assert_eq!(allowed.headers().get_all("x-ratelimit-limit").iter().collect::<Vec<_>>(), ["1"]);
    assert!(matches!(allowed.extensions().get(), Some(Verdict::Decided(decision)) if decision.is_allowed()));
    let denied = ask(&layer, request(|_| {})).await;
    assert_eq!(
        (denied.status().as_u16(), &denied.headers()["content-type"]),
        (429, &"application/problem+json".parse().unwrap())
    );
    assert_eq!(denied.headers()["retry-after"], "60");
    assert!(matches!(denied.extensions().get(), Some(Verdict::Decided(decision)) if !decision.is_allowed()));
}

#[tokio::test]
async fn the_fail_mode_decides_on_a_store_failure() {
    let bucket = || Policy::new("api", [Quota::token_bucket(1, 1, Millis::from_secs(60)).unwrap()]).unwrap();
    let open =
        RateLimitLayer::new(Arc::new(Failing(ErrorKind::Unavailable)), bucket(), key_extractor(), FailMode::Open)
            .unwrap();
    let response = ask(&open, request(|_| {})).await;
    assert_eq!((response.status().as_u16(), response.body().as_str()), (200, "true"));
    assert_eq!(response.headers()["x-tidegate-failed-open"], "unavailable");
    assert!(matches!(response.extensions().get(), Some(Verdict::FailedOpen(_))));

    let closed =
        RateLimitLayer::new(Arc::new(Failing(ErrorKind::Unavailable)), bucket(), key_extractor(), FailMode::Closed)
            .unwrap();
    let response = ask(&closed, request(|_| {})).await;
    assert_eq!(response.status(), 503);
    assert_eq!(response.body(), r#"{"error":"limiter_unavailable","kind":"unavailable"}"#);
    assert!(!response.headers().contains_key("x-tidegate-failed-open"));
    assert!(matches!(response.extensions().get(), Some(Verdict::FailedClosed(_))));

    // A policy that the limiter cannot apply fails when the layer is built.
    let error =
        RateLimitLayer::new(Arc::new(Failing(ErrorKind::Unavailable)), policy(1), key_extractor(), FailMode::Open)
            .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[tokio::test(start_paused = true)]
async fn a_leaky_bucket_delays_the_requests_it_admits() {
    let policy = Policy::new("api", [Quota::leaky_bucket(4, 1, Millis::new(100)).unwrap()]).unwrap();
    let limiter = Arc::new(MemoryLimiter::new());
    let layer = RateLimitLayer::new(limiter, policy, key_extractor(), FailMode::Closed).unwrap();
    let layer = layer.clock(|| UnixMillis::new(1_800_000_000_000));
    let began = Instant::now();
    let took = || async {
        let response = ask(&layer, request(|_| {})).await;
        (response.status().as_u16(), began.elapsed().as_millis())
    };
    let (first, second, third) = tokio::join!(took(), took(), took());
    // Tokio's timers have a resolution of one millisecond and never fire early.
    assert_eq!(
        [first, second, third].map(|(status, held)| (status, held / 10 * 10)),
        [(200, 0), (200, 100), (200, 200)]
    );
}

#[tokio::test]
async fn the_instance_that_was_ready_is_called() {
    // A service that panics if it is called before it is ready.
    #[derive(Default)]
    struct Picky(Arc<AtomicU64>, bool);
    impl Clone for Picky {
        fn clone(&self) -> Self {
            Self(Arc::clone(&self.0), false)
        }
    }
    impl tower_service::Service<Request<String>> for Picky {
        type Response = Response<String>;
        type Error = Infallible;
        type Future = std::future::Ready<Result<Response<String>, Infallible>>;
        fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Infallible>> {
            self.1 = true;
            std::task::Poll::Ready(Ok(()))
        }
        fn call(&mut self, _: Request<String>) -> Self::Future {
            assert!(std::mem::take(&mut self.1), "called before it was ready");
            self.0.fetch_add(1, Ordering::Relaxed);
            std::future::ready(Ok(Response::new(String::new())))
        }
    }
    let called = Arc::new(AtomicU64::new(0));
    let mut service: RateLimit<_, _> = layer(3).layer(Picky(Arc::clone(&called), false));
    for _ in 0..5 {
        let ready = tower::ServiceExt::<Request<String>>::ready(&mut service).await.unwrap();
        let _ = tower_service::Service::call(ready, request(|_| {})).await.unwrap();
    }
    assert_eq!(called.load(Ordering::Relaxed), 3);
}

#[test]
fn a_source_without_its_peer_address_is_rejected_at_construction() {
    for platform in Platform::ALL {
        let key_extractor = KeyExtractor::new(ClientIpSource::new(platform));
        let build = |key_extractor| {
            RateLimitLayer::new(Arc::new(MemoryLimiter::new()), policy(1), key_extractor, FailMode::Closed)
        };
        let reads_peer = matches!(platform, Platform::Direct | Platform::Fastly);
        assert_eq!(build(key_extractor.clone()).is_err(), reads_peer, "{platform}");
        if let Err(error) = build(key_extractor.clone()) {
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().contains("KeyExtractor::peer"), "{error}");
        }
        build(key_extractor.peer(|_| None)).unwrap();
    }
}

#[tokio::test]
async fn behind_a_trusted_proxy_the_forwarded_address_is_the_key() {
    let source = ClientIpSource::behind_proxies(["10.0.0.0/8"]).unwrap();
    let key_extractor = KeyExtractor::new(source).peer(|extensions| extensions.get::<IpAddr>().copied());
    let limiter = Arc::new(MemoryLimiter::new());
    let layer = RateLimitLayer::new(limiter, policy(1), key_extractor, FailMode::Closed).unwrap();
    let forwarded = |peer: [u8; 4], list: &'static str| {
        let mut request = request(|known| {
            known.insert(IpAddr::from(peer));
        });
        request.headers_mut().insert("x-forwarded-for", HeaderValue::from_static(list));
        request
    };
    for (peer, list, status) in [
        ([10, 0, 0, 1], "192.0.2.1", 200),
        ([10, 0, 0, 1], "192.0.2.2", 200),
        ([10, 0, 0, 2], "203.0.113.66, 192.0.2.1", 429),
        ([10, 0, 0, 2], "192.0.2.3, 192.0.2.2, 10.0.0.1", 429),
        // Not a proxy, so its own address counts.
        ([198, 51, 100, 7], "192.0.2.4", 200),
        ([198, 51, 100, 7], "192.0.2.5", 429),
    ] {
        assert_eq!(ask(&layer, forwarded(peer, list)).await.status(), status, "{peer:?} {list}");
    }
}

#[test]
fn a_policy_of_several_dimensions_is_rejected_when_the_layer_is_built() {
    let by = |dimension| Quota::fixed_window(5, Millis::from_secs(60)).unwrap().by(dimension).unwrap();
    let build =
        |policy| RateLimitLayer::new(Arc::new(MemoryLimiter::new()), policy, key_extractor(), FailMode::Open).map(drop);
    build(Policy::new("api", [by("user")]).unwrap()).unwrap();
    let error = build(Policy::new("api", [by("user"), by("tenant")]).unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let said = error.to_string();
    assert!(said.starts_with("policy: it has several dimensions (\"user\", \"tenant\")"), "{said}");
    assert!(said.contains("call Limiter::check"), "{said}");
}
