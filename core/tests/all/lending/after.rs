//! Questions that are kept until after the response.

use pollster::block_on;
use tidegate_core::lending::Lease;
use tidegate_core::store::{AtomicLimiter, LendingLimiter};
use tidegate_core::{Check, ErrorKind, Key, Keys, LimiterExt as _, MemoryLimiter, Millis, Origin, Policy};
use tidegate_testing::{NOW, per_minute};

use super::store::Store;

fn limiter() -> (Store, LendingLimiter<'static, AtomicLimiter<Store>>, Policy) {
    let store = Store::default();
    let lease = Lease { in_background: true, ..Lease::new(10, Millis::from_secs(10)) };
    let limiter = LendingLimiter::new(AtomicLimiter::new(store.clone()), lease).unwrap();
    (store, limiter, per_minute(1_000))
}

#[test]
fn only_a_store_that_lends_can_be_borrowed_from() {
    let lease = Lease::new(10, Millis::from_secs(10));
    assert_eq!(LendingLimiter::new(MemoryLimiter::new(), lease).unwrap_err().kind(), ErrorKind::Unsupported);
}

#[test]
fn so_many_are_kept_and_the_others_are_asked_at_once() {
    let (store, limiter, policy) = limiter();
    // The first request of a key gets no loan, the second one a loan of one unit, and the third one spends it.
    for nth in 0..300 {
        let key = Key::new(format!("user:{nth}"));
        (0..3).for_each(|_| assert!(block_on(limiter.check(Check::new(&policy, &key, NOW))).unwrap().is_allowed()));
    }
    assert_eq!(store.calls(), (0, 2 * 300 + 300 - 256));
    block_on(limiter.after(|| NOW, async {}));
    assert_eq!(store.calls(), (0, 256));
    block_on(limiter.after(|| NOW, async {}));
    assert_eq!(store.calls(), (0, 0));
}

#[test]
fn one_that_was_given_up_is_not_asked() {
    let (store, limiter, policy) = limiter();
    let key = Key::new("user:1");
    let check = |now| block_on(limiter.check(Check::new(&policy, &key, now))).unwrap().is_allowed();
    assert!(check(NOW) && check(NOW) && check(NOW));
    store.calls();
    // Nobody has asked it within its deadline, so the next request asks.
    let later = NOW + Millis::from_secs(3);
    assert!(check(later));
    assert_eq!(store.calls(), (0, 1));
    block_on(limiter.after(|| later, async {}));
    assert_eq!(store.calls(), (0, 0));
}

#[test]
fn what_a_loan_has_paid_for_is_not_charged_again() {
    let (_, limiter, _) = limiter();
    let (policy, key) = (per_minute(300), Key::new("user:1"));
    let admitted = (0..400).filter(|_| {
        let decision = block_on(limiter.check(Check::new(&policy, &key, NOW))).unwrap();
        block_on(limiter.after(|| NOW, async {}));
        decision.is_allowed()
    });
    assert_eq!(admitted.count(), 300);
}

#[test]
fn a_reset_forgets_the_denial() {
    let (_, limiter, _) = limiter();
    let (policy, key) = (per_minute(1), Key::new("user:1"));
    let origin = || {
        let decision = block_on(limiter.check(Check::new(&policy, &key, NOW))).unwrap();
        (decision.is_allowed(), decision.origin())
    };
    let denied = [(true, Origin::Store), (false, Origin::Store), (false, Origin::DenyCache)];
    assert_eq!([(); 3].map(|()| origin()), denied);
    block_on(limiter.reset(&policy, Keys::from(&key))).unwrap();
    assert_eq!(origin(), (false, Origin::Store));
}
