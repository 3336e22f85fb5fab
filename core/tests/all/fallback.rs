//! The fallback: what it admits while its store is down, and when it asks the store again.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::{Arc, Mutex};

use pollster::block_on;
use proptest::prelude::*;
use tidegate_core::{
    Capabilities, Check, Decision, ErrorKind, Fallback, Health, Keys, Limiter, LimiterExt, Load, MemoryLimiter, Millis,
    Origin, Policy, Quota, Refund, ResponseFields, Settle, Status,
};
use tidegate_testing::{Declaring, FlakyStore, at, key, per_minute};

/// How many of `count` requests are admitted, and by whom the last one was decided.
fn admitted(limiter: &impl Limiter, policy: &Policy, ms: u64, count: u32) -> (u32, Result<Origin, ErrorKind>) {
    let (key, mut admitted, mut last) = (key(), 0, Err(ErrorKind::Invalid));
    for _ in 0..count {
        let decided = block_on(limiter.check(Check::new(policy, &key, at(ms))));
        admitted += u32::from(decided.as_ref().is_ok_and(Decision::is_allowed));
        last = decided.map(|decision| decision.origin()).map_err(|error| error.kind());
    }
    (admitted, last)
}

#[test]
fn an_outage_admits_the_share_and_the_store_counts_again_afterwards() {
    let (store, policy) = (FlakyStore::default(), per_minute(60));
    let limiter = Fallback::new(store.clone(), 10).unwrap();
    assert_eq!(admitted(&limiter, &policy, 0, 50), (50, Ok(Origin::Store)));
    store.fail(ErrorKind::Unavailable);
    assert_eq!(admitted(&limiter, &policy, 100, 50), (6, Ok(Origin::Fallback)));
    assert_eq!(limiter.down_for(at(200)), Some(Millis::new(100)));
    store.fail(None);
    // The breaker asks the store again after its pause.
    assert_eq!(admitted(&limiter, &policy, 1_200, 50), (10, Ok(Origin::Store)));
    assert_eq!(limiter.down_for(at(1_200)), None);
    // The share is not renewed by a second outage in the same window.
    store.fail(ErrorKind::Timeout);
    assert_eq!(admitted(&limiter, &policy, 1_300, 50), (0, Ok(Origin::Fallback)));
}

#[test]
fn a_store_that_keeps_failing_is_asked_once_in_each_pause() {
    let (store, policy) = (FlakyStore::default(), per_minute(1_000));
    let limiter = Fallback::new(store.clone(), 100).unwrap().breaker(3, Millis::new(500));
    store.fail(ErrorKind::Timeout);
    let _ = admitted(&limiter, &policy, 0, 10);
    assert_eq!(store.take_checks(), 3);
    let _ = admitted(&limiter, &policy, 499, 10);
    assert_eq!(store.take_checks(), 0);
    let _ = admitted(&limiter, &policy, 500, 10);
    assert_eq!(store.take_checks(), 1);
    // Requests of another thread are a little behind.
    let _ = admitted(&limiter, &policy, 498, 10);
    assert_eq!(store.take_checks(), 0);
    // A clock that is set back asks at once.
    let _ = admitted(&limiter, &policy, 0, 10);
    assert_eq!(store.take_checks(), 1);
}

#[test]
fn a_long_outage_ends_the_fallback() {
    let (store, policy) = (FlakyStore::default(), per_minute(60));
    let limiter = Fallback::new(store.clone(), 10).unwrap().at_most(Millis::from_secs(1));
    store.fail(ErrorKind::Unavailable);
    assert_eq!(admitted(&limiter, &policy, 0, 1), (1, Ok(Origin::Fallback)));
    assert_eq!(admitted(&limiter, &policy, 1_000, 1), (1, Ok(Origin::Fallback)));
    assert_eq!(admitted(&limiter, &policy, 1_001, 1), (0, Err(ErrorKind::Unavailable)));
    store.fail(None);
    assert_eq!(admitted(&limiter, &policy, 2_500, 1), (1, Ok(Origin::Store)));
}

#[test]
fn no_error_that_a_client_can_cause_is_replaced() {
    for kind in ErrorKind::ALL.into_iter().filter(|kind| !kind.is_store_failure()) {
        let (store, policy) = (FlakyStore::default(), per_minute(60));
        let limiter = Fallback::new(store.clone(), 100).unwrap();
        store.fail(kind);
        assert_eq!(admitted(&limiter, &policy, 0, 10), (0, Err(kind)));
        assert_eq!(store.take_checks(), 10, "{kind} must not open the breaker");
    }
}

#[test]
fn an_invalid_check_does_not_end_an_outage() {
    let (store, policy) = (FlakyStore::default(), per_minute(60));
    let limiter = Fallback::new(store.clone(), 10).unwrap().at_most(Millis::from_secs(1));
    for ms in (0..1_200).step_by(100) {
        store.fail(ErrorKind::Unavailable);
        let _ = admitted(&limiter, &policy, ms, 1);
        store.fail(ErrorKind::Invalid);
        let _ = admitted(&limiter, &policy, ms, 1);
    }
    store.fail(ErrorKind::Unavailable);
    assert_eq!(admitted(&limiter, &policy, 1_200, 1), (0, Err(ErrorKind::Unavailable)));
}

#[test]
fn a_share_is_at_least_one() {
    let (store, policy) = (FlakyStore::default(), per_minute(9));
    let limiter = Fallback::new(store.clone(), 10).unwrap();
    store.fail(ErrorKind::Timeout);
    assert_eq!(admitted(&limiter, &policy, 0, 5), (1, Ok(Origin::Fallback)));
    let slots = Policy::new("slots", [Quota::concurrency(4, Millis::from_secs(60)).unwrap()]).unwrap();
    let key = key();
    let taken = |token| {
        let check = Check::new(&slots, &key, at(0)).idempotent(token, Millis::from_secs(60));
        block_on(limiter.check(check)).unwrap().is_allowed()
    };
    assert_eq!(["a", "b", "c"].map(taken), [true, false, false]);
}

/// A bucket's rate is shared as its capacity is, and what blocks a client does so everywhere for as long.
#[test]
fn a_share_has_a_part_of_the_rate_and_the_whole_block() {
    let second = Millis::from_secs(1);
    for bucket in [Quota::token_bucket(100, 100, second), Quota::leaky_bucket(100, 100, second)] {
        let (store, policy) = (FlakyStore::default(), Policy::new("api", [bucket.unwrap()]).unwrap());
        let limiter = Fallback::new(store.clone(), 10).unwrap();
        store.fail(ErrorKind::Timeout);
        assert_eq!(admitted(&limiter, &policy, 0, 50), (10, Ok(Origin::Fallback)));
        assert_eq!(admitted(&limiter, &policy, 500, 50), (5, Ok(Origin::Fallback)));
    }
    let penalty = Quota::penalty(Millis::from_secs(20), 1, Millis::from_secs(20)).unwrap();
    let window = Quota::fixed_window(10, second).unwrap();
    let (store, policy) = (FlakyStore::default(), Policy::new("api", [window, penalty]).unwrap());
    let limiter = Fallback::new(store.clone(), 10).unwrap();
    store.fail(ErrorKind::Timeout);
    assert_eq!(admitted(&limiter, &policy, 0, 3), (1, Ok(Origin::Fallback)));
    assert_eq!(admitted(&limiter, &policy, 19_999, 3), (0, Ok(Origin::Fallback)));
    assert_eq!(admitted(&limiter, &policy, 20_000, 3), (1, Ok(Origin::Fallback)));
}

#[test]
fn a_cost_that_only_the_store_can_admit_is_denied_until_it_is_asked_again() {
    let (store, policy, key) = (FlakyStore::default(), per_minute(1_000), key());
    let limiter = Fallback::new(store.clone(), 10).unwrap().breaker(1, Millis::from_secs(5));
    store.fail(ErrorKind::Timeout);
    let check = |ms, cost| block_on(limiter.check(Check::new(&policy, &key, at(ms)).cost(cost))).unwrap();
    assert!(check(0, 1).is_allowed());
    let denied = check(2_000, 200);
    assert_eq!((denied.status(), denied.retry_after()), (Status::Denied, Some(Millis::from_secs(3))));
    assert_eq!((denied.binding().limit(), denied.binding().remaining()), (100, Some(99)));
    let fields = ResponseFields::new(&policy, &denied);
    assert_eq!(fields.get("x-ratelimit-limit"), Some("100"));
    assert_eq!(fields.get("ratelimit-policy"), Some("\"api\";q=100;w=60"));
    assert_eq!(check(2_000, 1_001).status(), Status::NeverAdmissible);
    store.fail(None);
    assert!(check(5_000, 200).is_allowed());
}

#[test]
fn an_observer_is_told_once_when_the_store_goes_down_and_once_when_it_is_back() {
    let (store, policy, told) = (FlakyStore::default(), per_minute(1_000), Arc::new(Mutex::new(Vec::new())));
    let telling = Arc::clone(&told);
    let limiter =
        Fallback::new(store.clone(), 50).unwrap().observer(move |health| telling.lock().unwrap().push(health));
    let told = || std::mem::take(&mut *told.lock().unwrap());
    store.fail(ErrorKind::Timeout);
    let _ = admitted(&limiter, &policy, 0, 2);
    store.fail(None);
    // Two failures are no outage.
    let _ = admitted(&limiter, &policy, 10, 1);
    assert_eq!(told(), []);
    store.fail(ErrorKind::Timeout);
    for ms in [1_000, 2_000, 3_000, 4_000] {
        let _ = admitted(&limiter, &policy, ms, 25);
    }
    assert_eq!(told(), [Health::Down { error: ErrorKind::Timeout }]);
    store.fail(None);
    let _ = admitted(&limiter, &policy, 6_000, 25);
    assert_eq!(told(), [Health::Up { after: Millis::from_secs(5), decisions: 100 }]);
}

#[test]
fn a_charge_is_settled_where_it_was_made() {
    let (store, policy, key) = (FlakyStore::default(), per_minute(100), key());
    let limiter = Fallback::new(store.clone(), 50).unwrap();
    let hour = Millis::from_secs(3_600);
    let check = |token| block_on(limiter.check(Check::new(&policy, &key, at(0)).cost(20).idempotent(token, hour)));
    assert_eq!(check("a").unwrap().origin(), Origin::Store);
    store.fail(ErrorKind::Timeout);
    assert_eq!(check("b").unwrap().origin(), Origin::Fallback);
    let settle = |token| block_on(limiter.settle(Settle::new(&policy, &key, token, 5, at(10))));
    // The store has not answered, so it may have the charge.
    assert_eq!(settle("b").unwrap_err().kind(), ErrorKind::Timeout);
    assert_eq!(settle("a").unwrap_err().kind(), ErrorKind::Timeout);
    // The third failure opens the breaker: the store is not asked about this one.
    assert_eq!(check("c").unwrap().origin(), Origin::Fallback);
    let settled = settle("c").unwrap();
    assert_eq!((settled.origin(), settled.binding().remaining()), (Origin::Fallback, Some(40)));
    store.fail(None);
    let settle = |token| block_on(limiter.settle(Settle::new(&policy, &key, token, 5, at(2_000))));
    let settled = settle("a").unwrap();
    assert_eq!((settled.origin(), settled.binding().remaining()), (Origin::Store, Some(95)));
    let settled = settle("b").unwrap();
    assert_eq!((settled.origin(), settled.is_replay()), (Origin::Fallback, true));
}

/// The store knows the charge, and says what is wrong with it.
#[test]
fn what_the_store_says_of_a_settlement_is_not_replaced() {
    let (store, policy, key) = (FlakyStore::default(), per_minute(100), key());
    let limiter = Fallback::new(store.clone(), 50).unwrap();
    let check = Check::new(&policy, &key, at(0)).idempotent("a", Millis::from_secs(60));
    store.fail(ErrorKind::Unavailable);
    assert_eq!(block_on(limiter.check(check)).unwrap().origin(), Origin::Fallback);
    for kind in [ErrorKind::Corrupt, ErrorKind::Invalid] {
        store.fail(kind);
        let settled = block_on(limiter.settle(Settle::new(&policy, &key, "a", 1, at(2_000))));
        assert_eq!(settled.unwrap_err().kind(), kind);
    }
}

/// Two requests are admitted without the store. It is asked about one of them again, and goes down before the other one is settled.
#[test]
fn a_retry_that_reaches_the_store_forgets_no_other_charge_of_the_fallback() {
    let (store, policy, key) = (FlakyStore::default(), per_minute(100), key());
    let limiter = Fallback::new(store.clone(), 50).unwrap();
    let check = |token, ms| {
        let check = Check::new(&policy, &key, at(ms)).idempotent(token, Millis::from_secs(60));
        block_on(limiter.check(check)).unwrap().origin()
    };
    store.fail(ErrorKind::Unavailable);
    assert_eq!(["x", "y", "z", "a", "b"].map(|token| check(token, 0)), [Origin::Fallback; 5]);
    store.fail(None);
    assert_eq!(check("a", 2_000), Origin::Store);
    store.fail(ErrorKind::Unavailable);
    let settle = |token| block_on(limiter.settle(Settle::new(&policy, &key, token, 0, at(2_100))));
    assert_eq!(settle("b").unwrap().origin(), Origin::Fallback);
    // Both may have this one.
    assert_eq!(settle("a").unwrap_err().kind(), ErrorKind::Unavailable);
}

#[test]
fn all_calls_reach_the_store_and_an_outage_replaces_checks_and_peeks_alone() {
    let (store, policy, key) = (FlakyStore::default(), per_minute(60), key());
    let limiter = Fallback::new(store.clone(), 50).unwrap();
    let peek = || block_on(limiter.peek(Check::new(&policy, &key, at(0)))).unwrap();
    let refund = || block_on(limiter.refund(Refund::new(&policy, &key, 5, at(0), at(0))));
    assert_eq!(admitted(&limiter, &policy, 0, 20), (20, Ok(Origin::Store)));
    refund().unwrap();
    assert_eq!(peek().binding().remaining(), Some(45));
    block_on(limiter.reset(&policy, Keys::from(&key))).unwrap();
    assert_eq!(peek().binding().remaining(), Some(60));
    store.fail(ErrorKind::Unavailable);
    assert_eq!(refund().unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(block_on(limiter.reset(&policy, Keys::from(&key))).unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(admitted(&limiter, &policy, 0, 31), (30, Ok(Origin::Fallback)));
    assert_eq!((peek().is_allowed(), peek().origin()), (false, Origin::Fallback));
}

/// By hand: 10 % of 60 are 6 units at each location, and of 5 units still 1. `limit` is what an interval admits of `quota`.
#[test]
fn the_declared_ceiling_has_the_share_of_each_location() {
    let ceiling = |percent, limit, quota| {
        let limiter = Fallback::new(FlakyStore::default(), percent).unwrap();
        limiter.capabilities().accuracy.ceiling(Load { limit, quota, in_flight: 1, locations: 3 })
    };
    assert_eq!((ceiling(10, 60, 60), ceiling(100, 60, 60), ceiling(10, 5, 5)), (60 + 3 * 6, 60 + 3 * 60, 5 + 3));
    // Two windows admit 120, and a share of each.
    assert_eq!((ceiling(10, 120, 60), ceiling(10, 10, 5)), (120 + 3 * 12, 10 + 3 * 2));
}

#[test]
fn a_percentage_is_from_1_to_100() {
    for percent in [0, 101] {
        let error = Fallback::new(FlakyStore::default(), percent).map(|_| ()).unwrap_err();
        assert_eq!(error.to_string(), format!("percent: {percent} is out of range; write 1 to 100"));
    }
}

#[test]
fn another_store_decides_in_place_of_the_memory() {
    let (store, backup, policy) = (FlakyStore::default(), FlakyStore::default(), per_minute(60));
    let simple = Capabilities::EXACT.idempotency(false).reset(false);
    // Two processes share the backup, and so the share.
    let [one, other] =
        [(); 2].map(|()| Fallback::new(store.clone(), 50).unwrap().backup(Declaring(simple, backup.clone())).unwrap());
    store.fail(ErrorKind::Unavailable);
    assert_eq!(admitted(&one, &policy, 0, 20), (20, Ok(Origin::Fallback)));
    assert_eq!(admitted(&other, &policy, 0, 20), (10, Ok(Origin::Fallback)));
    // What the backup cannot do fails as the store does.
    let key = key();
    let check = Check::new(&policy, &key, at(0)).idempotent("a", Millis::from_secs(60));
    assert_eq!(block_on(one.check(check)).unwrap_err().kind(), ErrorKind::Unavailable);
    // So does every check if the backup fails, too.
    backup.fail(Some(ErrorKind::Timeout));
    assert_eq!(admitted(&one, &policy, 0, 1), (0, Err(ErrorKind::Timeout)));
    store.fail(None);
    block_on(one.reset(&policy, Keys::from(&key))).unwrap();
    assert_eq!(admitted(&one, &policy, 2_000, 1), (1, Ok(Origin::Store)));

    let wide = Fallback::new(FlakyStore::default(), 50).unwrap();
    let error = Fallback::new(store, 50).unwrap().backup(wide).map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("max(50 % x limit, 1) x locations"), "{error}");
}

/// In whichever order the settings are made.
#[test]
fn a_backup_changes_no_other_setting() {
    let (store, policy, told) = (FlakyStore::default(), per_minute(60), Arc::new(Mutex::new(0)));
    let telling = Arc::clone(&told);
    let limiter = Fallback::new(store.clone(), 10).unwrap().breaker(1, Millis::from_secs(5)).observer(move |_| {
        *telling.lock().unwrap() += 1;
    });
    let limiter = limiter.at_most(Millis::from_secs(7)).backup(MemoryLimiter::new()).unwrap();
    store.fail(ErrorKind::Timeout);
    assert_eq!(admitted(&limiter, &policy, 0, 1), (1, Ok(Origin::Fallback)));
    let _ = admitted(&limiter, &policy, 4_999, 10);
    assert_eq!((store.take_checks(), *told.lock().unwrap()), (1, 1));
    assert_eq!(admitted(&limiter, &policy, 7_001, 1), (0, Err(ErrorKind::Timeout)));
}

fn quotas() -> impl Strategy<Value = Quota> {
    let span = 1_u64..5_000;
    prop_oneof![
        (1_u64..60, span.clone()).prop_map(|(limit, ms)| Quota::fixed_window(limit, Millis::new(ms))),
        (1_u64..60, span.clone()).prop_map(|(limit, ms)| Quota::sliding_window(limit, Millis::new(ms))),
        (1_u64..60, span.clone()).prop_map(|(limit, ms)| Quota::sliding_log(limit, Millis::new(ms))),
        (1_u64..60, 1_u64..20, span).prop_map(|(limit, refill, ms)| Quota::token_bucket(
            limit,
            refill,
            Millis::new(ms)
        )),
    ]
    .prop_map(Result::unwrap)
}

proptest! {
    /// In no interval do several processes admit more than the store's maximum and the share of each.
    #[test]
    fn no_interval_exceeds_the_bound(
        quota in quotas(),
        percent in 1_u8..=100,
        processes in 1_usize..4,
        steps in prop::collection::vec((0_u64..700, any::<bool>(), 0_usize..4, 1_u32..20), 1..40),
    ) {
        let policy = Policy::new("api", [quota]).unwrap();
        let store = FlakyStore::default();
        let fallback = || Fallback::new(store.clone(), percent).unwrap().breaker(1, Millis::new(300));
        let limiters: Vec<_> = (0..processes).map(|_| fallback()).collect();
        let (mut ms, mut history) = (0, Vec::new());
        for (pause, is_down, process, count) in steps {
            ms += pause;
            store.fail(is_down.then_some(ErrorKind::Timeout));
            let (admitted, _) = admitted(&limiters[process % processes], &policy, ms, count);
            history.push((at(ms), u64::from(admitted)));
        }
        let rule = policy.quotas()[0].rule();
        let accuracy = limiters[0].capabilities().accuracy;
        for (place, (first, _)) in history.iter().enumerate() {
            let mut total = 0;
            for (last, admitted) in &history[place..] {
                total += admitted;
                let limit = rule.maximum(*first, *last);
                let load = Load { limit, quota: rule.limit(), in_flight: 1, locations: processes as u64 };
                prop_assert!(total <= accuracy.ceiling(load), "{total} from {first:?} to {last:?}, {accuracy}");
            }
        }
    }

    /// Whatever the store does and does not answer, every charge that is settled until that succeeds is gone from it.
    #[test]
    fn a_charge_that_is_settled_is_in_no_store(
        limit in 1_u64..12,
        slots in any::<bool>(),
        steps in prop::collection::vec((0_u64..400, 0_u8..4, any::<bool>(), any::<bool>()), 1..60),
    ) {
        let quota = if slots { Quota::concurrency(limit, Millis::from_secs(600)) } else { Quota::fixed_window(limit, Millis::from_secs(86_400)) };
        let policy = Policy::new("api", [quota.unwrap()]).unwrap();
        let (store, key) = (FlakyStore::default(), key());
        let limiter = Fallback::new(store.clone(), 30).unwrap().breaker(2, Millis::new(300));
        let (mut ms, mut open) = (0, Vec::new());
        let settle = |token: &String, ms| block_on(limiter.settle(Settle::new(&policy, &key, token, 0, at(ms))));
        for (nth, (pause, health, is_retried, ends)) in steps.into_iter().enumerate() {
            ms += pause;
            match health {
                2 => store.lose_answers(ErrorKind::Timeout),
                _ => store.fail((health > 1).then_some(ErrorKind::Timeout)),
            }
            let token = nth.to_string();
            for _ in 0..=u8::from(is_retried) {
                let check = Check::new(&policy, &key, at(ms)).idempotent(&token, Millis::from_secs(600));
                let _ = block_on(limiter.check(check));
                ms += 50;
            }
            open.push(token);
            if ends {
                open.retain(|token| settle(token, ms).is_err_and(|error| error.kind() != ErrorKind::UnknownCharge));
            }
        }
        store.fail(None);
        ms += 1_000;
        for token in &open {
            let settled = settle(token, ms);
            prop_assert!(settled.is_ok() || settled.is_err_and(|error| error.kind() == ErrorKind::UnknownCharge));
        }
        let check = Check::new(&policy, &key, at(ms)).idempotent("last", Millis::from_secs(600));
        let left = block_on(store.memory().peek(check)).unwrap();
        prop_assert_eq!(left.binding().remaining(), Some(limit));
    }
}
