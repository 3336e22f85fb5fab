//! A gate on a real server, whose rules file has limits with and without a lease.

#![allow(clippy::unwrap_used, reason = "a failing rig fails its test")]

use std::collections::HashMap;

use crate::support::Server;
use tidegate_core::gate::{Gate, Request, Rules, Verdict};
use tidegate_core::{ClientIpSource, ErasedLimiter, ErrorKind, MemoryLimiter, Millis, Origin, Platform};
use tidegate_testing::NOW;

const LIMIT: u64 = 1_000;

const NO_HEADERS: [(&str, &str); 0] = [];

/// `/` has a limit with a lease, and `/plain` one without. Both are of 1,000.
const RULES: &str = r#"{
    "limits": {
        "api": {
            "quotas": [{ "algorithm": "token_bucket", "capacity": 1000, "refill": 1, "per_ms": 60000 }],
            "lease": { "slice": 20, "lifetime_ms": 10000 }
        },
        "plain": { "quotas": [{ "algorithm": "token_bucket", "capacity": 1000, "refill": 1, "per_ms": 60000 }] }
    },
    "rules": [{ "limits": ["api"] }, { "path": "/plain", "limits": ["plain"] }]
}"#;

fn gate(store: impl ErasedLimiter + 'static) -> Gate<'static> {
    let store: Box<dyn ErasedLimiter> = Box::new(store);
    Gate::with_stores(Rules::parse("rules.json", RULES).unwrap(), [("redis", store)], source()).unwrap()
}

fn source() -> ClientIpSource {
    ClientIpSource::new(Platform::Direct)
}

/// How many requests of one client pass, and who decided on them.
async fn ask(gate: &Gate<'_>, path: &str, token: Option<&str>, count: u64) -> (u64, HashMap<Origin, u64>) {
    let (mut passed, mut origins) = (0, HashMap::new());
    for _ in 0..count {
        let mut request = Request::new("GET", path, &NO_HEADERS, NOW).subject("alice");
        if let Some(token) = token {
            request = request.token(token);
        }
        let verdict = gate.check(&request).await;
        passed += u64::from(matches!(verdict, Verdict::Pass(_)));
        *origins.entry(verdict.decision().unwrap().origin()).or_default() += 1;
    }
    (passed, origins)
}

#[tokio::test]
async fn a_limit_with_a_lease_is_decided_from_loans_and_another_never_is() {
    let server = Server::start();
    let gate = gate(server.limiter());
    let (passed, origins) = ask(&gate, "/", None, 300).await;
    assert_eq!(passed, 300);
    assert!(origins[&Origin::Lease] > 200, "{origins:?}");
    assert_eq!(ask(&gate, "/plain", None, 300).await, (300, HashMap::from([(Origin::Store, 300)])));
    // One with a token is asked for, and so is one that both rules limit: `//plain` may be the path of either.
    assert_eq!(ask(&gate, "/", Some("token"), 3).await, (3, HashMap::from([(Origin::Store, 3)])));
    let (passed, origins) = ask(&gate, "//plain", None, 50).await;
    assert_eq!(passed, 50);
    assert!(origins.contains_key(&Origin::Store), "{origins:?}");
}

/// Sends requests to all gates in turn until nothing is left, and returns how many pass.
async fn exhaust(gates: &[Gate<'static>]) -> u64 {
    let mut sum = 0;
    for _ in 0..80 {
        for gate in gates {
            sum += ask(gate, "/", None, 25).await.0;
        }
    }
    sum
}

#[tokio::test]
async fn gates_never_pass_more_than_the_limit_together() {
    let server = Server::start();
    let gates = [gate(server.limiter()), gate(server.limiter())];
    let passed = exhaust(&gates).await;
    assert!((LIMIT - 2 * 40..=LIMIT).contains(&passed), "{passed}");
}

#[cfg(feature = "rest")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gates_over_both_protocols_never_pass_more_than_the_limit_together() {
    let server = Server::start();
    let endpoint = crate::support::rest::Endpoint::start(&server).await;
    let config = tidegate_redis::RestConfig::new(endpoint.url(), crate::support::rest::TOKEN);
    let config =
        config.clock(tidegate_redis::Clock::Caller).min_ttl(crate::support::MIN_TTL).deadline(crate::support::DEADLINE);
    let rest = tidegate_redis::Rest::new(config.key_locking(true)).unwrap().limiter();
    let gates = [gate(server.limiter()), gate(rest)];
    let passed = exhaust(&gates).await;
    assert!((LIMIT - 2 * 40..=LIMIT).contains(&passed), "{passed}");
    assert!(endpoint.front.requests() < 1_500, "{} requests for 2,000 decisions", endpoint.front.requests());
}

#[tokio::test]
async fn what_is_lent_is_spent_while_the_server_is_down_and_then_the_fallback_decides() {
    let mut server = Server::start();
    let rules =
        RULES.replacen('{', r#"{ "stores": { "redis": { "fallback": { "store": "memory", "percent": 5 } } },"#, 1);
    let redis: Box<dyn ErasedLimiter> = Box::new(server.limiter_with(|config| config.deadline(Millis::from_secs(2))));
    let memory: Box<dyn ErasedLimiter> = Box::new(MemoryLimiter::new());
    let stores = [("redis", redis), ("memory", memory)];
    let gate = Gate::with_stores(Rules::parse("rules.json", &rules).unwrap(), stores, source()).unwrap();
    assert_eq!(ask(&gate, "/", None, 300).await.0, 300);
    server.kill();
    let (passed, origins) = ask(&gate, "/", None, 200).await;
    let lent = origins.get(&Origin::Lease).copied().unwrap_or_default();
    assert!((1..=20).contains(&lent), "{origins:?}");
    assert_eq!((passed, origins[&Origin::Fallback]), (lent + 50, 200 - lent), "{origins:?}");
}

#[tokio::test]
async fn a_server_that_is_killed_is_one_notice_and_so_is_its_return_in_each_outage() {
    let mut server = Server::start();
    let rules = RULES.replacen('{', r#"{ "stores": { "redis": { "fallback": "memory" } },"#, 1);
    let redis: Box<dyn ErasedLimiter> = Box::new(server.limiter());
    let memory: Box<dyn ErasedLimiter> = Box::new(MemoryLimiter::new());
    let stores = [("redis", redis), ("memory", memory)];
    let gate = Gate::with_stores(Rules::parse("rules.json", &rules).unwrap(), stores, source()).unwrap();
    let (mut now, mut told) = (NOW, Vec::new());
    for is_down in [false, true, false, true, false] {
        match is_down {
            true => server.kill(),
            false if now > NOW => server.restart(),
            false => {}
        }
        let (wanted, mut decided) = (if is_down { Origin::Fallback } else { Origin::Store }, 0);
        // The connection to a server that is back takes a while.
        while decided < 50 {
            let verdict = gate.check(&Request::new("GET", "/plain", &NO_HEADERS, now).subject("alice")).await;
            told.extend(verdict.notice().cloned());
            decided += u64::from(verdict.decision().is_some_and(|decision| decision.origin() == wanted));
            now = now + Millis::new(100);
            assert!(now.since(NOW) < Millis::from_secs(3_600), "{wanted:?}: {told:?}");
        }
    }
    let lines: Vec<_> =
        told.iter().map(|notice| notice.to_string().split(" after ").next().unwrap().to_string()).collect();
    let down = r#"the store "redis" does not answer (unavailable), and "memory" decides in its place"#;
    let up = r#"the store "redis" answers again"#;
    assert_eq!(lines, [down, up, down, up]);
}

#[test]
fn a_store_that_does_not_lend_is_an_error() {
    let rules = Rules::parse("rules.json", RULES).unwrap();
    let error = Gate::new(rules, MemoryLimiter::new(), source()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let said = error.to_string();
    assert!(said.contains("limit \"api\": the store \"default\" does not lend; delete lease"), "{said}");
}
