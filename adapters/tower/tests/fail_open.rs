//! With `OnFailure::Open`, only a failure of the store admits a request that was not counted.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::convert::Infallible;

use futures_util::future::join_all;
use http::{HeaderName, HeaderValue, Request, Response};
use proptest::prelude::*;
use tidegate_core::gate::{Gate, OnFailure, Rules};
use tidegate_core::store::VersionedLimiter;
use tidegate_core::{ClientIpSource, ErrorKind, Key, Limiter, MemoryLimiter, Millis, Platform, Policy, Quota};
use tidegate_testing::{ADVICE, Log, NOW, SECRET, Table, failing};
use tidegate_tower::{Charge, RateLimitLayer, ResponseBody, Verdict};
use tower::ServiceExt as _;
use tower::util::service_fn;
use tower_layer::Layer as _;

const PEER: std::net::IpAddr = std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
const FAILED_OPEN: &str = "x-tidegate-failed-open";

fn policy(limit: u64) -> Policy {
    Policy::new("api", [Quota::token_bucket(limit, 1, Millis::from_secs(3_600)).unwrap()]).unwrap()
}

fn open(limiter: impl Limiter + 'static, limit: u64, platform: Platform) -> RateLimitLayer {
    let rules = Rules::all(policy(limit), OnFailure::Open);
    let gate = Gate::new(rules, limiter, ClientIpSource::new(platform)).unwrap();
    let layer = RateLimitLayer::with_peer(gate, |extensions| Some(extensions.get().copied().unwrap_or(PEER)));
    layer.clock(|| NOW)
}

async fn ask(layer: &RateLimitLayer, request: Request<String>) -> Response<String> {
    let service = service_fn(|_: Request<String>| async { Ok::<_, Infallible>(Response::new("hello".to_string())) });
    layer.layer(service).oneshot(request).await.unwrap().map(ResponseBody::into_inner)
}

#[tokio::test]
async fn contention_for_one_key_admits_no_more_than_the_limit() {
    for _ in 0..10 {
        let layer = open(VersionedLimiter::new(Table::default()), 100, Platform::Direct);
        let answers = join_all((0..200).map(|_| ask(&layer, Request::new(String::new())))).await;
        let admitted = answers.iter().filter(|answer| answer.status() == 200).count();
        let contended = answers.iter().filter(|answer| answer.status() == 503).count();
        assert!(admitted > 0 && admitted <= 100, "{admitted} of 200 requests were admitted; the limit is 100");
        assert!(contended > 0, "the requests did not contend");
    }
}

#[tokio::test]
async fn only_a_store_failure_opens() {
    for kind in ErrorKind::ALL {
        let response = ask(&open(failing(kind), 1, Platform::Direct), Request::new(String::new())).await;
        let opened = response.status() == 200;
        assert_eq!(opened, matches!(kind, ErrorKind::Unavailable | ErrorKind::Timeout), "{kind}");
        assert_eq!(
            response.headers().get(FAILED_OPEN).map(HeaderValue::as_bytes),
            opened.then(|| kind.name().as_bytes())
        );
        if !opened {
            assert_eq!(response.status(), 503, "{kind}");
            assert!(response.body().contains(kind.name()), "{}", response.body());
            assert!(!response.body().contains(SECRET));
            assert_eq!(response.extensions().get::<Verdict>().unwrap().error().unwrap().kind(), kind);
        }
    }
}

#[tokio::test]
async fn requests_without_an_address_share_one_limit() {
    let hostile: [&[(&str, &[u8])]; 8] = [
        &[],
        &[("cf-connecting-ip", b"2a06:98c0:3600::103")],
        &[("cf-connecting-ip", b"")],
        &[("cf-connecting-ip", b"\xff\xfe")],
        &[("cf-connecting-ip", b"192.0.2.1"), ("cf-connecting-ip", b"192.0.2.2")],
        &[("cf-connecting-ip", b"192.0.2.1, 192.0.2.2")],
        &[("x-forwarded-for", b"192.0.2.3"), ("x-real-ip", b"192.0.2.4")],
        &[(FAILED_OPEN, b"timeout"), ("cf-connecting-ip", b"0.0.0.0")],
    ];
    let layer = open(MemoryLimiter::new(), 3, Platform::Cloudflare);
    let mut admitted = 0;
    for headers in hostile {
        let mut request = Request::new(String::new());
        for (name, value) in headers {
            request.headers_mut().append(HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap());
        }
        let response = ask(&layer, request).await;
        assert!(!response.headers().contains_key(FAILED_OPEN), "{headers:?}");
        admitted += usize::from(response.status() == 200);
    }
    assert_eq!(admitted, 3);
}

#[tokio::test]
async fn every_failure_is_logged_without_secrets() {
    let log = Log::default();
    let _guard = log.record();
    for kind in ErrorKind::ALL {
        let mut request = Request::new(String::new());
        request.extensions_mut().insert(Key::new("sub:alice"));
        let admitted = ask(&open(failing(kind), 1, Platform::Direct), request).await.status() == 200;
        assert_eq!(admitted, kind.is_store_failure());
        let expected = if admitted {
            format!("WARN message=the store does not answer store=default error=\"{kind}\"")
        } else {
            format!("WARN message=rate limiter failed rule=api error=\"{kind}\" suppressed=0")
        };
        assert_eq!(log.take_lines(), [format!("{expected} advice=\"{ADVICE}\"")]);
    }
    ask(&open(MemoryLimiter::new(), 1, Platform::Direct), Request::new(String::new())).await;
    assert!(log.take_lines().is_empty(), "a decision is not an error");
}

#[tokio::test]
async fn a_settlement_that_fails_is_logged_without_secrets_and_fails_no_response() {
    let log = Log::default();
    let _guard = log.record();
    let layer = open(failing(ErrorKind::Timeout), 1, Platform::Direct).estimate(|_| 30).unwrap();
    let service = service_fn(|request: Request<String>| async move {
        let charge = request.extensions().get::<Charge>().unwrap();
        assert_eq!(format!("{charge:?}"), "Charge(…)");
        let kind = charge.settle(45).await.unwrap_err().kind();
        Ok::<_, Infallible>(Response::new(kind.to_string()))
    });
    let mut request = Request::new(String::new());
    request.extensions_mut().insert(Key::new("sub:alice"));
    let response = layer.layer(service).oneshot(request).await.unwrap();
    assert_eq!((response.status().as_u16(), response.into_body().into_inner().as_str()), (200, "timeout"));
    let down = format!("WARN message=the store does not answer store=default error=\"timeout\" advice=\"{ADVICE}\"");
    let unsettled =
        "WARN message=rate limiter failed policy=\"api\" kind=\"timeout\" outcome=\"unsettled\" suppressed=0";
    assert_eq!(log.take_lines(), [&down, unsettled]);
}

proptest! {
    #[test]
    fn no_request_opens_while_the_store_is_up(
        platform in prop::sample::select(Platform::ALL.to_vec()),
        fields in prop::collection::vec(
            (
                prop::sample::select(vec![
                    "cf-connecting-ip", "x-vercel-forwarded-for", "x-real-ip", "x-nf-client-connection-ip",
                    "spin-client-addr", "true-client-ip", "x-forwarded-for", "forwarded", "authorization", FAILED_OPEN,
                ]),
                prop::collection::vec(prop_oneof![32..127u8, 128..=255u8], 0..40),
            ),
            0..12,
        ),
        key in prop::option::of(prop::collection::vec(any::<u8>(), 0..300)),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let layer = open(MemoryLimiter::with_shards(1), 2, platform);
        let statuses: Vec<_> = (0..3)
            .map(|_| {
                let mut request = Request::new(String::new());
                for (name, value) in &fields {
                    let value = HeaderValue::from_bytes(value).unwrap();
                    request.headers_mut().append(HeaderName::from_static(name), value);
                }
                if let Some(key) = &key {
                    request.extensions_mut().insert(Key::new(key));
                }
                let response = runtime.block_on(ask(&layer, request));
                assert!(!response.headers().contains_key(FAILED_OPEN));
                response.status().as_u16()
            })
            .collect();
        prop_assert_eq!(statuses, [200, 200, 429]);
    }
}
