//! The drivers of the store tiers, over small fake stores that can be made to misbehave.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::atomic::{AtomicU32, Ordering};

use pollster::block_on;
use tidegate_core::store::{
    Applied, Atomic, AtomicLimiter, BestEffort, BestEffortLimiter, Native, NativeLimiter, VersionedLimiter,
};
use tidegate_core::{
    Accuracy, Block, Capabilities, Check, Decision, Drift, Error, ErrorKind, Key, Limiter, LimiterExt, MemoryLimiter,
    Millis, Operation, Policy, Quota, Refund, Settle, Status,
};
use tidegate_testing::{NOW, Table, at, per_minute, together, turn};

fn policy() -> Policy {
    let burst = Quota::token_bucket(5, 2, Millis::from_secs(1)).unwrap().named("burst").unwrap();
    let minute = Quota::sliding_window(20, Millis::from_secs(60)).unwrap().named("minute").unwrap();
    Policy::new("api", [burst, minute]).unwrap()
}

#[derive(Default)]
struct Shelf(Table);

impl BestEffort for Shelf {
    fn capabilities(&self) -> Capabilities {
        Capabilities::EXACT.accuracy(Accuracy::Approximate(Drift::LAST_WRITER_WINS)).idempotency(false)
    }

    async fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Error> {
        turn().await;
        Ok(self.0.row(key).map(|row| row.0))
    }

    async fn put(&self, key: &str, bytes: &[u8], _ttl: Millis) -> Result<(), Error> {
        turn().await;
        let current = self.0.row(key).map(|row| row.1);
        self.0.write(key, bytes, current);
        Ok(())
    }

    async fn delete(&self, key: &str) -> Result<(), Error> {
        self.0.rows.lock().unwrap().remove(key);
        Ok(())
    }
}

/// Every driver decides sequential requests as the memory store does.
fn decides_as_memory_does(limiter: &impl Limiter) {
    let (policy, memory) = (policy(), MemoryLimiter::new());
    let keys = ["ip:192.0.2.1", "ip:192.0.2.2"].map(Key::new);
    for step in 0..200u64 {
        let (key, now) = (&keys[usize::from(step % 3 == 0)], at(step * 137));
        let check = Check::new(&policy, key, now).cost(step % 7);
        let expected = memory.decide(check).unwrap();
        assert_eq!(block_on(limiter.check(check)).unwrap(), expected, "step {step}");
        assert_eq!(block_on(limiter.peek(check)).unwrap(), block_on(memory.peek(check)).unwrap());
        if step % 11 == 0 {
            let refund = Refund::new(&policy, key, 2, expected.decided_at(), now);
            block_on(limiter.refund(refund)).unwrap();
            block_on(memory.refund(refund)).unwrap();
        }
        if step % 29 == 0 {
            block_on(limiter.reset(&policy, key.into())).unwrap();
            block_on(memory.reset(&policy, key.into())).unwrap();
        }
    }
}

#[test]
fn versioned_decides_as_memory_does() {
    decides_as_memory_does(&VersionedLimiter::new(Table::default()));
}

#[test]
fn best_effort_decides_as_memory_does() {
    decides_as_memory_does(&BestEffortLimiter::new(Shelf::default()));
}

#[test]
fn a_versioned_block_is_as_memorys_and_is_kept_until_it_ends() {
    let quotas = [Quota::fixed_window(5, Millis::from_secs(1)).unwrap(), Quota::block(Millis::from_secs(60)).unwrap()];
    let (policy, key) = (Policy::new("api", quotas).unwrap(), Key::new("k"));
    let (limiter, memory) = (VersionedLimiter::new(Table::default()), MemoryLimiter::new());
    for (at_ms, span_ms) in [(0, 7_000), (2_000, 90_000), (9_000, 1), (9_001, 0), (9_002, 5), (9_003, 0), (9_004, 0)] {
        let now = at(at_ms);
        let block = Block::new(&policy, &key, Millis::new(span_ms), now);
        block_on(limiter.block(block)).unwrap();
        block_on(memory.block(block)).unwrap();
        for after_ms in [0, 1, 4, 5, 6_999] {
            let check = Check::new(&policy, &key, now + Millis::new(after_ms)).cost(0);
            let (peeked, expected) = (block_on(limiter.peek(check)).unwrap(), block_on(memory.peek(check)).unwrap());
            assert_eq!(peeked, expected, "{at_ms} + {after_ms}");
        }
    }
    assert_eq!(limiter.store().writes.load(Ordering::Relaxed), 6, "what changes nothing writes nothing");
    let without = Policy::new("api", [Quota::fixed_window(5, Millis::from_secs(1)).unwrap()]).unwrap();
    let invalid = block_on(limiter.block(Block::end(&without, &key, NOW))).unwrap_err();
    assert_eq!(invalid.kind(), ErrorKind::Invalid);
    // The last writer would win over a block.
    let shelf = BestEffortLimiter::new(Shelf::default());
    let unsupported = block_on(shelf.block(Block::end(&policy, &key, NOW))).unwrap_err();
    assert_eq!((shelf.capabilities().block, unsupported.kind()), (false, ErrorKind::Unsupported));
}

#[test]
fn versioned_is_exact_under_concurrency() {
    let (limiter, policy, key) = (VersionedLimiter::new(Table::default()).attempts(100), policy(), Key::new("k"));
    let answers = together((0..50).map(|_| limiter.check(Check::new(&policy, &key, NOW))));
    assert_eq!(answers.iter().filter(|answer| answer.as_ref().unwrap().is_allowed()).count(), 5);
    assert_eq!(limiter.store().writes.load(Ordering::Relaxed), 5, "a denial writes nothing");
}

#[test]
fn best_effort_overadmits_under_concurrency() {
    let (limiter, policy, key) = (BestEffortLimiter::new(Shelf::default()), policy(), Key::new("k"));
    let answers = together((0..50).map(|_| limiter.check(Check::new(&policy, &key, NOW))));
    assert_eq!(answers.iter().filter(|answer| answer.as_ref().unwrap().is_allowed()).count(), 50);
}

#[test]
fn exhausted_attempts_are_contended_and_charge_nothing() {
    let limiter = VersionedLimiter::new(Table { rivals: AtomicU32::new(3), ..Table::default() }).attempts(3);
    let (policy, key) = (policy(), Key::new("k"));
    let error = block_on(limiter.check(Check::new(&policy, &key, NOW))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Contended);
    assert_eq!(error.to_string(), "this key changed during each of 3 attempts; retry, or allow more attempts");
    assert_eq!(limiter.store().writes.load(Ordering::Relaxed), 0);
    assert_eq!(block_on(limiter.check(Check::new(&policy, &key, NOW))).unwrap().binding().remaining(), Some(4));
}

#[test]
fn a_corrupt_state_is_an_error_and_is_left_unchanged() {
    let (policy, key) = (policy(), Key::new("k"));
    for bytes in [&b""[..], b"\x14", b"not a state", &[0xff; 42]] {
        let limiter = VersionedLimiter::new(Table::default());
        limiter.store().rows.lock().unwrap().insert(key.storage_key(&policy), (bytes.into(), 7));
        let error = block_on(limiter.check(Check::new(&policy, &key, NOW))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert_eq!(limiter.store().row(&key.storage_key(&policy)), Some((bytes.to_vec(), 7)));
    }
}

#[test]
fn an_undeclared_capability_is_unsupported() {
    let (policy, key) = (policy(), Key::new("k"));
    let limiter = VersionedLimiter::new(Table::default());
    let with_token = Check::new(&policy, &key, NOW).idempotent("t", Millis::from_secs(1));
    let error = block_on(limiter.check(with_token)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(error.to_string(), "this store does not support an idempotency token");
}

/// An atomic store that returns a denial for a request that the policy admits.
struct Disagreeing;

impl Atomic for Disagreeing {
    fn capabilities(&self) -> Capabilities {
        Capabilities::EXACT.refund(false).peek(false).reset(false).block(false)
    }

    async fn apply(&self, operation: Operation<'_>) -> Result<Applied, Error> {
        let replayed = matches!(operation, Operation::Check(Check { idempotency: Some(_), .. }));
        Ok(Applied::Before { previous: None, now: NOW, cost: 1, admitted: false, replayed, from_balance: 0 })
    }
}

#[test]
fn an_atomic_store_that_contradicts_the_policy_is_corrupt() {
    let (limiter, policy, key) = (AtomicLimiter::new(Disagreeing), policy(), Key::new("k"));
    let error = block_on(limiter.check(Check::new(&policy, &key, NOW))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("disagree"), "{error}");
    // With a token, the first answer stands, even if the limits have changed since.
    let retried = Check::new(&policy, &key, NOW).idempotent("t", Millis::from_secs(1));
    let first = block_on(limiter.check(retried)).unwrap();
    assert_eq!((first.status(), first.retry_after()), (Status::Denied, None));
    let unsupported = [
        block_on(limiter.peek(Check::new(&policy, &key, NOW))).unwrap_err(),
        block_on(limiter.refund(Refund::new(&policy, &key, 1, NOW, NOW))).unwrap_err(),
        block_on(limiter.reset(&policy, (&key).into())).unwrap_err(),
        block_on(limiter.block(Block::end(&policy, &key, NOW))).unwrap_err(),
    ];
    assert!(unsupported.iter().all(|error| error.kind() == ErrorKind::Unsupported));
}

/// An atomic store that decides by itself, always the same.
struct Deciding(Decision);

impl Atomic for Deciding {
    fn capabilities(&self) -> Capabilities {
        Capabilities::EXACT
    }

    async fn apply(&self, _: Operation<'_>) -> Result<Applied, Error> {
        Ok(self.0.clone().into())
    }
}

#[test]
fn the_decision_of_an_atomic_store_is_not_made_again() {
    let (policy, key) = (policy(), Key::new("k"));
    let decision = policy.peek(&policy.initial_state(), NOW, 6).replayed(true);
    let limiter = AtomicLimiter::new(Deciding(decision.clone()));
    let check = Check::new(&policy, &key, NOW);
    assert_eq!(block_on(limiter.check(check)).unwrap(), decision);
    assert_eq!(block_on(limiter.peek(check)).unwrap(), decision);
    assert_eq!(block_on(limiter.settle(Settle::new(&policy, &key, "t", 1, NOW))).unwrap(), decision);
    block_on(limiter.refund(Refund::new(&policy, &key, 1, NOW, NOW))).unwrap();
    let invalid = block_on(limiter.block(Block::end(&policy, &key, NOW))).unwrap_err();
    assert_eq!(invalid.kind(), ErrorKind::Invalid);
}

/// A platform's limiter that admits two requests.
struct Platform(AtomicU32);

impl Native for Platform {
    fn capabilities(&self) -> Capabilities {
        Capabilities::EXACT.accuracy(Accuracy::PerLocation).algorithms(&["fixed_window"]).costs(false)
    }

    async fn limit(&self, _: Check<'_>) -> Result<bool, Error> {
        Ok(self.0.fetch_add(1, Ordering::Relaxed) < 2)
    }
}

#[test]
fn a_native_decision_has_only_what_the_platform_reports() {
    let limiter = NativeLimiter::new(Platform(AtomicU32::new(0)));
    let window = per_minute(2);
    let key = Key::new("k");
    let check = Check::new(&window, &key, NOW);
    let allowed: Vec<_> = (0..3).map(|_| block_on(limiter.check(check)).unwrap().is_allowed()).collect();
    assert_eq!(allowed, [true, true, false]);
    let denied = block_on(limiter.check(check)).unwrap();
    assert_eq!(
        (denied.binding().remaining(), denied.binding().reset_after(), denied.retry_after()),
        (None, None, None)
    );
    let refused = [
        block_on(limiter.check(check.cost(2))).unwrap_err(),
        block_on(limiter.check(Check::new(&policy(), &key, NOW))).unwrap_err(),
        block_on(limiter.peek(check)).unwrap_err(),
        block_on(limiter.reset(&window, (&key).into())).unwrap_err(),
        block_on(limiter.refund(Refund::new(&window, &key, 1, NOW, NOW))).unwrap_err(),
        block_on(limiter.block(Block::end(&window, &key, NOW))).unwrap_err(),
    ];
    assert!(refused.iter().all(|error| error.kind() == ErrorKind::Unsupported));
}
