//! Limits that are decided from loans of a real redis-server, over HTTP.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[allow(unexpected_cfgs, reason = "a part of it is for a feature of the other crate")]
#[path = "../../redis/tests/support/mod.rs"]
mod redis_server;
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::middleware::{Next, from_fn};
use axum::routing::get;
use redis_server::MIN_TTL;
use support::server::Server;
use tidegate_core::gate::{Gate, Rules};

use tidegate_core::{
    Capabilities, Check, ClientIpSource, Error, Key, Limiter, LimiterExt, Millis, Operation, Platform, Reply,
    UnixMillis,
};
use tidegate_redis::{Clock, Config, Redis, RedisLimiter};
use tidegate_testing::NOW;
use tidegate_tower::RateLimitLayer;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

/// How long the answer to a question takes.
const DELAY: Duration = Duration::from_millis(100);

/// A redis-server whose loans take long.
struct Slow {
    lender: RedisLimiter,
    asked: AtomicU64,
    answered: AtomicU64,
}

impl Slow {
    fn answered(&self) -> u64 {
        self.answered.load(Ordering::SeqCst)
    }

    fn is_asked(&self) -> bool {
        self.asked.load(Ordering::SeqCst) > self.answered()
    }
}

impl Limiter for Slow {
    fn capabilities(&self) -> Capabilities {
        self.lender.capabilities()
    }

    async fn apply(&self, operation: Operation<'_>) -> Result<Reply, Error> {
        let Operation::Lend(..) = operation else { return self.lender.apply(operation).await };
        self.asked.fetch_add(1, Ordering::SeqCst);
        let reply = self.lender.apply(operation).await;
        tokio::time::sleep(DELAY).await;
        self.answered.fetch_add(1, Ordering::SeqCst);
        reply
    }
}

#[tokio::test]
async fn no_request_of_a_steady_client_waits_for_a_loan() {
    let redis = redis_server::Server::start();
    let slow = Arc::new(Slow { lender: redis.limiter(), asked: AtomicU64::new(0), answered: AtomicU64::new(0) });
    let rules = r#"
        [limits.api]
        quotas = [{ algorithm = "fixed_window", limit = 1_000, window_ms = 60_000 }]
        lease = { slice = 20, lifetime_ms = 60_000 }

        [[rules]]
        limits = ["api"]
    "#;
    let rules = Rules::parse("rules.toml", rules).unwrap();
    let gate = Gate::new(rules, Arc::clone(&slow), ClientIpSource::new(Platform::Vercel)).unwrap();
    let layer = RateLimitLayer::new(gate).unwrap().clock(|| NOW);
    let server = Server::start(Router::new().route("/", get(async || "hello")).layer(layer)).await;

    // A request that waits ends after an answer, and one that does not before the answer that it needs.
    let mut waited = Vec::new();
    for _ in 0..120 {
        let answered = slow.answered();
        let response = server.get("/", &[("x-vercel-forwarded-for", "192.0.2.1")]).await;
        assert_eq!(response.status(), 200);
        waited.push(slow.answered() > answered);
        while slow.is_asked() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    let (first, steady) = waited.split_at(40);
    assert!(first.contains(&true), "nothing is ever asked: {first:?}");
    assert!(!steady.contains(&true), "some have waited: {steady:?}");
    assert!(slow.answered() > 5, "{} answers", slow.answered());
}

/// Sends a request, and resets its connection once the server works on it.
async fn abort(server: &Server, begun: &AtomicU64) {
    let before = begun.load(Ordering::SeqCst);
    let mut client = TcpStream::connect(server.address()).await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    while begun.load(Ordering::SeqCst) == before {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    client.set_zero_linger().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aborted_requests_waste_no_loans() {
    const LIMIT: u64 = 1_000;
    let redis = redis_server::Server::start();
    let slow = redis_server::delaying_proxy(redis.port, Duration::from_millis(60)).await;
    let config = Config::new(format!("redis://{slow}")).clock(Clock::Caller).min_ttl(MIN_TTL);
    let store = Redis::new(config.deadline(redis_server::DEADLINE)).unwrap().limiter();
    let rules = r#"
        [limits.api]
        quotas = [{ algorithm = "fixed_window", limit = 1_000, window_ms = 60_000, by = "global" }]
        lease = true

        [[rules]]
        limits = ["api"]
    "#;
    let rules = Rules::parse("rules.toml", rules).unwrap();
    let policy = rules.rules()[0].policies().next().unwrap().clone();
    let gate = Gate::new(rules, store, ClientIpSource::new(Platform::Vercel)).unwrap();
    let clock = Arc::new(AtomicU64::new(NOW.get()));
    let read = Arc::clone(&clock);
    let layer = RateLimitLayer::new(gate).unwrap().clock(move || UnixMillis::new(read.load(Ordering::SeqCst)));
    let begun = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&begun);
    let counted = from_fn(move |request, next: Next| {
        count.fetch_add(1, Ordering::SeqCst);
        next.run(request)
    });
    let app = Router::new().route("/", get(async || "hello")).layer(layer).layer(counted);
    let server = Server::start(app).await;

    // A window of 300 requests in ten seconds, and then the next one.
    for _ in 0..300 {
        assert_eq!(server.get("/", &[]).await.status(), 200);
        clock.fetch_add(33, Ordering::SeqCst);
    }
    clock.store(NOW.get() + 60_000, Ordering::SeqCst);
    for _ in 0..20 {
        abort(&server, &begun).await;
    }
    let (plain, key) = (redis.limiter(), Key::new("global"));
    let keys = [("global", &key)];
    let check = Check::new(&policy, &keys[..], NOW + Millis::from_secs(60)).cost(0);
    let used = LIMIT - plain.peek(check).await.unwrap().quotas()[0].remaining().unwrap();
    // 20 requests, and twice the slice of the only process.
    assert!((1..=20 + 2 * 50).contains(&used), "{used} units are gone");

    let mut admitted = 0;
    while server.get("/", &[]).await.status() == 200 {
        admitted += 1;
    }
    assert!((LIMIT - 20 - 2 * 50..=LIMIT).contains(&admitted), "{admitted} of {LIMIT}");
}
