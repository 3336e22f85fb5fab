//! Limiters around limiters: tiered, shadow and sharded. The fallback and the deny cache have tests of their own.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::num::NonZero;
use std::sync::Arc;

use pollster::block_on;
use proptest::prelude::*;
use tidegate_core::{
    Accuracy, Check, Decision, ErrorKind, Key, Keys, Limiter, LimiterExt, Load, MemoryLimiter, Millis, Origin, Policy,
    Quota, Refund, Settle, Shadow, Sharded, Tiered,
};
use tidegate_testing::{FlakyStore, at, failing, key, named_per_minute, per_minute};

#[test]
fn a_request_that_the_first_tier_denies_costs_the_second_nothing() {
    let far = FlakyStore::default();
    let limiter = Tiered::new(MemoryLimiter::new(), named_per_minute("flood", 20), far.clone()).unwrap();
    let (strict, key) = (per_minute(5), key());
    let decisions: Vec<Decision> =
        (0..100).map(|_| block_on(limiter.check(Check::new(&strict, &key, at(0)))).unwrap()).collect();
    assert_eq!(decisions.iter().filter(|decision| decision.is_allowed()).count(), 5);
    assert_eq!(far.take_checks(), 20);
    let last = decisions.last().unwrap();
    assert_eq!((last.origin(), last.retry_after()), (Origin::Near, Some(Millis::from_secs(60))));
    // The quotas are those of the policy that was asked for.
    assert_eq!((last.quotas().len(), last.binding().limit(), last.binding().remaining()), (1, 5, None));
    block_on(limiter.reset(&strict, Keys::from(&key))).unwrap();
    assert!(block_on(limiter.check(Check::new(&strict, &key, at(0)))).unwrap().is_allowed());
}

/// The quota that denied in the first tier may be one that the policy does not have.
#[test]
fn a_denial_of_the_first_tier_is_by_the_first_quota_of_the_policy() {
    let second = |limit| Quota::fixed_window(limit, Millis::from_secs(1)).unwrap();
    let flood = Policy::new("flood", [second(9), Quota::fixed_window(1, Millis::from_secs(60)).unwrap()]).unwrap();
    let limiter = Tiered::new(MemoryLimiter::new(), flood, MemoryLimiter::new()).unwrap();
    let (policy, key) = (per_minute(5), Key::new("user:1"));
    let check = || block_on(limiter.check(Check::new(&policy, &key, at(0)))).unwrap();
    assert!(check().is_allowed());
    let denied = check();
    assert_eq!((denied.origin(), denied.binding_index(), denied.binding().limit()), (Origin::Near, 0, 5));
    assert_eq!((denied.binding().remaining(), denied.retry_after()), (None, Some(Millis::from_secs(60))));
}

#[test]
fn a_retry_with_a_token_gets_its_first_answer_whatever_the_first_tier_says() {
    let limiter = Tiered::new(MemoryLimiter::new(), named_per_minute("flood", 1), MemoryLimiter::new()).unwrap();
    let (strict, key) = (per_minute(5), key());
    let check = Check::new(&strict, &key, at(0));
    for _ in 0..3 {
        let _ = block_on(limiter.check(check)).unwrap();
    }
    let retried = check.idempotent("one", Millis::from_secs(60));
    assert!(block_on(limiter.check(retried)).unwrap().is_allowed());
    assert!(block_on(limiter.check(retried)).unwrap().is_replay());
    assert!(block_on(limiter.settle(Settle::new(&strict, &key, "one", 0, at(0)))).unwrap().is_allowed());
}

#[test]
fn the_second_tier_refunds_and_a_peek_asks_both() {
    let far = Arc::new(MemoryLimiter::new());
    let limiter = Tiered::new(MemoryLimiter::new(), named_per_minute("flood", 2), Arc::clone(&far)).unwrap();
    let (strict, key) = (per_minute(5), key());
    let check = Check::new(&strict, &key, at(0));
    assert_eq!([(); 3].map(|()| block_on(limiter.check(check)).unwrap().is_allowed()), [true, true, false]);
    block_on(limiter.refund(Refund::new(&strict, &key, 1, at(0), at(0)))).unwrap();
    assert_eq!(block_on(far.peek(check)).unwrap().binding().remaining(), Some(4));
    assert_eq!(block_on(limiter.peek(check)).unwrap().origin(), Origin::Near);
    // The first tier knows no tokens.
    let peeked = block_on(limiter.peek(check.idempotent("one", Millis::from_secs(60)))).unwrap();
    assert_eq!((peeked.is_allowed(), peeked.origin()), (true, Origin::Store));
}

#[test]
fn only_a_store_failure_of_the_first_tier_is_ignored() {
    for kind in ErrorKind::ALL {
        let limiter = Tiered::new(failing(kind), named_per_minute("flood", 20), MemoryLimiter::new()).unwrap();
        let (strict, key) = (per_minute(5), key());
        let decided = block_on(limiter.check(Check::new(&strict, &key, at(0))));
        assert_eq!(
            decided.map(|decision| decision.is_allowed()).map_err(|error| error.kind()),
            match kind {
                kind if kind.is_store_failure() => Ok(true),
                kind => Err(kind),
            }
        );
    }
}

/// A tier may count by another dimension than the usual limit, of which the proposal is.
#[test]
fn a_shadow_without_a_key_of_the_proposal_has_failed_and_counts_nothing() {
    let of = |dimension: &str| {
        Policy::new("api", [Quota::fixed_window(1, Millis::from_secs(60)).unwrap().by(dimension).unwrap()]).unwrap()
    };
    let (limiter, key) = (Shadow::new(MemoryLimiter::new(), of("tenant")), Key::new("user:7"));
    for admitted in [true, false] {
        let check = block_on(limiter.check(Check::new(&of("user"), &key, at(0)))).unwrap();
        assert_eq!(check.is_allowed(), admitted);
    }
    let counts = limiter.counts();
    assert_eq!((counts.failed, counts.both_admit, counts.both_deny, counts.only_current_denies), (2, 0, 0, 0));
}

#[test]
fn a_shadow_settles_and_refunds_both() {
    let limiter = Shadow::new(MemoryLimiter::new(), per_minute(10));
    let (current, key, hour) = (per_minute(100), key(), Millis::from_secs(3_600));
    let check =
        |cost, token| block_on(limiter.check(Check::new(&current, &key, at(0)).cost(cost).idempotent(token, hour)));
    assert!(check(10, "a").unwrap().is_allowed());
    assert!(block_on(limiter.settle(Settle::new(&current, &key, "a", 0, at(0)))).unwrap().is_allowed());
    assert!(check(10, "b").unwrap().is_allowed());
    assert_eq!(limiter.counts().both_admit, 2);
    block_on(limiter.refund(Refund::new(&current, &key, 10, at(0), at(0)))).unwrap();
    assert!(check(10, "c").unwrap().is_allowed());
    assert_eq!((limiter.counts().both_admit, limiter.counts().only_proposal_denies), (3, 0));
    block_on(limiter.reset(&current, Keys::from(&key))).unwrap();
    assert!(check(10, "d").unwrap().is_allowed());
    assert_eq!(limiter.counts().both_admit, 4);
}

#[test]
fn what_a_sharded_limiter_cannot_do_is_an_error() {
    let limiter = Sharded::new(MemoryLimiter::new(), NonZero::new(8).unwrap());
    let (low, high, key) = (per_minute(7), per_minute(8), Key::new("everyone"));
    let check = |policy| block_on(limiter.check(Check::new(policy, &key, at(0)))).map(|decision| decision.is_allowed());
    assert_eq!(check(&low).unwrap_err().kind(), ErrorKind::Invalid);
    for _ in 0..8 {
        assert!(check(&high).unwrap());
    }
    assert!(!check(&high).unwrap());
    block_on(limiter.reset(&high, Keys::from(&key))).unwrap();
    assert!(check(&high).unwrap());
    let peeked = block_on(limiter.peek(Check::new(&high, &key, at(0))));
    assert_eq!(peeked.unwrap_err().kind(), ErrorKind::Unsupported);
    let refunded = block_on(limiter.refund(Refund::new(&high, &key, 1, at(0), at(0))));
    assert_eq!(refunded.unwrap_err().kind(), ErrorKind::Unsupported);
}

/// Each process may hold up to two units of each row that the others cannot use.
#[test]
fn a_sharded_limiter_declares_the_least_that_it_admits() {
    let limiter = Sharded::new(MemoryLimiter::new(), NonZero::new(8).unwrap());
    let load = Load { limit: 100, quota: 100, in_flight: 1, locations: 3 };
    assert_eq!(limiter.capabilities().accuracy.floor(load), 100 - 2 * 8 * 3);
}

proptest! {
    /// A shadow never changes a decision.
    #[test]
    fn a_shadow_decides_as_the_limiter_without_it(
        current in 1_u64..20,
        proposed in 1_u64..20,
        steps in prop::collection::vec((0_u64..90_000, 0_u64..3, 1_u64..4), 1..60),
    ) {
        let (plain, shadow) = (MemoryLimiter::new(), Shadow::new(MemoryLimiter::new(), per_minute(proposed)));
        let (policy, mut ms) = (per_minute(current), 0);
        for (pause, key, cost) in steps {
            ms += pause;
            let key = Key::new(format!("user:{key}"));
            let check = Check::new(&policy, &key, at(ms)).cost(cost);
            prop_assert_eq!(block_on(plain.check(check)).unwrap(), block_on(shadow.check(check)).unwrap());
        }
    }

    /// Processes that spread one key over rows stay within the limit, and reach its floor.
    #[test]
    fn a_sharded_key_stays_within_its_bounds(
        limit in 16_u64..200,
        rows in 1_u16..6,
        processes in 1_usize..4,
        order in prop::collection::vec(0_usize..4, 300..400),
        bucket in any::<bool>(),
        pauses in prop::collection::vec(0_u64..40, 300..400),
    ) {
        let store = Arc::new(MemoryLimiter::new());
        let sharded: Vec<_> =
            (0..processes).map(|_| Sharded::new(Arc::clone(&store), NonZero::new(rows).unwrap())).collect();
        let minute = Millis::from_secs(60);
        let of = |limit| if bucket { Quota::token_bucket(limit, limit, minute) } else { Quota::fixed_window(limit, minute) };
        let policy = Policy::new("all", [of(limit).unwrap()]).unwrap();
        let accuracy = sharded[0].capabilities().accuracy;
        let load = |limit| Load { limit, quota: limit, in_flight: 1, locations: processes as u64 };
        let least = of(accuracy.floor(load(limit)).max(1)).map(|quota| Policy::new("least", [quota]).unwrap()).unwrap();
        prop_assert!(matches!(accuracy, Accuracy::Approximate(_)));
        let (key, mut ms, mut admitted, mut by_the_least) = (Key::new("everyone"), 0, 0, 0);
        let reference = MemoryLimiter::new();
        for (process, pause) in order.iter().zip(&pauses) {
            ms += pause;
            admitted += u64::from(block_on(sharded[process % processes].check(Check::new(&policy, &key, at(ms)))).unwrap().is_allowed());
            by_the_least += u64::from(block_on(reference.check(Check::new(&least, &key, at(ms)))).unwrap().is_allowed());
            let most = policy.quotas()[0].rule().maximum(at(0), at(ms));
            prop_assert!(admitted <= accuracy.ceiling(load(most)), "{admitted} of {most}");
            let floor = if accuracy.floor(load(limit)) == 0 { 0 } else { by_the_least };
            prop_assert!(admitted >= floor, "{admitted}, but the floor is {floor} ({accuracy})");
        }
    }
}
