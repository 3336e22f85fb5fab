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
    Capabilities, Check, ClientIpSource, Decision, Error, Key, Limiter, LimiterExt, Millis, Operation, Platform, Reply,
    UnixMillis,
};
use tidegate_redis::{Clock, Config, Redis, RedisLimiter};
use tidegate_testing::{Log, NOW};
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

/// A server whose handler counts its runs, over a store that lends.
async fn counting(
    store: impl Limiter + 'static,
    rules: &str,
    runs: &Arc<AtomicU64>,
    clock: &Arc<AtomicU64>,
) -> Arc<Server> {
    let rules = Rules::parse("rules.toml", rules).unwrap();
    let gate = Gate::new(rules, store, ClientIpSource::new(Platform::Vercel)).unwrap();
    let (runs, clock) = (Arc::clone(runs), Arc::clone(clock));
    let layer = RateLimitLayer::new(gate).unwrap().clock(move || UnixMillis::new(clock.load(Ordering::SeqCst)));
    let handler = get(async move || {
        runs.fetch_add(1, Ordering::SeqCst);
        "hello"
    });
    Arc::new(Server::start(Router::new().route("/", handler).layer(layer)).await)
}

/// The rules of a limit by address with a grace of one unit.
fn with_grace(quota: &str, on_failure: &str) -> String {
    format!(
        r#"
        [limits.api]
        quotas = [{quota}]
        lease = {{ grace = 1 }}

        [[rules]]
        limits = ["api"]
        on_failure = "{on_failure}"
        "#
    )
}

/// Sends requests of a client to the servers in turn, all at once. Returns how many passed.
async fn at_once(servers: &[Arc<Server>], client: &str, count: usize) -> usize {
    let ask = |nth: usize| {
        let (server, client) = (Arc::clone(&servers[nth % servers.len()]), client.to_string());
        tokio::spawn(async move { server.get("/", &[("x-vercel-forwarded-for", &client)]).await.status() })
    };
    let asked: Vec<_> = (0..count).map(ask).collect();
    let mut passed = 0;
    for task in asked {
        let status = task.await.unwrap();
        assert!([200, 429].contains(&status.as_u16()), "{status}");
        passed += usize::from(status == 200);
    }
    passed
}

/// The store's decision on one more request of a client.
async fn peek(store: &RedisLimiter, rules: &str, client: &str, now: u64) -> Decision {
    let rules = Rules::parse("rules.toml", rules).unwrap();
    let policy = rules.rules()[0].policies().next().unwrap();
    let key = Key::new(format!("ip:{client}"));
    store.peek(Check::new(policy, &key, UnixMillis::new(now))).await.unwrap()
}

/// More than a test takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Asks again until the store's decision is as expected.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let waited = tokio::time::timeout(PATIENCE, async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    assert!(waited.await.is_ok(), "{what}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_processes_admit_a_grace_each_beyond_a_window_and_no_more() {
    const CLIENT: &str = "192.0.2.1";
    let redis = redis_server::Server::start();
    let rules = with_grace(r#"{ algorithm = "fixed_window", limit = 2, window_ms = 60_000 }"#, "closed");
    let (runs, clock) = (Arc::default(), Arc::new(AtomicU64::new(NOW.get())));
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(counting(redis.limiter(), &rules, &runs, &clock).await);
    }
    let first = at_once(&servers, CLIENT, 60).await;
    // Each process admits its grace, whatever the others do.
    assert!((3..=2 + 3).contains(&first), "{first}");
    let plain = redis.limiter();
    until("not all is told", async || !peek(&plain, &rules, CLIENT, NOW.get()).await.is_allowed()).await;
    let passed = first + at_once(&servers, CLIENT, 60).await;
    assert!(passed <= 2 + 3, "{passed}");
    assert_eq!(runs.load(Ordering::SeqCst), passed as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_repays_the_grace_before_anything_else_is_admitted() {
    const CLIENT: &str = "192.0.2.1";
    let redis = redis_server::Server::start();
    let rules = with_grace(r#"{ algorithm = "token_bucket", capacity = 1, refill = 1, per_ms = 10_000 }"#, "closed");
    let (runs, clock) = (Arc::default(), Arc::new(AtomicU64::new(NOW.get())));
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(counting(redis.limiter(), &rules, &runs, &clock).await);
    }
    // One request of each: nothing is left to ask for.
    assert_eq!(at_once(&servers, CLIENT, 3).await, 3);
    let (plain, after) = (redis.limiter(), |ms: u64| NOW.get() + ms);
    let repaid = Some(Millis::from_secs(30));
    until("not all is told", async || peek(&plain, &rules, CLIENT, NOW.get()).await.retry_after() == repaid).await;
    for ms in [0, 10_000, 20_000, 29_999] {
        clock.store(after(ms), Ordering::SeqCst);
        assert_eq!(at_once(&servers, CLIENT, 6).await, 0, "after {ms} ms");
    }
    clock.store(after(30_000), Ordering::SeqCst);
    let passed = at_once(&servers, CLIENT, 6).await;
    assert!((1..=1 + 3).contains(&passed), "{passed}");
    assert_eq!(runs.load(Ordering::SeqCst), 3 + passed as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_requests_of_keys_are_answered_while_the_store_is_paused() {
    let redis = redis_server::Server::start();
    let rules = with_grace(r#"{ algorithm = "fixed_window", limit = 10, window_ms = 60_000 }"#, "closed");
    let (runs, clock) = (Arc::default(), Arc::new(AtomicU64::new(NOW.get())));
    let server = counting(redis.limiter(), &rules, &runs, &clock).await;
    let mut admin = redis.connection();
    // What reads is answered.
    redis::cmd("CLIENT").arg(&["PAUSE", "600000", "WRITE"]).exec(&mut admin).unwrap();
    let clients: Vec<_> = (0..100).map(|nth| format!("192.0.2.{nth}")).collect();
    for client in &clients {
        assert_eq!(server.get("/", &[("x-vercel-forwarded-for", client)]).await.status(), 200);
    }
    let second = tokio::spawn({
        let (server, client) = (Arc::clone(&server), clients[0].clone());
        async move { server.get("/", &[("x-vercel-forwarded-for", &client)]).await.status() }
    });
    let rows: u64 = redis::cmd("DBSIZE").query(&mut admin).unwrap();
    assert_eq!((rows, runs.load(Ordering::SeqCst)), (0, 100), "the store has been asked");
    redis::cmd("CLIENT").arg("UNPAUSE").exec(&mut admin).unwrap();
    assert_eq!(second.await.unwrap(), 200);
    let plain = redis.limiter();
    for (nth, client) in clients.iter().enumerate() {
        // What is lent to the first one is used, too. Then a request more is usual, and the others' reports ask for a loan of one.
        let is_told = |left| if nth == 0 { left <= 8 } else { (8..=9).contains(&left) };
        let told = async || peek(&plain, &rules, client, NOW.get()).await.quotas()[0].remaining().is_some_and(is_told);
        until(client, told).await;
    }
}

#[tokio::test]
async fn a_store_that_is_down_ends_the_grace() {
    // Other tests of this process have gates, too.
    #[cfg(feature = "metrics")]
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    #[cfg(feature = "metrics")]
    let (metrics, _recorder) = (recorder.handle(), metrics::set_default_local_recorder(&recorder));
    let log = Log::default();
    let _recorded = log.record();
    let mut redis = redis_server::Server::start();
    let rules = with_grace(r#"{ algorithm = "fixed_window", limit = 10, window_ms = 60_000 }"#, "closed");
    let (runs, clock) = (Arc::default(), Arc::new(AtomicU64::new(NOW.get())));
    let server = counting(redis.limiter(), &rules, &runs, &clock).await;
    let mut clients = (0..).map(|nth: u32| format!("192.0.{}.{}", nth / 200, nth % 200));
    let mut ask = async || {
        let client = clients.next().unwrap();
        server.get("/", &[("x-vercel-forwarded-for", &client)]).await.status().as_u16()
    };
    assert_eq!(ask().await, 200);
    #[cfg(feature = "metrics")]
    assert!(metrics.render().contains("tidegate_lease_grace{store=\"default\"} 1\n"), "{}", metrics.render());
    redis.kill();
    // Each key is new. The first ones have a grace until the failure is known.
    until("the failure is never known", async || ask().await == 503).await;
    let before = runs.load(Ordering::SeqCst);
    for _ in 0..20 {
        assert_eq!(ask().await, 503, "on_failure decides");
    }
    assert_eq!(runs.load(Ordering::SeqCst), before);
    let lines = log.take_lines();
    let told = lines.iter().filter(|line| line.contains("the store does not answer")).count();
    assert_eq!(told, 1, "{lines:#?}");
    #[cfg(feature = "metrics")]
    assert!(metrics.render().contains("tidegate_stores_down{store=\"default\"} 1\n"), "{}", metrics.render());
    redis.restart();
    until("it is never back", async || {
        clock.fetch_add(1_000, Ordering::SeqCst);
        ask().await == 200
    })
    .await;
}
