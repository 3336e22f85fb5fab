//! A store that is slow and answers each call before the deadline: whatever clients do, no request passes because of a failure, and no
//! window admits more than its limit. The store is a real redis-server behind a proxy that delays its answers.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[allow(unexpected_cfgs, reason = "a part of it is for a feature of the other crate")]
#[path = "../../redis/tests/support/mod.rs"]
mod redis_server;
mod support;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::any;
use redis_server::MIN_TTL;
use support::server::Server;
use tidegate_core::gate::{Gate, Rules};
use tidegate_core::{ClientIpSource, ErasedLimiter, MemoryLimiter, Millis, Platform};
use tidegate_redis::{Clock, Config, Redis};
use tidegate_testing::NOW;
use tidegate_tower::RateLimitLayer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::sleep;

const DEADLINE: Duration = Duration::from_millis(2_500);
const LIMIT: usize = 8;

/// How many requests each client sends.
const REQUESTS: usize = 12;

/// How many requests are open at once at each speed of the store, so that the process needs few files.
const OPEN_MAX: usize = 60;

/// What is around the store, or in its limit: the name, the table of the store, and more of the limit.
const OPTIONS: [(&str, &str, &str); 6] = [
    ("plain", "", ""),
    ("leases", "", "lease = { slice = 20, lifetime_ms = 60_000 }"),
    ("deny cache", "deny_cache = true", ""),
    ("fallback", "fallback = \"memory\"", ""),
    ("leases and fallback", "fallback = \"memory\"", "lease = true"),
    ("near", "near = { store = \"memory\", limit = \"flood\" }", ""),
];

/// How clients send their requests. Several at once of each.
const BEHAVIOURS: [&str; 5] = ["one hot key", "many keys", "aborted", "slow bodies", "huge headers"];

/// A server whose rules have this option, over the store at this address.
async fn server(address: std::net::SocketAddr, nth: usize, slots: bool) -> Server {
    let (_, around, more) = OPTIONS[nth];
    let concurrency = if slots { ", { algorithm = \"concurrency\", limit = 1_000, lifetime_ms = 60_000 }" } else { "" };
    let rules = format!(
        r#"
        stores.main = {{ {around} }}
        [limits.flood]
        quotas = [{{ algorithm = "fixed_window", limit = 100_000, window_ms = 60_000 }}]
        [limits.api-{nth}-{slots}]
        quotas = [{{ algorithm = "fixed_window", limit = {LIMIT}, window_ms = 60_000 }}{concurrency}]
        {more}
        [[rules]]
        limits = ["api-{nth}-{slots}"]
        on_failure = "open"
        "#
    );
    let config = Config::new(format!("redis://{address}")).clock(Clock::Caller).min_ttl(MIN_TTL);
    let deadline = Millis::new(DEADLINE.as_millis().try_into().unwrap());
    let main: Box<dyn ErasedLimiter> = Box::new(Redis::new(config.deadline(deadline)).unwrap().limiter());
    let memory: Box<dyn ErasedLimiter> = Box::new(MemoryLimiter::new());
    let rules = Rules::parse("rules.toml", &rules).unwrap();
    let gate = Gate::with_stores(rules, [("main", main), ("memory", memory)], ClientIpSource::new(Platform::Vercel));
    let layer = RateLimitLayer::new(gate.unwrap()).unwrap().clock(|| NOW);
    Server::start(Router::new().route("/", any(async |_body: String| "hello")).layer(layer)).await
}

/// Sends a request as such a client does, and returns the head of the response. Empty if it was aborted.
async fn ask(server: std::net::SocketAddr, how: &str, nth: usize) -> String {
    let client = if how == "many keys" { nth % 5 } else { 0 };
    let place = BEHAVIOURS.iter().position(|name| *name == how).unwrap();
    let padding = if how == "huge headers" { format!("x-padding: {}\r\n", "x".repeat(30_000)) } else { String::new() };
    let body = if how == "slow bodies" { 10 } else { 0 };
    let head = format!(
        "POST / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nx-vercel-forwarded-for: 192.0.{place}.{client}\r\n\
         content-length: {body}\r\n{padding}\r\n"
    );
    let mut stream = TcpStream::connect(server).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    if how == "aborted" && !nth.is_multiple_of(3) {
        sleep(Duration::from_millis(20 * (nth as u64 % 7))).await;
        stream.set_zero_linger().unwrap();
        return String::new();
    }
    for _ in 0..body {
        // A response to a request that is denied may come before its body was sent.
        sleep(Duration::from_millis(50)).await;
        let _ = stream.write_all(b"x").await;
    }
    let mut response = Vec::new();
    let _ = stream.read_to_end(&mut response).await;
    String::from_utf8_lossy(&response).to_lowercase()
}

/// Sends the requests of a client, several at once and for a while. Returns what is wrong.
async fn play(server: Arc<Server>, room: Arc<Semaphore>, name: &str, how: &'static str) -> Vec<String> {
    let mut asked = Vec::new();
    for nth in 0..REQUESTS {
        let (address, room) = (server.address(), Arc::clone(&room));
        asked.push(tokio::spawn(async move {
            let _room = room.acquire().await.unwrap();
            (nth, ask(address, how, nth).await)
        }));
        if nth % 3 == 2 {
            sleep(Duration::from_millis(50)).await;
        }
    }
    let (mut wrong, mut admitted) = (Vec::new(), std::collections::HashMap::new());
    for task in asked {
        let (nth, response) = task.await.unwrap();
        if response.contains("x-tidegate-failed-open") || response.contains("x-tidegate-origin: fallback") {
            wrong.push(format!("{name}, {how}, request {nth}: {response}"));
        }
        if response.starts_with("http/1.1 200") {
            *admitted.entry(if how == "many keys" { nth % 5 } else { 0 }).or_insert(0_usize) += 1;
        }
    }
    let most = admitted.values().max().copied().unwrap_or_default();
    if !(1..=LIMIT).contains(&most) {
        wrong.push(format!("{name}, {how}: {most} of {LIMIT} are admitted"));
    }
    wrong
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_client_opens_a_slow_store_that_answers_in_time() {
    let mut played = Vec::new();
    let mut servers = Vec::new();
    for percent in [20, 50, 90] {
        // Each has counts of its own.
        let redis = redis_server::Server::start();
        let address = redis_server::delaying_proxy(redis.port, DEADLINE * percent / 100).await;
        servers.push(redis);
        let room = Arc::new(Semaphore::new(OPEN_MAX));
        for (nth, (name, ..)) in OPTIONS.iter().enumerate() {
            // Loans and the limit that is asked first know no slots.
            for slots in if *name == "plain" { &[false, true][..] } else { &[false][..] } {
                let server = Arc::new(server(address, nth, *slots).await);
                for how in BEHAVIOURS {
                    let (server, room) = (Arc::clone(&server), Arc::clone(&room));
                    let name = format!("{name} at {percent} %, slots: {slots}");
                    played.push(tokio::spawn(async move { play(server, room, &name, how).await }));
                }
            }
        }
    }
    let mut wrong = Vec::new();
    for task in played {
        wrong.extend(task.await.unwrap());
    }
    drop(servers);
    assert!(wrong.is_empty(), "{} are wrong, such as {:#?}", wrong.len(), &wrong[..wrong.len().min(3)]);
}
