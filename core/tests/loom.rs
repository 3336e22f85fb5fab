//! The memory store under every interleaving of its locks.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p tidegate-core --test loom --release`
#![cfg(loom)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use loom::sync::Arc;
use loom::thread;
use tidegate_core::{Check, Key, MemoryLimiter, Millis, Policy, Quota, UnixMillis};

const NOW: UnixMillis = UnixMillis::new(1_800_000_000_000);

fn policy() -> Policy {
    Policy::new("test", [Quota::token_bucket(2, 1, Millis::from_secs(1)).unwrap()]).unwrap()
}

/// How many of the threads' checks of one key at `NOW` are admitted while `beside` runs.
fn admitted(threads: usize, limiter: &Arc<MemoryLimiter>, beside: impl FnOnce(&MemoryLimiter)) -> usize {
    let policy = Arc::new(policy());
    let threads: Vec<_> = (0..threads)
        .map(|_| {
            let (limiter, policy) = (Arc::clone(limiter), Arc::clone(&policy));
            thread::spawn(move || limiter.decide(Check::new(&policy, &Key::new("k"), NOW)).unwrap().is_allowed())
        })
        .collect();
    beside(limiter);
    threads.into_iter().filter_map(|thread| thread.join().unwrap().then_some(())).count()
}

#[test]
fn the_first_requests_of_a_key_admit_exactly_the_limit() {
    loom::model(|| {
        let limiter = Arc::new(MemoryLimiter::with_shards(1));
        assert_eq!(admitted(3, &limiter, |_| {}), 2);
        assert_eq!(limiter.len(), 1);
    });
}

#[test]
fn a_concurrent_sweep_admits_nothing_more() {
    loom::model(|| {
        let limiter = Arc::new(MemoryLimiter::with_shards(1));
        assert_eq!(admitted(2, &limiter, |limiter| limiter.sweep(NOW)), 2);
        assert!(!limiter.decide(Check::new(&policy(), &Key::new("k"), NOW)).unwrap().is_allowed());
    });
}

#[test]
fn a_retried_token_is_charged_once() {
    loom::model(|| {
        let (limiter, policy) = (Arc::new(MemoryLimiter::with_shards(1)), Arc::new(policy()));
        let retries: Vec<_> = (0..2)
            .map(|_| {
                let (limiter, policy) = (Arc::clone(&limiter), Arc::clone(&policy));
                thread::spawn(move || {
                    let key = Key::new("k");
                    limiter.decide(Check::new(&policy, &key, NOW).idempotent("t", Millis::from_secs(1))).unwrap()
                })
            })
            .collect();
        let answers: Vec<_> = retries.into_iter().map(|retry| retry.join().unwrap()).collect();
        assert_eq!(answers[0].quotas(), answers[1].quotas());
        assert_ne!(answers[0].is_replay(), answers[1].is_replay());
        let left = limiter.decide(Check::new(&policy, &Key::new("k"), NOW)).unwrap();
        assert_eq!(left.binding().remaining(), Some(0));
    });
}

/// Two requests lock the rows of two keys each, in either order. Neither waits for the other for ever, and together they admit
/// what the shared row has left.
#[test]
fn requests_of_several_keys_lock_in_one_order() {
    loom::model(|| {
        let second = Millis::from_secs(1);
        let quota = |limit, dimension| Quota::fixed_window(limit, second).unwrap().by(dimension).unwrap();
        let policy = Arc::new(Policy::new("test", [quota(5, "user"), quota(1, "tenant")]).unwrap());
        let limiter = Arc::new(MemoryLimiter::with_shards(4));
        let threads: Vec<_> = ["a", "b"]
            .map(|user| {
                let (limiter, policy) = (Arc::clone(&limiter), Arc::clone(&policy));
                thread::spawn(move || {
                    let (user, tenant) = (Key::new(user), Key::new("t"));
                    let keys = [("user", &user), ("tenant", &tenant)];
                    limiter.decide(Check::new(&policy, &keys, NOW)).unwrap().is_allowed()
                })
            })
            .into();
        let admitted = threads.into_iter().filter_map(|thread| thread.join().unwrap().then_some(())).count();
        assert_eq!(admitted, 1);
    });
}
