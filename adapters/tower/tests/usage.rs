//! The service that tells a sender what it has used, over HTTP.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::extract::{ConnectInfo, Request};
use axum::middleware::{Next, from_fn};
use axum::routing::get;
use axum::{Router, body::Body};
use serde_json::{Value, json};
use support::server::Server;
use tidegate_core::{Capabilities, Error, ErrorKind, Operation, Reply};
use tidegate_testing::{Declaring, NOW, failing};
use tidegate_tower::{ClientIpSource, Gate, Limiter, MemoryLimiter, Platform, RateLimitLayer, Rules, Subject, Tier};

/// Limits of the sender, of its address and of all, one with tiers, and one for `/usage` itself.
const RULES: &str = r#"
[lists]
deny = ["203.0.113.0/24"]
allow = ["198.51.100.0/24"]

[limits.api]
quotas = [
    { algorithm = "fixed_window", limit = 100, window_ms = 60_000, name = "minute" },
    { algorithm = "fixed_window", limit = 1_000, window_ms = 3_600_000, name = "hour" },
]
tiers.pro.quotas = [{ algorithm = "fixed_window", limit = 500, window_ms = 60_000, name = "minute" }]

[limits.login]
quotas = [{ algorithm = "sliding_log", limit = 5, window_ms = 60_000, by = "ip" }]

[limits.site]
quotas = [{ algorithm = "token_bucket", capacity = 9_000, refill = 1, per_ms = 1_000, by = "global" }]

[limits.usage]
quotas = [{ algorithm = "fixed_window", limit = 20, window_ms = 60_000 }]

[limits.unused]
quotas = [{ algorithm = "fixed_window", limit = 7, window_ms = 60_000 }]

[[rules]]
path = "/api/*"
limits = ["api", "site"]

[[rules]]
path = "/login"
limits = ["login", "site"]
on_failure = "open"

[[rules]]
path = "/usage"
limits = ["usage"]
on_failure = "open"
"#;

/// The identity that a layer before has verified, by header fields that only the tests send.
async fn identified(mut request: Request, next: Next) -> axum::response::Response {
    if let Some(subject) = field(&request, "x-test-subject") {
        request.extensions_mut().insert(Subject(subject));
    }
    if let Some(tier) = field(&request, "x-test-tier") {
        request.extensions_mut().insert(Tier(tier));
    }
    next.run(request).await
}

fn field(request: &Request, name: &str) -> Option<String> {
    Some(request.headers().get(name)?.to_str().unwrap().to_owned())
}

fn app(limiter: impl Limiter + 'static, platform: Platform) -> Result<Router, tidegate_tower::Error> {
    let rules = Rules::parse("rules.toml", RULES)?;
    let gate = Gate::new(rules, limiter, ClientIpSource::new(platform))?;
    let limited = RateLimitLayer::with_peer(gate, |extensions| {
        extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip())
    })
    .clock(|| NOW);
    let usage = limited.usage()?;
    let routes = Router::new().route("/api/{item}", get(|| async { "item" })).route("/login", get(|| async { "in" }));
    Ok(routes.route_service("/usage", usage).layer(limited).layer(from_fn(identified)))
}

/// Each quota's limit, what remains and what is used, by its policy and its name.
fn told(body: &str) -> Vec<(String, [u64; 3])> {
    let body: Value = serde_json::from_str(body).unwrap();
    let number = |quota: &Value, name: &str| quota[name].as_u64().unwrap();
    let quotas = body["quotas"].as_array().unwrap().iter();
    quotas
        .map(|quota| {
            let name = format!(
                "{}/{}/{}",
                quota["policy"].as_str().unwrap(),
                quota["quota"].as_str().unwrap(),
                quota["by"].as_str().unwrap()
            );
            (name, ["limit", "remaining", "used"].map(|name| number(quota, name)))
        })
        .collect()
}

#[tokio::test]
async fn a_sender_is_told_what_it_has_used_of_every_limit_and_pays_only_for_the_question() {
    let server = Server::start(app(MemoryLimiter::new(), Platform::Vercel).unwrap()).await;
    let client = [("x-vercel-forwarded-for", "192.0.2.1")];
    for _ in 0..3 {
        assert_eq!(server.get("/api/1", &client).await.status(), 200);
    }
    assert_eq!(server.get("/login", &client).await.status(), 200);
    for asked in 1..=3 {
        let answer = server.get("/usage", &client).await;
        assert_eq!((answer.status().as_u16(), &answer.headers()["cache-control"]), (200, &"no-store".parse().unwrap()));
        assert_eq!(answer.headers()["content-type"], "application/json");
        // The layer has told of the limit of `/usage` itself.
        assert_eq!(answer.headers()["x-ratelimit-remaining"], (20 - asked).to_string().as_str());
        assert_eq!(
            told(answer.body()),
            [
                ("api/minute/sender".into(), [100, 97, 3]),
                ("api/hour/sender".into(), [1_000, 997, 3]),
                ("site/site/global".into(), [9_000, 8_996, 4]),
                ("login/login/ip".into(), [5, 4, 1]),
                ("usage/usage/sender".into(), [20, 20 - asked, asked]),
            ]
        );
        assert!(!answer.body().contains("192.0.2.1") && !answer.body().contains("ip:"), "{}", answer.body());
    }
    // Another client has used nothing of what only it uses.
    let other = server.get("/usage", &[("x-vercel-forwarded-for", "192.0.2.2")]).await;
    assert_eq!(told(other.body())[0], ("api/minute/sender".into(), [100, 100, 0]));
    // The reset is that of the minute, whose end NOW knows.
    let quotas: Value = serde_json::from_str(server.get("/usage", &client).await.body()).unwrap();
    assert_eq!(quotas["quotas"][0]["reset_after_ms"], json!(60_000 - NOW.get() % 60_000));
}

#[tokio::test]
async fn the_identity_and_its_tier_are_those_that_are_counted() {
    let server = Server::start(app(MemoryLimiter::new(), Platform::Vercel).unwrap()).await;
    let alice = [("x-vercel-forwarded-for", "192.0.2.1"), ("x-test-subject", "alice"), ("x-test-tier", "pro")];
    assert_eq!(server.get("/api/1", &alice).await.status(), 200);
    let by_alice = server.get("/usage", &alice).await;
    assert_eq!(told(by_alice.body())[0], ("api/minute/sender".into(), [500, 499, 1]));
    assert!(!by_alice.body().contains("alice") && !by_alice.body().contains("hour"), "{}", by_alice.body());
    // Without an identity, her address has used nothing of the limit.
    let by_address = server.get("/usage", &alice[..1]).await;
    assert_eq!(told(by_address.body())[0], ("api/minute/sender".into(), [100, 100, 0]));
}

#[tokio::test]
async fn a_listed_sender_learns_nothing_and_other_methods_are_refused() {
    let limiter = MemoryLimiter::new();
    // The service alone, as if the layer were forgotten.
    let gate = Gate::new(Rules::parse("rules.toml", RULES).unwrap(), limiter, ClientIpSource::new(Platform::Vercel));
    let usage = RateLimitLayer::new(gate.unwrap()).unwrap().clock(|| NOW).usage().unwrap();
    let server = Server::start(Router::new().route_service("/usage", usage)).await;
    let denied = server.get("/usage", &[("x-vercel-forwarded-for", "203.0.113.9")]).await;
    assert_eq!((denied.status().as_u16(), denied.body().as_str()), (403, r#"{"error":"forbidden"}"#));
    assert_eq!(denied.headers()["cache-control"], "no-store");
    let allowed = server.get("/usage", &[("x-vercel-forwarded-for", "198.51.100.9")]).await;
    assert_eq!((allowed.status().as_u16(), allowed.body().as_str()), (200, r#"{"quotas":[]}"#));
    let post = server.post("/usage").await;
    assert_eq!((post.status().as_u16(), &post.headers()["allow"]), (405, &"GET, HEAD".parse().unwrap()));
}

#[tokio::test]
async fn a_store_that_is_down_is_a_503_also_where_rules_open() {
    let server = Server::start(app(failing(ErrorKind::Timeout), Platform::Vercel).unwrap()).await;
    assert_eq!(server.get("/login", &[]).await.status(), 200);
    let answer = server.get("/usage", &[]).await;
    assert_eq!(answer.status(), 503);
    assert_eq!(answer.body(), r#"{"error":"limiter_unavailable","kind":"timeout"}"#);
    assert_eq!(answer.headers()["cache-control"], "no-store");
}

#[tokio::test]
async fn without_the_address_that_is_counted_it_is_a_500() {
    let app = app(MemoryLimiter::new(), Platform::Direct).unwrap();
    let request = http::Request::get("/usage").header("x-test-subject", "alice").body(Body::empty()).unwrap();
    // The layer needs no address of an identified sender, but the limit of logins does.
    assert_eq!(tower::ServiceExt::oneshot(app, request).await.unwrap().status(), 500);
}

#[tokio::test]
async fn a_store_that_cannot_peek_is_an_error_when_the_service_is_made() {
    let native = Declaring(Capabilities::EXACT.peek(false), MemoryLimiter::new());
    let error = app(native, Platform::Vercel).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(
        error.to_string(),
        "rule \"/api/*\": this store does not support a peek, which tells what is used; count this rule's limits in one that does"
    );
}

/// A memory that counts its peeks, each of which would be a trip to another store.
struct Counting {
    peeks: Arc<AtomicUsize>,
    memory: MemoryLimiter,
}

impl Limiter for Counting {
    fn capabilities(&self) -> Capabilities {
        self.memory.capabilities()
    }

    async fn apply(&self, operation: Operation<'_>) -> Result<Reply, Error> {
        if let Operation::Peek(_) = operation {
            self.peeks.fetch_add(1, Ordering::Relaxed);
        }
        self.memory.apply(operation).await
    }
}

#[tokio::test]
async fn what_one_store_decides_together_is_one_trip() {
    let (peeks, memory) = (Arc::<AtomicUsize>::default(), MemoryLimiter::new());
    let counting = Counting { peeks: Arc::clone(&peeks), memory };
    let server = Server::start(app(counting, Platform::Vercel).unwrap()).await;
    let answer = server.get("/usage", &[]).await;
    assert_eq!((told(answer.body()).len(), peeks.load(Ordering::Relaxed)), (5, 1));
}
