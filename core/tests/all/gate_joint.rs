//! Requests that pass together or not at all.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![cfg(all(feature = "lending", feature = "toml"))]

use pollster::block_on;
use tidegate_core::gate::{Gate, Joined, Prepared, Request, Verdict};
use tidegate_core::store::AtomicLimiter;
use tidegate_core::{ClientIpSource, ErasedLimiter, ErrorKind, Key, Limiter as _, MemoryLimiter, Platform};
use tidegate_testing::{Declaring, NOW, failing};

use crate::gate::parse;
use crate::lending::store::Store;

const RULES: &str = r#"
dimensions = ["user", "team"]

[limits]
a.quotas = [{ algorithm = "sliding_log", limit = 3, window_ms = 60_000, by = "user" }]
b.quotas = [{ algorithm = "sliding_log", limit = 5, window_ms = 60_000, by = "user" }]
c.quotas = [{ algorithm = "sliding_log", limit = 9, window_ms = 60_000, by = "team" }]
many.quotas = [
    { algorithm = "fixed_window", limit = 10, window_ms = 1_000, name = "n1" },
    { algorithm = "fixed_window", limit = 10, window_ms = 2_000, name = "n2" },
    { algorithm = "fixed_window", limit = 10, window_ms = 3_000, name = "n3" },
    { algorithm = "fixed_window", limit = 10, window_ms = 4_000, name = "n4" },
    { algorithm = "fixed_window", limit = 10, window_ms = 5_000, name = "n5" },
    { algorithm = "fixed_window", limit = 10, window_ms = 6_000, name = "n6" },
    { algorithm = "fixed_window", limit = 10, window_ms = 7_000, name = "n7" },
    { algorithm = "fixed_window", limit = 10, window_ms = 8_000, name = "n8" },
]
tried.quotas = [{ algorithm = "fixed_window", limit = 1, window_ms = 60_000, by = "user" }]
shadowed.quotas = [{ algorithm = "fixed_window", limit = 9, window_ms = 60_000, by = "user" }]
lent = { quotas = [{ algorithm = "fixed_window", limit = 90, window_ms = 60_000, by = "user" }], lease = { slice = 10 } }

[stores.main]
shadow = { shadowed = "tried" }

[[rules]]
path = "/a"
limits = ["a"]
on_failure = "open"
[[rules]]
path = "/b"
limits = ["b"]
on_failure = "open"
[[rules]]
path = "/closed"
limits = ["c"]
[[rules]]
path = "/c"
limits = ["c"]
[[rules]]
path = "/dear"
limits = ["c"]
cost = 2
[[rules]]
path = "/many"
limits = ["many"]
[[rules]]
path = "/shadowed"
limits = ["shadowed"]
[[rules]]
path = "/lent"
limits = ["lent"]
store = "lender"
[[rules]]
path = "/elsewhere"
limits = ["c"]
store = "other"
"#;

fn gate_on(main: impl ErasedLimiter + 'static) -> Gate<'static> {
    let stores: [(&str, Box<dyn ErasedLimiter>); 3] = [
        ("main", Box::new(main)),
        ("other", Box::new(MemoryLimiter::new())),
        ("lender", Box::new(AtomicLimiter::new(Store::default()))),
    ];
    Gate::with_stores(parse(RULES).unwrap(), stores, ClientIpSource::new(Platform::Direct)).unwrap()
}

/// What is pending of requests by these paths and users.
fn join(gate: &Gate<'_>, all: &[(&str, &str)]) -> Vec<Joined> {
    let none: [(&str, &str); 0] = [];
    let pending = |(place, (path, user)): (usize, &(&str, &str))| {
        let (user, team) = (Key::new(user), Key::new("acme"));
        let keys = [("user", &user), ("team", &team)];
        match gate.prepare(&Request::new("", path, &none, NOW).keys(&keys)) {
            Prepared::Pending(pending) => (place, pending),
            Prepared::Decided(verdict) => panic!("{verdict:?}"),
        }
    };
    gate.join(all.iter().enumerate().map(pending))
}

fn places(joined: &[Joined]) -> Vec<Vec<usize>> {
    joined.iter().map(|one| one.parts.iter().map(|(number, _)| *number).collect()).collect()
}

/// Whether each that was decided passes, and what remains of its quotas.
fn decide(gate: &Gate<'_>, joined: &[Joined]) -> Vec<(bool, Vec<Option<u64>>)> {
    let verdicts = block_on(gate.decide_each(joined, &|| NOW));
    let left = |verdict: &Verdict| {
        let quotas = verdict.decision().map(|decision| decision.quotas().to_vec()).unwrap_or_default();
        quotas.iter().map(|quota| quota.remaining()).collect()
    };
    verdicts.iter().map(|verdict| (matches!(verdict, Verdict::Pass(_)), left(verdict))).collect()
}

#[test]
fn requests_of_one_store_are_one_decision() {
    let gate = gate_on(MemoryLimiter::new());
    let all = [("/a", "u"), ("/closed", "u"), ("/b", "u")];
    for taken in 1..=3 {
        let joined = join(&gate, &all);
        assert_eq!(joined[0].parts, [(0, 0..1), (1, 1..2), (2, 2..3)]);
        let names: Vec<_> = joined[0].pending.policy().quotas().iter().map(|quota| quota.name().to_owned()).collect();
        assert_eq!(names, ["a", "c", "b"]);
        assert_eq!(decide(&gate, &joined), [(true, vec![Some(3 - taken), Some(9 - taken), Some(5 - taken)])]);
    }
    for _ in 0..9 {
        assert_eq!(decide(&gate, &join(&gate, &all)), [(false, vec![Some(0), Some(6), Some(2)])]);
    }
    // They have the counts that each has alone.
    assert_eq!(decide(&gate, &join(&gate, &[("/b", "u")])), [(true, vec![Some(1)])]);
}

#[test]
fn requests_that_no_step_decides_together_stay_apart() {
    let gate = gate_on(MemoryLimiter::new());
    let apart = |all: &[(&str, &str)], expected: &[&[usize]]| {
        assert_eq!(places(&join(&gate, all)), expected, "{all:?}");
    };
    apart(&[("/a", "u"), ("/b", "v")], &[&[0], &[1]]); // two keys of one dimension
    apart(&[("/a", "u"), ("/a", "u")], &[&[0], &[1]]); // one limit twice
    apart(&[("/a", "u"), ("/many", "u")], &[&[0], &[1]]); // more than eight quotas
    apart(&[("/a", "u"), ("/dear", "u")], &[&[0], &[1]]); // two costs
    apart(&[("/a", "u"), ("/elsewhere", "u")], &[&[0], &[1]]); // two stores
    apart(&[("/a", "u"), ("/shadowed", "u"), ("/b", "u")], &[&[0, 2], &[1]]); // a proposal
    apart(&[("/a", "u"), ("/b", "v"), ("/c", "w"), ("/b", "u")], &[&[0, 2, 3], &[1]]);
    apart(&[("/lent", "u"), ("/a", "u"), ("/b", "u")], &[&[1, 2], &[0]]); // a lease, after the others
    // A token is of one charge.
    let mut tokened = join(&gate, &[("/a", "u")]);
    tokened[0].pending.set_token("t");
    let more = tokened.into_iter().chain(join(&gate, &[("/b", "u")])).map(|one| (7, one.pending));
    assert_eq!(places(&gate.join(more)), [[7], [7]]);
}

#[test]
fn a_charge_before_a_denial_is_returned_if_it_has_a_token() {
    for has_tokens in [true, false] {
        let gate = gate_on(MemoryLimiter::new());
        let ask = |all: &[(&str, &str)]| {
            let mut joined = join(&gate, all);
            for (place, one) in joined.iter_mut().enumerate().filter(|_| has_tokens) {
                one.pending.set_token(format!("{all:?}{place}"));
            }
            decide(&gate, &joined)
        };
        assert_eq!(ask(&[("/elsewhere", "u"), ("/a", "u")]), [(true, vec![Some(8)]), (true, vec![Some(2)])]);
        let three = [("/elsewhere", "w"), ("/a", "u"), ("/a", "v"), ("/dear", "w")];
        for user in ["u", "u"] {
            decide(&gate, &join(&gate, &[("/a", user)]));
        }
        // The second denies: the third and the fourth are not asked, and the first is returned.
        assert_eq!(ask(&three), [(true, vec![Some(7)]), (false, vec![Some(0)])]);
        let left = if has_tokens { 7 } else { 6 };
        assert_eq!(decide(&gate, &join(&gate, &[("/elsewhere", "w")])), [(true, vec![Some(left)])]);
    }
}

#[test]
fn one_closed_rule_closes_all_that_are_joined() {
    let gate = gate_on(Declaring(MemoryLimiter::new().capabilities(), failing(ErrorKind::Unavailable)));
    let passes = |all: &[(&str, &str)]| decide(&gate, &join(&gate, all)).iter().all(|(passes, _)| *passes);
    assert!(passes(&[("/a", "u")]) && passes(&[("/a", "u"), ("/b", "u")]));
    assert!(!passes(&[("/a", "u"), ("/closed", "u")]) && !passes(&[("/closed", "u"), ("/a", "u")]));
}
