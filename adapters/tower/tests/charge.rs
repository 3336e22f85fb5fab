//! An estimate that a handler settles, over HTTP.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::State;
use axum::routing::get;
use axum::{Extension, Router};
use futures_util::future::join_all;
use http::Response;
use support::gate;
use support::server::Server;
use tidegate_core::gate::{Gate, OnFailure, Rules};
use tidegate_core::{
    Capabilities, Check, ClientIpSource, Error, ErrorKind, Limiter, LimiterExt, MemoryLimiter, Millis, Operation,
    Platform, Policy, Quota, Reply, Status, UnixMillis, limiter_fn,
};
use tidegate_testing::{NOW, at, failing, key};
use tidegate_tower::{Charge, RateLimitLayer};
use tokio::sync::Barrier;

const CLIENT: (&str, &str) = ("x-vercel-forwarded-for", "192.0.2.1");

fn policy() -> Policy {
    Policy::new("llm", [Quota::token_bucket(100, 10, Millis::from_secs(1)).unwrap()]).unwrap()
}

/// A layer with a limit of 100, ten of which are replenished each second. It fails open.
fn layer<L: Limiter + 'static>(limiter: &Arc<L>) -> RateLimitLayer {
    let gate = gate(Arc::clone(limiter), policy(), OnFailure::Open).unwrap();
    RateLimitLayer::new(gate).unwrap().clock(|| NOW)
}

fn estimating<L: Limiter + 'static>(limiter: &Arc<L>, estimate: u64) -> RateLimitLayer {
    layer(limiter).estimate(move |_| estimate).unwrap()
}

/// The same for requests that are settled within a time.
fn estimating_within<L: Limiter + 'static>(limiter: &Arc<L>, estimate: u64, span: Millis) -> RateLimitLayer {
    let gate = gate(Arc::clone(limiter), policy(), OnFailure::Open).unwrap().settle_within(span).unwrap();
    let layer = RateLimitLayer::new(gate).unwrap().clock(|| NOW);
    layer.estimate(move |_| estimate).unwrap()
}

/// What the client has left, or its status if it is denied.
async fn left(limiter: &impl Limiter, now: UnixMillis) -> Result<u64, Status> {
    let (policy, key) = (policy(), key());
    let decision = limiter.peek(Check::new(&policy, &key, now).cost(0)).await.unwrap();
    if decision.is_allowed() { Ok(decision.binding().remaining().unwrap()) } else { Err(decision.status()) }
}

fn statuses(answers: &[Response<String>]) -> Vec<u16> {
    let mut statuses: Vec<_> = answers.iter().map(|answer| answer.status().as_u16()).collect();
    statuses.sort_unstable();
    statuses
}

async fn settle_45(Extension(charge): Extension<Charge>) -> &'static str {
    charge.settle(45).await.ok();
    "hello"
}

#[tokio::test]
async fn a_request_that_costs_more_than_its_estimate_leaves_a_debt() {
    static CLOCK: AtomicU64 = AtomicU64::new(NOW.get());
    async fn chat(State(all_admitted): State<Arc<Barrier>>, Extension(charge): Extension<Charge>) -> String {
        all_admitted.wait().await;
        let settled = charge.settle(45).await.unwrap();
        let again = charge.clone().settle(0).await.unwrap();
        format!("{} {}", settled.is_replay(), again.is_replay())
    }
    let limiter = Arc::new(MemoryLimiter::new());
    let layer = estimating(&limiter, 30).clock(|| UnixMillis::new(CLOCK.load(Ordering::Relaxed)));
    let barrier = Arc::new(Barrier::new(3));
    let server = Server::start(Router::new().route("/", get(chat)).layer(layer).with_state(barrier)).await;

    // None settles before three are admitted. The others are denied, before and after.
    let five = join_all((0..5).map(|_| server.get("/", &[CLIENT])));
    let answers = tokio::time::timeout(Duration::from_secs(60), five).await.unwrap();
    assert_eq!(statuses(&answers), [200, 200, 200, 429, 429]);
    for answer in answers.iter().filter(|answer| answer.status() == 200) {
        assert_eq!(answer.body(), "false true");
    }

    // 3 x 45 - 100 is a debt of 35, which takes 3,500 ms. Another 30 take 3,000 ms.
    assert_eq!(left(&*limiter, NOW).await, Err(Status::Denied));
    assert_eq!(left(&*limiter, at(3_499)).await, Err(Status::Denied));
    assert_eq!(left(&*limiter, at(3_500)).await, Ok(0));
    let denied = server.get("/", &[CLIENT]).await;
    assert_eq!((denied.status().as_u16(), &denied.headers()["retry-after"]), (429, &"7".parse().unwrap()));
    CLOCK.store(at(6_499).get(), Ordering::Relaxed);
    assert_eq!(server.get("/", &[CLIENT]).await.status(), 429);
    assert_eq!(left(&*limiter, at(6_500)).await, Ok(30));
    CLOCK.store(at(6_500).get(), Ordering::Relaxed);
    // Another client has no debt.
    let other = [("x-vercel-forwarded-for", "192.0.2.2")];
    let (one, two, three) = tokio::join!(server.get("/", &[CLIENT]), server.get("/", &other), server.get("/", &other));
    assert_eq!([one.status(), two.status(), three.status()], [200, 200, 200]);
}

/// By the prices of the rules file. A mistake of the handler settles nothing, and what it settles next counts.
#[tokio::test]
async fn a_request_is_settled_by_the_prices_of_its_model() {
    async fn chat(Extension(charge): Extension<Charge>) -> String {
        let unknown = charge.settle_priced("gpt-larg", &[("input", 2)]).await.unwrap_err();
        let unpriced = charge.settle_priced("gpt-large", &[("inputs", 2)]).await.unwrap_err();
        assert_eq!((unknown.kind(), unpriced.kind()), (ErrorKind::Invalid, ErrorKind::Invalid));
        let settled = charge.settle_priced("gpt-large", &[("input", 4), ("output", 2)]).await.unwrap();
        let again = charge.settle_priced("gpt-large", &[("input", 1)]).await.unwrap();
        format!("{} {} {unknown}", settled.binding().remaining().unwrap(), again.is_replay())
    }
    let rules = r#"{
        "prices": { "gpt-large": { "input": 3, "output": 15 } },
        "limits": { "llm": { "quotas": [{ "algorithm": "token_bucket", "capacity": 100, "refill": 10, "per_ms": 1000 }] } },
        "rules": [{ "limits": ["llm"], "estimate": 60 }]
    }"#;
    let limiter = Arc::new(MemoryLimiter::new());
    let rules = Rules::parse("rules.json", rules).unwrap();
    let gate = Gate::new(rules, Arc::clone(&limiter), ClientIpSource::new(Platform::Vercel)).unwrap();
    let layer = RateLimitLayer::new(gate).unwrap().clock(|| NOW);
    let server = Server::start(Router::new().route("/", get(chat)).layer(layer)).await;
    let answer = server.get("/", &[CLIENT]).await;
    assert!(
        answer.body().starts_with("58 true ") && answer.body().contains("did you mean \"gpt-large\"?"),
        "{answer:?}"
    );
    assert_eq!(left(&*limiter, NOW).await, Ok(58));
}

#[tokio::test]
async fn a_request_that_costs_less_gets_the_rest_back() {
    async fn chat(Extension(charge): Extension<Charge>) -> String {
        let settled = charge.settle(12).await.unwrap();
        settled.binding().remaining().unwrap().to_string()
    }
    let limiter = Arc::new(MemoryLimiter::new());
    let server = Server::start(Router::new().route("/", get(chat)).layer(estimating(&limiter, 30))).await;
    for rest in ["88", "76", "64"] {
        assert_eq!(server.get("/", &[CLIENT]).await.body(), rest);
    }
    assert_eq!(left(&*limiter, NOW).await, Ok(64));
}

#[tokio::test]
async fn an_estimate_that_is_never_settled_stays_charged() {
    let limiter = Arc::new(MemoryLimiter::new());
    let app = Router::new().route("/", get(|| async { "hello" })).layer(estimating(&limiter, 40));
    let server = Server::start(app).await;
    let answers = [(); 3].map(|()| server.get("/", &[CLIENT]));
    assert_eq!(statuses(&join_all(answers).await), [200, 200, 429]);
    assert_eq!(left(&*limiter, NOW).await, Ok(20));
}

#[tokio::test]
async fn the_estimate_may_depend_on_the_request() {
    let limiter = Arc::new(MemoryLimiter::new());
    let per_path = [("/small", 10), ("/large", 60)];
    let layer = layer(&limiter);
    let layer =
        layer.estimate(move |head| per_path.iter().find(|(path, _)| head.uri == **path).map_or(1, |(_, cost)| *cost));
    let app = Router::new().fallback(|| async { "hello" }).layer(layer.unwrap());
    let server = Server::start(app).await;
    for (path, rest) in [("/small", 90), ("/large", 30), ("/other", 29)] {
        server.get(path, &[CLIENT]).await;
        assert_eq!(left(&*limiter, NOW).await, Ok(rest), "{path}");
    }
    assert_eq!(server.get("/large", &[CLIENT]).await.status(), 429);
}

/// A limiter that writes down the tokens of its checks. It answers as `error` says, although it has charged the request.
#[derive(Debug, Default)]
struct Recording {
    limiter: MemoryLimiter,
    tokens: Mutex<Vec<(String, Millis)>>,
    error: Option<ErrorKind>,
}

impl Limiter for Recording {
    fn capabilities(&self) -> Capabilities {
        self.limiter.capabilities()
    }

    async fn apply(&self, operation: Operation<'_>) -> Result<Reply, Error> {
        let reply = self.limiter.apply(operation).await;
        let Operation::Check(check) = operation else { return reply };
        let idempotency = check.idempotency.unwrap();
        self.tokens.lock().unwrap().push((idempotency.token.to_string(), idempotency.ttl));
        self.error.map_or(reply, |kind| Err(Error::new(kind, "the answer was lost")))
    }
}

#[tokio::test]
async fn a_client_cannot_influence_the_token() {
    let recording = Arc::new(Recording::default());
    let layer = estimating_within(&recording, 1, Millis::from_secs(30));
    let server = Server::start(Router::new().route("/", get(|| async { "hello" })).layer(layer)).await;
    // The same request each time, with every field that names a request.
    let same = [
        CLIENT,
        ("idempotency-key", "00000000000000000000000000000000"),
        ("x-request-id", "00000000000000000000000000000000"),
        ("x-tidegate-token", "00000000000000000000000000000000"),
        ("traceparent", "00-00000000000000000000000000000001-0000000000000001-01"),
    ];
    let answers = join_all((0..150).map(|_| server.get("/", &same))).await;
    assert_eq!(answers.iter().filter(|answer| answer.status() == 200).count(), 100);
    let tokens = recording.tokens.lock().unwrap();
    assert_eq!(tokens.len(), 150);
    for (token, ttl) in &*tokens {
        assert!(token.len() == 32 && token.chars().all(|digit| digit.is_ascii_hexdigit()), "{token}");
        assert_eq!(*ttl, Millis::from_secs(30));
    }
    assert_eq!(tokens.iter().collect::<HashSet<_>>().len(), 150, "a token was used twice");
    // In each place, the random digits of 150 tokens are not all the same. So no part is a constant or a counter.
    for place in 0..32 {
        let digits: HashSet<_> = tokens.iter().map(|(token, _)| &token[place..=place]).collect();
        assert!(digits.len() > 8, "place {place} has only {digits:?}");
    }
}

#[tokio::test]
async fn an_estimate_of_zero_is_an_error_and_not_free() {
    static SERVED: AtomicUsize = AtomicUsize::new(0);
    let limiter = Arc::new(MemoryLimiter::new());
    let count = || async { SERVED.fetch_add(1, Ordering::Relaxed).to_string() };
    let server = Server::start(Router::new().route("/", get(count)).layer(estimating(&limiter, 0))).await;
    for _ in 0..3 {
        let answer = server.get("/", &[CLIENT]).await;
        assert_eq!(answer.status(), 503);
        assert_eq!(answer.body(), r#"{"error":"limiter_unavailable","kind":"invalid"}"#);
    }
    assert_eq!((SERVED.load(Ordering::Relaxed), left(&*limiter, NOW).await), (0, Ok(100)));
}

#[tokio::test]
async fn a_handler_with_a_charge_also_runs_while_the_store_is_down() {
    async fn chat(Extension(charge): Extension<Charge>) -> String {
        charge.settle(45).await.map_or_else(|error| error.kind().to_string(), |_| "settled".to_string())
    }
    let down = Arc::new(failing(ErrorKind::Unavailable));
    let server = Server::start(Router::new().route("/", get(chat)).layer(estimating(&down, 30))).await;
    let answer = server.get("/", &[CLIENT]).await;
    assert_eq!((answer.status().as_u16(), answer.body().as_str()), (200, "unavailable"));
    assert_eq!(answer.headers()["x-tidegate-failed-open"], "unavailable");
}

#[tokio::test]
async fn a_charge_whose_answer_was_lost_is_settled_too() {
    let recording = Arc::new(Recording { error: Some(ErrorKind::Timeout), ..Recording::default() });
    let server = Server::start(Router::new().route("/", get(settle_45)).layer(estimating(&recording, 30))).await;
    let answer = server.get("/", &[CLIENT]).await;
    assert_eq!((answer.status().as_u16(), answer.body().as_str()), (200, "hello"));
    assert_eq!(left(&*recording, NOW).await, Ok(55));
}

#[tokio::test]
async fn a_settlement_after_its_time_is_an_error() {
    static CLOCK: AtomicU64 = AtomicU64::new(NOW.get());
    async fn chat(State(took): State<u64>, Extension(charge): Extension<Charge>) -> String {
        CLOCK.fetch_add(took, Ordering::Relaxed);
        charge.settle(45).await.map_or_else(|error| error.kind().to_string(), |_| "settled".to_string())
    }
    for (took, said) in [(59_999, "settled"), (60_000, "unknown_charge")] {
        let layer = estimating_within(&Arc::new(MemoryLimiter::new()), 30, Millis::from_secs(60));
        let layer = layer.clock(|| UnixMillis::new(CLOCK.load(Ordering::Relaxed)));
        let server = Server::start(Router::new().route("/", get(chat)).layer(layer).with_state(took)).await;
        assert_eq!(server.get("/", &[CLIENT]).await.body(), said, "after {took} ms");
    }
}

#[test]
fn what_cannot_be_settled_is_rejected_when_the_layer_is_built() {
    for capabilities in [Capabilities::EXACT.idempotency(false), Capabilities::EXACT.costs(false)] {
        let error = layer(&Arc::new(limiter_fn(capabilities, |_| unreachable!("no layer is built"))))
            .estimate(|_| 1)
            .map(drop)
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }
    let gate = gate(MemoryLimiter::new(), policy(), OnFailure::Open).unwrap();
    let error = gate.settle_within(Millis::ZERO).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().starts_with("settle_within: "), "{error}");
}
