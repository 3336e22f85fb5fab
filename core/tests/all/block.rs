//! Blocks by hand: their length to the millisecond, what ends them, and who passes them on.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::num::NonZero;

use pollster::block_on;
use proptest::prelude::*;
use tidegate_core::algorithm::{Penalty, PenaltyState};
use tidegate_core::{
    Block, Capabilities, Check, DenyCache, ErasedLimiter, Error, ErrorKind, Fallback, Key, Limiter, LimiterExt,
    MemoryLimiter, Millis, Origin, Policy, PolicyState, Quota, QuotaState, ResponseFields, Shadow, Sharded, Tiered,
    UnixMillis, WhenFull,
};
use tidegate_testing::{Declaring, FlakyStore, NOW};

const HOUR: Millis = Millis::from_secs(3_600);

fn ms(ms: u64) -> Millis {
    Millis::new(ms)
}

fn window() -> Quota {
    Quota::fixed_window(5, ms(1_000)).unwrap()
}

fn blocking() -> Policy {
    Policy::new("api", [window(), Quota::block(HOUR).unwrap()]).unwrap()
}

fn punishing() -> Policy {
    Policy::new("api", [window(), Quota::penalty(ms(10_000), 3, ms(60_000)).unwrap()]).unwrap()
}

fn wait(policy: &Policy, state: &PolicyState, now: UnixMillis) -> Option<Millis> {
    policy.peek(state, now, 1).retry_after()
}

fn penalty(state: &PolicyState) -> PenaltyState {
    match state.parts().last() {
        Some(QuotaState::Penalty(state)) => *state,
        other => unreachable!("{other:?}"),
    }
}

#[test]
fn a_block_ends_exactly_at_its_end() {
    let (policy, mut state) = (blocking(), blocking().initial_state());
    policy.block(&mut state, NOW, ms(7_001));
    assert_eq!(policy.decide(&mut state, NOW, 1).retry_after(), Some(ms(7_001)));
    assert_eq!(policy.expires_after(&state, NOW), ms(7_001));
    assert_eq!(wait(&policy, &state, NOW + ms(7_000)), Some(ms(1)));
    assert!(policy.decide(&mut state, NOW + ms(7_001), 5).is_allowed());
}

#[test]
fn a_block_is_at_most_the_cap_and_replaces_another() {
    let (policy, mut state) = (blocking(), blocking().initial_state());
    policy.block(&mut state, NOW, Millis::new(u64::MAX));
    assert_eq!(wait(&policy, &state, NOW), Some(HOUR));
    policy.block(&mut state, NOW + ms(1), ms(20));
    assert_eq!(wait(&policy, &state, NOW + ms(1)), Some(ms(20)), "a shorter one");
    policy.block(&mut state, NOW + ms(2), Millis::ZERO);
    assert_eq!(state, policy.initial_state(), "an ended block leaves nothing");
}

#[test]
fn what_was_used_stays_used() {
    let (policy, mut state) = (blocking(), blocking().initial_state());
    assert!(policy.decide(&mut state, NOW, 5).is_allowed());
    policy.block(&mut state, NOW, ms(10));
    policy.block(&mut state, NOW, Millis::ZERO);
    assert_eq!(wait(&policy, &state, NOW), Some(ms(1_000)));
}

#[test]
fn violations_neither_count_nor_are_forgotten() {
    let (policy, mut state) = (punishing(), punishing().initial_state());
    assert!(policy.decide(&mut state, NOW, 5).is_allowed());
    assert_eq!(policy.decide(&mut state, NOW, 1).retry_after(), Some(ms(10_000)));
    policy.block(&mut state, NOW + ms(1), ms(2_000));
    assert_eq!((penalty(&state).strikes, wait(&policy, &state, NOW + ms(1))), (1, Some(ms(2_000))));
    // A request during the block is no violation. The next one is the second.
    assert!(!policy.decide(&mut state, NOW + ms(2_000), 1).is_allowed());
    assert!(policy.decide(&mut state, NOW + ms(2_001), 5).is_allowed());
    assert_eq!(policy.decide(&mut state, NOW + ms(2_001), 1).retry_after(), Some(ms(30_000)));
    assert_eq!(penalty(&state).length, Millis::ZERO);
    // Ending the block by a violation does not undo it: the third blocks for the cap.
    policy.block(&mut state, NOW + ms(3_001), Millis::ZERO);
    assert!(policy.decide(&mut state, NOW + ms(3_001), 5).is_allowed());
    assert_eq!(policy.decide(&mut state, NOW + ms(3_001), 1).retry_after(), Some(ms(60_000)));
}

#[test]
fn violations_are_undone_after_a_block_by_hand_as_after_any_other() {
    let (policy, mut state) = (punishing(), punishing().initial_state());
    assert!(policy.decide(&mut state, NOW, 5).is_allowed());
    assert!(!policy.decide(&mut state, NOW, 1).is_allowed());
    // The first violation is undone by now, and a block does not count it again.
    let later = NOW + ms(70_000);
    policy.block(&mut state, later, ms(5));
    assert_eq!(penalty(&state).strikes, 0);
    // Ending a block where there is none changes nothing: the time that undoes a violation goes on.
    let (mut state, end) = (policy.initial_state(), NOW + ms(10_000));
    assert!(policy.decide(&mut state, NOW, 5).is_allowed());
    assert!(!policy.decide(&mut state, NOW, 1).is_allowed());
    policy.block(&mut state, end + ms(59_999), Millis::ZERO);
    assert_eq!(policy.expires_after(&state, end + ms(59_999)), ms(1));
}

#[test]
fn an_ended_block_does_not_return_when_the_clock_steps_back() {
    let (policy, mut state) = (punishing(), punishing().initial_state());
    assert!(policy.decide(&mut state, NOW, 5).is_allowed());
    assert!(!policy.decide(&mut state, NOW, 1).is_allowed());
    let later = NOW + ms(5_000);
    policy.block(&mut state, later, Millis::ZERO);
    assert!(wait(&policy, &state, NOW).unwrap_or_default() <= ms(1_000), "only the window denies");
    assert_eq!(policy.peek(&state, UnixMillis::new(later.get() - 500), 1).retry_after(), Some(ms(1)));
}

#[test]
fn violations_do_not_block_without_a_penalty() {
    let (policy, mut state) = (blocking(), blocking().initial_state());
    assert!(policy.decide(&mut state, NOW, 5).is_allowed());
    for _ in 0..9 {
        assert_eq!(policy.decide(&mut state, NOW, 1).retry_after(), Some(ms(1_000)));
    }
    assert_eq!(penalty(&state), PenaltyState::default());
}

/// A key is blocked without any limit.
#[test]
fn a_policy_may_only_block() {
    let policy = Policy::new("denied", [Quota::block(HOUR).unwrap()]).unwrap();
    let mut state = policy.initial_state();
    let allowed = policy.decide(&mut state, NOW, 9);
    assert!(allowed.is_allowed());
    assert_eq!((allowed.binding().remaining(), ResponseFields::new(&policy, &allowed).iter().count()), (None, 0));
    policy.block(&mut state, NOW, ms(2_500));
    let denied = policy.decide(&mut state, NOW, 1);
    let fields = ResponseFields::new(&policy, &denied);
    assert_eq!(fields.iter().collect::<Vec<_>>(), [("retry-after", "3")]);
    let with_a_charge = policy.clone().charge_denied(true);
    assert_eq!(with_a_charge.decide(&mut state, NOW, 1), denied);
}

#[test]
fn what_cannot_block_says_what_to_write() {
    let said = |error: Error| (error.kind(), error.to_string());
    let limits = Policy::new("api", [window()]).unwrap();
    let (kind, text) =
        said(block_on(MemoryLimiter::new().block(Block::end(&limits, &Key::new("k"), NOW))).unwrap_err());
    assert_eq!(kind, ErrorKind::Invalid);
    assert!(text.starts_with("block: the policy \"api\" has no quota that blocks; add a `block`"), "{text}");
    for (cap, start) in [(Millis::ZERO, "cap_ms: 0"), (Penalty::MAX_CAP + ms(1), "cap_ms: 31536000001")] {
        let (_, text) = said(Quota::block(cap).unwrap_err());
        assert!(text.starts_with(start), "{text}");
    }
    let (_, text) = said(Quota::penalty(Millis::ZERO, 1, HOUR).unwrap_err());
    assert!(text.contains("or a block in place of the penalty"), "{text}");
    let both = [window(), Quota::penalty(HOUR, 1, HOUR).unwrap(), Quota::block(HOUR).unwrap()];
    let (_, text) = said(Policy::new("api", both).unwrap_err());
    assert!(text.contains("quotas[2]: its dimension has a penalty already; leave one out"), "{text}");
}

#[test]
fn a_state_without_a_block_has_the_bytes_that_it_always_had() {
    let policy = punishing();
    let mut state = policy.initial_state();
    assert!(policy.decide(&mut state, NOW, 5).is_allowed());
    assert!(!policy.decide(&mut state, NOW, 1).is_allowed());
    let bytes = policy.encode(&state);
    let until = (NOW + ms(10_000)).get();
    assert_eq!(bytes[17..], [&[0x17][..], &1_u64.to_le_bytes(), &until.to_le_bytes()].concat());
    policy.block(&mut state, NOW, HOUR);
    let blocked = policy.encode(&state);
    assert_eq!((blocked.len(), policy.decode(&blocked, NOW).unwrap()), (bytes.len(), state));
    // Neither more violations than a penalty counts nor a block of more than a year.
    for word in [65_u64, u64::MAX, (Penalty::MAX_CAP.get() + 1) << 8] {
        let mut wrong = blocked.clone();
        wrong[18..26].copy_from_slice(&word.to_le_bytes());
        assert_eq!(policy.decode(&wrong, NOW).unwrap_err().kind(), ErrorKind::Corrupt, "{word}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    /// A key is denied until the end of its last block, and by no clock for longer than the block is long.
    #[test]
    fn a_block_is_never_longer_than_its_length_by_any_clock(
        cap in 1..=400u64, steps in prop::collection::vec((0..=200u64, 0..=150u64, prop::option::of(0..=600u64)), 1..40)
    ) {
        let policy = Policy::new("law", [Quota::block(ms(cap)).unwrap()]).unwrap();
        let (mut state, mut now) = (policy.initial_state(), NOW);
        let (mut until, mut length) = (UnixMillis::new(0), Millis::ZERO);
        for (forward, back, block) in steps {
            now = UnixMillis::new((now + ms(forward)).get() - back);
            until = until.min(now + length);
            if let Some(span) = block {
                length = ms(span.min(cap));
                until = now + length;
                policy.block(&mut state, now, ms(span));
            }
            let left = until.since(now);
            prop_assert_eq!(policy.decide(&mut state, now, 1).retry_after(), (left > Millis::ZERO).then_some(left));
            prop_assert_eq!(policy.expires_after(&state, now), left, "no store forgets a block");
            prop_assert_eq!(&policy.decode(&policy.encode(&state), now).unwrap(), &state);
        }
    }

    /// Between blocks by hand, violations block as they would without them, and nothing is longer than the cap.
    #[test]
    fn a_penalty_with_blocks_by_hand_is_never_longer_than_its_cap(
        base in 1..=50u64, factor in 1..=5u64, times in 1..=40u64,
        steps in prop::collection::vec((0..=200u64, 0..=100u64, prop::option::weighted(0.3, 0..=3_000u64)), 1..60)
    ) {
        let (base, cap) = (ms(base), ms(base * times));
        let quotas = [Quota::fixed_window(2, ms(20)).unwrap(), Quota::penalty(base, factor, cap).unwrap()];
        let policy = Policy::new("law", quotas).unwrap();
        let (mut state, mut now) = (policy.initial_state(), NOW);
        for (forward, back, block) in steps {
            now = UnixMillis::new((now + ms(forward)).get() - back);
            let before = penalty(&state);
            if let Some(span) = block {
                policy.block(&mut state, now, ms(span));
                let after = penalty(&state);
                prop_assert!(after.strikes <= before.strikes);
                let expected = if span > 0 { now + ms(span).min(cap) } else { after.until.min(now) };
                prop_assert_eq!(after.until, expected);
            } else {
                let _ = policy.decide(&mut state, now, 1);
            }
            prop_assert!(penalty(&state).until <= now + cap);
            prop_assert_eq!(&policy.decode(&policy.encode(&state), now).unwrap(), &state);
        }
    }
}

#[test]
fn memory_keeps_a_block_until_it_ends() {
    let (limiter, policy, key) = (MemoryLimiter::with_shards(1), blocking(), Key::new("sub:mallory"));
    block_on(limiter.block(Block::new(&policy, &key, ms(50_000), NOW))).unwrap();
    limiter.sweep(NOW + ms(49_999));
    assert_eq!(limiter.decide(Check::new(&policy, &key, NOW + ms(49_999))).unwrap().retry_after(), Some(ms(1)));
    assert!(limiter.decide(Check::new(&policy, &key, NOW + ms(50_000))).unwrap().is_allowed());
    // A key without a state is not stored for the end of a block that it does not have.
    block_on(limiter.block(Block::end(&policy, &Key::new("sub:alice"), NOW))).unwrap();
    assert_eq!(limiter.len(), 1);
}

#[test]
fn the_keys_of_all_dimensions_that_have_a_block_are_blocked() {
    let quotas = [
        window().by("user").unwrap(),
        Quota::block(HOUR).unwrap().by("user").unwrap(),
        Quota::fixed_window(9, ms(1_000)).unwrap().by("tenant").unwrap(),
    ];
    let (limiter, policy) = (MemoryLimiter::with_shards(4), Policy::new("api", quotas).unwrap());
    let [alice, bob, acme] = ["user:alice", "user:bob", "tenant:acme"].map(Key::new);
    let of = |user| [("user", user), ("tenant", &acme)];
    block_on(limiter.block(Block::new(&policy, &of(&alice), ms(40), NOW))).unwrap();
    let decide = |user, now| limiter.decide(Check::new(&policy, &of(user), now)).unwrap();
    let denied = decide(&alice, NOW + ms(1));
    assert_eq!((denied.retry_after(), policy.quotas()[denied.binding_index()].dimension()), (Some(ms(39)), "user"));
    assert!(decide(&bob, NOW + ms(1)).is_allowed());
    assert!(decide(&alice, NOW + ms(40)).is_allowed());
    assert_eq!(limiter.len(), 3, "the tenant has a state only since it was used");
}

#[test]
fn a_full_memory_blocks_no_other_key() {
    let (limiter, policy) = (MemoryLimiter::with_shards(1).max_keys(1).when_full(WhenFull::Share), blocking());
    let [first, second, third] = ["1", "2", "3"].map(Key::new);
    let admits = |key| limiter.decide(Check::new(&policy, key, NOW)).unwrap().is_allowed();
    assert!(admits(&first) && admits(&second));
    let refused = block_on(limiter.block(Block::new(&policy, &second, HOUR, NOW))).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused);
    assert!(admits(&third));
    block_on(limiter.block(Block::new(&policy, &first, HOUR, NOW))).unwrap();
    assert!(!admits(&first) && admits(&third));

    let by_user = |quota: Quota| quota.by("user").unwrap();
    let quotas = [by_user(window()), by_user(Quota::block(HOUR).unwrap()), window().by("tenant").unwrap()];
    let (policy, tenant) = (Policy::new("several", quotas).unwrap(), Key::new("tenant:1"));
    let keys = [("user", &first), ("tenant", &tenant)];
    let several = Block::new(&policy, &keys, HOUR, NOW);
    assert_eq!(block_on(limiter.block(several)).unwrap_err().kind(), ErrorKind::Refused);
}

/// Blocks a key, shortens the block, and ends it.
fn passes_on(limiter: &impl Limiter) {
    let (policy, key) = (blocking(), Key::new("sub:mallory"));
    let left = |now| block_on(limiter.check(Check::new(&policy, &key, now))).unwrap().retry_after();
    let block = |span, now| block_on(limiter.block(Block::new(&policy, &key, span, now))).unwrap();
    assert!(limiter.capabilities().block);
    block(HOUR, NOW);
    assert_eq!(left(NOW), Some(HOUR));
    assert_eq!(left(NOW + ms(1)), Some(ms(HOUR.get() - 1)));
    block(ms(10), NOW + ms(2));
    assert_eq!(left(NOW + ms(2)), Some(ms(10)));
    block(Millis::ZERO, NOW + ms(3));
    assert_eq!(left(NOW + ms(3)), None);
}

#[test]
fn limiters_around_a_limiter_pass_a_block_on() {
    let memory = MemoryLimiter::new;
    let flood = Policy::new("flood", [Quota::fixed_window(100, ms(1_000)).unwrap()]).unwrap();
    passes_on(&memory());
    passes_on(&Box::new(memory()));
    passes_on(&(Box::new(memory()) as Box<dyn ErasedLimiter>));
    passes_on(&DenyCache::new(memory()));
    passes_on(&Fallback::new(memory(), 10).unwrap());
    passes_on(&Tiered::new(memory(), flood, memory()).unwrap());
    passes_on(&Shadow::new(memory(), blocking()));
}

#[test]
fn a_shadow_blocks_the_proposal_too() {
    let limiter = Shadow::new(MemoryLimiter::new(), blocking());
    let (current, key) = (blocking(), Key::new("sub:mallory"));
    block_on(limiter.block(Block::new(&current, &key, HOUR, NOW))).unwrap();
    let _ = block_on(limiter.check(Check::new(&current, &key, NOW))).unwrap();
    assert_eq!(limiter.counts().both_deny, 1);
}

#[test]
fn what_cannot_block_is_unsupported() {
    let (policy, key) = (blocking(), Key::new("k"));
    let sharded = Sharded::new(MemoryLimiter::new(), NonZero::new(2).unwrap());
    let older = Declaring(Capabilities::EXACT.block(false), MemoryLimiter::new());
    for (can, said) in [
        (sharded.capabilities().block, block_on(sharded.block(Block::new(&policy, &key, HOUR, NOW)))),
        (older.capabilities().block, block_on(older.block(Block::new(&policy, &key, HOUR, NOW)))),
    ] {
        let error = said.unwrap_err();
        assert_eq!((can, error.kind()), (false, ErrorKind::Unsupported));
        assert!(
            error.to_string().starts_with("this store does not support block; block keys in one that does"),
            "{error}"
        );
    }
}

#[test]
fn a_blocked_key_stays_blocked_while_the_store_is_down() {
    let (store, policy, key) = (FlakyStore::default(), blocking(), Key::new("sub:mallory"));
    let limiter = Fallback::new(store.clone(), 50).unwrap();
    let ask = |now| {
        let decided = block_on(limiter.check(Check::new(&policy, &key, now))).unwrap();
        (decided.origin(), decided.retry_after())
    };
    block_on(limiter.block(Block::new(&policy, &key, HOUR, NOW))).unwrap();
    store.fail(ErrorKind::Unavailable);
    assert_eq!(ask(NOW), (Origin::Fallback, Some(HOUR)));
    // The store has not taken this one, so the caller must repeat it. It holds here all the same.
    let failed = block_on(limiter.block(Block::end(&policy, &key, NOW + ms(1)))).unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Unavailable);
    assert_eq!(ask(NOW + ms(1)), (Origin::Fallback, None));
    store.fail(None);
    // The store is asked again after a pause.
    assert_eq!(ask(NOW + ms(2_000)), (Origin::Store, Some(ms(HOUR.get() - 2_000))));
    // What no store can do does not reach the backup, either.
    let limits = Policy::new("api", [window()]).unwrap();
    let invalid = block_on(limiter.block(Block::end(&limits, &key, NOW))).unwrap_err();
    assert_eq!(invalid.kind(), ErrorKind::Invalid);
}
