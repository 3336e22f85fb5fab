//! The fallback: what it admits while its store is down, and when it asks the store again.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use pollster::block_on;
use proptest::prelude::*;
use tidegate_core::{
    Capabilities, Check, Decision, Error, ErrorKind, Fallback, Key, Keys, Limiter, Load, MemoryLimiter, Millis, Origin,
    Policy, Quota, Refund, Settle, UnixMillis,
};

const START: u64 = 1_800_000_000_000;

/// A store that fails on demand, and counts how often it is asked.
#[derive(Clone, Default)]
struct Store(Arc<Inner>);

#[derive(Default)]
struct Inner {
    memory: MemoryLimiter,
    fails: Mutex<Option<ErrorKind>>,
    asked: AtomicU32,
}

impl Store {
    fn fail(&self, kind: Option<ErrorKind>) {
        *self.0.fails.lock().unwrap() = kind;
    }

    fn asked(&self) -> u32 {
        self.0.asked.swap(0, Ordering::Relaxed)
    }

    fn ask(&self) -> Result<&MemoryLimiter, Error> {
        self.0.asked.fetch_add(1, Ordering::Relaxed);
        match *self.0.fails.lock().unwrap() {
            Some(kind) => Err(Error::new(kind, "on demand")),
            None => Ok(&self.0.memory),
        }
    }
}

impl Limiter for Store {
    fn capabilities(&self) -> Capabilities {
        Capabilities::EXACT
    }

    async fn check(&self, check: Check<'_>) -> Result<Decision, Error> {
        self.ask()?.check(check).await
    }

    async fn peek(&self, check: Check<'_>) -> Result<Decision, Error> {
        self.ask()?.peek(check).await
    }

    async fn refund(&self, refund: Refund<'_>) -> Result<(), Error> {
        self.ask()?.refund(refund).await
    }

    async fn settle(&self, settle: Settle<'_>) -> Result<Decision, Error> {
        self.ask()?.settle(settle).await
    }

    async fn reset(&self, policy: &Policy, keys: Keys<'_>) -> Result<(), Error> {
        self.ask()?.reset(policy, keys).await
    }
}

fn at(ms: u64) -> UnixMillis {
    UnixMillis::new(START + ms)
}

fn window(limit: u64) -> Policy {
    Policy::new("api", [Quota::fixed_window(limit, Millis::from_secs(60)).unwrap()]).unwrap()
}

fn key() -> Key {
    Key::new("ip:192.0.2.1")
}

/// How many of `count` requests are admitted, and by whom the last one was decided.
fn admitted(limiter: &impl Limiter, policy: &Policy, ms: u64, count: u32) -> (u32, Result<Origin, ErrorKind>) {
    let (key, mut admitted, mut last) = (key(), 0, Err(ErrorKind::Invalid));
    for _ in 0..count {
        let decided = block_on(limiter.check(Check::new(policy, &key, at(ms))));
        admitted += u32::from(decided.as_ref().is_ok_and(Decision::is_allowed));
        last = decided.map(|decision| decision.origin()).map_err(|error| error.kind());
    }
    (admitted, last)
}

#[test]
fn an_outage_admits_the_share_and_the_store_counts_again_afterwards() {
    let (store, policy) = (Store::default(), window(60));
    let limiter = Fallback::new(store.clone(), 10).unwrap();
    assert_eq!(admitted(&limiter, &policy, 0, 50), (50, Ok(Origin::Store)));
    store.fail(Some(ErrorKind::Unavailable));
    assert_eq!(admitted(&limiter, &policy, 100, 50), (6, Ok(Origin::Fallback)));
    assert_eq!(limiter.down_for(at(200)), Some(Millis::new(100)));
    store.fail(None);
    // The breaker asks the store again after its pause.
    assert_eq!(admitted(&limiter, &policy, 1_200, 50), (10, Ok(Origin::Store)));
    assert_eq!(limiter.down_for(at(1_200)), None);
    // The share is not renewed by a second outage in the same window.
    store.fail(Some(ErrorKind::Timeout));
    assert_eq!(admitted(&limiter, &policy, 1_300, 50), (0, Ok(Origin::Fallback)));
}

#[test]
fn a_store_that_keeps_failing_is_asked_once_in_each_pause() {
    let (store, policy) = (Store::default(), window(1_000));
    let limiter = Fallback::new(store.clone(), 100).unwrap().breaker(3, Millis::new(500));
    store.fail(Some(ErrorKind::Timeout));
    let _ = admitted(&limiter, &policy, 0, 10);
    assert_eq!(store.asked(), 3);
    let _ = admitted(&limiter, &policy, 499, 10);
    assert_eq!(store.asked(), 0);
    let _ = admitted(&limiter, &policy, 500, 10);
    assert_eq!(store.asked(), 1);
    // A clock that is set back asks at once.
    let _ = admitted(&limiter, &policy, 100, 10);
    assert_eq!(store.asked(), 1);
}

#[test]
fn a_long_outage_ends_the_fallback() {
    let (store, policy) = (Store::default(), window(60));
    let limiter = Fallback::new(store.clone(), 10).unwrap().at_most(Millis::from_secs(1));
    store.fail(Some(ErrorKind::Unavailable));
    assert_eq!(admitted(&limiter, &policy, 0, 1), (1, Ok(Origin::Fallback)));
    assert_eq!(admitted(&limiter, &policy, 1_000, 1), (1, Ok(Origin::Fallback)));
    assert_eq!(admitted(&limiter, &policy, 1_001, 1), (0, Err(ErrorKind::Unavailable)));
    store.fail(None);
    assert_eq!(admitted(&limiter, &policy, 2_500, 1), (1, Ok(Origin::Store)));
}

#[test]
fn no_error_that_a_client_can_cause_is_replaced() {
    for kind in ErrorKind::ALL.into_iter().filter(|kind| !kind.is_store_failure()) {
        let (store, policy) = (Store::default(), window(60));
        let limiter = Fallback::new(store.clone(), 100).unwrap();
        store.fail(Some(kind));
        assert_eq!(admitted(&limiter, &policy, 0, 10), (0, Err(kind)));
        assert_eq!(store.asked(), 10, "{kind} must not open the breaker");
    }
}

#[test]
fn an_invalid_check_does_not_end_an_outage() {
    let (store, policy) = (Store::default(), window(60));
    let limiter = Fallback::new(store.clone(), 10).unwrap().at_most(Millis::from_secs(1));
    for ms in (0..1_200).step_by(100) {
        store.fail(Some(ErrorKind::Unavailable));
        let _ = admitted(&limiter, &policy, ms, 1);
        store.fail(Some(ErrorKind::Invalid));
        let _ = admitted(&limiter, &policy, ms, 1);
    }
    store.fail(Some(ErrorKind::Unavailable));
    assert_eq!(admitted(&limiter, &policy, 1_200, 1), (0, Err(ErrorKind::Unavailable)));
}

#[test]
fn a_limit_without_a_share_is_not_admitted() {
    let (store, policy) = (Store::default(), window(9));
    let limiter = Fallback::new(store.clone(), 10).unwrap();
    store.fail(Some(ErrorKind::Timeout));
    assert_eq!(admitted(&limiter, &policy, 0, 5), (0, Err(ErrorKind::Unavailable)));
}

#[test]
fn a_charge_is_settled_where_it_was_made() {
    let (store, policy, key) = (Store::default(), window(100), key());
    let limiter = Fallback::new(store.clone(), 50).unwrap();
    let hour = Millis::from_secs(3_600);
    let check = |token| block_on(limiter.check(Check::new(&policy, &key, at(0)).cost(20).idempotent(token, hour)));
    assert_eq!(check("a").unwrap().origin(), Origin::Store);
    store.fail(Some(ErrorKind::Timeout));
    assert_eq!(check("b").unwrap().origin(), Origin::Fallback);
    let settle = |token| block_on(limiter.settle(Settle::new(&policy, &key, token, 5, at(10))));
    let settled = settle("b").unwrap();
    assert_eq!((settled.origin(), settled.binding().remaining()), (Origin::Fallback, Some(45)));
    assert_eq!(settle("a").unwrap_err().kind(), ErrorKind::Timeout);
    store.fail(None);
    let settled = settle("a").unwrap();
    assert_eq!((settled.origin(), settled.binding().remaining()), (Origin::Store, Some(95)));
}

#[test]
fn a_percentage_is_from_1_to_100() {
    for percent in [0, 101] {
        let error = Fallback::new(Store::default(), percent).map(|_| ()).unwrap_err();
        assert_eq!(error.to_string(), format!("percent: {percent} is out of range; write 1 to 100"));
    }
}

/// A limiter with other features than its own.
struct Declared(Store, Capabilities);

impl Limiter for Declared {
    fn capabilities(&self) -> Capabilities {
        self.1
    }

    async fn check(&self, check: Check<'_>) -> Result<Decision, Error> {
        self.1.supports(&check)?;
        self.0.check(check).await
    }

    async fn peek(&self, check: Check<'_>) -> Result<Decision, Error> {
        self.0.peek(check).await
    }

    async fn refund(&self, refund: Refund<'_>) -> Result<(), Error> {
        self.0.refund(refund).await
    }

    async fn reset(&self, policy: &Policy, keys: Keys<'_>) -> Result<(), Error> {
        self.0.reset(policy, keys).await
    }
}

#[test]
fn another_store_decides_in_place_of_the_memory() {
    let (store, backup, policy) = (Store::default(), Store::default(), window(60));
    let simple = Capabilities::EXACT.idempotency(false).reset(false);
    // Two processes share the backup, and so the share.
    let [one, other] =
        [(); 2].map(|()| Fallback::new(store.clone(), 50).unwrap().backup(Declared(backup.clone(), simple)).unwrap());
    store.fail(Some(ErrorKind::Unavailable));
    assert_eq!(admitted(&one, &policy, 0, 20), (20, Ok(Origin::Fallback)));
    assert_eq!(admitted(&other, &policy, 0, 20), (10, Ok(Origin::Fallback)));
    // What the backup cannot do fails as the store does.
    let key = key();
    let check = Check::new(&policy, &key, at(0)).idempotent("a", Millis::from_secs(60));
    assert_eq!(block_on(one.check(check)).unwrap_err().kind(), ErrorKind::Unavailable);
    // So does every check if the backup fails, too.
    backup.fail(Some(ErrorKind::Timeout));
    assert_eq!(admitted(&one, &policy, 0, 1), (0, Err(ErrorKind::Timeout)));
    store.fail(None);
    block_on(one.reset(&policy, Keys::from(&key))).unwrap();
    assert_eq!(admitted(&one, &policy, 2_000, 1), (1, Ok(Origin::Store)));

    let wide = Fallback::new(Store::default(), 50).unwrap();
    let error = Fallback::new(store, 50).unwrap().backup(wide).map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("50 % x limit x locations"), "{error}");
}

fn quotas() -> impl Strategy<Value = Quota> {
    let span = 1_u64..5_000;
    prop_oneof![
        (1_u64..60, span.clone()).prop_map(|(limit, ms)| Quota::fixed_window(limit, Millis::new(ms))),
        (1_u64..60, span.clone()).prop_map(|(limit, ms)| Quota::sliding_window(limit, Millis::new(ms))),
        (1_u64..60, span.clone()).prop_map(|(limit, ms)| Quota::sliding_log(limit, Millis::new(ms))),
        (1_u64..60, 1_u64..20, span).prop_map(|(limit, refill, ms)| Quota::token_bucket(
            limit,
            refill,
            Millis::new(ms)
        )),
    ]
    .prop_map(Result::unwrap)
}

proptest! {
    /// In no interval do several processes admit more than the store's maximum and the share of each.
    #[test]
    fn no_interval_exceeds_the_bound(
        quota in quotas(),
        percent in 1_u8..=100,
        processes in 1_usize..4,
        steps in prop::collection::vec((0_u64..700, any::<bool>(), 0_usize..4, 1_u32..20), 1..40),
    ) {
        let policy = Policy::new("api", [quota]).unwrap();
        let store = Store::default();
        let fallback = || Fallback::new(store.clone(), percent).unwrap().breaker(1, Millis::new(300));
        let limiters: Vec<_> = (0..processes).map(|_| fallback()).collect();
        let (mut ms, mut history) = (0, Vec::new());
        for (pause, is_down, process, count) in steps {
            ms += pause;
            store.fail(is_down.then_some(ErrorKind::Timeout));
            let (admitted, _) = admitted(&limiters[process % processes], &policy, ms, count);
            history.push((at(ms), u64::from(admitted)));
        }
        let rule = policy.quotas()[0].rule();
        let accuracy = limiters[0].capabilities().accuracy;
        for (place, (first, _)) in history.iter().enumerate() {
            let mut total = 0;
            for (last, admitted) in &history[place..] {
                total += admitted;
                let load = Load { limit: rule.maximum(*first, *last), in_flight: 1, locations: processes as u64 };
                prop_assert!(total <= accuracy.ceiling(load), "{total} from {first:?} to {last:?}, {accuracy}");
            }
        }
    }
}
