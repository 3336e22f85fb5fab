//! Warnings at concurrency: 500 requests at once over HTTP, counted in a real redis-server and in memory.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[allow(unexpected_cfgs, reason = "a part of it is for a feature of the other crate")]
#[path = "../../redis/tests/support/mod.rs"]
mod redis_server;
mod support;

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::Extension;
use axum::routing::get;
use futures_util::future::join_all;
use redis_server::{DEADLINE, MIN_TTL};
use support::server::Server;
use tidegate_core::gate::{Events, OnWarning, Warning};
use tidegate_redis::{Clock, Config, Redis};
use tidegate_testing::NOW;
use tidegate_tower::{ClientIpSource, Gate, Limiter, MemoryLimiter, Platform, RateLimitLayer, Rules, Verdict};

const REQUESTS: usize = 500;

const RULES: &str = r#"
[limits.api]
quotas = [
    { algorithm = "fixed_window", limit = 400, window_ms = 60_000, name = "window", warn_at = [1, 50, 80, 100] },
    { algorithm = "token_bucket", capacity = 1_000, refill = 1, per_ms = 1_000, name = "bucket", warn_at = [33, 40, 41] },
]

[[rules]]
limits = ["api"]
"#;

async fn level(Extension(verdict): Extension<Verdict>) -> String {
    format!("{:?}", verdict.level())
}

/// Each part is told by one of the requests, and each response has the level that its own request has reached.
async fn each_part_is_told_once(limiter: impl Limiter + 'static) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let telling = Arc::clone(&told);
    let warned = OnWarning(move |warning: &Warning<'_>| {
        telling.lock().unwrap().push((warning.quota.to_owned(), warning.percent, warning.used));
    });
    let rules = Rules::parse("rules.toml", RULES).unwrap();
    let gate = Gate::new(rules, limiter, ClientIpSource::new(Platform::Vercel)).unwrap().events(Events::new(warned));
    let layer = RateLimitLayer::new(gate).unwrap().clock(|| NOW);
    let server = Server::start(Router::new().route("/", get(level)).layer(layer)).await;
    let client = [("x-vercel-forwarded-for", "192.0.2.1")];
    let answers = join_all((0..REQUESTS).map(|_| server.get("/", &client))).await;
    let mut told = told.lock().unwrap().clone();
    told.sort_unstable();
    let expected = [
        ("bucket", 33, 330),
        ("bucket", 40, 400),
        ("window", 1, 4),
        ("window", 50, 200),
        ("window", 80, 320),
        ("window", 100, 400),
    ];
    assert_eq!(told, expected.map(|(quota, percent, used)| (quota.to_owned(), percent, used)));
    let with = |level: &str| answers.iter().filter(|answer| answer.body() == level).count();
    let levels = ["None", "Some(1)", "Some(50)", "Some(80)", "Some(100)"].map(with);
    // From 33 % of the bucket on, 50 % of the window are reached, and 400 were admitted.
    assert_eq!(levels, [3, 196, 120, 80, 1]);
    assert_eq!(answers.iter().filter(|answer| answer.status() == 429).count(), REQUESTS - 400);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn in_memory_each_part_is_told_once_by_500_requests_at_once() {
    each_part_is_told_once(MemoryLimiter::new()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn in_redis_each_part_is_told_once_by_500_requests_at_once() {
    let server = redis_server::Server::start();
    let config = Config::new(server.url()).clock(Clock::Caller).min_ttl(MIN_TTL).deadline(DEADLINE);
    each_part_is_told_once(Redis::new(config).unwrap().limiter()).await;
}
