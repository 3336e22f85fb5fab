//! The type-erased limiter, and limiters behind pointers.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;

use pollster::block_on;
use tidegate_core::{Check, DenyCache, ErasedLimiter, Key, Limiter, LimiterExt, MemoryLimiter, Refund};
use tidegate_testing::{NOW, key, per_minute};

/// Calls every operation.
async fn exercise(limiter: impl Limiter) {
    let policy = per_minute(2);
    let key = key();
    let check = Check::new(&policy, &key, NOW);
    assert!(limiter.capabilities().refund);
    assert!(limiter.check(check.cost(2)).await.unwrap().is_allowed());
    assert!(!limiter.peek(check).await.unwrap().is_allowed());
    limiter.refund(Refund::new(&policy, &key, 1, NOW, NOW)).await.unwrap();
    assert_eq!(limiter.peek(check).await.unwrap().binding().remaining(), Some(1));
    limiter.reset(&policy, (&key).into()).await.unwrap();
    assert_eq!(limiter.peek(check).await.unwrap().binding().remaining(), Some(2));
}

#[test]
fn every_operation_works_through_every_pointer() {
    block_on(exercise(&MemoryLimiter::new()));
    block_on(exercise(Box::new(MemoryLimiter::new())));
    block_on(exercise(Arc::new(MemoryLimiter::new())));
    let erased: Box<dyn ErasedLimiter> = Box::new(MemoryLimiter::new());
    block_on(exercise(&*erased));
    block_on(exercise(erased));
    let shared: Arc<dyn ErasedLimiter> = Arc::new(DenyCache::new(MemoryLimiter::new()));
    block_on(exercise(Arc::clone(&shared)));
    block_on(exercise(DenyCache::new(shared)));
}

#[test]
fn futures_of_an_erased_limiter_are_send() {
    let limiter: Arc<dyn ErasedLimiter> = Arc::new(MemoryLimiter::new());
    std::thread::spawn(move || block_on(exercise(limiter))).join().unwrap();
    fn assert_send<T: Send>(_: &T) {}
    let policy = per_minute(2);
    let (key, limiter) = (Key::new("k"), Box::new(MemoryLimiter::new()) as Box<dyn ErasedLimiter>);
    assert_send(&limiter.check(Check::new(&policy, &key, NOW)));
}
