//! Each limiter around a limiter keeps its law, and one that is broken on purpose does not: so the laws can fail.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use pollster::block_on;
use tidegate_core::{
    Capabilities, Check, Decision, DenyCache, Error, ErrorKind, Fallback, Key, Limiter, LimiterExt, MemoryLimiter,
    Millis, Operation, Policy, Quota, Reply, Shadow, Sharded, Tiered, UnixMillis, limiter_fn,
};

fn at(ms: u64) -> UnixMillis {
    UnixMillis::new(1_800_000_000_000 + ms)
}

fn policy(name: &str, limit: u64) -> Policy {
    Policy::new(name, [Quota::fixed_window(limit, Millis::from_secs(60)).unwrap()]).unwrap()
}

/// How many of `count` checks of a key are admitted.
fn admitted(limiter: &impl Limiter, policy: &Policy, ms: u64, count: u32) -> u32 {
    let key = Key::new("ip:192.0.2.1");
    let one = |_| block_on(limiter.check(Check::new(policy, &key, at(ms)))).is_ok_and(|decision| decision.is_allowed());
    (0..count).map(|nth| u32::from(one(nth))).sum()
}

/// A store that counts its calls, and may be down.
#[derive(Clone, Default)]
struct Store(Arc<Inner>);

#[derive(Default)]
struct Inner {
    memory: MemoryLimiter,
    calls: AtomicU32,
    is_down: AtomicBool,
}

impl Limiter for Store {
    fn capabilities(&self) -> Capabilities {
        Capabilities::EXACT
    }

    async fn apply(&self, operation: Operation<'_>) -> Result<Reply, Error> {
        if let Operation::Check(_) = operation {
            self.0.calls.fetch_add(1, Ordering::Relaxed);
            if self.0.is_down.load(Ordering::Relaxed) {
                return Err(Error::new(ErrorKind::Unavailable, "down"));
            }
        }
        self.0.memory.apply(operation).await
    }
}

/// A limiter whose checks are this function's.
fn mutant(check: impl Fn(Check<'_>) -> Result<Decision, Error> + Send + Sync) -> impl Limiter {
    limiter_fn(Capabilities::EXACT, move |operation| match operation {
        Operation::Check(asked) | Operation::Peek(asked) => check(asked).map(Reply::from),
        _ => Ok(Reply::Done),
    })
}

/// What the first tier denies costs the second nothing.
fn spares_the_second_tier(limiter: &impl Limiter, far: &Store) -> bool {
    admitted(limiter, &policy("api", 5), 0, 100) == 5 && far.0.calls.load(Ordering::Relaxed) == 20
}

#[test]
fn tiered() {
    let (near, flood) = (MemoryLimiter::new(), policy("flood", 20));
    let far = Store::default();
    assert!(spares_the_second_tier(&Tiered::new(MemoryLimiter::new(), flood.clone(), far.clone()).unwrap(), &far));
    let far = Store::default();
    let asks_both = mutant(|check: Check<'_>| {
        let second = block_on(far.check(check))?;
        let first = near.decide(Check::new(&flood, check.keys, check.now))?;
        Ok(if first.is_allowed() { second } else { first })
    });
    assert!(!spares_the_second_tier(&asks_both, &far));
}

/// A proposed limit never denies.
fn proposes_only(limiter: &impl Limiter) -> bool {
    admitted(limiter, &policy("api", 50), 0, 100) == 50
}

#[test]
fn shadow() {
    assert!(proposes_only(&Shadow::new(MemoryLimiter::new(), policy("api", 10))));
    let (memory, proposed) = (MemoryLimiter::new(), policy("proposed", 10));
    let denies_by_it = mutant(|check: Check<'_>| {
        let current = memory.decide(check)?;
        let other = memory.decide(Check::new(&proposed, check.keys, check.now))?;
        Ok(if other.is_allowed() { current } else { other })
    });
    assert!(!proposes_only(&denies_by_it));
}

/// All rows of a key together admit at most the limit.
fn shards_within_the_limit(limiter: &impl Limiter) -> bool {
    admitted(limiter, &policy("api", 40), 0, 400) <= 40
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
fn admits_the_share(limiter: &impl Limiter, store: &Store) -> bool {
    let policy = policy("api", 50);
    store.0.is_down.store(true, Ordering::Relaxed);
    let first = admitted(limiter, &policy, 0, 100);
    store.0.is_down.store(false, Ordering::Relaxed);
    let between = admitted(limiter, &policy, 5_000, 10);
    store.0.is_down.store(true, Ordering::Relaxed);
    first == 5 && between == 10 && admitted(limiter, &policy, 6_000, 100) == 0
}

#[test]
fn fallback() {
    let store = Store::default();
    assert!(admits_the_share(&Fallback::new(store.clone(), 10).unwrap(), &store));

    let (store, local) = (Store::default(), MemoryLimiter::new());
    let whole_limit = mutant(|check: Check<'_>| block_on(store.check(check)).or_else(|_| local.decide(check)));
    assert!(!admits_the_share(&whole_limit, &store));

    let store = Store::default();
    let forgets = mutant(|check: Check<'_>| {
        let share = policy("api", 5);
        block_on(store.check(check)).or_else(|_| MemoryLimiter::new().decide(Check::new(&share, check.keys, check.now)))
    });
    assert!(!admits_the_share(&forgets, &store));
}

/// A denial is remembered as long as it lasts, and no longer.
fn forgets_in_time(limiter: &impl Limiter, store: &Store) -> bool {
    let policy = policy("api", 5);
    let first = admitted(limiter, &policy, 0, 100);
    let asked = store.0.calls.load(Ordering::Relaxed);
    first == 5 && asked == 6 && admitted(limiter, &policy, 60_000, 10) == 5
}

#[test]
fn deny_cache() {
    let store = Store::default();
    assert!(forgets_in_time(&DenyCache::new(store.clone()), &store));
    let (store, denied) = (Store::default(), AtomicBool::new(false));
    let never_forgets = mutant(|check: Check<'_>| {
        let decision = match denied.load(Ordering::Relaxed) {
            true => policy("api", 1).decide(&mut policy("api", 1).initial_state(), check.now, 2),
            false => block_on(store.check(check))?,
        };
        denied.fetch_or(!decision.is_allowed(), Ordering::Relaxed);
        Ok(decision)
    });
    assert!(!forgets_in_time(&never_forgets, &store));
}
