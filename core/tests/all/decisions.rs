//! Decisions as bytes, and when two are equal.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use proptest::prelude::*;
use tidegate_core::{ChargeId, Decision, ErrorKind, Millis, Origin, Policy, Quota, UnixMillis};

fn quota() -> impl Strategy<Value = Quota> {
    let numbers = prop_oneof![(1..9u64, 1..40u64, 1..9u64), (1..1_000u64, 1..1_000_000_000_000u64, 1..1_000u64)];
    (0..6u8, numbers).prop_map(|(rule, (limit, span, refill))| {
        let span = Millis::new(span);
        match rule {
            0 => Quota::fixed_window(limit, span),
            1 => Quota::sliding_window(limit, span),
            2 => Quota::sliding_log(limit, span),
            3 => Quota::token_bucket(limit, refill, span),
            4 => Quota::leaky_bucket(limit, refill, span),
            _ => Quota::concurrency(limit, span),
        }
        .unwrap()
    })
}

fn policy() -> impl Strategy<Value = Policy> {
    let penalty = Quota::penalty(Millis::new(7), 3, Millis::new(100)).unwrap();
    (prop::collection::vec(quota(), 1..8), any::<bool>()).prop_map(move |(mut quotas, punishes)| {
        quotas.extend(punishes.then(|| penalty.clone()));
        Policy::new("api", quotas).unwrap()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(3_000) })]

    #[test]
    fn a_decision_round_trips(policy in policy(), start: u64, costs in prop::collection::vec((0..20u64, 0..12u64), 1..20)) {
        let (mut state, mut now) = (policy.initial_state(), UnixMillis::new(start));
        for (number, (after, cost)) in costs.into_iter().enumerate() {
            now = now + Millis::new(after);
            let peeked = policy.peek(&state, now, cost);
            let decided = policy.decide_as(&mut state, now, cost, ChargeId::new(number as u64));
            for decision in [peeked, decided.clone().replayed(true), decided] {
                let bytes = decision.encode();
                prop_assert_eq!(&Decision::decode(&bytes, &policy).unwrap(), &decision);
                let longer = [&bytes[..], &[0]].concat();
                for other in (0..bytes.len()).map(|end| &bytes[..end]).chain([&longer[..]]) {
                    prop_assert_eq!(Decision::decode(other, &policy).unwrap_err().kind(), ErrorKind::Corrupt);
                }
            }
        }
    }

    #[test]
    fn any_bytes_are_a_decision_or_corrupt(policy in policy(), bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        match Decision::decode(&bytes, &policy) {
            Ok(decision) => {
                prop_assert_eq!(decision.quotas().len(), policy.quotas().len());
                prop_assert_eq!(decision.binding(), &decision.quotas()[decision.binding_index()]);
            }
            Err(error) => prop_assert_eq!(error.kind(), ErrorKind::Corrupt),
        }
    }
}

#[test]
fn what_the_platform_does_not_report_stays_unknown_and_the_origin_is_the_store() {
    let policy = Policy::new("api", [Quota::fixed_window(9, Millis::new(1_000)).unwrap()]).unwrap();
    let native = Decision::native(false, 9, UnixMillis::MAX);
    assert_eq!(Decision::decode(&native.encode(), &policy).unwrap(), native);
    let leased = native.with_origin(Origin::Lease);
    assert_eq!(Decision::decode(&leased.encode(), &policy).unwrap().origin(), Origin::Store);
}

#[test]
fn decisions_are_equal_if_all_that_is_visible_is() {
    let policy = |limit| Policy::new("api", [Quota::fixed_window(limit, Millis::new(1_000)).unwrap()]).unwrap();
    let of = |limit, costs: &[u64], ms| {
        let (policy, now) = (policy(limit), UnixMillis::new(ms));
        let mut state = policy.initial_state();
        costs.iter().map(|cost| policy.decide(&mut state, now, *cost)).last().unwrap()
    };
    let one = of(9, &[1], 0);
    assert_eq!(one, of(9, &[1], 0));
    for other in
        [of(9, &[2], 0), of(8, &[1], 0), of(9, &[1], 1), of(9, &[9, 1], 0), one.clone().with_origin(Origin::Lease)]
    {
        assert_ne!(one, other);
    }
    assert_ne!(one.quotas(), of(9, &[2], 0).quotas());
}

#[test]
fn a_decision_is_by_a_quota_of_its_policy_and_has_no_unknown_flag() {
    let policy = Policy::new("api", [Quota::fixed_window(1, Millis::new(1_000)).unwrap()]).unwrap();
    let bytes = policy.decide(&mut policy.initial_state(), UnixMillis::new(0), 1).encode();
    assert!(Decision::decode(&bytes, &policy).is_ok());
    for (place, byte) in [(0, 3), (0, 16), (1, 1)] {
        let mut other = bytes.clone();
        other[place] = byte;
        assert_eq!(Decision::decode(&other, &policy).unwrap_err().kind(), ErrorKind::Corrupt, "{place} {byte}");
    }
}
