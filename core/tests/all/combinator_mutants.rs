//! Each limiter around a limiter keeps its law, and one that is broken on purpose does not: so the laws can fail.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use pollster::block_on;
use tidegate_core::{
    Capabilities, Check, Decision, DenyCache, Error, ErrorKind, Fallback, Key, Limiter, LimiterExt, MemoryLimiter,
    Operation, Policy, Reply, Shadow, Sharded, Tiered, limiter_fn,
};
use tidegate_testing::{FlakyStore, at, key, named_per_minute, per_minute};

/// How many of `count` checks of a key are admitted.
fn admitted(limiter: &impl Limiter, policy: &Policy, ms: u64, count: u32) -> u32 {
    let key = key();
    let one = |_| block_on(limiter.check(Check::new(policy, &key, at(ms)))).is_ok_and(|decision| decision.is_allowed());
    (0..count).map(|nth| u32::from(one(nth))).sum()
}

/// A limiter whose checks are this function's.
fn mutant(check: impl Fn(Check<'_>) -> Result<Decision, Error> + Send + Sync) -> impl Limiter {
    limiter_fn(Capabilities::EXACT, move |operation| match operation {
        Operation::Check(asked) | Operation::Peek(asked) => check(asked).map(Reply::from),
        _ => Ok(Reply::Done),
    })
}

/// What the first tier denies costs the second nothing.
fn spares_the_second_tier(limiter: &impl Limiter, far: &FlakyStore) -> bool {
    admitted(limiter, &per_minute(5), 0, 100) == 5 && far.take_checks() == 20
}

#[test]
fn tiered() {
    let (near, flood) = (MemoryLimiter::new(), named_per_minute("flood", 20));
    let far = FlakyStore::default();
    assert!(spares_the_second_tier(&Tiered::new(MemoryLimiter::new(), flood.clone(), far.clone()).unwrap(), &far));
    let far = FlakyStore::default();
    let asks_both = mutant(|check: Check<'_>| {
        let second = block_on(far.check(check))?;
        let first = near.decide(Check::new(&flood, check.keys, check.now))?;
        Ok(if first.is_allowed() { second } else { first })
    });
    assert!(!spares_the_second_tier(&asks_both, &far));
}

/// A proposed limit never denies.
fn proposes_only(limiter: &impl Limiter) -> bool {
    admitted(limiter, &per_minute(50), 0, 100) == 50
}

#[test]
fn shadow() {
    assert!(proposes_only(&Shadow::new(MemoryLimiter::new(), per_minute(10))));
    let (memory, proposed) = (MemoryLimiter::new(), named_per_minute("proposed", 10));
    let denies_by_it = mutant(|check: Check<'_>| {
        let current = memory.decide(check)?;
        let other = memory.decide(Check::new(&proposed, check.keys, check.now))?;
        Ok(if other.is_allowed() { current } else { other })
    });
    assert!(!proposes_only(&denies_by_it));
}

/// All rows of a key together admit at most the limit.
fn shards_within_the_limit(limiter: &impl Limiter) -> bool {
    admitted(limiter, &per_minute(40), 0, 400) <= 40
}

#[test]
fn sharded() {
    let rows = NonZero::new(4).unwrap();
    assert!(shards_within_the_limit(&Sharded::new(MemoryLimiter::new(), rows)));
    let (memory, next) = (MemoryLimiter::new(), AtomicU32::new(0));
    let whole_limit_for_each_row = mutant(|check: Check<'_>| {
        let row = Key::new(format!("row:{}", next.fetch_add(1, Ordering::Relaxed) % 4));
        memory.decide(Check::new(check.policy, &row, check.now))
    });
    assert!(!shards_within_the_limit(&whole_limit_for_each_row));
}

/// An outage admits the share, and repeated ones no more.
fn admits_the_share(limiter: &impl Limiter, store: &FlakyStore) -> bool {
    let policy = per_minute(50);
    store.fail(ErrorKind::Unavailable);
    let first = admitted(limiter, &policy, 0, 100);
    store.fail(None);
    let between = admitted(limiter, &policy, 5_000, 10);
    store.fail(ErrorKind::Unavailable);
    first == 5 && between == 10 && admitted(limiter, &policy, 6_000, 100) == 0
}

#[test]
fn fallback() {
    let store = FlakyStore::default();
    assert!(admits_the_share(&Fallback::new(store.clone(), 10).unwrap(), &store));

    let (store, local) = (FlakyStore::default(), MemoryLimiter::new());
    let whole_limit = mutant(|check: Check<'_>| block_on(store.check(check)).or_else(|_| local.decide(check)));
    assert!(!admits_the_share(&whole_limit, &store));

    let store = FlakyStore::default();
    let forgets = mutant(|check: Check<'_>| {
        let share = per_minute(5);
        block_on(store.check(check)).or_else(|_| MemoryLimiter::new().decide(Check::new(&share, check.keys, check.now)))
    });
    assert!(!admits_the_share(&forgets, &store));
}

/// A denial is remembered as long as it lasts, and no longer.
fn forgets_in_time(limiter: &impl Limiter, store: &FlakyStore) -> bool {
    let policy = per_minute(5);
    let first = admitted(limiter, &policy, 0, 100);
    let asked = store.take_checks();
    first == 5 && asked == 6 && admitted(limiter, &policy, 60_000, 10) == 5
}

#[test]
fn deny_cache() {
    let store = FlakyStore::default();
    assert!(forgets_in_time(&DenyCache::new(store.clone()), &store));
    let (store, denied) = (FlakyStore::default(), AtomicBool::new(false));
    let never_forgets = mutant(|check: Check<'_>| {
        let decision = match denied.load(Ordering::Relaxed) {
            true => per_minute(1).decide(&mut per_minute(1).initial_state(), check.now, 2),
            false => block_on(store.check(check))?,
        };
        denied.fetch_or(!decision.is_allowed(), Ordering::Relaxed);
        Ok(decision)
    });
    assert!(!forgets_in_time(&never_forgets, &store));
}
