//! Policies: construction and its errors, JSON, and the combined decision of several quotas.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use pollster::block_on;
use tidegate_core::algorithm::{Concurrency, MAX_UNITS};
use tidegate_core::{
    Capabilities, ChargeId, Check, Dimensions, ErrorKind, Key, LimiterExt as _, MemoryLimiter, Millis, Policy, Quota,
    Rule, Settle, Status, UnixMillis,
};
use tidegate_testing::{NOW, policy};

fn window(limit: u64, window_ms: u64) -> Result<Quota, tidegate_core::Error> {
    Quota::fixed_window(limit, Millis::new(window_ms))
}

#[test]
fn zero_and_overflowing_numbers_are_rejected_by_field_name() {
    let cases = [
        (window(0, 1_000), "limit: 0 is out of range; write a whole number from 1 to 2251799813685248"),
        (window(1, 0), "window_ms: 0 is out of range; write a whole number of milliseconds from 1 to 2251799813685248"),
        (window(1, MAX_UNITS + 1), "window_ms: 2251799813685249 is out of range"),
        (window(u64::MAX, u64::MAX), "window_ms: 18446744073709551615 is out of range"),
        (window(MAX_UNITS + 1, 1_000), "limit: 2251799813685249 is out of range"),
        (Quota::sliding_window(MAX_UNITS + 1, Millis::new(1_000)), "limit: 2251799813685249 is out of range"),
        (
            Quota::concurrency(MAX_UNITS / 1_000 + 1, Millis::new(1_000)),
            "limit: 2251799813686 is out of range; write a whole number from 1 to 2251799813685, or a lifetime_ms of at most 999, \
             or count in units of 2",
        ),
        (
            Quota::concurrency(0, Millis::new(1_000)),
            "limit: 0 is out of range; write a whole number from 1 to 2251799813685",
        ),
        (Quota::sliding_window(u64::MAX, Millis::new(1)), "limit: 18446744073709551615 is out of range"),
        (Quota::sliding_log(1_001, Millis::new(1)), "limit: 1001 is out of range for a sliding log"),
        (Quota::token_bucket(0, 1, Millis::new(1)), "capacity: 0 is out of range"),
        (Quota::token_bucket(1, 0, Millis::new(1)), "refill: 0 is out of range"),
        (Quota::token_bucket(1, u64::MAX, Millis::new(1)), "refill: 18446744073709551615 is out of range"),
        (Quota::leaky_bucket(1, 1, Millis::ZERO), "per_ms: 0 is out of range"),
        (Quota::leaky_bucket(MAX_UNITS, 1, Millis::new(2)), "capacity: 2251799813685248 is out of range"),
    ];
    for (quota, expected) in cases {
        let error = quota.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().starts_with(expected), "{error}");
    }
    assert!(window(MAX_UNITS, MAX_UNITS).is_ok());
    assert!(Quota::token_bucket(MAX_UNITS, MAX_UNITS, Millis::new(1)).is_ok());
}

#[test]
fn a_policy_has_one_to_eight_quotas_with_unique_names() {
    let quota = || window(1, 1_000).unwrap();
    assert_eq!(Policy::new("api", []).unwrap_err().to_string(), "quotas: 0 is out of range; write 1 to 8 quotas");
    assert!(Policy::new("api", (0..8).map(|_| quota())).is_ok());
    assert!(Policy::new("api", (0..9).map(|_| quota())).is_err());
    let twice = [quota().named("burst").unwrap(), quota().named("burst").unwrap()];
    let error = Policy::new("api", twice).unwrap_err().to_string();
    assert_eq!(error, "quotas[1].name: \"burst\" is the name of quotas[0] already; write another");
}

#[test]
fn unnamed_quotas_get_a_name() {
    let quota = || window(1, 1_000).unwrap();
    assert_eq!(Policy::new("api", [quota()]).unwrap().quotas()[0].name(), "api");
    let policy = Policy::new("api", [quota(), quota().named("daily").unwrap(), quota()]).unwrap();
    let names: Vec<_> = policy.quotas().iter().map(Quota::name).collect();
    assert_eq!(names, ["api-1", "daily", "api-3"]);
}

#[test]
fn names_that_are_unsafe_in_stores_or_headers_are_rejected() {
    for name in ["", "a b", "a:b", "tarif-é", "*", "\"", "{x}", &"x".repeat(33)] {
        let error = Policy::new(name, [window(1, 1).unwrap()]).unwrap_err();
        assert!(error.to_string().ends_with("write 1 to 32 of the characters a-z A-Z 0-9 - _ ."), "{error}");
        assert!(window(1, 1).unwrap().named(name).is_err());
    }
}

#[test]
fn the_id_depends_on_the_shape_and_not_on_the_limits() {
    let id = |quota: Result<Quota, _>| Policy::new("api", [quota.unwrap()]).unwrap().id().to_string();
    assert_eq!(id(window(1, 1_000)), id(window(2, 1_000)));
    assert_ne!(id(window(1, 1_000)), id(window(1, 1_001)));
    assert_ne!(id(window(1, 1_000)), id(Quota::sliding_window(1, Millis::new(1_000))));
    let bucket = |capacity, refill, per_ms| id(Quota::token_bucket(capacity, refill, Millis::new(per_ms)));
    assert_eq!(bucket(1, 1, 1_000), bucket(2, 5, 1_000));
    assert_ne!(bucket(1, 1, 1_000), bucket(1, 1, 2_000));
}

#[cfg(feature = "serde")]
mod json {
    use super::{Policy, Quota, window};

    fn parse(json: &str) -> Result<Policy, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn a_policy_round_trips_through_json() {
        let policy = parse(
            r#"{ "name": "api", "charge_denied": true, "quotas": [
                { "algorithm": "fixed_window", "limit": 5, "window_ms": 1000, "name": "w" },
                { "algorithm": "sliding_window", "limit": 5, "window_ms": 1000 },
                { "algorithm": "sliding_log", "limit": 5, "window_ms": 1000 },
                { "algorithm": "token_bucket", "capacity": 5, "refill": 3, "per_ms": 1000 },
                { "algorithm": "leaky_bucket", "capacity": 5, "refill": 3, "per_ms": 1000 },
                { "algorithm": "penalty", "base_ms": 1000, "factor": 2, "cap_ms": 8000 },
                { "algorithm": "block", "cap_ms": 9000, "by": "ip" } ] }"#,
        )
        .unwrap();
        assert!(policy.charges_denied());
        assert_eq!(policy.id(), "api:fw1000.sw1000.sl1000.tb1000.lb1000.pn1000+api@ip:pn0");
        assert_eq!(parse(&serde_json::to_string(&policy).unwrap()).unwrap(), policy);
        let plain = Policy::new("api", [window(1, 1).unwrap()]).unwrap();
        assert_eq!(parse(&serde_json::to_string(&plain).unwrap()).unwrap(), plain);
        for same in [
            r#"{"name":"slots","quotas":[{"algorithm":"concurrency","name":"slots","limit":2,"lifetime_ms":9000,"returns_cost":true}]}"#,
            r#"{"name":"api","group_by":"tenant","quotas":[{"algorithm":"token_bucket","name":"a","by":"user","capacity":5,"refill":3,"per_ms":1000},{"algorithm":"concurrency","name":"b","by":"tenant","limit":2,"lifetime_ms":9000}]}"#,
        ] {
            assert_eq!(serde_json::to_string(&parse(same).unwrap()).unwrap(), same);
        }
    }

    /// A path, and what is wrong there, without the place in the text.
    fn wrong(json: &str) -> String {
        let error = parse(json).unwrap_err();
        error.split(" at line ").next().unwrap_or_default().to_string()
    }

    #[test]
    fn errors_name_the_field_and_the_fix_as_those_of_a_rules_file_do() {
        let cases = [
            (r#""algorithm": "fixed_window", "limit": 0, "window_ms": 1"#, "quotas[0]: limit: 0 is out of range; "),
            (r#""algorithm": "fixed_window", "window_ms": 1"#, "quotas[0]: missing field `limit`"),
            (
                r#""algorithm": "fixed_window", "limt": 1, "window_ms": 1"#,
                r#"quotas[0].limt: unknown field `limt`; did you mean "limit"? Write one of "algorithm", "name", "by", "limit", "window_ms""#,
            ),
            (
                r#""algorithm": "token_bucket", "limit": 1, "per_ms": 1"#,
                r#"quotas[0].limit: unknown field `limit`; write one of "algorithm", "name", "by", "capacity", "refill", "per_ms""#,
            ),
            (
                r#""algorithm": "block", "a b": 1"#,
                r#"quotas[0]["a b"]: unknown field `a b`; write one of "algorithm", "name", "by", "cap_ms""#,
            ),
            (r#""limit": 1, "window_ms": 1"#, "quotas[0]: missing field `algorithm`"),
            (
                r#""algorithm": "fixed_windw", "limit": 1, "window_ms": 1"#,
                r#"quotas[0].algorithm: "fixed_windw" is not an algorithm; did you mean "fixed_window"? Write one of "#,
            ),
            (
                r#""algorithm": "gcra""#,
                r#"quotas[0].algorithm: "gcra" is not an algorithm; write one of "fixed_window", "#,
            ),
            (
                r#""algorithm": "fixed_window", "limit": -1, "window_ms": 1"#,
                "quotas[0].limit: -1 is negative; write a whole number from 0",
            ),
            (
                r#""algorithm": "fixed_window", "limit": 1.0, "window_ms": 1"#,
                "quotas[0].limit: expected a whole number, found 1.0",
            ),
            (
                r#""algorithm": "fixed_window", "limit": "1", "window_ms": 1"#,
                "quotas[0].limit: expected a whole number, found a text",
            ),
            (
                r#""algorithm": "fixed_window", "limit": 1, "window_ms": null"#,
                "quotas[0].window_ms: expected a whole number, found null",
            ),
            (
                r#""algorithm": "concurrency", "limit": 1, "lifetime_ms": 1, "returns_cost": 1"#,
                "quotas[0].returns_cost: expected true or false, found a number",
            ),
            (r#""algorithm": "block", "cap_ms": 1, "name": []"#, "quotas[0].name: expected a text, found a list"),
            (r#""algorithm": "block", "cap_ms": 1, "name": "a b""#, r#"quotas[0]: name: "a b" cannot be a name; "#),
            (r#""algorithm": "block", "cap_ms": 0"#, "quotas[0]: cap_ms: 0 is out of range"),
            (
                r#""algorithm": "penalty", "base_ms": 0, "factor": 1, "cap_ms": 1"#,
                "quotas[0]: base_ms: 0 is out of range",
            ),
        ];
        for (quota, expected) in cases {
            let fields = format!(r#""quotas": [ {{ {quota} }} ]"#);
            let error = wrong(&format!(r#"{{ "name": "api", {fields} }}"#));
            assert!(error.starts_with(expected), "{error}\n{expected}");
            #[cfg(feature = "gate")]
            {
                let rules = format!(r#"{{ "limits": {{ "api": {{ {fields} }} }} }}"#);
                let in_file = tidegate_core::gate::Rules::parse("rules.json", &rules).unwrap_err().to_string();
                // A rules file has one field more.
                let in_file = in_file.replace(r#", "limit_from""#, "");
                assert_eq!(
                    in_file.split_once(": ").map(|(_, what)| what),
                    error.split_once(": ").map(|(_, what)| what)
                );
            }
        }
    }

    #[test]
    fn errors_of_a_policy_name_its_fields() {
        for (json, expected) in [
            (r#"{ "name": "api", "quotas": [] }"#, "quotas: 0 is out of range; write 1 to 8 quotas"),
            (r#"{ "name": "a b", "quotas": [] }"#, r#"name: "a b" cannot be a name; "#),
            (r#"{ "quotas": [] }"#, "missing field `name`"),
            (r#"{ "name": "api" }"#, "missing field `quotas`"),
            (r#"{ "name": "api", "quotas": 1 }"#, "quotas: expected a list, found a number"),
            (r#"{ "name": "api", "charge_denied": "yes" }"#, "charge_denied: expected true or false, found a text"),
            (
                r#"{ "name": "api", "qotas": [] }"#,
                r#"qotas: unknown field `qotas`; did you mean "quotas"? Write one of "name", "charge_denied", "group_by", "quotas""#,
            ),
            (r#"{ "name": "api", "name": "api" }"#, r#""name" is written twice; write it once"#),
            (r#"["api"]"#, "expected a table, found a list"),
        ] {
            let error = wrong(json);
            assert!(error.starts_with(expected), "{error}\n{expected}");
        }
        let grouped =
            r#"{ "name": "api", "group_by": "tenant", "quotas": [{ "algorithm": "block", "cap_ms": 1, "by": "ip" }] }"#;
        assert_eq!(wrong(grouped), r#"group_by: no quota counts by "tenant"; write the dimension of one"#);
        let alone = serde_json::from_str::<Quota>(r#"{ "algorithm": "block", "cap": 1 }"#).unwrap_err().to_string();
        assert!(alone.starts_with("cap: unknown field `cap`; "), "{alone}");
    }
}

#[test]
fn only_a_denial_has_a_wait_and_it_covers_all_quotas() {
    let policy = Policy::new("api", [window(3, 1_000).unwrap(), window(2, 60_000).unwrap()]).unwrap();
    let (mut state, now) = (policy.initial_state(), UnixMillis::new(0));
    let allowed = policy.decide(&mut state, now, 2);
    assert_eq!((allowed.status(), allowed.retry_after()), (Status::Allowed, None));
    assert_eq!(policy.peek(&state, now, 0).retry_after(), None);
    let denied = policy.decide(&mut state, now, 2);
    assert_eq!((denied.status(), denied.retry_after()), (Status::Denied, Some(Millis::new(60_000))));
    assert_eq!(denied.binding_index(), 1);
    let never = policy.decide(&mut state, now, 3);
    assert_eq!((never.status(), never.retry_after()), (Status::NeverAdmissible, None));
}

#[test]
fn a_slot_for_a_request_of_any_cost_can_be_stored() {
    let policy = policy(Quota::concurrency(1, Millis::new(1_000)));
    let (mut state, now) = (policy.initial_state(), UnixMillis::new(0));
    assert!(policy.decide_as(&mut state, now, u64::MAX, ChargeId::of("request-1")).is_allowed());
    assert_eq!(policy.decode(&policy.encode(&state), now).unwrap(), state);
}

#[test]
fn large_limits_are_exact() {
    let day = Millis::from_secs(86_400);
    let (month, year) = (Millis::new(30 * day.get()), Millis::new(365 * day.get()));
    let now = NOW;
    // A trillion units a year, and a hundred billion tokens a month.
    for quota in [
        Quota::fixed_window(1_000_000_000_000, year).unwrap(),
        Quota::token_bucket(100_000_000_000, 100_000_000_000, month).unwrap(),
        Quota::leaky_bucket(10_000_000, 10_000_000, month).unwrap(),
    ] {
        let limit = quota.rule().limit();
        let policy = Policy::new("api", [quota]).unwrap();
        let mut state = policy.initial_state();
        assert!(policy.decide(&mut state, now, limit - 1).is_allowed());
        assert!(policy.decide(&mut state, now, 1).is_allowed());
        assert_eq!(policy.decide(&mut state, now, 1).binding().remaining(), Some(0));
        let read = policy.decode(&policy.encode(&state), now).unwrap();
        assert_eq!(read, state);
    }
    let bucket = Quota::token_bucket(10_000_000, 10_000_000, month).unwrap();
    assert_eq!(bucket.rule().parameters(), [10_000_000, 1_296, 5]);
}

/// What can never be admitted has no wait, whichever other quota denies it, too.
#[test]
fn never_admissible_prevails_over_denied() {
    let quotas = [window(2, 60_000).unwrap(), window(1, 1).unwrap(), window(2, 90_000).unwrap()];
    for order in [[0, 1, 2], [1, 0, 2], [0, 2, 1]] {
        let policy = Policy::new("api", order.map(|place| quotas[place].clone())).unwrap();
        let mut state = policy.initial_state();
        let mut decide = |ms, cost| policy.decide(&mut state, UnixMillis::new(ms), cost);
        assert_eq!([decide(0, 1), decide(1, 1)].map(|decision| decision.is_allowed()), [true, true]);
        let never = decide(2, 2);
        assert_eq!((never.status(), never.retry_after()), (Status::NeverAdmissible, None));
        assert_eq!(policy.quotas()[never.binding_index()].rule().limit(), 1);
    }
    // Nor has it one if all slots are taken, too.
    let policy = Policy::new("api", [window(2, 1_000).unwrap(), Quota::concurrency(1, Millis::from_secs(9)).unwrap()]);
    let (policy, now) = (policy.unwrap(), UnixMillis::new(0));
    let mut state = policy.initial_state();
    assert!(policy.decide_as(&mut state, now, 1, ChargeId::of("request-1")).is_allowed());
    let never = policy.decide_as(&mut state, now, 3, ChargeId::of("request-2"));
    assert_eq!((never.status(), never.binding_index()), (Status::NeverAdmissible, 0));
}

#[test]
fn of_equal_waits_the_first_is_told() {
    let quota = |name| window(1, 1_000).unwrap().named(name).unwrap();
    let policy = Policy::new("api", [quota("one"), quota("two")]).unwrap();
    let (mut state, now) = (policy.initial_state(), UnixMillis::new(0));
    assert!(policy.decide(&mut state, now, 1).is_allowed());
    assert_eq!(policy.decide(&mut state, now, 1).binding_index(), 0);
}

#[test]
fn a_penalty_is_decided_after_what_it_punishes() {
    let penalty = Quota::penalty(Millis::from_secs(10), 2, Millis::from_secs(60)).unwrap();
    let policy = Policy::new("api", [penalty, window(1, 1_000).unwrap()]).unwrap();
    assert!(matches!(policy.quotas()[1].rule(), Rule::Penalty(_)));
    let (mut state, now) = (policy.initial_state(), UnixMillis::new(0));
    assert!(policy.decide(&mut state, now, 1).is_allowed());
    let denied = policy.decide(&mut state, now, 1);
    assert_eq!(denied.retry_after(), Some(Millis::from_secs(10)));
    // A block has nothing left until it ends.
    let blocked = policy.decide(&mut state, UnixMillis::new(2_000), 1);
    let status = blocked.quotas()[1];
    assert_eq!((status.remaining(), status.reset_after()), (Some(0), Some(Millis::from_secs(8))));
    assert_eq!(policy.peek(&state, UnixMillis::new(10_000), 1).quotas()[1].remaining(), None);
}

/// Nobody knows when a slot is given back.
#[test]
fn slots_have_no_reset() {
    let policy = policy(Quota::concurrency(2, Millis::from_secs(30)));
    let (mut state, now) = (policy.initial_state(), UnixMillis::new(0));
    let taken = policy.decide_as(&mut state, now, 1, ChargeId::of("request-1"));
    assert_eq!((taken.binding().remaining(), taken.binding().reset_after()), (Some(1), None));
}

#[test]
fn policies_that_cannot_decide_together_are_not_joined() {
    let one = |name: &str| Policy::new("api", [window(1, 1_000).unwrap().named(name).unwrap()]).unwrap();
    let many = |names: std::ops::Range<u32>| {
        Policy::new("many", names.map(|name| window(1, 1_000).unwrap().named(&format!("q{name}")).unwrap())).unwrap()
    };
    assert_eq!(Policy::join([&many(0..4), &many(4..8)]).unwrap().quotas().len(), 8);
    let by = |name: &str, dimension: &str| window(1, 1_000).unwrap().named(name).unwrap().by(dimension).unwrap();
    let grouped = Policy::new("grouped", [by("u", "user"), by("t", "tenant")]).unwrap().group_by("tenant").unwrap();
    let returns = Rule::Concurrency(Concurrency::new(1, Millis::from_secs(1)).unwrap().returns_cost(true));
    let returns = Policy::new("returns", [Quota::from(returns), window(1, 1_000).unwrap()]).unwrap();
    for (policies, expected) in [
        ([&many(0..4), &many(4..9)], "have 9 quotas; at most 8 decide together"),
        ([&one("a"), &one("b").charge_denied(true)], "only one of \"api\" and \"api\" charges denials"),
        ([&one("a"), &one("a")], "two quotas are named \"a\""),
        ([&one("a"), &grouped], "has a group"),
        ([&grouped, &one("a")], "has a group"),
        ([&one("a"), &returns], "returns_cost needs a policy of its own"),
    ] {
        let error = Policy::join(policies).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let slots = Policy::new("slots", [Quota::concurrency(1, Millis::from_secs(1)).unwrap()]).unwrap();
    for policies in [[&one("a"), &slots], [&slots, &one("a")]] {
        let (policy, key) = (Policy::join(policies).unwrap(), Key::new("user:1"));
        assert!(policy.has_slots());
        let keys = [("", &key)];
        let error = MemoryLimiter::new().decide(Check::new(&policy, &keys, UnixMillis::new(0))).unwrap_err();
        assert!(error.to_string().contains("token"), "a slot needs one: {error}");
    }
}

/// A store that decides on one place at a time, as a Durable Object does.
#[test]
fn a_joined_policy_has_a_place_if_each_part_is_placed_by_key() {
    let can = Capabilities::EXACT.dimensions(Dimensions::Grouped);
    let supports = |policy: &Policy| can.supports_policy(policy).is_ok();
    let one = |name: &str| Policy::new(name, [window(1, 1_000).unwrap().named(name).unwrap()]).unwrap();
    let placed = |name| one(name).place_by_key().unwrap();
    let joined = |policies: [&Policy; 2]| Policy::join(policies).unwrap();
    assert!(supports(&one("a")));
    assert!(!supports(&joined([&one("a"), &one("b")])));
    assert!(!supports(&joined([&placed("a"), &one("b")])));
    assert!(!supports(&joined([&one("a"), &placed("b")])));
    assert!(supports(&joined([&placed("a"), &placed("b")])));
}

#[test]
fn a_limiter_names_the_algorithms_that_it_has() {
    let can = Capabilities::EXACT.algorithms(&["fixed_window", "sliding_log"]);
    let of = |quota: Quota| can.supports_policy(&Policy::new("api", [quota]).unwrap());
    assert!(of(window(1, 1_000).unwrap()).is_ok());
    let error = of(Quota::token_bucket(1, 1, Millis::from_secs(1)).unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("token_bucket (only fixed_window, sliding_log)"), "{error}");
}

#[test]
fn settlements_have_any_cost_that_a_state_can_hold() {
    let (policy, key, now) =
        (Policy::new("api", [window(5, 1_000).unwrap()]).unwrap(), Key::new("user:1"), UnixMillis::new(0));
    let limiter = MemoryLimiter::new();
    let charged = |token: &str| {
        let check = Check::new(&policy, &key, now).idempotent(token, Millis::from_secs(60));
        assert!(limiter.decide(check).unwrap().is_allowed());
    };
    let settle = |token: &str, cost| block_on(limiter.settle(Settle::new(&policy, &key, token, cost, now)));
    charged("one");
    charged("two");
    assert_eq!(settle("one", MAX_UNITS).unwrap().binding().remaining(), Some(0));
    assert_eq!(settle("two", MAX_UNITS + 1).unwrap_err().kind(), ErrorKind::Invalid);
}
