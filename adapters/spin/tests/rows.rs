//! The rows in the store: how many there are, how many operations they take, and how foreign values are handled.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use pollster::block_on;
use proptest::prelude::*;
use support::Model;
use tidegate_core::{
    Check, ErrorKind, Key, Limiter, LimiterExt, MAX_CLOCK_SKEW, MemoryLimiter, Millis, Policy, Quota, Refund,
    UnixMillis,
};
use tidegate_spin::{SpinAtomics, SpinKv, SpinWindow};
use tidegate_testing::{MINUTE, NOW, at, bucket, key, per_minute, policy};

/// One admitted and one denied request in each of a thousand windows, some of them with a gap between.
async fn a_thousand_windows(limiter: impl Limiter, model: &Model, rows_max: usize) {
    let (policy, key) = (per_minute(1), key());
    for window in 0..1_000 {
        let now = at(MINUTE.get() * (window + window / 7));
        assert!(limiter.check(Check::new(&policy, &key, now)).await.unwrap().is_allowed());
        assert!(!limiter.check(Check::new(&policy, &key, now)).await.unwrap().is_allowed());
        assert!(model.keys().len() <= rows_max, "{:?}", model.keys());
    }
}

#[test]
fn the_number_of_rows_does_not_grow_over_time() {
    let model = Model::default();
    block_on(a_thousand_windows(SpinKv::new(&model).limiter(), &model, 1));
    let model = Model::default();
    block_on(a_thousand_windows(SpinAtomics::new(&model).limiter(), &model, 2));
    let model = Model::default();
    block_on(a_thousand_windows(SpinWindow::new(&model), &model, 3));
}

/// The reads and writes of a key's first request, its second, a denial, and the first request of the next window.
async fn operations(limiter: impl Limiter, model: &Model) -> [(u32, u32); 4] {
    let (policy, key) = (per_minute(2), key());
    let mut taken = Vec::new();
    for now in [NOW, NOW, NOW, NOW + MINUTE] {
        limiter.check(Check::new(&policy, &key, now)).await.unwrap();
        taken.push(model.operations());
    }
    taken.try_into().unwrap()
}

#[test]
fn a_decision_takes_the_documented_operations_and_a_denial_writes_nothing() {
    let model = Model::default();
    assert_eq!(block_on(operations(SpinKv::new(&model).limiter(), &model)), [(1, 1), (1, 1), (1, 0), (1, 1)]);
    let model = Model::default();
    assert_eq!(block_on(operations(SpinAtomics::new(&model).limiter(), &model)), [(5, 4), (1, 1), (1, 0), (1, 1)]);
    let model = Model::default();
    assert_eq!(block_on(operations(SpinWindow::new(&model), &model)), [(2, 2), (2, 1), (2, 0), (2, 2)]);
}

#[test]
fn a_reset_forgets_the_key() {
    let (policy, key) = (per_minute(1), key());
    let check = Check::new(&policy, &key, NOW);
    let model = Model::default();
    let limiter = SpinKv::new(&model).limiter();
    for _ in 0..2 {
        assert!(block_on(limiter.check(check)).unwrap().is_allowed());
        block_on(limiter.reset(&policy, (&key).into())).unwrap();
        assert!(model.keys().is_empty());
    }
    // Nothing is elected again: the row stays, without a state.
    let model = Model::default();
    let limiter = SpinAtomics::new(&model).limiter();
    for operations in [(5, 4), (4, 1), (4, 1)] {
        model.operations();
        assert!(block_on(limiter.check(check)).unwrap().is_allowed());
        assert_eq!(model.operations(), operations);
        block_on(limiter.reset(&policy, (&key).into())).unwrap();
        assert_eq!(model.keys().len(), 2);
    }
}

#[test]
fn different_keys_never_share_a_row() {
    let (model, policy) = (Model::default(), per_minute(2));
    let limiter = SpinAtomics::new(&model).limiter();
    for key in ["k", "k!", "k!1", "k!w"] {
        let (key, windows) = (Key::new(key), SpinWindow::new(&model));
        let check = Check::new(&policy, &key, NOW);
        assert!(block_on(limiter.check(check.cost(2))).unwrap().is_allowed(), "{key}");
        for _ in 0..2 {
            assert!(block_on(windows.check(check)).unwrap().is_allowed(), "{key}");
        }
    }
    assert_eq!(model.keys().len(), 4 * (2 + 2));
}

#[test]
fn a_foreign_value_is_corrupt_and_never_poisons_the_store() {
    let (policy, key) = (per_minute(2), Key::new("k"));
    let at = |suffix: &str| format!("{}{suffix}", key.storage_key(&policy));
    let start = NOW.get();
    let check = Check::new(&policy, &key, NOW);
    for length in [0, 1, 7, 9, 16, 48, 49, 100] {
        let bytes = vec![0xff; length];
        let errors = |kept: &str| {
            let model = Model::holding([(at(kept), bytes.clone())]);
            let answers = match kept {
                "" => block_on(SpinKv::new(&model).limiter().check(check)),
                "!" | "!1" => block_on(SpinAtomics::new(&model).limiter().check(check)),
                _ => block_on(SpinWindow::new(&model).check(check)),
            };
            assert!(!model.is_poisoned(), "{kept} {length}");
            answers.map_err(|error| (error.kind(), error.to_string()))
        };
        for kept in ["", "!", "!1", "!w", &format!("!w{start}")] {
            match errors(kept) {
                Err((kind, said)) => {
                    assert_eq!(kind, ErrorKind::Corrupt, "{said}");
                    assert!(said.contains("delete the key, or find what else writes to it"), "{said}");
                }
                // An empty row means that the key was reset.
                Ok(decision) => assert!(kept == "!1" && length == 0 && decision.is_allowed(), "{kept} {length}"),
            }
        }
    }
    // A counter of the right length with an impossible value.
    let model = Model::holding([(at(&format!("!w{start}")), (-5i64).to_le_bytes().into())]);
    assert_eq!(block_on(SpinWindow::new(&model).check(check)).unwrap_err().kind(), ErrorKind::Corrupt);
    let model = Model::holding([(at("!"), (-5i64).to_le_bytes().into())]);
    let error = block_on(SpinAtomics::new(&model).limiter().check(check)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("delete that key, too"), "{error}");
}

#[test]
fn a_window_started_by_a_wrong_clock_locks_a_key_for_at_most_a_minute() {
    let (model, policy, key) = (Model::default(), per_minute(3), Key::new("k"));
    let limiter = SpinWindow::new(&model);
    let check = |now| block_on(limiter.check(Check::new(&policy, &key, now))).unwrap();
    let year = Millis::from_secs(365 * 86_400);
    for _ in 0..2 {
        assert!(check(NOW + year).is_allowed());
    }
    // Requests counted in that window still count.
    assert_eq!(block_on(limiter.peek(Check::new(&policy, &key, NOW))).unwrap().binding().remaining(), Some(1));
    assert!(check(NOW).is_allowed());
    let denied = check(NOW);
    assert!(!denied.is_allowed());
    let wait = denied.retry_after().unwrap();
    assert!(wait <= MAX_CLOCK_SKEW + MINUTE, "{wait}");
    assert!(check(NOW + wait).is_allowed());
    assert!(model.keys().len() <= 3, "{:?}", model.keys());
}

#[test]
fn a_window_of_a_clock_that_may_be_right_is_not_moved_back() {
    let (model, policy, key) = (Model::default(), per_minute(3), Key::new("k"));
    let limiter = SpinWindow::new(&model);
    for (now, operations) in [
        (NOW + MAX_CLOCK_SKEW, (2, 2)),
        (NOW, (2, 1)),
        // One of a clock that is certainly wrong is: its row is written.
        (UnixMillis::new(NOW.get() - 1), (2, 2)),
    ] {
        assert!(block_on(limiter.check(Check::new(&policy, &key, now))).unwrap().is_allowed());
        assert_eq!(model.operations(), operations, "{now}");
    }
}

#[test]
fn windows_end_with_time() {
    // The last instant begins a window of this length.
    let window = Millis::new(15);
    let (policy, key) = (policy(Quota::fixed_window(3, window)), Key::new("k"));
    let name = format!("{}!w", key.storage_key(&policy));
    let windows = |start: u64| [start, 0, start, 0, start, 0].map(u64::to_le_bytes).concat();
    let check = Check::new(&policy, &key, UnixMillis::MAX);
    let last = UnixMillis::MAX.get();
    let model = Model::holding([(name.clone(), windows(last))]);
    assert!(block_on(SpinWindow::new(&model).check(check)).unwrap().is_allowed());
    let model = Model::holding([(name, windows(last + 1))]);
    assert_eq!(block_on(SpinWindow::new(&model).check(check)).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn a_window_rejects_unsupported_checks() {
    let (model, policy, key) = (Model::default(), per_minute(2), Key::new("k"));
    let limiter = SpinWindow::new(&model);
    let check = Check::new(&policy, &key, NOW);
    let bucket = bucket(2);
    let both =
        Policy::new("api", [Quota::fixed_window(2, MINUTE).unwrap(), Quota::fixed_window(3, MINUTE + MINUTE).unwrap()]);
    let both = both.unwrap();
    let charging = policy.clone().charge_denied(true);
    let others = [&bucket, &both, &charging].map(|policy| Check::new(policy, &key, NOW));
    for check in others.into_iter().chain([check.cost(2), check.cost(0), check.idempotent("t", MINUTE)]) {
        assert_eq!(block_on(limiter.check(check)).unwrap_err().kind(), ErrorKind::Unsupported);
        assert_eq!(block_on(limiter.peek(check)).unwrap_err().kind(), ErrorKind::Unsupported);
    }
    let refund = Refund::new(&policy, &key, 1, NOW, NOW);
    assert_eq!(block_on(limiter.refund(refund)).unwrap_err().kind(), ErrorKind::Unsupported);
    assert!(model.keys().is_empty());
}

proptest! {
    /// Sequential requests, with clocks that differ by up to a minute: a window of increments decides as the reference
    /// implementation does.
    #[test]
    fn a_window_matches_the_reference_for_sequential_requests(
        arrivals in prop::collection::vec((0..400_000u64, 0..4u8, 1..6u64), 1..60),
    ) {
        let (model, key, reference) = (Model::default(), Key::new("k"), MemoryLimiter::new());
        let limiter = SpinWindow::new(&model);
        let mut latest = 0;
        for (at, what, limit) in arrivals {
            let at = at.max(u64::saturating_sub(latest, MAX_CLOCK_SKEW.get()));
            latest = latest.max(at);
            let policy = per_minute(limit);
            let check = Check::new(&policy, &key, UnixMillis::new(NOW.get() + at));
            let (found, expected) = match what {
                0 => (block_on(limiter.peek(check)), block_on(reference.peek(check))),
                1 if at % 5 == 0 => {
                    block_on(limiter.reset(&policy, (&key).into())).unwrap();
                    block_on(reference.reset(&policy, (&key).into())).unwrap();
                    prop_assert!(model.keys().is_empty());
                    continue;
                }
                _ => (block_on(limiter.check(check)), block_on(reference.check(check))),
            };
            prop_assert_eq!(found.unwrap(), expected.unwrap());
        }
    }
}
