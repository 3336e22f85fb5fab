//! A memory limiter that is full: what it does to further keys, and that it remembers every slot that it gives.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use pollster::block_on;
use tidegate_core::{
    Block, Check, ErrorKind, Key, LimiterExt, MemoryLimiter, Millis, Policy, Quota, Refund, Settle, WhenFull,
};
use tidegate_testing::{MINUTE, NOW, key, per_minute, policy};

fn admits(limiter: &MemoryLimiter, policy: &Policy, key: &str) -> bool {
    limiter.decide(Check::new(policy, &Key::new(key), NOW)).unwrap().is_allowed()
}

#[test]
fn strangers_beyond_the_bound_get_their_first_request() {
    const KEYS: usize = 1_000;
    for when in [WhenFull::default(), WhenFull::Evict] {
        let policy = per_minute(10);
        let limiter = MemoryLimiter::with_shards(4).max_keys(KEYS).when_full(when);
        assert!(!limiter.was_full());
        // Each address uses its limit up, so that no row has anything left.
        for address in 0..2 * KEYS {
            let key = Key::new(format!("ip:{address}"));
            assert!(limiter.decide(Check::new(&policy, &key, NOW).cost(10)).unwrap().is_allowed());
        }
        let fresh = (0..10_000).filter(|nth| admits(&limiter, &policy, &format!("fresh:{nth}"))).count();
        assert_eq!((fresh, limiter.was_full()), (10_000, true));
        assert!(limiter.len() <= KEYS, "{}", limiter.len());
    }
}

#[test]
fn a_key_that_has_used_its_limit_is_not_reset_by_many_others() {
    let quotas: [Vec<Quota>; 6] = [
        vec![Quota::fixed_window(3, MINUTE).unwrap()],
        vec![Quota::sliding_window(3, MINUTE).unwrap()],
        vec![Quota::sliding_log(3, MINUTE).unwrap()],
        vec![Quota::token_bucket(3, 1, MINUTE).unwrap()],
        vec![Quota::fixed_window(3, MINUTE).unwrap().named("a").unwrap(), Quota::fixed_window(50, MINUTE).unwrap()],
        vec![Quota::fixed_window(3, MINUTE).unwrap(), Quota::penalty(MINUTE, 2, Millis::from_secs(600)).unwrap()],
    ];
    for quotas in quotas {
        let policy = Policy::new("full", quotas).unwrap();
        let limiter = MemoryLimiter::with_shards(1).max_keys(1_000);
        // Other policies have other limits, and rows in the same shard.
        let large = Policy::new("large", [Quota::fixed_window(1_000, MINUTE).unwrap()]).unwrap();
        let admitted = (0..10).filter(|_| admits(&limiter, &policy, "victim")).count();
        assert_eq!(admitted, 3);
        for nth in 0..50_000 {
            assert!(
                admits(&limiter, &policy, &format!("other:{nth}")) && admits(&limiter, &large, &format!("large:{nth}"))
            );
        }
        assert!(!admits(&limiter, &policy, "victim"), "{policy:?}");
        assert!(limiter.len() <= 1_000);
    }
}

#[test]
fn with_half_of_the_keys_used_up_further_ones_reset_at_most_one_for_each_256() {
    const FURTHER: u64 = 100_000;
    let policy = per_minute(2);
    let limiter = MemoryLimiter::with_shards(1).max_keys(1_000);
    let victims: Vec<String> = (0..500).map(|nth| format!("victim:{nth}")).collect();
    let use_up =
        || victims.iter().filter(|key| admits(&limiter, &policy, key) | admits(&limiter, &policy, key)).count() as u64;
    assert_eq!(use_up(), 500);
    let mut resets = 0;
    for nth in 0..FURTHER {
        admits(&limiter, &policy, &format!("other:{nth}"));
        if nth % 500 == 0 {
            // Whoever was reset uses its limit up again.
            resets += use_up();
        }
    }
    // (1/2)^8 of the draws have nothing else.
    assert!(resets <= 2 * FURTHER / 256, "{resets} of {}", FURTHER / 256);
}

#[test]
fn deny_refuses_further_keys_until_others_have_expired() {
    let policy = per_minute(2);
    let limiter = MemoryLimiter::with_shards(1).max_keys(100).when_full(WhenFull::Deny);
    assert!((0..100).all(|nth| admits(&limiter, &policy, &format!("first:{nth}"))));
    let late = Key::new("late");
    let refused = limiter.decide(Check::new(&policy, &late, NOW)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused);
    assert!(refused.to_string().contains("takes no further key; raise `MemoryLimiter::max_keys`"), "{refused}");
    assert!(admits(&limiter, &policy, "first:7") && !admits(&limiter, &policy, "first:7"));
    let later = NOW + MINUTE;
    limiter.sweep(later);
    assert!(limiter.decide(Check::new(&policy, &late, later)).unwrap().is_allowed());
}

#[test]
fn no_key_loses_a_slot_or_a_block_and_without_one_to_give_up_a_further_key_is_refused() {
    let slots = policy(Quota::concurrency(2, MINUTE));
    let limiter = MemoryLimiter::with_shards(1).max_keys(2);
    let take = |key| limiter.decide(Check::new(&slots, &Key::new(key), NOW).idempotent(key, MINUTE));
    assert!(take("a").unwrap().is_allowed() && take("b").unwrap().is_allowed());
    assert_eq!(take("late").unwrap_err().kind(), ErrorKind::Refused);
    block_on(limiter.settle(Settle::release(&slots, &Key::new("a"), "a", NOW))).unwrap();
    assert!(take("late").unwrap().is_allowed());

    let quotas = [Quota::fixed_window(5, MINUTE).unwrap(), Quota::block(MINUTE).unwrap()];
    let blocks = Policy::new("blocks", quotas).unwrap();
    let limiter = MemoryLimiter::with_shards(1).max_keys(50);
    let block = |key: &str| block_on(limiter.block(Block::new(&blocks, &Key::new(key), MINUTE, NOW)));
    block("mallory").unwrap();
    for nth in 0..5_000 {
        assert!(admits(&limiter, &blocks, &format!("other:{nth}")));
    }
    assert!(!admits(&limiter, &blocks, "mallory"));
    block("late").unwrap();
    assert!(!admits(&limiter, &blocks, "late"));
}

#[test]
fn a_request_of_several_keys_makes_room_for_each_and_one_that_is_denied_for_none() {
    let by = |limit, name| Quota::fixed_window(limit, MINUTE).unwrap().by(name).unwrap();
    let policy = Policy::new("several", [by(2, "user"), by(3, "tenant")]).unwrap();
    let limiter = MemoryLimiter::with_shards(1).max_keys(20);
    let at = |user: String, tenant: &str| {
        let (user, tenant) = (Key::new(user), Key::new(tenant));
        limiter.decide(Check::new(&policy, &[("user", &user), ("tenant", &tenant)], NOW)).unwrap().is_allowed()
    };
    for nth in 0..10 {
        assert!(at(format!("user:{nth}"), &format!("tenant:{nth}")));
    }
    let late = (0..5).filter(|nth| at(format!("late:{nth}"), "late")).count();
    assert_eq!(late, 3);
    let counted = (0..1_000).filter(|nth| at(format!("user:{nth}"), "late")).count();
    assert_eq!((counted, limiter.len()), (0, 20));
    for nth in 0..1_000 {
        at(format!("more:{nth}"), &format!("more:{nth}"));
    }
    assert_eq!(limiter.len(), 20);
}

/// Each request has two further keys, and the last room is for one.
#[test]
fn no_request_of_several_keys_takes_more_room_than_there_is() {
    let by = |name| Quota::fixed_window(2, MINUTE).unwrap().by(name).unwrap();
    let policy = Policy::new("several", [by("user"), by("tenant")]).unwrap();
    for when in [WhenFull::Evict, WhenFull::Deny] {
        let limiter = MemoryLimiter::with_shards(1).max_keys(19).when_full(when);
        for nth in 0..1_000 {
            let (user, tenant) = (Key::new(format!("user:{nth}")), Key::new(format!("tenant:{nth}")));
            let decided = limiter.decide(Check::new(&policy, &[("user", &user), ("tenant", &tenant)], NOW));
            assert_eq!(decided.is_ok(), nth < 9 || when == WhenFull::Evict, "{nth}");
            assert!(limiter.len() <= 19, "{} after {nth}", limiter.len());
        }
    }
}

#[test]
fn keys_that_share_states_admit_at_most_their_bound_and_none_is_reset() {
    const LIMIT: u64 = 3;
    let policy = per_minute(LIMIT);
    let limiter = MemoryLimiter::with_shards(4).max_keys(1_000).when_full(WhenFull::Share);
    let victim = Key::new("ip:victim");
    for _ in 0..LIMIT {
        assert!(limiter.decide(Check::new(&policy, &victim, NOW)).unwrap().is_allowed());
    }
    let mut admitted = 0;
    for client in 0..100_000u64 {
        let key = Key::new(format!("ip:{client}"));
        for _ in 0..=LIMIT {
            admitted += u64::from(limiter.decide(Check::new(&policy, &key, NOW)).unwrap().is_allowed());
        }
        assert!(!limiter.decide(Check::new(&policy, &victim, NOW)).unwrap().is_allowed(), "after {client} others");
    }
    assert!(limiter.len() <= 1_000 + 1_000 / 8, "{} keys", limiter.len());
    let most = LIMIT * limiter.len() as u64 - LIMIT;
    assert!(admitted <= most, "{admitted} of at most {most}");
    assert!(admitted >= LIMIT * 990, "{admitted}: each key within the capacity has its own state");
}

#[test]
fn a_key_that_gets_its_own_state_keeps_the_shared_count() {
    let policy = per_minute(2);
    let brief = Policy::new("brief", [Quota::fixed_window(1, Millis::from_secs(1)).unwrap()]).unwrap();
    let limiter = MemoryLimiter::with_shards(1).max_keys(20).when_full(WhenFull::Share);
    for client in 0..20u64 {
        let _ = limiter.decide(Check::new(&brief, &Key::new(format!("brief:{client}")), NOW));
    }
    let key = key();
    let check = Check::new(&policy, &key, NOW);
    assert!(limiter.decide(check).unwrap().is_allowed() && limiter.decide(check).unwrap().is_allowed());
    assert!(!limiter.decide(check).unwrap().is_allowed());
    assert!(!block_on(limiter.peek(check)).unwrap().is_allowed());
    // The brief keys expire, so the shard has room.
    let later = NOW + Millis::from_secs(2);
    limiter.sweep(later);
    assert!(limiter.len() < 20);
    assert!(!limiter.decide(Check::new(&policy, &key, later)).unwrap().is_allowed(), "the key started afresh");
    let refund = Refund::new(&policy, &key, 1, NOW, later);
    block_on(limiter.refund(refund)).unwrap();
    let admitted = (0..3).filter(|_| limiter.decide(Check::new(&policy, &key, later)).unwrap().is_allowed()).count();
    assert_eq!(admitted, 1);
}

#[test]
fn a_debt_that_is_made_while_the_limiter_is_full_stays() {
    let minute = Millis::from_secs(60);
    let policy = policy(Quota::fixed_window(5, minute));
    let brief = Policy::new("brief", [Quota::fixed_window(1, Millis::from_secs(1)).unwrap()]).unwrap();
    let limiter = MemoryLimiter::with_shards(1).max_keys(20).when_full(WhenFull::Share);
    let key = key();
    let charged = Check::new(&policy, &key, NOW).idempotent("one", Millis::from_secs(600));
    assert!(limiter.decide(charged).unwrap().is_allowed());
    // The key has no state any more, and others take all the room.
    let later = NOW + minute;
    limiter.sweep(later);
    for client in 0..20u64 {
        let _ = limiter.decide(Check::new(&brief, &Key::new(format!("brief:{client}")), later));
    }
    block_on(limiter.settle(Settle::new(&policy, &key, "one", 9, later))).unwrap();
    let later = later + Millis::from_secs(2);
    limiter.sweep(later);
    assert!(limiter.len() < 20);
    let denied = limiter.decide(Check::new(&policy, &key, later)).unwrap();
    assert_eq!(denied.retry_after(), Some(Millis::from_secs(58)));
}

#[test]
fn stored_answers_are_bounded_and_a_retry_beyond_the_bound_is_charged_again() {
    let policy = policy(Quota::fixed_window(1_000_000, Millis::from_secs(3_600)));
    let (limiter, key) = (MemoryLimiter::with_shards(1).max_keys(100), Key::new("k"));
    let ask = |token: u64| {
        let token = token.to_string();
        let check = Check::new(&policy, &key, NOW).idempotent(&token, Millis::from_secs(600));
        limiter.decide(check).unwrap().binding().remaining().unwrap()
    };
    for token in 0..100_000 {
        ask(token);
    }
    assert!((12_800..100_000).contains(&limiter.allocated_bytes()), "{}", limiter.allocated_bytes());
    assert_eq!(ask(0), 999_999, "the first answers are kept");
    assert_eq!((ask(99_999), ask(99_999)), (899_999, 899_998));
}

/// Full answers refuse a slot only if every one of them is in use: each released slot makes room, and so does each that expired.
#[test]
fn a_slot_that_cannot_be_remembered_is_refused_and_every_other_is_released() {
    let slots = |limit| policy(Quota::concurrency(limit, Millis::from_secs(30)));
    let (quick, tight) = (slots(1_000), slots(1));
    let limiter = MemoryLimiter::with_shards(1).answers(100);
    let take = |policy: &Policy, key: &Key, token: &str, now| {
        limiter.decide(Check::new(policy, key, now).idempotent(token, Millis::from_secs(600)))
    };
    let release =
        |policy: &Policy, key: &Key, token: &str| block_on(limiter.settle(Settle::release(policy, key, token, NOW)));
    // One client sends many quick requests, and its answers are full of settled ones.
    let flood = Key::new("ip:flood");
    for request in 0..1_000 {
        let token = format!("flood:{request}");
        assert!(take(&quick, &flood, &token, NOW).unwrap().is_allowed(), "{request}");
        assert!(!release(&quick, &flood, &token).unwrap().is_replay());
    }
    // Nobody else loses a slot by it.
    let other = |client| (Key::new(format!("ip:{client}")), format!("other:{client}"));
    for client in 0..100 {
        let (key, token) = other(client);
        assert!(take(&tight, &key, &token, NOW).unwrap().is_allowed(), "{client}");
    }
    // All answers hold a slot now. The next one is refused, and holds none. A limit that is reached denies as before.
    let late = Key::new("ip:late");
    let refused = take(&tight, &late, "late", NOW).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused);
    assert!(!take(&tight, &other(0).0, "second", NOW).unwrap().is_allowed());
    assert_eq!(block_on(limiter.peek(Check::new(&tight, &late, NOW))).unwrap().binding().remaining(), Some(1));
    for client in 0..50 {
        let (key, token) = other(client);
        release(&tight, &key, &token).unwrap();
        assert!(take(&tight, &key, "again", NOW).unwrap().is_allowed(), "{client}");
    }
    // The others expire, and make room as well.
    let later = NOW + Millis::from_secs(601);
    for client in 0..100 {
        assert!(take(&tight, &other(client).0, "later", later).unwrap().is_allowed(), "{client}");
    }
    assert!(limiter.allocated_bytes() < 100_000, "{}", limiter.allocated_bytes());
}

/// The same for a slot beside the quota of another key.
#[test]
fn a_slot_of_several_keys_that_cannot_be_remembered_is_refused() {
    let hour = Millis::from_secs(3_600);
    let slots = Quota::concurrency(1, Millis::from_secs(30)).unwrap().by("user").unwrap();
    let policy = Policy::new("test", [slots, Quota::fixed_window(9, hour).unwrap().by("tenant").unwrap()]).unwrap();
    let (limiter, tenant) = (MemoryLimiter::with_shards(1).answers(2), Key::new("tenant:1"));
    let take = |user: &str| {
        let user = Key::new(user);
        limiter
            .decide(Check::new(&policy, &[("user", &user), ("tenant", &tenant)], NOW).idempotent(user.as_str(), hour))
    };
    let take_both = (take("user:1").unwrap(), take("user:2").unwrap());
    assert!(take_both.0.is_allowed() && take_both.1.is_allowed());
    assert_eq!(take("user:3").unwrap_err().kind(), ErrorKind::Refused);
    let user = Key::new("user:1");
    block_on(limiter.settle(Settle::release(&policy, &[("user", &user), ("tenant", &tenant)], "user:1", NOW))).unwrap();
    let third = take("user:3").unwrap();
    assert_eq!(third.quotas()[1].remaining(), Some(6), "the refused check charged nothing");
}

/// Tokens that hold no slot cannot crowd out those that do.
#[test]
fn a_flood_of_tokens_refuses_no_slot() {
    let window = policy(Quota::fixed_window(1_000_000, Millis::from_secs(3_600)));
    let slots = policy(Quota::concurrency(1, Millis::from_secs(30)));
    let (limiter, key) = (MemoryLimiter::with_shards(1).answers(100), Key::new("k"));
    for token in 0..1_000 {
        let token = token.to_string();
        assert!(limiter.decide(Check::new(&window, &key, NOW).idempotent(&token, Millis::from_secs(600))).is_ok());
    }
    assert!(limiter.decide(Check::new(&slots, &key, NOW).idempotent("slot", Millis::from_secs(600))).is_ok());
}
