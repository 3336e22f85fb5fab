//! gRPC: a real server and a real client.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};

use http::{HeaderValue, Request, Response, StatusCode};
use http_body::Body as _;
use tidegate_core::gate::{Claims, Gate, InvalidToken, OnFailure, Rules, TokenRules, VerifyToken};
use tidegate_core::{ClientIpSource, ErrorKind, Limiter, MemoryLimiter, Millis, Platform, Policy, Quota, UnixMillis};
use tidegate_testing::failing;
use tidegate_tower::RateLimitLayer;
use tokio::net::TcpListener;
use tonic::transport::server::{TcpConnectInfo, TcpIncoming};
use tonic::transport::{Endpoint, Server};
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt as _;
use tower::ServiceExt as _;
use tower::util::service_fn;
use tower_layer::Layer as _;

/// A limit of two for each address, in a window that ends in 20.5 s.
fn layer(limiter: impl Limiter + 'static) -> RateLimitLayer {
    let quota = Quota::fixed_window(2, Millis::from_secs(60)).unwrap();
    let rules = Rules::all(Policy::new("api", [quota]).unwrap(), OnFailure::Closed);
    let gate = Gate::new(rules, limiter, ClientIpSource::new(Platform::Direct)).unwrap();
    let layer = RateLimitLayer::with_peer(gate, |extensions| {
        extensions.get::<TcpConnectInfo>()?.remote_addr().map(|address| address.ip())
    });
    layer.clock(|| UnixMillis::new(1_800_000_039_500))
}

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

async fn call(address: SocketAddr) -> Result<(), Status> {
    let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    let mut client = HealthClient::new(channel);
    client.check(HealthCheckRequest { service: String::new() }).await.map(drop)
}

fn assert_denied(status: &Status) {
    assert_eq!((status.code(), status.message()), (Code::ResourceExhausted, "rate limit exceeded"));
    let info = status.get_details_retry_info().unwrap();
    assert_eq!(info.retry_delay, Some(std::time::Duration::from_millis(20_500)));
    assert_eq!(status.metadata().get("retry-after").unwrap(), "21");
    assert_eq!(status.metadata().get("x-ratelimit-remaining").unwrap(), "0");
}

#[tokio::test]
async fn a_server_denies_calls_with_the_time_to_wait() {
    let (listener, address) = listen().await;
    let (_reporter, health) = tonic_health::server::health_reporter();
    let server = Server::builder().layer(layer(MemoryLimiter::new())).add_service(health);
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    for _ in 0..2 {
        call(address).await.unwrap();
    }
    assert_denied(&call(address).await.unwrap_err());
}

#[tokio::test]
async fn an_error_of_the_store_is_unavailable() {
    let (listener, address) = listen().await;
    let (_reporter, health) = tonic_health::server::health_reporter();
    let quota = Quota::sliding_log(2, Millis::from_secs(60)).unwrap();
    let rules = Rules::all(Policy::new("api", [quota]).unwrap(), OnFailure::Closed);
    let gate = Gate::new(rules, failing(ErrorKind::Timeout), ClientIpSource::new(Platform::Vercel)).unwrap();
    let server = Server::builder().layer(RateLimitLayer::new(gate).unwrap()).add_service(health);
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    let status = call(address).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Unavailable, "the rate limiter is unavailable"));
}

#[tokio::test]
async fn a_router_of_axum_with_grpc_routes_denies_calls_and_requests_each_in_their_form() {
    let (listener, address) = listen().await;
    let (_reporter, health) = tonic_health::server::health_reporter();
    let routes = tonic::service::Routes::new(health).into_axum_router();
    let quota = Quota::fixed_window(2, Millis::from_secs(60)).unwrap();
    let rules = Rules::all(Policy::new("api", [quota]).unwrap(), OnFailure::Closed);
    let gate = Gate::new(rules, MemoryLimiter::new(), ClientIpSource::new(Platform::Direct)).unwrap();
    let layer = RateLimitLayer::with_peer(gate, |extensions| {
        extensions.get::<axum::extract::ConnectInfo<SocketAddr>>().map(|info| info.0.ip())
    });
    let app = routes.layer(layer.clock(|| UnixMillis::new(1_800_000_039_500)));
    tokio::spawn(async move {
        axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await.unwrap();
    });
    for _ in 0..2 {
        call(address).await.unwrap();
    }
    assert_denied(&call(address).await.unwrap_err());
}

/// Finds no token valid.
#[derive(Debug)]
struct NoneValid;

impl VerifyToken for NoneValid {
    fn verify(&self, _: &str, _: &TokenRules, _: UnixMillis) -> Result<Claims, InvalidToken> {
        Err(InvalidToken("signature"))
    }
}

#[tokio::test]
async fn every_refusal_has_a_status() {
    let rules = r#"{
        "lists": { "deny": ["192.0.2.9"] },
        "tokens": { "algorithms": ["EdDSA"] },
        "limits": { "api": { "quotas": [{ "algorithm": "fixed_window", "limit": 1, "window_ms": 60000 }] } },
        "rules": [{ "limits": ["api"], "invalid_token": "refuse" }]
    }"#;
    let rules = Rules::parse("rules.json", rules).unwrap().verify_tokens(NoneValid);
    let gate = Gate::new(rules, MemoryLimiter::new(), ClientIpSource::new(Platform::Direct)).unwrap();
    let layer = RateLimitLayer::with_peer(gate, |extensions| extensions.get::<IpAddr>().copied());
    for (peer, token, status, message) in [
        (Some("192.0.2.1"), false, None, None),
        (Some("192.0.2.1"), false, Some("8"), Some("rate limit exceeded")),
        (Some("192.0.2.1"), true, Some("16"), Some("invalid token")),
        (Some("192.0.2.9"), false, Some("7"), Some("forbidden")),
        (None::<&str>, false, Some("13"), Some("the rate limiter is misconfigured")),
    ] {
        let mut call = Request::new(String::new());
        call.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
        if token {
            call.headers_mut().insert("authorization", HeaderValue::from_static("Bearer a.b.c"));
        }
        if let Some(peer) = peer {
            call.extensions_mut().insert::<IpAddr>(peer.parse().unwrap());
        }
        let service = service_fn(|_: Request<String>| async { Ok::<_, Infallible>(Response::new(String::new())) });
        let answer = layer.layer(service).oneshot(call).await.unwrap();
        let field = |name| answer.headers().get(name).map(|value: &HeaderValue| value.to_str().unwrap());
        assert_eq!((field("grpc-status"), field("grpc-message")), (status, message), "{peer:?} {token}");
        // Clients of gRPC read nothing else.
        assert_eq!((answer.status(), answer.body().is_end_stream()), (StatusCode::OK, true));
    }
}
