//! What many keys have to tell a database over REST travels together.

use std::task::Poll;

use tidegate_core::gate::{Gate, Request, Rules, Verdict};
use tidegate_core::lending::Lease;
use tidegate_core::store::{AtomicLimiter, LendingLimiter};
use tidegate_core::{
    Check, ClientIpSource, ErasedLimiter, Key, LimiterExt as _, MemoryLimiter, Millis, Origin, Platform, UnixMillis,
};
use tidegate_redis::{Clock, Native, Rest, RestConfig};
use tidegate_testing::{NOW, per_minute};

use crate::support::rest::{Endpoint, TOKEN};
use crate::support::{DEADLINE, MIN_TTL, Server, free_port};

type Lending = LendingLimiter<'static, AtomicLimiter<Rest<Native>>>;

/// With Upstash's flag, or without it.
fn store(url: String, key_locking: bool) -> Rest<Native> {
    let config = RestConfig::new(url, TOKEN).clock(Clock::Caller).min_ttl(MIN_TTL).deadline(DEADLINE);
    Rest::new(config.key_locking(key_locking)).unwrap()
}

fn lending(url: String, key_locking: bool) -> Lending {
    let lease = Lease { in_background: true, grace: 1, ..Lease::new(10, Millis::from_secs(10)) };
    store(url, key_locking).lending(lease).unwrap()
}

fn keys(from: usize, to: usize) -> Vec<Key> {
    (from..to).map(|nth| Key::new(format!("user:{nth}"))).collect()
}

/// Each key sends a request, which its grace admits.
async fn admit(limiter: &Lending, keys: &[Key], now: UnixMillis) {
    for key in keys {
        let decision = limiter.check(Check::new(&per_minute(100), key, now)).await.unwrap();
        assert_eq!((decision.is_allowed(), decision.origin()), (true, Origin::Lease));
    }
}

/// How many units of each key the database has charged.
async fn charged(server: &Server, keys: &[Key]) -> Vec<u64> {
    let (limiter, policy) = (server.limiter(), per_minute(100));
    let mut charged = Vec::new();
    for key in keys {
        let left = limiter.peek(Check::new(&policy, key, NOW)).await.unwrap().binding().remaining();
        charged.push(100 - left.unwrap());
    }
    charged
}

/// The scripts that the server has run.
fn scripts(server: &Server) -> u64 {
    let stats: String = redis::cmd("INFO").arg("commandstats").query(&mut server.connection()).unwrap();
    let calls = |command: &str| {
        let (_, rest) = stats.split_once(&format!("cmdstat_{command}:calls="))?;
        rest.split(',').next()?.parse::<u64>().ok()
    };
    calls("evalsha").unwrap_or_default() + calls("eval").unwrap_or_default()
}

#[tokio::test]
async fn what_64_keys_tell_is_one_request_and_one_command() {
    for key_locking in [false, true] {
        let server = Server::start();
        let endpoint = Endpoint::start(&server).await;
        let limiter = lending(endpoint.url(), key_locking);
        let all = keys(0, 130);
        admit(&limiter, &all, NOW).await;
        assert_eq!(endpoint.front.requests(), 0);
        limiter.after(|| NOW, async {}).await;
        assert_eq!((endpoint.front.requests(), scripts(&server)), (3, 3));
        assert!(charged(&server, &all).await.into_iter().all(|units| units == 1));

        // The script is there. After a flush, it is brought once more.
        let (requests, commands) = (endpoint.front.requests(), scripts(&server));
        admit(&limiter, &keys(130, 150), NOW).await;
        limiter.after(|| NOW, async {}).await;
        assert_eq!((endpoint.front.requests() - requests, scripts(&server) - commands), (1, 1));
        redis::cmd("SCRIPT").arg("FLUSH").exec(&mut server.connection()).unwrap();
        admit(&limiter, &keys(150, 160), NOW).await;
        limiter.after(|| NOW, async {}).await;
        assert_eq!(endpoint.front.requests() - requests, 3);
        assert!(charged(&server, &keys(130, 160)).await.into_iter().all(|units| units == 1));
    }
}

#[tokio::test]
async fn a_state_that_cannot_be_read_fails_only_its_own_key() {
    let server = Server::start();
    let endpoint = Endpoint::start(&server).await;
    let limiter = lending(endpoint.url(), true);
    let all = keys(0, 9);
    let broken = format!("{{{}}}", all[4].storage_key(&per_minute(100)));
    redis::cmd("SET").arg(&broken).arg("nothing that is a state").exec(&mut server.connection()).unwrap();
    admit(&limiter, &all, NOW).await;
    limiter.after(|| NOW, async {}).await;
    assert_eq!(endpoint.front.requests(), 1);
    redis::cmd("DEL").arg(&broken).exec(&mut server.connection()).unwrap();
    assert_eq!(charged(&server, &all).await, [1, 1, 1, 1, 0, 1, 1, 1, 1]);
    // It is told again, and the others are not.
    let later = NOW + Millis::from_secs(5);
    limiter.after(|| later, async {}).await;
    assert_eq!(endpoint.front.requests(), 2);
    assert_eq!(charged(&server, &all).await, [1; 9]);
}

#[tokio::test]
async fn what_a_request_without_an_answer_told_is_told_again() {
    let server = Server::start();
    let port = free_port();
    let limiter = lending(format!("http://127.0.0.1:{port}"), true);
    let all = keys(0, 9);
    admit(&limiter, &all, NOW).await;
    limiter.after(|| NOW, async {}).await;
    assert_eq!(charged(&server, &all).await, [0; 9]);
    // Now there is a database. One question finds out that it answers.
    let endpoint = Endpoint::start_at(&server, port).await;
    for seconds in [5, 10] {
        limiter.after(|| NOW + Millis::from_secs(seconds), async {}).await;
    }
    assert_eq!(endpoint.front.requests(), 2);
    assert_eq!(charged(&server, &all).await, [1; 9]);
}

#[tokio::test]
async fn what_is_on_its_way_is_told_once_if_its_task_is_dropped() {
    let server = Server::start();
    let endpoint = Endpoint::start(&server).await;
    let limiter = lending(endpoint.url(), true);
    let all = keys(0, 9);
    admit(&limiter, &all, NOW).await;
    {
        let mut after = Box::pin(limiter.after(|| NOW, async {}));
        // The first turn collects the questions, and the second one sends them.
        for _ in 0..2 {
            assert!(std::future::poll_fn(|context| Poll::Ready(after.as_mut().poll(context).is_pending())).await);
        }
    }
    limiter.after(|| NOW, async {}).await;
    assert_eq!(endpoint.front.requests(), 1);
    assert_eq!(charged(&server, &all).await, [1; 9]);
}

#[tokio::test]
async fn a_gate_tells_together_whatever_is_around_the_store() {
    const RULES: &str = r#"{
        "limits": { "api": { "quotas": [{ "algorithm": "fixed_window", "limit": 100, "window_ms": 60000 }], "lease": { "grace": 1 } } },
        "rules": [{ "limits": ["api"] }],
        "stores": { "upstash": { "fallback": "memory", "deny_cache": true } }
    }"#;
    let server = Server::start();
    let endpoint = Endpoint::start(&server).await;
    let stores: [(&str, Box<dyn ErasedLimiter>); 2] =
        [("upstash", Box::new(store(endpoint.url(), true).limiter())), ("memory", Box::new(MemoryLimiter::new()))];
    let rules = Rules::parse("rules.json", RULES).unwrap();
    let gate = Gate::with_stores(rules, stores, ClientIpSource::new(Platform::Direct)).unwrap();
    gate.in_background();
    for nth in 0..60 {
        let subject = format!("user-{nth}");
        let headers: [(&str, &str); 0] = [];
        let request = Request::new("GET", "/", &headers, NOW).subject(&subject);
        assert!(matches!(gate.check(&request).await, Verdict::Pass(_)));
    }
    assert_eq!(endpoint.front.requests(), 0);
    gate.after(|| NOW, async {}).await;
    assert_eq!(endpoint.front.requests(), 1);
}
