//! Checks that wait for the answer to another one's question.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use tidegate_core::lending::Lease;
use tidegate_core::store::{AtomicLimiter, LendingLimiter};
use tidegate_core::{Check, Decision, Error, ErrorKind, Key, LimiterExt as _, Millis, Origin, Policy};
use tidegate_testing::{NOW, per_minute};

use super::store::Store;

/// A limiter that has spent its last loan, of ten units.
struct Spent {
    store: Store,
    limiter: LendingLimiter<'static, AtomicLimiter<Store>>,
    policy: Policy,
    key: Key,
}

impl Spent {
    fn new() -> Self {
        Self::within(Millis::from_secs(10))
    }

    fn within(lifetime: Millis) -> Self {
        let store = Store::default();
        let lease = Lease::new(10, lifetime);
        let limiter = LendingLimiter::new(AtomicLimiter::new(store.clone()), lease).unwrap();
        let policy = per_minute(1_000_000);
        let new = Self { store, limiter, policy, key: Key::new("user:1") };
        // The first one is decided by the store, which lends ten.
        (0..11).for_each(|_| assert!(pollster::block_on(new.check(1)).unwrap().is_allowed()));
        new.store.calls();
        new.store.is_silent(true);
        new
    }

    async fn check(&self, cost: u64) -> Result<Decision, Error> {
        self.limiter.check(Check::new(&self.policy, &self.key, NOW).cost(cost)).await
    }
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn origin(polled: Poll<Result<Decision, Error>>) -> Option<Origin> {
    match polled {
        Poll::Ready(result) => Some(result.unwrap().origin()),
        Poll::Pending => None,
    }
}

#[test]
fn those_that_the_next_loan_is_enough_for_wait_for_it() {
    let spent = Spent::new();
    let (mut asks, mut waits) = (pin!(spent.check(1)), pin!(spent.check(9)));
    assert_eq!((origin(poll(asks.as_mut())), origin(poll(waits.as_mut()))), (None, None));
    assert_eq!(spent.store.calls(), (0, 0));
    // Eleven are more than the last loan had.
    assert_eq!(origin(poll(pin!(spent.check(2)))), Some(Origin::Store));
    assert_eq!(spent.store.calls(), (1, 0));
    // Whoever waits goes on with the call.
    spent.store.is_silent(false);
    assert_eq!(origin(poll(waits.as_mut())), Some(Origin::Lease));
    assert_eq!(origin(poll(asks.as_mut())), Some(Origin::Store));
    // Little is left, so it has asked for more.
    assert_eq!(spent.store.calls(), (0, 2));
    let others = AtomicLimiter::new(spent.store.clone());
    let next = pollster::block_on(others.check(Check::new(&spent.policy, &spent.key, NOW))).unwrap();
    // Two requests were decided by the store with a loan of ten each, one of two plainly, and one unit of ten was still there.
    assert_eq!(next.quotas()[0].remaining(), Some(1_000_000 - (11 + 11 + 2 + 9 + 1)));
}

#[test]
fn none_waits_apart() {
    let mut spent = Spent::new();
    spent.limiter = spent.limiter.apart();
    let mut asks = pin!(spent.check(1));
    assert!(poll(asks.as_mut()).is_pending());
    assert_eq!(origin(poll(pin!(spent.check(1)))), Some(Origin::Store));
    assert_eq!(spent.store.calls(), (1, 0));
}

#[test]
fn those_that_get_nothing_do_not_wait_again() {
    let spent = Spent::new();
    let (mut asks, mut first, mut second) = (pin!(spent.check(1)), pin!(spent.check(5)), pin!(spent.check(5)));
    for check in [&mut asks, &mut first, &mut second] {
        assert!(poll(check.as_mut()).is_pending());
    }
    // Another one spends all but one unit.
    let others = AtomicLimiter::new(spent.store.clone());
    let rest = Check::new(&spent.policy, &spent.key, NOW).cost(999_988);
    assert!(pollster::block_on(others.check(rest)).unwrap().is_allowed());
    spent.store.is_silent(false);
    let outcome = |polled| match polled {
        Poll::Ready(Ok(decision)) => Some((Decision::is_allowed(&decision), decision.origin())),
        _ => None,
    };
    assert_eq!(outcome(poll(asks)), Some((true, Origin::Store)));
    assert_eq!(outcome(poll(first)), Some((false, Origin::Store)));
    assert_eq!(outcome(poll(second)), Some((false, Origin::DenyCache)));
    assert_eq!(spent.store.calls(), (1, 2));
}

#[test]
fn a_question_that_fails_fails_for_none_of_those_that_wait() {
    let spent = Spent::new();
    let (mut asks, mut first, mut second) = (pin!(spent.check(1)), pin!(spent.check(1)), pin!(spent.check(1)));
    for check in [&mut asks, &mut first, &mut second] {
        assert!(poll(check.as_mut()).is_pending());
    }
    spent.store.is_down(true);
    spent.store.is_silent(false);
    let failure = |polled| match polled {
        Poll::Ready(Err(error)) => Some(Error::kind(&error)),
        _ => None,
    };
    assert_eq!(failure(poll(asks)), Some(ErrorKind::Unavailable));
    assert_eq!(spent.store.calls(), (0, 1));
    // The store fails for one of them itself, and then answers the other.
    assert_eq!(failure(poll(first)), Some(ErrorKind::Unavailable));
    assert_eq!(spent.store.calls(), (0, 1));
    spent.store.is_down(false);
    assert_eq!(origin(poll(second)), Some(Origin::Store));
    assert_eq!(spent.store.calls(), (0, 1));
}

#[test]
fn a_dropped_check_loses_neither_the_loan_nor_its_answer() {
    for who_finishes in ["the next check", "one that waits", "what is done after a response"] {
        let spent = Spent::new();
        spent.store.is_silent(false);
        spent.store.keeps_answers(true);
        let mut waits = pin!(spent.check(1));
        {
            let mut asks = pin!(spent.check(1));
            assert!(poll(asks.as_mut()).is_pending(), "{who_finishes}");
            if who_finishes == "one that waits" {
                assert!(poll(waits.as_mut()).is_pending());
            }
        }
        spent.store.keeps_answers(false);
        match who_finishes {
            "one that waits" => assert_eq!(origin(poll(waits)), Some(Origin::Lease)),
            "what is done after a response" => {
                // It may be dropped, too.
                spent.store.keeps_answers(true);
                assert!(poll(pin!(spent.limiter.after(|| NOW, async {}))).is_pending());
                spent.store.keeps_answers(false);
                pollster::block_on(spent.limiter.after(|| NOW, async {}));
            }
            _ => {}
        }
        assert_eq!(spent.store.calls(), (0, 1), "{who_finishes}");
        for _ in 0..4 {
            assert_eq!(origin(poll(pin!(spent.check(1)))), Some(Origin::Lease), "{who_finishes}");
        }
        assert_eq!(spent.store.calls().0, 0, "{who_finishes}");
    }
}

#[test]
fn checks_that_are_dropped_one_after_another_waste_no_loans() {
    let spent = Spent::new();
    spent.store.is_silent(false);
    spent.store.keeps_answers(true);
    let left = |cost| {
        let others = AtomicLimiter::new(spent.store.clone());
        let check = Check::new(&spent.policy, &spent.key, NOW).cost(cost);
        pollster::block_on(others.check(check)).unwrap().quotas()[0].remaining().unwrap()
    };
    let before = left(0);
    for nth in 0..20 {
        // The answer to each is there when the next one comes.
        spent.store.keeps_answers(true);
        let _ = poll(pin!(spent.check(1)));
        spent.store.keeps_answers(nth % 2 == 0);
    }
    // Twenty requests, and at most the slice that the process holds.
    let gone = before - left(0);
    assert!(gone <= 20 + 10, "{gone}");
}

#[test]
fn a_loan_that_ended_during_the_wait_is_not_spent() {
    let spent = Spent::within(Millis::new(200));
    let (mut asks, mut waits) = (pin!(spent.check(1)), pin!(spent.check(1)));
    assert!(poll(asks.as_mut()).is_pending() && poll(waits.as_mut()).is_pending());
    std::thread::sleep(std::time::Duration::from_millis(200));
    spent.store.is_silent(false);
    assert_eq!([asks, waits].map(|check| origin(poll(check))), [Some(Origin::Store); 2]);
}

#[test]
fn what_is_waited_for_is_kept_for_those_that_wait() {
    let spent = Spent::new();
    let (mut asks, mut waits) = (pin!(spent.check(1)), pin!(spent.check(5)));
    assert!(poll(asks.as_mut()).is_pending() && poll(waits.as_mut()).is_pending());
    spent.store.is_silent(false);
    assert_eq!(origin(poll(asks.as_mut())), Some(Origin::Store));
    // Five of ten are free. This one asks, and the five stay meanwhile.
    spent.store.is_silent(true);
    let mut more = pin!(spent.check(6));
    assert!(poll(more.as_mut()).is_pending());
    assert_eq!(origin(poll(waits)), Some(Origin::Lease));
    spent.store.is_silent(false);
    assert_eq!(origin(poll(more)), Some(Origin::Store));
}

/// Counts how often it is woken.
#[derive(Default)]
struct Woken(AtomicU64);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn the_task_that_has_polled_last_is_woken() {
    let spent = Spent::new();
    let tasks = [Arc::new(Woken::default()), Arc::new(Woken::default())];
    let (mut asks, mut waits) = (pin!(spent.check(1)), pin!(spent.check(1)));
    assert!(poll(asks.as_mut()).is_pending());
    for task in &tasks {
        assert!(waits.as_mut().poll(&mut Context::from_waker(&Arc::clone(task).into())).is_pending());
    }
    spent.store.is_silent(false);
    assert!(poll(asks).is_ready());
    assert_eq!(tasks[1].0.load(Ordering::Relaxed), 1);
}

#[test]
fn a_check_waits_once_and_then_asks_itself() {
    let spent = Spent::new();
    let (mut asks, mut waits) = (pin!(spent.check(1)), pin!(spent.check(1)));
    assert!(poll(asks.as_mut()).is_pending() && poll(waits.as_mut()).is_pending());
    spent.store.is_down(true);
    spent.store.is_silent(false);
    assert!(matches!(poll(asks), Poll::Ready(Err(_))));
    spent.store.is_down(false);
    spent.store.is_silent(true);
    // Another one asks before it runs.
    let mut other = pin!(spent.check(1));
    assert!(poll(other.as_mut()).is_pending());
    spent.store.calls();
    assert_eq!(origin(poll(waits)), Some(Origin::Store));
    assert_eq!(spent.store.calls(), (1, 0));
}
