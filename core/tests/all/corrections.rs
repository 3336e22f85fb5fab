//! What refunds, debts and clocks that step back do to the state of each algorithm, by examples.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use tidegate_core::algorithm::{Algorithm, Concurrency, MAX_UNITS, Penalty, Step};
use tidegate_core::{Charge, ChargeId, MAX_CLOCK_SKEW, Millis, Policy, PolicyState, Quota, UnixMillis};
use tidegate_testing::{SECOND, at, of_each_algorithm, policy};

/// Ten units a second, in all algorithms that count.
fn counting() -> [Policy; 5] {
    of_each_algorithm(10, 10, SECOND)
}

/// What is left, and when all is.
fn left(policy: &Policy, state: &PolicyState, now: UnixMillis) -> (Option<u64>, Option<Millis>) {
    let peeked = policy.peek(state, now, 1);
    (peeked.binding().remaining(), peeked.binding().reset_after())
}

fn charged(policy: &Policy, charges: &[(u64, u64)]) -> PolicyState {
    let mut state = policy.initial_state();
    for &(ms, cost) in charges {
        assert!(policy.decide(&mut state, at(ms), cost).is_allowed(), "{}", policy.id());
    }
    state
}

fn settle(policy: &Policy, state: &mut PolicyState, cost: u64, ms: u64, actual: u64) {
    policy.settle(state, &Charge { id: ChargeId::NONE, at: at(ms), cost }, at(ms), actual);
}

#[test]
fn a_refund_returns_units_and_all_of_them_return_the_unused_state() {
    for policy in counting() {
        let mut state = charged(&policy, &[(0, 6)]);
        policy.refund(&mut state, at(0), at(0), 2);
        assert_eq!(left(&policy, &state, at(0)).0, Some(6), "{}", policy.id());
        policy.refund(&mut state, at(0), at(0), 4);
        assert_eq!(left(&policy, &state, at(0)), (Some(10), Some(Millis::ZERO)), "{}", policy.id());
    }
}

#[test]
fn a_sliding_window_refunds_what_the_window_before_was_charged_and_nothing_older() {
    let policy = policy(Quota::sliding_window(10, SECOND));
    let mut state = charged(&policy, &[(0, 6), (1_000, 2)]);
    assert_eq!(left(&policy, &state, at(1_000)).0, Some(2));
    policy.refund(&mut state, at(0), at(1_000), 5);
    assert_eq!(left(&policy, &state, at(1_000)).0, Some(7));
    let mut state = charged(&policy, &[(0, 6), (2_000, 4)]);
    policy.refund(&mut state, at(0), at(2_000), 6);
    assert_eq!(left(&policy, &state, at(2_000)).0, Some(6));
}

#[test]
fn a_sliding_window_weighs_the_window_before_by_its_overlap() {
    let policy = policy(Quota::sliding_window(10, SECOND));
    let state = charged(&policy, &[(0, 10)]);
    // Three quarters of 10 units overlap, rounded up.
    assert_eq!(left(&policy, &state, at(1_250)), (Some(2), Some(Millis::new(750))));
    assert_eq!(left(&policy, &state, at(2_500)), (Some(10), Some(Millis::ZERO)));
    let state = charged(&policy, &[(0, 10), (1_250, 1)]);
    assert_eq!(left(&policy, &state, at(1_250)), (Some(1), Some(Millis::new(1_750))));

    // The product of these numbers takes more than 64 bits.
    let day = Millis::from_secs(86_400);
    let policy = self::policy(Quota::sliding_window(MAX_UNITS, day));
    let mut state = policy.initial_state();
    let start = UnixMillis::new(day.get() * 20_000);
    assert!(policy.decide(&mut state, start, MAX_UNITS).is_allowed());
    let noon = start + day + Millis::from_secs(43_200);
    assert_eq!(policy.peek(&state, noon, 1).binding().remaining(), Some(MAX_UNITS / 2));
}

#[test]
fn a_debt_is_paid_before_anything_is_admitted() {
    for policy in counting() {
        let mut state = charged(&policy, &[(0, 2)]);
        settle(&policy, &mut state, 2, 0, 15);
        assert_eq!(left(&policy, &state, at(0)).0, Some(0), "{}", policy.id());
        let wait = policy.peek(&state, at(0), 1).retry_after().unwrap();
        assert!(wait >= Millis::new(600), "{}: {wait}", policy.id());
        assert!(!policy.peek(&state, at(wait.get() - 1), 1).is_allowed(), "{}", policy.id());
        assert!(policy.peek(&state, at(wait.get()), 1).is_allowed(), "{}", policy.id());
    }
}

/// A debt is charged when it is settled.
#[test]
fn a_log_keeps_a_debt_apart_from_what_was_charged_before() {
    let policy = policy(Quota::sliding_log(10, SECOND));
    let mut state = charged(&policy, &[(0, 2)]);
    settle(&policy, &mut state, 2, 500, 6);
    assert_eq!(left(&policy, &state, at(999)).0, Some(4));
    assert_eq!(left(&policy, &state, at(1_000)).0, Some(6));
    assert_eq!(left(&policy, &state, at(1_500)).0, Some(10));
    // One of the same instant is charged with the rest.
    let mut state = charged(&policy, &[(0, 2)]);
    settle(&policy, &mut state, 2, 0, 6);
    assert_eq!((left(&policy, &state, at(999)).0, left(&policy, &state, at(1_000)).0), (Some(4), Some(10)));
}

#[test]
fn the_largest_debt_can_be_stored() {
    for policy in counting() {
        let mut state = charged(&policy, &[(0, 1)]);
        for ms in [0, 0, 1, 2] {
            settle(&policy, &mut state, 1, ms, u64::MAX);
            policy.decode(&policy.encode(&state), at(2)).unwrap();
        }
        assert_eq!(left(&policy, &state, at(2)).0, Some(0), "{}", policy.id());
    }
}

/// A denial that is charged replaces the oldest units of a log, and no others.
#[test]
fn a_charged_denial_replaces_the_oldest_units_of_a_log() {
    let policy = policy(Quota::sliding_log(10, SECOND)).charge_denied(true);
    let mut state = charged(&policy, &[(0, 4), (100, 6)]);
    assert!(!policy.decide(&mut state, at(200), 5).is_allowed());
    // 5 units of the second request and the 5 of the denied one.
    assert_eq!(left(&policy, &state, at(1_000)).0, Some(0));
    assert_eq!(left(&policy, &state, at(1_100)).0, Some(5));
    assert_eq!(left(&policy, &state, at(1_200)).0, Some(10));
}

#[test]
fn a_slot_that_was_taken_by_a_clock_ahead_is_held_for_the_skew_and_its_lifetime() {
    let slots = Concurrency::new(1, SECOND).unwrap();
    let mut state = Vec::new();
    slots.charge(&mut state, at(3_600_000), 1);
    slots.move_back(&mut state, at(0));
    let end = at(0) + MAX_CLOCK_SKEW + SECOND;
    assert_eq!(slots.ask(&state, UnixMillis::new(end.get() - 1), 1), Step::Busy);
    assert_eq!(slots.ask(&state, end, 1), Step::Admitted { delay: Millis::ZERO });
    // A clock that is ahead by the skew alone is believed.
    let mut state = Vec::new();
    slots.charge(&mut state, at(0) + MAX_CLOCK_SKEW, 1);
    slots.move_back(&mut state, at(0));
    assert_eq!(slots.ask(&state, UnixMillis::new(end.get() - 1), 1), Step::Busy);
}

#[test]
fn what_has_no_rate_has_no_maximum() {
    let (slots, penalty) = (Concurrency::new(3, SECOND).unwrap(), Penalty::new(SECOND, 2, SECOND).unwrap());
    assert_eq!((slots.maximum(at(0), at(0)), penalty.maximum(at(0), at(0))), (u64::MAX, u64::MAX));
    assert_eq!((slots.limit(), penalty.limit()), (3, 1));
}
