//! The layer around a service: keys, response fields, failures, delays, readiness.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderValue, Request, Response};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use support::gate;
use tidegate_core::gate::{Gate, OnFailure, Rules};
use tidegate_core::{
    BodyFormat, Capabilities, ClientIpSource, ErrorKind, Key, MemoryLimiter, Millis, Platform, Quota, UnixMillis,
};
use tidegate_testing::{Declaring, NOW, bucket, failing, per_minute, policy};
use tidegate_tower::{ApiKey, RateLimit, RateLimitLayer, ResponseBody, Subject, Tier, Verdict};
use tokio::time::Instant;
use tower::ServiceExt as _;
use tower::util::service_fn;
use tower_layer::Layer as _;

fn of(gate: Gate<'static>) -> RateLimitLayer {
    RateLimitLayer::new(gate).unwrap().clock(|| NOW)
}

fn layer(limit: u64) -> RateLimitLayer {
    of(gate(MemoryLimiter::new(), per_minute(limit), OnFailure::Closed).unwrap())
}

/// A request from one address, with the extensions that earlier layers inserted.
fn request(put: impl FnOnce(&mut http::Extensions)) -> Request<String> {
    let mut request = Request::new(String::new());
    request.headers_mut().insert("x-vercel-forwarded-for", HeaderValue::from_static("192.0.2.9"));
    put(request.extensions_mut());
    request
}

/// The response of a service that says whether it found a verdict.
async fn ask(layer: &RateLimitLayer, request: Request<String>) -> Response<String> {
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
    let gate = gate(MemoryLimiter::new(), per_minute(1), OnFailure::Closed).unwrap();
    gate.reload(Rules::all(per_minute(1), OnFailure::Closed).body_format(BodyFormat::Problem)).unwrap();
    let layer = of(gate);
    let allowed = ask(&layer, request(|_| {})).await;
    // The service found the verdict, and the layer replaced its field.
    assert_eq!(allowed.body(), "true");
    assert_eq!(allowed.headers().get_all("x-ratelimit-limit").iter().collect::<Vec<_>>(), ["1"]);
    assert!(allowed.extensions().get::<Verdict>().is_none());
    let denied = ask(&layer, request(|_| {})).await;
    assert_eq!(
        (denied.status().as_u16(), &denied.headers()["content-type"]),
        (429, &"application/problem+json".parse().unwrap())
    );
    assert_eq!(denied.headers()["retry-after"], "60");
    assert!(!denied.extensions().get::<Verdict>().unwrap().decision().unwrap().is_allowed());
}

#[tokio::test]
async fn a_layer_may_have_the_verdict_in_every_response() {
    let layer = layer(1).verdict_in_responses();
    for is_allowed in [true, false] {
        let response = ask(&layer, request(|_| {})).await;
        assert_eq!(response.extensions().get::<Verdict>().unwrap().decision().unwrap().is_allowed(), is_allowed);
    }
}

#[tokio::test]
async fn a_response_has_the_limits_of_its_own_rule() {
    // The layer remembers values that most responses share.
    let layers = [layer(7), layer(9)];
    for (place, limit) in [(0, "7"), (1, "9"), (0, "7"), (0, "7"), (1, "9")] {
        let response = ask(&layers[place], request(|_| {})).await;
        assert_eq!(response.headers()["x-ratelimit-limit"], limit);
        let policy = response.headers()["ratelimit-policy"].to_str().unwrap();
        assert!(policy.contains(&format!(";q={limit};")), "{policy}");
    }
}

#[tokio::test]
async fn a_body_tells_its_size_and_its_end() {
    let sized = |layer: &RateLimitLayer, text: &'static str| {
        let service = service_fn(move |_: Request<String>| async move {
            Ok::<_, Infallible>(Response::new(axum::body::Body::from(text)))
        });
        let answer = layer.layer(service).oneshot(request(|_| {}));
        async { answer.await.unwrap().into_body() }
    };
    let layer = layer(3);
    let endless = service_fn(|_: Request<String>| async {
        Ok::<_, Infallible>(Response::new(axum::body::Body::from_stream(futures_util::stream::pending::<
            Result<&str, Infallible>,
        >())))
    });
    for (text, size) in [("hello", 5), ("", 0)] {
        let body = sized(&layer, text).await;
        assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(size), size == 0));
    }
    let body = layer.layer(endless).oneshot(request(|_| {})).await.unwrap().into_body();
    assert_eq!((body.size_hint().exact(), body.is_end_stream()), (None, false));
    // Of a rejection.
    let body = sized(&layer, "").await;
    let (told, ended) = (body.size_hint().exact(), body.is_end_stream());
    let text = body.collect().await.unwrap().to_bytes();
    assert!(text.starts_with(br#"{"error":"rate_limited""#), "{text:?}");
    assert_eq!((told, ended), (Some(text.len() as u64), false));
}

#[tokio::test]
async fn the_fail_mode_decides_on_a_store_failure() {
    let gated = |on_failure| gate(failing(ErrorKind::Unavailable), bucket(1), on_failure).unwrap();
    let open = of(gated(OnFailure::Open)).verdict_in_responses();
    let response = ask(&open, request(|_| {})).await;
    assert_eq!((response.status().as_u16(), response.body().as_str()), (200, "true"));
    assert_eq!(response.headers()["x-tidegate-failed-open"], "unavailable");
    assert!(response.extensions().get::<Verdict>().unwrap().error().is_some());

    let closed = of(gated(OnFailure::Closed));
    let response = ask(&closed, request(|_| {})).await;
    assert_eq!(response.status(), 503);
    assert_eq!(response.body(), r#"{"error":"limiter_unavailable","kind":"unavailable"}"#);
    assert!(!response.headers().contains_key("x-tidegate-failed-open"));
    assert!(response.extensions().get::<Verdict>().unwrap().error().is_some());

    // A policy that the limiter cannot apply fails when the gate is built.
    let buckets = Declaring(Capabilities::EXACT.algorithms(&["token_bucket"]), MemoryLimiter::new());
    let error = gate(buckets, per_minute(1), OnFailure::Open).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[tokio::test(start_paused = true)]
async fn a_leaky_bucket_delays_the_requests_it_admits() {
    let policy = policy(Quota::leaky_bucket(4, 1, Millis::new(100)));
    let layer = of(gate(MemoryLimiter::new(), policy, OnFailure::Closed).unwrap());
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
    let mut service: RateLimit<_> = layer(3).layer(Picky(Arc::clone(&called), false));
    for _ in 0..5 {
        let ready = tower::ServiceExt::<Request<String>>::ready(&mut service).await.unwrap();
        let _ = tower_service::Service::call(ready, request(|_| {})).await.unwrap();
    }
    assert_eq!(called.load(Ordering::Relaxed), 3);
}

#[test]
fn a_source_without_its_peer_address_is_rejected_at_construction() {
    for platform in Platform::ALL {
        let rules = Rules::all(per_minute(1), OnFailure::Closed);
        let gate = Gate::new(rules, MemoryLimiter::new(), ClientIpSource::new(platform)).unwrap();
        let built = RateLimitLayer::new(gate);
        let reads_peer = matches!(platform, Platform::Direct | Platform::Fastly);
        assert_eq!(built.is_err(), reads_peer, "{platform}");
        if let Err(error) = built {
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().contains("RateLimitLayer::with_peer"), "{error}");
        }
    }
}

#[tokio::test]
async fn behind_a_trusted_proxy_the_forwarded_address_is_the_key() {
    let source = ClientIpSource::behind_proxies(["10.0.0.0/8"]).unwrap();
    let gate = Gate::new(Rules::all(per_minute(1), OnFailure::Closed), MemoryLimiter::new(), source).unwrap();
    let layer = RateLimitLayer::with_peer(gate, |extensions| extensions.get::<IpAddr>().copied());
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

#[tokio::test]
async fn the_service_gives_the_keys_of_other_dimensions_the_tier_and_the_cost() {
    let rules = Rules::parse(
        "rules.json",
        r#"{ "dimensions": ["tenant"],
            "limits": { "api": { "quotas": [{ "algorithm": "fixed_window", "limit": 3, "window_ms": 60000, "by": "tenant" }],
            "tiers": { "pro": { "quotas": [{ "algorithm": "fixed_window", "limit": 6, "window_ms": 60000, "by": "tenant" }] } } } },
            "rules": [{ "limits": ["api"] }] }"#,
    );
    let gate = Gate::new(rules.unwrap(), MemoryLimiter::new(), ClientIpSource::new(Platform::Vercel)).unwrap();
    let layer = of(gate)
        .key("tenant", |head| head.headers.get("tenant").map(Key::new))
        .unwrap()
        .cost(|head| head.uri.path().len() as u64);
    let of_tenant = |tenant: &'static str, path: &str| {
        let mut request = request(|known| {
            known.insert(Tier("pro".into()));
        });
        request.headers_mut().insert("tenant", HeaderValue::from_static(tenant));
        *request.uri_mut() = path.parse().unwrap();
        request
    };
    for (tenant, path, status) in [("a", "/345", 200), ("a", "/23", 429), ("a", "/2", 200), ("b", "/", 200)] {
        assert_eq!(ask(&layer, of_tenant(tenant, path)).await.status(), status, "{tenant} {path}");
    }
    let error = layer.clone().key("tennant", |_| None).unwrap_err().to_string();
    assert!(error.ends_with(
        "\"tennant\" is not a dimension that the rules declare; did you mean \"tenant\"? Write one of \"tenant\""
    ));
    // Without the key, the request cannot be decided.
    assert_eq!(ask(&layer, request(|_| {})).await.status(), 503);
}

#[tokio::test]
async fn exempt_requests_are_not_limited_and_every_other_verdict_is_told() {
    let told = Arc::new(AtomicU64::new(0));
    let telling = Arc::clone(&told);
    let layer = layer(1).exempt(|head| head.uri.path() == "/health").on_verdict(move |_, verdict| {
        telling.fetch_add(if verdict.decision().unwrap().is_allowed() { 1 } else { 100 }, Ordering::Relaxed);
    });
    let health = || {
        let mut request = request(|_| {});
        *request.uri_mut() = "/health".parse().unwrap();
        request
    };
    for _ in 0..3 {
        assert_eq!(ask(&layer, health()).await.status(), 200);
    }
    assert_eq!(ask(&layer, request(|_| {})).await.status(), 200);
    assert_eq!(ask(&layer, request(|_| {})).await.status(), 429);
    assert_eq!(told.load(Ordering::Relaxed), 101);
}

#[tokio::test]
async fn reloaded_rules_keep_the_counts() {
    let gate = Arc::new(gate(MemoryLimiter::new(), per_minute(1), OnFailure::Closed).unwrap());
    let layer = RateLimitLayer::new(Arc::clone(&gate)).unwrap().clock(|| NOW);
    assert_eq!(ask(&layer, request(|_| {})).await.status(), 200);
    assert_eq!(ask(&layer, request(|_| {})).await.status(), 429);
    gate.reload(Rules::all(per_minute(2), OnFailure::Closed)).unwrap();
    assert_eq!(ask(&layer, request(|_| {})).await.status(), 200);
    assert_eq!(ask(&layer, request(|_| {})).await.status(), 429);
}

#[tokio::test]
async fn the_charge_of_a_failed_request_is_cancelled() {
    let layer = layer(2).refund_on(|status| status.is_server_error()).unwrap();
    let answer = |status: u16| {
        let service = service_fn(move |_: Request<String>| async move {
            Ok::<_, Infallible>(Response::builder().status(status).body(String::new()).unwrap())
        });
        layer.layer(service).oneshot(request(|_| {}))
    };
    for (status, remaining) in [(500, "1"), (503, "1"), (200, "1"), (404, "0"), (200, "0")] {
        let response = answer(status).await.unwrap();
        assert_eq!(response.headers()["x-ratelimit-remaining"], remaining, "{status}");
        assert_eq!(response.status() == 429, status == 200 && remaining == "0");
        // The charge is cancelled in a task of its own.
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn rules_match_the_path_that_arrived_in_a_nested_router() {
    let rules = Rules::parse(
        "rules.json",
        r#"{ "limits": { "login": { "quotas": [{ "algorithm": "fixed_window", "limit": 1, "window_ms": 60000 }] } },
            "rules": [{ "path": "/v1/login", "limits": ["login"] }] }"#,
    );
    let gate = Gate::new(rules.unwrap(), MemoryLimiter::new(), ClientIpSource::new(Platform::Vercel)).unwrap();
    let nested = axum::Router::new().route("/login", axum::routing::get(|| async { "hello" })).layer(of(gate));
    let app = axum::Router::new().nest("/v1", nested);
    for status in [200, 429] {
        let request = Request::get("/v1/login").header("x-vercel-forwarded-for", "192.0.2.9");
        let response = app.clone().oneshot(request.body(axum::body::Body::empty()).unwrap()).await.unwrap();
        assert_eq!(response.status(), status);
    }
}

#[tokio::test]
async fn a_request_counts_at_the_time_when_its_key_is_known() {
    let clock = Arc::new(AtomicU64::new(NOW.get()));
    let (read, moved) = (Arc::clone(&clock), Arc::clone(&clock));
    let layer = RateLimitLayer::new(gate(MemoryLimiter::new(), per_minute(9), OnFailure::Closed).unwrap())
        .unwrap()
        .clock(move || UnixMillis::new(read.load(Ordering::SeqCst)))
        // To find out what a request costs takes long.
        .cost(move |_| moved.fetch_add(60_000, Ordering::SeqCst) % 2 + 1);
    for _ in 0..2 {
        let service = service_fn(|request: Request<String>| async move {
            let verdict = request.extensions().get::<Verdict>().unwrap().clone();
            Ok::<_, Infallible>(Response::new(verdict.decision().unwrap().decided_at().get().to_string()))
        });
        let response = layer.layer(service).oneshot(request(|_| ())).await.unwrap().map(ResponseBody::into_inner);
        assert_eq!(*response.body(), clock.load(Ordering::SeqCst).to_string());
    }
}

/// The URI that arrived, as another framework notes it.
#[derive(Clone)]
struct Arrived(http::Uri);

#[tokio::test]
async fn rules_match_the_path_that_another_framework_has_noted() {
    let rules = Rules::parse(
        "rules.json",
        r#"{ "limits": { "login": { "quotas": [{ "algorithm": "fixed_window", "limit": 1, "window_ms": 60000 }] } },
            "rules": [{ "path": "/v1/login", "limits": ["login"] }] }"#,
    );
    let gate = Gate::new(rules.unwrap(), MemoryLimiter::new(), ClientIpSource::new(Platform::Vercel)).unwrap();
    let layer = of(gate).original_uri(|extensions| extensions.get::<Arrived>().map(|arrived| &arrived.0));
    let hello = service_fn(|_: Request<String>| async { Ok::<_, Infallible>(Response::new(String::new())) });
    let service = layer.layer(hello);
    for status in [200, 429] {
        let request = Request::get("/login").header("x-vercel-forwarded-for", "192.0.2.9");
        let request = request.extension(Arrived("/v1/login".parse().unwrap())).body(String::new()).unwrap();
        assert_eq!(service.clone().oneshot(request).await.unwrap().status(), status);
    }
}
