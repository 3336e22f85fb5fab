//! Limiters around stores, as the table `stores` of a rules file describes them.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![cfg(feature = "gate")]

use std::sync::{Arc, Mutex};

use pollster::block_on;
use tidegate_core::gate::{Gate, Request, Rules, Verdict};
use tidegate_core::{
    ClientIpSource, Decision, Dimensions, ErasedLimiter, Error, ErrorKind, Limiter, MemoryLimiter, Millis, Operation,
    Origin, Platform, limiter_fn,
};
use tidegate_testing::{FlakyStore, NOW};

/// A rules file with this table `stores`. The limit `api` is 10, `next` 3 and `flood` 20.
fn rules(stores: &str) -> Result<Rules, Error> {
    let window =
        |limit| format!(r#"{{ "quotas": [{{ "algorithm": "fixed_window", "limit": {limit}, "window_ms": 60000 }}] }}"#);
    let limits = format!(r#""limits": {{ "api": {}, "next": {}, "flood": {} }}"#, window(10), window(3), window(20));
    let text = format!("{{\n\"stores\": {stores},\n{limits},\n\"rules\": [{{ \"limits\": [\"api\"] }}]\n}}");
    Rules::parse("rules.json", &text)
}

fn gate(stores: &str, main: &FlakyStore, other: &FlakyStore) -> Result<Gate<'static>, Error> {
    let of = |store: &FlakyStore| Box::new(store.clone()) as Box<dyn ErasedLimiter>;
    Gate::with_stores(
        rules(stores)?,
        [("main", of(main)), ("other", of(other))],
        ClientIpSource::new(Platform::Cloudflare),
    )
}

/// How many of so many requests pass, and who decided on the last one.
fn passed(gate: &Gate<'_>, count: u64, after: Millis) -> (u64, Option<Origin>) {
    let headers = [("cf-connecting-ip", "192.0.2.1")];
    let request = Request::new("GET", "/", &headers, NOW + after);
    let verdicts: Vec<Verdict> = (0..count).map(|_| block_on(gate.check(&request))).collect();
    let passed = verdicts.iter().filter(|verdict| matches!(verdict, Verdict::Pass(_))).count() as u64;
    (passed, verdicts.last().and_then(Verdict::decision).map(Decision::origin))
}

#[test]
fn another_store_replaces_one_that_is_down() {
    let (main, other) = (FlakyStore::default(), FlakyStore::default());
    let gate = gate(r#"{ "main": { "fallback": { "store": "other", "percent": 20 } } }"#, &main, &other).unwrap();
    assert_eq!(passed(&gate, 5, Millis::ZERO), (5, Some(Origin::Store)));
    main.fail(ErrorKind::Unavailable);
    assert_eq!(passed(&gate, 5, Millis::ZERO), (2, Some(Origin::Fallback)));
    main.fail(None);
    assert_eq!(passed(&gate, 9, Millis::from_secs(2)), (5, Some(Origin::Store)));
    // A reload that leaves this table as it is keeps what the replacement has counted.
    main.fail(ErrorKind::Unavailable);
    gate.reload(rules(r#"{ "main": { "fallback": { "store": "other", "percent": 20 } } }"#).unwrap()).unwrap();
    assert_eq!(passed(&gate, 5, Millis::from_secs(3)), (0, Some(Origin::Fallback)));
    gate.reload(rules("{}").unwrap()).unwrap();
    assert_eq!(passed(&gate, 5, Millis::from_secs(4)), (0, None));
}

#[test]
fn denials_are_cached_but_not_those_of_a_replacement() {
    let (main, other) = (FlakyStore::default(), FlakyStore::default());
    let cached = gate(r#"{ "main": { "deny_cache": true, "fallback": "other" } }"#, &main, &other).unwrap();
    assert_eq!(passed(&cached, 20, Millis::ZERO), (10, Some(Origin::DenyCache)));
    assert_eq!(main.take_checks(), 11);
    let later = Millis::from_secs(60);
    main.fail(ErrorKind::Unavailable);
    assert_eq!(passed(&cached, 3, later), (1, Some(Origin::Fallback)));
    main.fail(None);
    assert_eq!(passed(&cached, 20, later + Millis::from_secs(2)), (10, Some(Origin::DenyCache)));
}

#[test]
fn a_near_store_is_asked_first() {
    let (main, other) = (FlakyStore::default(), FlakyStore::default());
    let tiered = gate(r#"{ "main": { "near": { "store": "other", "limit": "flood" } } }"#, &main, &other).unwrap();
    assert_eq!(passed(&tiered, 50, Millis::ZERO), (10, Some(Origin::Near)));
    assert_eq!((main.take_checks(), other.take_checks()), (20, 50));
}

#[test]
fn a_proposal_is_counted_and_does_not_decide() {
    let (main, other) = (FlakyStore::default(), FlakyStore::default());
    let shadowed = gate(r#"{ "main": { "shadow": { "api": "next" } } }"#, &main, &other).unwrap();
    assert_eq!(passed(&shadowed, 12, Millis::ZERO), (10, Some(Origin::Store)));
    let [(store, limit, counts)] = &shadowed.shadows()[..] else { panic!() };
    assert_eq!((&**store, &**limit), ("main", "api"));
    assert_eq!((counts.both_admit, counts.only_proposal_denies, counts.both_deny), (3, 7, 2));
}

/// What the rules of several readings of a path count is at one place, whether they apply alone or together.
#[test]
fn a_store_of_one_place_for_each_key_decides_by_all_rules_at_once() {
    let text = r#"{
        "stores": { "main": { "shadow": { "login": "next" } } },
        "limits": {
            "site": { "quotas": [{ "algorithm": "fixed_window", "limit": 9, "window_ms": 60000, "by": "ip" }] },
            "login": { "quotas": [{ "algorithm": "fixed_window", "limit": 2, "window_ms": 60000, "by": "ip" }] },
            "next": { "quotas": [{ "algorithm": "sliding_window", "limit": 2, "window_ms": 60000, "by": "ip" }] }
        },
        "rules": [{ "limits": ["site"] }, { "path": "/login", "limits": ["login"] }]
    }"#;
    // It decides on one place at a time, as a Durable Object does, and keeps the names of the rows of each check.
    let (memory, checks) = (MemoryLimiter::new(), Arc::new(Mutex::new(Vec::new())));
    let kept = Arc::clone(&checks);
    let store = limiter_fn(memory.capabilities().dimensions(Dimensions::Grouped), move |operation| {
        if let Operation::Check(check) = operation {
            kept.lock().unwrap().push(check.keys.storage_keys(check.policy)?.rows().to_vec());
        }
        block_on(memory.apply(operation))
    });
    let stores = [("main", Box::new(store) as Box<dyn ErasedLimiter>)];
    let rules = Rules::parse("rules.json", text).unwrap();
    let gate = Gate::with_stores(rules, stores, ClientIpSource::new(Platform::Cloudflare)).unwrap();
    let headers = [("cf-connecting-ip", "192.0.2.1")];
    let ask = |path| {
        let _ = block_on(gate.check(&Request::new("GET", path, &headers, NOW)));
        std::mem::take(&mut *checks.lock().unwrap())
    };
    let row = |limit: &str| format!("tg1:@ip:ip:192.0.2.1|{limit}");
    assert_eq!(ask("/"), [[row("site@ip:fw60000")]]);
    // The counts of the proposal are at the same place.
    assert_eq!(ask("/login"), [[row("login@ip:fw60000")], [row("login@ip~:sw60000")]]);
    assert_eq!(ask("/x/../login"), [[row("login@ip:fw60000"), row("site@ip:fw60000")]]);
}

#[test]
fn what_is_around_a_store_is_explained() {
    let (main, other) = (FlakyStore::default(), FlakyStore::default());
    let stores = r#"{ "main": { "deny_cache": { "hold_ms": 5000 }, "fallback": "other", "shadow": { "api": "next" }, "near": { "store": "other", "limit": "flood" } } }"#;
    let gate = gate(stores, &main, &other).unwrap();
    assert!(gate.rules().warnings().is_empty());
    let headers = [("cf-connecting-ip", "192.0.2.1")];
    let explained = gate.rules().explain(&Request::new("GET", "/", &headers, NOW), gate.client_ip()).to_string();
    let line = explained.lines().find(|line| line.starts_with("store")).unwrap();
    assert_eq!(
        line,
        "store    the first, replaced by other (10 % of each limit, for 300000 ms) while it is down, denials cached for 5000 ms, \
         next tried in place of api, after other by flood"
    );
    assert!(explained.ends_with("failure  other decides for 300000 ms, then closed: a 503 while the store is down\n"));
    assert_eq!(passed(&gate, 50, Millis::ZERO), (10, Some(Origin::Near)));
}

#[test]
fn without_a_gate_it_is_explained_which_first_store_another_replaces() {
    let headers = [("cf-connecting-ip", "192.0.2.1")];
    let request = Request::new("GET", "/", &headers, NOW);
    let failure = |stores: &str| {
        let explained =
            rules(stores).unwrap().explain(&request, &ClientIpSource::new(Platform::Cloudflare)).to_string();
        explained.lines().last().unwrap().to_string()
    };
    assert_eq!(failure("{}"), "failure  closed: a 503 while the store is down");
    assert_eq!(
        failure(r#"{ "main": { "fallback": "other" }, "edge": { "deny_cache": true } }"#),
        "failure  closed: a 503 while the store is down, unless the first store is main, in whose place other decides first"
    );
}

#[test]
fn a_mistake_is_an_error_when_the_rules_are_loaded() {
    let (main, other) = (FlakyStore::default(), FlakyStore::default());
    for (stores, message) in [
        (
            r#"{ "main": { "deny_cash": true } }"#,
            r#"rules.json:2:36: unknown field `deny_cash`; did you mean "deny_cache"?"#,
        ),
        (r#"{ "main": { "deny_cache": { "hold_ms": 0 } } }"#, "0 is out of range"),
        (r#"{ "main": { "fallback": { "percent": 10 } } }"#, "missing field `store`"),
        (
            r#"{ "main": { "fallback": { "store": "other", "percent": 101 } } }"#,
            "101 is out of range; write a whole number from 1 to 100",
        ),
        (r#"{ "main": { "fallback": "main" } }"#, r#""main" is the store itself; write another"#),
        (
            r#"{ "main": { "fallback": "othr" } }"#,
            r#"stores.main.fallback: there is no store "othr"; did you mean "other"?"#,
        ),
        (r#"{ "mian": { "deny_cache": true } }"#, r#"stores: there is no store "mian"; did you mean "main"?"#),
        (
            r#"{ "main": { "near": { "store": "other", "limit": "flod" } } }"#,
            r#""flod" is not a limit; did you mean "flood"?"#,
        ),
        (r#"{ "main": { "near": { "store": "other" } } }"#, "missing field `limit`"),
        (r#"{ "main": { "shadow": { "apo": "next" } } }"#, r#""apo" is not a limit; did you mean "api"?"#),
        (r#"{ "main": { "shadow": "next" } }"#, "expected a table, found a text"),
        (r#"{ "main": { "fallback": 10 } }"#, "expected a table, found a number"),
    ] {
        let error = gate(stores, &main, &other).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(message), "{stores}: {error}");
    }
    let text = r#"{ "stores": { "main": { "near": { "store": "other", "limit": "flood" } } },
        "limits": { "api": { "quotas": [{ "algorithm": "fixed_window", "limit": 1, "window_ms": 1000 }] },
                    "flood": { "quotas": [{ "algorithm": "fixed_window", "limit": 1, "window_ms": 1000, "by": "ip" }] } },
        "rules": [{ "name": "all", "limits": ["api"] }] }"#;
    let stores = [main, other].map(|store| Box::new(store) as Box<dyn ErasedLimiter>);
    let stores = ["main", "other"].into_iter().zip(stores);
    let rules = Rules::parse("rules.json", text).unwrap();
    let error = Gate::with_stores(rules, stores, ClientIpSource::new(Platform::Cloudflare)).err().unwrap().to_string();
    assert_eq!(error, r#"rule "all": stores.main.near: "flood" counts by "ip", and no limit of this rule does"#);
}
