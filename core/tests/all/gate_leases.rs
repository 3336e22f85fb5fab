//! Limits of a rules file that are decided from loans.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![cfg(all(feature = "lending", feature = "toml"))]

use std::collections::HashMap;

use pollster::block_on;
use tidegate_core::gate::{Gate, Request, Rules, Verdict};
use tidegate_core::lending::Lease;
use tidegate_core::store::{AtomicLimiter, LendingLimiter};
use tidegate_core::{
    Check, ClientIpSource, ErasedLimiter, Error, ErrorKind, Fallback, Key, LimiterExt as _, MemoryLimiter, Millis,
    Origin, Platform, UnixMillis,
};
use tidegate_testing::{NOW, at, per_minute};

use crate::lending::store::Store;

const RULES: &str = r#"
[limits.api]
quotas = [{ algorithm = "fixed_window", limit = 300, window_ms = 60_000 }]
lease = { slice = 20, lifetime_ms = 10_000 }

[limits.login]
quotas = [{ algorithm = "fixed_window", limit = 300, window_ms = 60_000 }]

[[rules]]
limits = ["api"]

[[rules]]
path = "/login"
limits = ["login"]
"#;

/// A gate with these rules and the table `stores`. The first store lends, the second does not.
fn gate(store: &Store, rules: &str) -> Result<Gate<'static>, Error> {
    let lender: Box<dyn ErasedLimiter> = Box::new(AtomicLimiter::new(store.clone()));
    let memory: Box<dyn ErasedLimiter> = Box::new(MemoryLimiter::new());
    let stores = [("main", lender), ("memory", memory)];
    Gate::with_stores(Rules::parse("rules.toml", rules)?, stores, ClientIpSource::new(Platform::Cloudflare))
}

/// How many requests pass, and who decided on each.
fn ask(gate: &Gate<'_>, path: &str, count: u64) -> (u64, HashMap<Origin, u64>) {
    ask_at(gate, NOW, path, None, count)
}

/// The same from an instant on, with a token.
fn ask_at(
    gate: &Gate<'_>,
    start: UnixMillis,
    path: &str,
    token: Option<&str>,
    count: u64,
) -> (u64, HashMap<Origin, u64>) {
    let headers = [("cf-connecting-ip", "192.0.2.1")];
    let (mut passed, mut origins) = (0, HashMap::new());
    for nth in 0..count {
        let mut request = Request::new("GET", path, &headers, start + Millis::new(nth));
        if let Some(token) = token {
            request = request.token(token);
        }
        let verdict = block_on(gate.check(&request));
        passed += u64::from(matches!(verdict, Verdict::Pass(_)));
        if let Some(decision) = verdict.decision() {
            *origins.entry(decision.origin()).or_default() += 1;
        }
    }
    (passed, origins)
}

#[test]
fn only_limits_with_a_lease_are_decided_from_loans() {
    let store = Store::default();
    let gate = gate(&store, RULES).unwrap();
    let (passed, origins) = ask(&gate, "/", 200);
    assert_eq!(passed, 200);
    assert!(origins[&Origin::Lease] > 150, "{origins:?}");
    let (plain, lent) = store.calls();
    assert!(plain == 0 && lent < 50, "{plain} plain calls, {lent} with a question");

    let (passed, origins) = ask(&gate, "/login", 200);
    assert_eq!((passed, origins), (200, HashMap::from([(Origin::Store, 200)])));
    assert_eq!(store.calls(), (200, 0));
}

/// How many questions the store is asked by 100 requests, and then after the last response.
fn asked_by_and_after(gate: &Gate<'_>, store: &Store, start: UnixMillis) -> (u64, u64) {
    store.calls();
    assert_eq!(ask_at(gate, start, "/", None, 100).0, 100);
    let by_requests = store.calls().1;
    block_on(gate.after(|| start + Millis::new(100), async {}));
    (by_requests, store.calls().1)
}

/// What runs after responses chooses nothing: who makes the gate does, and a reload keeps it.
#[test]
fn a_gate_asks_in_the_background_only_if_it_was_made_so() {
    let (store, half) = (Store::default(), RULES.replace("slice = 20", "slice = 10"));
    let gate = gate(&store, RULES).unwrap();
    block_on(gate.after(|| NOW, async {}));
    let (by_requests, after) = asked_by_and_after(&gate, &store, NOW);
    assert!(by_requests > 4 && after == 0, "{by_requests}, then {after}");
    gate.in_background();
    for (nth, rules) in [&half, RULES].into_iter().enumerate() {
        gate.reload(Rules::parse("rules.toml", rules).unwrap()).unwrap();
        let (_, after) = asked_by_and_after(&gate, &store, NOW + Millis::from_secs(61 * (nth as u64 + 1)));
        assert_eq!(after, 1);
    }
}

#[test]
fn a_host_that_asks_after_responses_keeps_no_request_waiting() {
    let store = Store::default();
    let gate = gate(&store, RULES).unwrap();
    gate.in_background();
    ask(&gate, "/", 40);
    block_on(gate.after(|| NOW, async {}));
    store.calls();
    for nth in 0..100 {
        let now = at(40 + nth);
        assert_eq!(ask_at(&gate, now, "/", None, 1).1, HashMap::from([(Origin::Lease, 1)]));
        assert_eq!(store.calls(), (0, 0), "request {nth} has waited");
        block_on(gate.after(|| now, async {}));
        store.calls();
    }
    // An idle one returns what it holds.
    let later = NOW + Millis::from_secs(5);
    block_on(gate.after(|| later, async {}));
    assert_eq!(store.calls(), (0, 1));
    let other = self::gate(&store, RULES).unwrap();
    assert_eq!(ask_at(&other, later, "/", None, 300).0, 300 - 140);
}

#[test]
fn two_gates_never_pass_more_than_the_limit_together() {
    let store = Store::default();
    let gates = [gate(&store, RULES).unwrap(), gate(&store, RULES).unwrap()];
    let passed: u64 = (0..60).flat_map(|_| &gates).map(|gate| ask(gate, "/", 5).0).sum();
    assert!((300 - 2 * 40..=300).contains(&passed), "{passed}");
}

#[test]
fn a_request_with_a_token_is_asked_for() {
    let store = Store::default();
    let gate = gate(&store, RULES).unwrap();
    ask(&gate, "/", 20);
    store.calls();
    let (_, origins) = ask_at(&gate, NOW, "/", Some("token"), 5);
    assert_eq!(origins, HashMap::from([(Origin::Store, 5)]));
    assert_eq!(store.calls(), (5, 0));
}

#[test]
fn loans_are_spent_while_the_store_is_down_and_then_the_fallback_decides() {
    let store = Store::default();
    let rules = format!("{RULES}\n[stores.main.fallback]\nstore = \"memory\"\npercent = 10\n");
    let gate = gate(&store, &rules).unwrap();
    assert_eq!(ask(&gate, "/", 100).0, 100);
    store.is_down(true);
    let (passed, origins) = ask(&gate, "/", 200);
    let lent = origins[&Origin::Lease];
    assert!((1..=20).contains(&lent), "{origins:?}");
    assert_eq!((passed, origins[&Origin::Fallback]), (30 + lent, 200 - lent), "{origins:?}");
    // The store has charged the loans, so the limit holds for what it and its loans admit.
    store.is_down(false);
    let (later, origins) = ask_at(&gate, NOW + Millis::from_secs(5), "/", None, 400);
    assert!((300 - 40..=300).contains(&(100 + lent + later)), "{later} after {lent}, {origins:?}");
}

/// What decides in place of the store knows nothing of what is lent.
#[test]
fn what_is_left_of_a_loan_is_returned_when_the_store_is_back() {
    let store = Store::default();
    let rules = format!("{RULES}\n[stores.main.fallback]\nstore = \"memory\"\npercent = 10\n");
    let gate = gate(&store, &rules).unwrap();
    assert_eq!(ask(&gate, "/", 30).0, 30);
    store.is_down(true);
    let headers = [("cf-connecting-ip", "192.0.2.1")];
    let more_than_a_loan = Request::new("GET", "/", &headers, at(30)).cost(25);
    let verdict = block_on(gate.check(&more_than_a_loan));
    assert_eq!(verdict.decision().unwrap().origin(), Origin::Fallback);
    store.is_down(false);
    assert_eq!(ask_at(&gate, NOW + Millis::from_secs(5), "/", None, 400).0, 270);
}

#[test]
fn a_fallback_in_code_lends_too() {
    let store = Store::default();
    let limiter = Fallback::new(AtomicLimiter::new(store.clone()), 10).unwrap();
    let rules = Rules::parse("rules.toml", RULES).unwrap();
    let gate = Gate::new(rules, limiter, ClientIpSource::new(Platform::Cloudflare)).unwrap();
    assert!(ask(&gate, "/", 100).1[&Origin::Lease] > 50);
    assert!(store.calls().1 > 0);
}

/// A fallback may also be around a limiter that borrows.
#[test]
fn a_loan_says_nothing_about_whether_the_store_is_up() {
    let store = Store::default();
    let borrowing =
        LendingLimiter::new(AtomicLimiter::new(store.clone()), Lease::new(50, Millis::from_secs(10))).unwrap();
    let limiter = Fallback::new(borrowing, 10).unwrap();
    let policy = per_minute(300);
    let origin = |key: &str| {
        let key = Key::new(key);
        block_on(limiter.check(Check::new(&policy, &key, NOW))).unwrap().origin()
    };
    assert!((0..40).filter(|_| origin("sub:alice") == Origin::Lease).count() > 20);
    store.is_down(true);
    assert_eq!((origin("sub:bob"), origin("sub:alice")), (Origin::Fallback, Origin::Lease));
    assert!(limiter.down_for(NOW).is_some());
}

#[test]
fn denials_of_loans_are_cached_and_a_near_store_is_asked_first() {
    let store = Store::default();
    let rules = format!(
        "{RULES}\n[limits.flood]\nquotas = [{{ algorithm = \"fixed_window\", limit = 350, window_ms = 60_000 }}]\n\
         [stores.main]\ndeny_cache = true\nnear = {{ store = \"memory\", limit = \"flood\" }}\n"
    );
    let gate = gate(&store, &rules).unwrap();
    let (passed, origins) = ask(&gate, "/", 400);
    assert_eq!(passed, 300);
    assert_eq!(origins[&Origin::Near], 50);
    assert!(origins[&Origin::DenyCache] >= 48 && origins[&Origin::Lease] > 200, "{origins:?}");
}

#[test]
fn a_proposal_in_the_place_of_a_leased_limit_is_never_lent() {
    let store = Store::default();
    let rules = format!(
        "{RULES}\n[limits.next]\nquotas = [{{ algorithm = \"fixed_window\", limit = 30, window_ms = 60_000 }}]\n\
         [stores.main]\nshadow = {{ api = \"next\" }}\n"
    );
    let gate = gate(&store, &rules).unwrap();
    let (passed, origins) = ask(&gate, "/", 100);
    assert_eq!(passed, 100);
    assert!(origins[&Origin::Lease] > 50, "{origins:?}");
    assert_eq!(store.calls().0, 100);
    let counts = gate.shadows()[0].2;
    assert_eq!((counts.both_admit, counts.only_proposal_denies), (30, 70));
}

#[test]
fn a_reload_keeps_the_loans_unless_it_changes_their_terms() {
    let store = Store::default();
    let gate = gate(&store, RULES).unwrap();
    ask(&gate, "/", 50);
    store.calls();
    let lower = RULES.replacen("limit = 300", "limit = 60", 1);
    gate.reload(Rules::parse("rules.toml", &lower).unwrap()).unwrap();
    let (passed, _) = ask(&gate, "/", 100);
    assert_eq!(passed, 10, "the loan is returned with the first request");

    let never = RULES.replacen("lease = { slice = 20, lifetime_ms = 10_000 }", "lease = false", 1);
    gate.reload(Rules::parse("rules.toml", &never).unwrap()).unwrap();
    store.calls();
    assert_eq!(ask(&gate, "/", 10).1, HashMap::from([(Origin::Store, 10)]));
    assert_eq!(store.calls(), (10, 0));
}

#[test]
fn rules_for_readings_of_one_path_decide_one_after_another_if_one_is_lent() {
    let store = Store::default();
    let gate = gate(&store, RULES).unwrap();
    // `//login` is the path of either rule.
    let (passed, origins) = ask(&gate, "//login", 50);
    assert_eq!(passed, 50);
    assert!(origins[&Origin::Store] > 0, "{origins:?}");
    let (plain, lent) = store.calls();
    assert!(plain == 50 && (1..50).contains(&lent), "{plain} plain calls, {lent} with a question");

    let headers = [("cf-connecting-ip", "192.0.2.1")];
    let (rules, client_ip) = (gate.rules(), ClientIpSource::new(Platform::Cloudflare));
    let explained = rules.explain(&Request::new("GET", "//login", &headers, NOW), &client_ip);
    assert!(explained.lease.is_none());
    assert!(
        explained.to_string().contains("one after another: a limit with a lease does not decide together with others")
    );
}

#[test]
fn a_lease_is_explained_with_its_bounds() {
    let rules = Rules::parse("rules.toml", RULES).unwrap();
    let headers = [("cf-connecting-ip", "192.0.2.1")];
    let client_ip = ClientIpSource::new(Platform::Cloudflare);
    let explained = |path: &str| rules.explain(&Request::new("GET", path, &headers, NOW), &client_ip).to_string();
    insta::assert_snapshot!(explained("/"), @"
    rule     /*: any method, /*
    sender   192.0.2.1
    cost     1
    limit    api: fixed_window of 300 in 60 s, by sender = ip:192.0.2.1
    store    the first
    lease    at most 20 units, for at most 10000 ms
    failure  closed: a 503 while the store is down
    ");
    assert!(!explained("/login").contains("lease"));
}

#[test]
fn a_store_that_does_not_lend_is_an_error_when_the_gate_is_built() {
    let store = Store::default();
    let rules = RULES.replacen("limits = [\"api\"]", "name = \"all\"\nlimits = [\"api\"]\nstore = \"memory\"", 1);
    let error = gate(&store, &rules).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(
        error.to_string(),
        "rule \"all\": limit \"api\": the store \"memory\" does not lend; delete lease, or count in a store that does, such as \
         Redis or Durable Objects"
    );
    // What is around a store in code is not known to lend.
    let cached = tidegate_core::DenyCache::new(AtomicLimiter::new(store));
    let rules = Rules::parse("rules.toml", RULES).unwrap();
    let error = Gate::new(rules, cached, ClientIpSource::new(Platform::Cloudflare)).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[test]
fn a_mistake_is_an_error_when_the_file_is_read() {
    let window = r#"{ algorithm = "fixed_window", limit = 9, window_ms = 1000 }"#;
    let log = r#"{ algorithm = "sliding_log", limit = 9, window_ms = 1000 }"#;
    let limit =
        |quotas: &str, rest: &str| format!("[limits.a]\nquotas = [{quotas}]\n{rest}\n[[rules]]\nlimits = [\"a\"]\n");
    let two = |rest: &str| {
        format!(
            "[limits.a]\nquotas = [{window}]\nlease = true\n[limits.b]\nquotas = [{window}]\n{rest}\n[[rules]]\n\
             limits = [\"a\", \"b\"]\n"
        )
    };
    let cases = [
        limit(window, "lease = 50"),
        limit(window, "lease = \"yes\""),
        limit(window, "leese = true"),
        limit(window, "lease = { slise = 50 }"),
        limit(window, "lease = { slice = 0 }"),
        limit(window, "lease = { slice = -1 }"),
        limit(window, "lease = { slice = 1.5 }"),
        limit(window, "lease = { slice = 2251799813685249 }"),
        limit(window, "lease = { lifetime = 5 }"),
        limit(window, "lease = { lifetime_ms = 0 }"),
        limit(window, "lease = { lifetime_ms = 60_001 }"),
        limit(window, "lease = { grace = 51 }"),
        limit(window, "lease = { grace = 50 }"),
        limit(log, "lease = true"),
        limit(
            &window.replace(
                " }",
                ", by = \"ip\" }, { algorithm = \"token_bucket\", capacity = 1, refill = 1, per_ms = 1 }",
            ),
            "lease = true",
        ),
        limit(window, "lease = true\ncharge_denied = true"),
        limit(window, &format!("lease = true\ntiers.pro.quotas = [{log}]")),
        two(""),
        limit(window, "lease = true") + "estimate = 5\n",
        two("lease = true").replace("\"a\", \"b\"", "\"b\"") + "[stores.main]\nshadow = { b = \"a\" }\n",
        two("lease = true").replace("\"a\", \"b\"", "\"b\"")
            + "[stores.main]\nnear = { store = \"memory\", limit = \"a\" }\n",
    ];
    let said: Vec<String> =
        cases.iter().map(|text| Rules::parse("rules.toml", text).unwrap_err().to_string()).collect();
    insta::assert_snapshot!(said.join("\n"), @r#"
    rules.toml:3:9: expected a table, found a number
    rules.toml:3:9: expected a table, found a text
    rules.toml:3:9: unknown field `leese`; did you mean "lease"? Write one of "quotas", "charge_denied", "group_by", "lease", "tiers"
    rules.toml:3:19: unknown field `slise`; did you mean "slice"? Write one of "slice", "lifetime_ms", "grace"
    rules.toml:3:19: 0 is out of range; write a whole number from 1 to 2251799813685248
    rules.toml:3:19: -1 is negative; write a whole number from 0
    rules.toml:3:19: expected a whole number, found 1.5
    rules.toml:3:19: 2251799813685249 is out of range; write a whole number from 1 to 2251799813685248
    rules.toml:3:22: unknown field `lifetime`; did you mean "lifetime_ms"? Write one of "slice", "lifetime_ms", "grace"
    rules.toml:3:25: 0 is out of range; write a whole number from 1 to 60000
    rules.toml:3:25: 60001 is out of range; write a whole number from 1 to 60000
    rules.toml:3:19: 51 is out of range; write a whole number from 0 to 50
    rules.toml:3:9: a grace of 50 is more than the limit of 9; write at most 9
    rules.toml:3:9: sliding_log cannot be lent; write token_bucket, fixed_window or sliding_window, or delete lease
    rules.toml:3:9: a policy of several keys cannot be lent; count all its quotas by one dimension, or delete lease
    rules.toml:3:9: a policy that charges denials cannot be lent; delete charge_denied, or delete lease
    rules.toml:3:9: sliding_log cannot be lent; write token_bucket, fixed_window or sliding_window, or delete lease
    rules.toml:8:10: limits that decide together cannot be lent; write a rule with this limit alone, or delete lease from the limit "a"
    rules.toml:5:10: an estimate is never lent; write cost, or delete lease from the limit "a"
    rules.toml:9:1: what is asked first or tried is never lent; delete lease from the limit "a"
    rules.toml:9:1: what is asked first or tried is never lent; delete lease from the limit "a"
    "#);
}
