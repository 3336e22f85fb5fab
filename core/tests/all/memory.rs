//! The memory store: it is exact with many threads, its memory is bounded, and removing keys changes no decision.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use pollster::block_on;
use proptest::prelude::*;
use tidegate_core::{
    Check, ErrorKind, Key, LimiterExt, MemoryLimiter, Millis, Policy, Quota, Refund, Settle, UnixMillis,
};
use tidegate_testing::{NOW, SECOND, at, key, of_each_algorithm, per_minute, policy};

#[test]
fn many_threads_admit_exactly_the_limit() {
    for policy in of_each_algorithm(700, 1, SECOND) {
        for key in ["first", "second", "third"].map(Key::new) {
            let (limiter, admitted, ready) = (MemoryLimiter::new(), AtomicU64::new(0), Barrier::new(16));
            thread::scope(|scope| {
                for _ in 0..16 {
                    scope.spawn(|| {
                        ready.wait();
                        for _ in 0..100 {
                            if limiter.decide(Check::new(&policy, &key, NOW)).unwrap().is_allowed() {
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
                        if limiter.decide(Check::new(policy, &key, NOW)).unwrap().is_allowed() {
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

/// A table that grows and shrinks in parts keeps each key's count, and finds all expired keys.
#[test]
fn a_shard_of_many_keys_grows_and_shrinks_without_losing_a_count() {
    let [brief, long] = [60, 600].map(|secs| policy(Quota::fixed_window(2, Millis::from_secs(secs))));
    let limiter = MemoryLimiter::with_shards(1);
    let admits = |policy: &Policy, client: u32, now| {
        limiter.decide(Check::new(policy, &Key::new(format!("ip:{client}")), now)).unwrap().is_allowed()
    };
    for client in 0..20_000 {
        let policy = if client % 100 == 0 { &long } else { &brief };
        assert!(admits(policy, client, NOW) && admits(policy, client, NOW) && !admits(policy, client, NOW), "{client}");
    }
    assert_eq!(limiter.len(), 20_000);
    let (full, later) = (limiter.allocated_bytes(), NOW + Millis::from_secs(120));
    for call in 0..20_000 {
        assert!(!admits(&long, call % 200 * 100, later), "{call}");
    }
    assert!(limiter.len() <= 200 + 16, "{} keys", limiter.len());
    assert!(limiter.allocated_bytes() < full / 8, "{} of {full} bytes", limiter.allocated_bytes());
    limiter.sweep(later);
    assert_eq!(limiter.len(), 200);
    assert!((0..200).all(|client| !admits(&long, client * 100, later)));
}

#[test]
fn the_number_of_stored_keys_follows_the_live_keys() {
    let policy = policy(Quota::fixed_window(1, Millis::from_secs(1)));
    let limiter = MemoryLimiter::with_shards(8);
    let mut most = 0;
    for second in 0..200u64 {
        for client in 0..500u64 {
            let key = Key::new(format!("ip:{second}-{client}"));
            assert!(limiter.decide(Check::new(&policy, &key, NOW + Millis::from_secs(second))).unwrap().is_allowed());
        }
        most = most.max(limiter.len());
    }
    assert!(most <= 2 * 500 + 8 * 64, "{most} keys stored for 500 live ones");
    limiter.sweep(NOW + Millis::from_secs(200));
    assert!(limiter.is_empty());
}

#[test]
fn requests_that_charge_nothing_store_nothing() {
    let policy = policy(Quota::fixed_window(5, Millis::from_secs(1)));
    let limiter = MemoryLimiter::new();
    assert!(!limiter.decide(Check::new(&policy, &Key::new("big"), NOW).cost(6)).unwrap().is_allowed());
    assert!(limiter.decide(Check::new(&policy, &Key::new("free"), NOW).cost(0)).unwrap().is_allowed());
    block_on(limiter.peek(Check::new(&policy, &Key::new("seen"), NOW))).unwrap();
    block_on(limiter.refund(Refund::new(&policy, &Key::new("never"), 3, NOW, NOW))).unwrap();
    block_on(limiter.reset(&policy, (&Key::new("never")).into())).unwrap();
    assert!(limiter.is_empty());
}

#[test]
fn policies_and_keys_do_not_share_counts() {
    let [window, .., bucket] = of_each_algorithm(1, 1, SECOND);
    let limiter = MemoryLimiter::new();
    for policy in [&window, &bucket] {
        for key in ["a", "b"].map(Key::new) {
            assert!(limiter.decide(Check::new(policy, &key, NOW)).unwrap().is_allowed());
            assert!(!limiter.decide(Check::new(policy, &key, NOW)).unwrap().is_allowed());
        }
    }
    block_on(limiter.reset(&window, (&Key::new("a")).into())).unwrap();
    assert!(limiter.decide(Check::new(&window, &Key::new("a"), NOW)).unwrap().is_allowed());
    assert!(!limiter.decide(Check::new(&bucket, &Key::new("a"), NOW)).unwrap().is_allowed());
}

#[test]
fn a_token_returns_its_first_answer_until_it_expires() {
    let (policy, key, minute) =
        (policy(Quota::fixed_window(3, Millis::from_secs(600))), Key::new("k"), Millis::from_secs(60));
    let limiter = MemoryLimiter::new();
    let at = |ms, token| limiter.decide(Check::new(&policy, &key, at(ms)).idempotent(token, minute)).unwrap();
    let first = at(0, "a");
    assert_eq!(first.binding().remaining(), Some(2));
    let again = at(59_999, "a");
    assert_eq!((first.is_replay(), again.is_replay()), (false, true));
    assert_eq!((again.quotas(), again.decided_at()), (first.quotas(), first.decided_at()));
    assert_eq!(at(59_999, "b").binding().remaining(), Some(1));
    assert_eq!(at(60_000, "a").binding().remaining(), Some(0));
    let denied = at(60_001, "c");
    assert!(!denied.is_allowed());
    block_on(limiter.refund(Refund::new(&policy, &key, 1, NOW, NOW))).unwrap();
    assert!(at(60_002, "c").is_allowed(), "a denial is not remembered");
    assert!(!at(60_003, "d").is_allowed());
}

#[test]
fn a_denied_retry_after_its_answer_expired_forgets_no_answer() {
    let limiter = MemoryLimiter::new();
    let policy = policy(Quota::fixed_window(1, Millis::new(10)));
    let key = Key::new("a");
    let check = |now: u64, cost| {
        let check = Check::new(&policy, &key, UnixMillis::new(now)).cost(cost).idempotent("token", Millis::new(10));
        limiter.decide(check).unwrap()
    };
    assert!(check(0, 1).is_allowed());
    assert!(!check(1_000, 2).is_allowed());
    // A clock that steps back sees the first answer in force.
    assert!(check(0, 1).is_replay());
}

#[test]
fn expired_answers_of_many_tokens_are_removed() {
    let (policy, key) = (per_minute(1_000_000), Key::new("k"));
    let limiter = MemoryLimiter::new();
    for request in 0..20_000u64 {
        let token = request.to_string();
        let check = Check::new(&policy, &key, at(request)).idempotent(&token, Millis::new(100));
        assert!(limiter.decide(check).unwrap().is_allowed());
        assert_eq!(
            limiter.decide(check).unwrap().binding().remaining(),
            limiter.decide(check).unwrap().binding().remaining()
        );
    }
    assert_eq!(limiter.decide(Check::new(&policy, &key, NOW)).unwrap().binding().remaining(), Some(1_000_000 - 20_001));
    // At one request per millisecond, expired answers stay for at most a second and the time of one pass over the
    // table.
    assert!(limiter.allocated_bytes() < 1 << 20, "{}", limiter.allocated_bytes());
}

#[test]
fn calls_for_one_key_remove_all_expired_keys_and_return_their_memory() {
    let policy = policy(Quota::token_bucket(5, 1, Millis::from_secs(1)));
    let limiter = MemoryLimiter::with_shards(16);
    for client in 0..100_000u64 {
        assert!(limiter.decide(Check::new(&policy, &Key::new(format!("ip:{client}")), NOW)).unwrap().is_allowed());
    }
    let held = limiter.allocated_bytes();
    let key = Key::new("ip:live");
    let later = NOW + Millis::from_secs(60);
    for _ in 0..50_000 {
        let _ = limiter.decide(Check::new(&policy, &key, later));
    }
    // A shard does not sweep the few keys that remain.
    assert!(limiter.len() <= 16 * 16, "{} keys are stored, of which one is live", limiter.len());
    assert!(limiter.allocated_bytes() <= held / 64, "{} of {held} bytes", limiter.allocated_bytes());
}

#[test]
fn keys_from_a_clock_a_year_ahead_are_removed_within_minutes() {
    let (policy, year) = (policy(Quota::fixed_window(5, Millis::from_secs(10))), Millis::from_secs(365 * 86_400));
    let limiter = MemoryLimiter::with_shards(1);
    for client in 0..1_000u64 {
        let _ = limiter.decide(Check::new(&policy, &Key::new(format!("ip:{client}")), NOW + year));
    }
    let check_at = |second| {
        for _ in 0..2_000 {
            let _ = limiter.decide(Check::new(&policy, &Key::new("live"), NOW + Millis::from_secs(second)));
        }
        limiter.len()
    };
    assert_eq!(check_at(0), 1_001);
    assert_eq!(check_at(69), 1_001);
    assert!(check_at(71) <= 16, "a minute and a window later");
}

#[test]
fn a_raised_capacity_of_a_bucket_keeps_its_keys_longer() {
    let bucket = |capacity| policy(Quota::token_bucket(capacity, 1, Millis::from_secs(1)));
    let (small, large, limiter) = (bucket(10), bucket(1_000), MemoryLimiter::with_shards(1));
    for client in 0..100u64 {
        let _ = limiter.decide(Check::new(&small, &Key::new(format!("ip:{client}")), NOW));
    }
    let (key, later) = (Key::new("ip:7"), NOW + Millis::from_secs(1));
    assert!(limiter.decide(Check::new(&large, &key, later).cost(999)).unwrap().is_allowed());
    let much_later = NOW + Millis::from_secs(400);
    for _ in 0..1_000 {
        let _ = limiter.decide(Check::new(&large, &Key::new("other"), much_later));
    }
    assert!(!limiter.decide(Check::new(&large, &key, much_later).cost(500)).unwrap().is_allowed());
}

#[test]
fn a_sliding_window_is_kept_until_the_end_of_the_next_window() {
    let (limiter, key, hour) = (MemoryLimiter::with_shards(1), Key::new("k"), Millis::from_secs(3_600));
    let policy = policy(Quota::sliding_window(10, hour));
    assert_eq!(NOW.get() % hour.get(), 0);
    assert!(limiter.decide(Check::new(&policy, &key, NOW).cost(10)).unwrap().is_allowed());
    // Two minutes into the next window, the previous one still counts 58 sixtieths.
    let later = NOW + hour + Millis::from_secs(120);
    limiter.sweep(NOW);
    limiter.sweep(later);
    assert!(!limiter.decide(Check::new(&policy, &key, later)).unwrap().is_allowed());
}

proptest! {
    #[test]
    fn sweeping_changes_no_decision(
        sweeps in proptest::collection::vec(any::<bool>(), 60),
        requests in proptest::collection::vec((0..400u64, 0..3u8, 1..=4u64), 1..60),
    ) {
        for policy in of_each_algorithm(3, 1, SECOND) {
            let (swept, kept) = (MemoryLimiter::with_shards(1), MemoryLimiter::with_shards(1));
            let mut now = NOW;
            for (&(gap, key, cost), &sweep) in requests.iter().zip(&sweeps) {
                now = now + Millis::new(gap);
                if sweep {
                    swept.sweep(now);
                }
                let key = Key::new(key.to_string());
                let check = Check::new(&policy, &key, now).cost(cost);
                prop_assert_eq!(swept.decide(check).unwrap(), kept.decide(check).unwrap());
            }
        }
    }
}

/// Forty users of one tenant race for the tenant's last units. Each also has a limit of its own.
#[test]
fn users_race_for_their_tenants_last_units() {
    let minute = Millis::from_secs(60);
    let quota = |limit, dimension| Quota::fixed_window(limit, minute).unwrap().by(dimension).unwrap();
    let policy = Policy::new("api", [quota(10, "user"), quota(100, "tenant"), quota(1_000, "all")]).unwrap();
    let (limiter, admitted) = (MemoryLimiter::new(), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for user in 0..40 {
            let (limiter, policy, admitted) = (&limiter, &policy, &admitted);
            scope.spawn(move || {
                let (user, tenant, all) = (Key::new(format!("user:{user}")), Key::new("tenant:1"), Key::new("all"));
                let keys = [("user", &user), ("tenant", &tenant), ("all", &all)];
                for _ in 0..50 {
                    let decision = limiter.decide(Check::new(policy, &keys, NOW)).unwrap();
                    admitted.fetch_add(u64::from(decision.is_allowed()), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(admitted.into_inner(), 100);
    // A denial charged nothing: the quota of all has what the tenant was charged.
    let (other, all) = (Key::new("tenant:2"), Key::new("all"));
    let (user, keys) = (Key::new("user:0"), |user, other, all| [("user", user), ("tenant", other), ("all", all)]);
    let left = block_on(limiter.peek(Check::new(&policy, &keys(&user, &other, &all), NOW))).unwrap();
    assert_eq!(left.quotas()[2].remaining(), Some(900));
    let without = [("user", &user), ("all", &all)];
    let error = limiter.decide(Check::new(&policy, &without, NOW)).unwrap_err();
    assert_eq!(error.to_string(), "keys: the dimension \"tenant\" has no key; give one for each dimension");
    let twice = [("user", &user), ("user", &other), ("tenant", &other), ("all", &all)];
    assert_eq!(limiter.decide(Check::new(&policy, &twice, NOW)).unwrap_err().kind(), ErrorKind::Invalid);
}

/// Refunds, settlements and resets of a policy by several keys correct the counts of each of them.
#[test]
fn the_counts_of_several_keys_are_corrected_together() {
    let minute = Millis::from_secs(60);
    let by = |limit, dimension| Quota::fixed_window(limit, minute).unwrap().by(dimension).unwrap();
    let policy = Policy::new("api", [by(10, "user"), by(100, "tenant")]).unwrap();
    // The answers to the tokens of all keys are in one shard.
    let (limiter, tenant) = (MemoryLimiter::with_shards(1), Key::new("tenant:1"));
    let users = ["user:1", "user:2"].map(Key::new);
    let [keys, others] = users.each_ref().map(|user| [("user", user), ("tenant", &tenant)]);
    let check = Check::new(&policy, &keys, NOW).cost(6).idempotent("a", minute);
    let left = || {
        let peeked = block_on(limiter.peek(Check::new(&policy, &keys, NOW))).unwrap();
        [0, 1].map(|place| peeked.quotas()[place].remaining().unwrap())
    };
    assert!(limiter.decide(check).unwrap().is_allowed());
    assert_eq!(left(), [4, 94]);
    // A token belongs to its keys: with another user, it is a new one.
    let other = limiter.decide(Check::new(&policy, &others, NOW).cost(6).idempotent("a", minute)).unwrap();
    assert!(other.is_allowed() && !other.is_replay());
    let unknown = block_on(limiter.settle(Settle::new(&policy, &others, "b", 1, NOW)));
    assert_eq!(unknown.unwrap_err().kind(), ErrorKind::UnknownCharge);
    assert_eq!(left(), [4, 88]);
    let settled = block_on(limiter.settle(Settle::new(&policy, &keys, "a", 2, NOW))).unwrap();
    assert_eq!([0, 1].map(|place| settled.quotas()[place].remaining()), [Some(8), Some(92)]);
    block_on(limiter.refund(Refund::new(&policy, &keys, 1, NOW, NOW))).unwrap();
    assert_eq!(left(), [9, 93]);
    block_on(limiter.reset(&policy, (&keys).into())).unwrap();
    assert_eq!(left(), [10, 100]);
}

/// A block of an hour outlives the window of a second beside it.
#[test]
fn a_penalty_is_kept_while_it_blocks_and_its_violations_count() {
    let (second, hour, day) = (Millis::from_secs(1), Millis::from_secs(3_600), Millis::from_secs(86_400));
    let quotas = [Quota::fixed_window(1, second).unwrap(), Quota::penalty(hour, 2, day).unwrap()];
    let policy = Policy::new("api", quotas).unwrap();
    let (limiter, key) = (MemoryLimiter::with_shards(1), key());
    let wait = |ms| {
        limiter.sweep(at(ms));
        limiter.decide(Check::new(&policy, &key, at(ms))).unwrap().retry_after()
    };
    assert_eq!([wait(0), wait(1)], [None, Some(hour)]);
    assert_eq!([wait(3_000_000), wait(3_600_001)], [Some(Millis::new(600_001)), None]);
    // The second violation blocks for longer than the first.
    assert_eq!(wait(3_600_002), Some(Millis::from_secs(7_200)));
}

#[test]
fn a_secret_leaves_the_other_settings_as_they_are() {
    let policy = per_minute(1);
    let limiter = MemoryLimiter::with_shards(1).max_keys(16).secret([1, 2]);
    assert!(limiter.is_empty());
    for client in 0..100u64 {
        let _ = limiter.decide(Check::new(&policy, &Key::new(format!("ip:{client}")), NOW)).unwrap();
    }
    assert!((16..=32).contains(&limiter.len()) && !limiter.is_empty(), "{}", limiter.len());
}

/// A sweep returns the memory of answers, too, even if a clock that was ahead remembered them.
#[test]
fn a_sweep_removes_answers() {
    let (policy, year) =
        (policy(Quota::fixed_window(1_000_000, Millis::from_secs(1))), Millis::from_secs(365 * 86_400));
    let slots = Policy::new("slots", [Quota::concurrency(1_000, Millis::from_secs(1)).unwrap()]).unwrap();
    for policy in [policy, slots] {
        let (limiter, key) = (MemoryLimiter::with_shards(1), Key::new("k"));
        for token in 0..10_000u64 {
            let (token, now) = (token.to_string(), NOW + year);
            let check = Check::new(&policy, &key, now).idempotent(&token, Millis::new(1));
            assert!(limiter.decide(check).unwrap().is_allowed());
            block_on(limiter.settle(Settle::release(&policy, &key, &token, now))).unwrap();
        }
        let held = limiter.allocated_bytes();
        assert!(held > 10_000 * 128, "{held}");
        // What a clock that is ahead remembered expires a minute or so after the next sweep.
        for minutes in [0, 2, 4, 6] {
            limiter.sweep(NOW + Millis::from_secs(60 * minutes));
        }
        assert!(limiter.allocated_bytes() < held / 64, "{} of {held} bytes", limiter.allocated_bytes());
    }
}

/// 2,000 requests under one token, with a limit of 5.
#[test]
fn a_token_is_bound_to_its_cost_and_pays_out_once() {
    let (policy, key) = (per_minute(5), Key::new("k"));
    let limiter = MemoryLimiter::new();
    let check = Check::new(&policy, &key, NOW).idempotent("t", Millis::from_secs(60));
    let replays = (0..2_000).filter(|_| limiter.decide(check).unwrap().is_replay()).count();
    assert_eq!(replays, 1_999);
    assert_eq!(limiter.decide(check.cost(2)).unwrap_err().kind(), ErrorKind::TokenReused);
    let settle = |cost| block_on(limiter.settle(Settle::new(&policy, &key, "t", cost, NOW)));
    assert!(!settle(0).unwrap().is_replay());
    assert!((0..105).all(|_| settle(0).unwrap().is_replay()));
    assert_eq!(settle(0).unwrap().binding().remaining(), Some(5));
    assert_eq!(settle(1 << 60).unwrap_err().kind(), ErrorKind::Invalid);
    let unknown = block_on(limiter.settle(Settle::new(&policy, &Key::new("other"), "t", 1, NOW)));
    assert_eq!(unknown.unwrap_err().kind(), ErrorKind::UnknownCharge);
}

#[test]
fn a_slot_needs_a_token() {
    let policy = policy(Quota::concurrency(1, Millis::from_secs(60)));
    let (limiter, key, now) = (MemoryLimiter::new(), Key::new("user:1"), UnixMillis::new(0));
    let nameless = Check::new(&policy, &key, now);
    assert_eq!(limiter.decide(nameless).unwrap_err().kind(), ErrorKind::Invalid);
    let named = nameless.idempotent("request-1", Millis::from_secs(60));
    assert!(limiter.decide(named).unwrap().is_allowed());
}

#[test]
fn a_blank_token_is_an_error_and_no_retry() {
    let (limiter, policy, key) = (MemoryLimiter::new(), per_minute(1), Key::new("user:1"));
    let check = Check::new(&policy, &key, NOW);
    for token in ["", " \t"] {
        let error = limiter.decide(check.idempotent(token, Millis::from_secs(60))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("the token is empty; give one"), "{error}");
    }
    assert!(limiter.decide(check).unwrap().is_allowed());
}
