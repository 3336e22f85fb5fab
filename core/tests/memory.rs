//! The memory store: exact under threads, forgetful of what is unused, and of nothing else.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use pollster::block_on;
use proptest::prelude::*;
use tidegate_core::{Check, Key, Limiter, MemoryLimiter, Millis, Policy, Quota, Refund, UnixMillis};

const NOW: UnixMillis = UnixMillis::new(1_800_000_000_000);

fn policy(quota: Result<Quota, tidegate_core::Error>) -> Policy {
    Policy::new("test", [quota.unwrap()]).unwrap()
}

fn every_algorithm(limit: u64) -> [Policy; 5] {
    let second = Millis::from_secs(1);
    [
        policy(Quota::fixed_window(limit, second)),
        policy(Quota::sliding_window(limit, second)),
        policy(Quota::sliding_log(limit, second)),
        policy(Quota::token_bucket(limit, 1, second)),
        policy(Quota::leaky_bucket(limit, 1, second)),
    ]
}

#[test]
fn many_threads_admit_exactly_the_limit() {
    for policy in every_algorithm(700) {
        for key in ["first", "second", "third"].map(Key::new) {
            let (limiter, admitted, ready) = (MemoryLimiter::new(), AtomicU64::new(0), Barrier::new(16));
            thread::scope(|scope| {
                for _ in 0..16 {
                    scope.spawn(|| {
                        ready.wait();
                        for _ in 0..100 {
                            if limiter.decide(Check::new(&policy, &key, NOW)).is_allowed() {
                                admitted.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    });
                }
            });
            assert_eq!(admitted.into_inner(), 700, "{}", policy.id());
        }
    }
}

#[test]
fn many_threads_on_many_keys_admit_exactly_the_limit_of_each() {
    let policy = policy(Quota::token_bucket(5, 1, Millis::from_secs(1)));
    let (limiter, admitted) = (MemoryLimiter::with_shards(4), AtomicU64::new(0));
    thread::scope(|scope| {
        for thread in 0..8u64 {
            let (limiter, policy, admitted) = (&limiter, &policy, &admitted);
            scope.spawn(move || {
                for round in 0..10u64 {
                    for client in 0..500u64 {
                        let key = Key::new(format!("ip:{}", (client * 7 + thread * 31 + round) % 500));
                        if limiter.decide(Check::new(policy, &key, NOW)).is_allowed() {
                            admitted.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    assert_eq!(admitted.into_inner(), 5 * 500);
    assert_eq!(limiter.len(), 500);
}

#[test]
fn memory_follows_the_live_keys_and_not_all_the_keys_ever_seen() {
    let policy = policy(Quota::fixed_window(1, Millis::from_secs(1)));
    let limiter = MemoryLimiter::with_shards(8);
    let mut most = 0;
    for second in 0..200u64 {
        for client in 0..500u64 {
            let key = Key::new(format!("ip:{second}-{client}"));
            assert!(limiter.decide(Check::new(&policy, &key, NOW + Millis::from_secs(second))).is_allowed());
        }
        most = most.max(limiter.len());
    }
    assert!(most <= 2 * 500 + 8 * 64, "{most} keys held of 500 live ones");
    limiter.sweep(NOW + Millis::from_secs(200));
    assert!(limiter.is_empty());
}

#[test]
fn what_was_never_charged_is_not_kept() {
    let policy = policy(Quota::fixed_window(5, Millis::from_secs(1)));
    let limiter = MemoryLimiter::new();
    assert!(!limiter.decide(Check::new(&policy, &Key::new("big"), NOW).cost(6)).is_allowed());
    assert!(limiter.decide(Check::new(&policy, &Key::new("free"), NOW).cost(0)).is_allowed());
    block_on(limiter.peek(Check::new(&policy, &Key::new("seen"), NOW))).unwrap();
    block_on(limiter.refund(Refund::new(&policy, &Key::new("never"), 3, NOW, NOW))).unwrap();
    block_on(limiter.reset(&policy, &Key::new("never"))).unwrap();
    assert!(limiter.is_empty());
}

#[test]
fn policies_and_keys_do_not_share_counts() {
    let [window, .., bucket] = every_algorithm(1);
    let limiter = MemoryLimiter::new();
    for policy in [&window, &bucket] {
        for key in ["a", "b"].map(Key::new) {
            assert!(limiter.decide(Check::new(policy, &key, NOW)).is_allowed());
            assert!(!limiter.decide(Check::new(policy, &key, NOW)).is_allowed());
        }
    }
    block_on(limiter.reset(&window, &Key::new("a"))).unwrap();
    assert!(limiter.decide(Check::new(&window, &Key::new("a"), NOW)).is_allowed());
    assert!(!limiter.decide(Check::new(&bucket, &Key::new("a"), NOW)).is_allowed());
}

#[test]
fn a_token_answers_once_until_it_lapses() {
    let (policy, key, minute) =
        (policy(Quota::fixed_window(3, Millis::from_secs(600))), Key::new("k"), Millis::from_secs(60));
    let limiter = MemoryLimiter::new();
    let at = |ms, token| limiter.decide(Check::new(&policy, &key, NOW + Millis::new(ms)).idempotent(token, minute));
    let first = at(0, "a");
    assert_eq!(first.binding().remaining(), Some(2));
    assert_eq!(at(59_999, "a"), first);
    assert_eq!(at(59_999, "b").binding().remaining(), Some(1));
    assert_eq!(at(60_000, "a").binding().remaining(), Some(0));
    let denied = at(60_001, "c");
    assert!(!denied.is_allowed());
    block_on(limiter.refund(Refund::new(&policy, &key, 1, NOW, NOW))).unwrap();
    assert_eq!(at(60_002, "c"), denied, "a denial is a first answer too");
    assert!(at(60_003, "d").is_allowed());
}

#[test]
fn many_tokens_of_one_key_do_not_pile_up() {
    let (policy, key) = (policy(Quota::fixed_window(1_000_000, Millis::from_secs(60))), Key::new("k"));
    let limiter = MemoryLimiter::new();
    for request in 0..20_000u64 {
        let token = request.to_string();
        let check = Check::new(&policy, &key, NOW + Millis::new(request)).idempotent(&token, Millis::new(100));
        assert!(limiter.decide(check).is_allowed());
        assert_eq!(limiter.decide(check).binding().remaining(), limiter.decide(check).binding().remaining());
    }
    assert_eq!(limiter.decide(Check::new(&policy, &key, NOW)).binding().remaining(), Some(1_000_000 - 20_001));
}

proptest! {
    #[test]
    fn sweeping_changes_no_decision(
        sweeps in proptest::collection::vec(any::<bool>(), 60),
        requests in proptest::collection::vec((0..400u64, 0..3u8, 1..=4u64), 1..60),
    ) {
        for policy in every_algorithm(3) {
            let (swept, kept) = (MemoryLimiter::with_shards(1), MemoryLimiter::with_shards(1));
            let mut now = NOW;
            for (&(gap, key, cost), &sweep) in requests.iter().zip(&sweeps) {
                now = now + Millis::new(gap);
                if sweep {
                    swept.sweep(now);
                }
                let key = Key::new(key.to_string());
                let check = Check::new(&policy, &key, now).cost(cost);
                prop_assert_eq!(swept.decide(check), kept.decide(check));
            }
        }
    }
}
