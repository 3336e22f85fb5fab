//! The driver that remembers what it saw, over a table that others write to.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};

use pollster::block_on;
use proptest::prelude::*;
use tidegate_core::store::{RememberingLimiter, Swap, Swapped, Versioned, VersionedLimiter, VersionedValue};
use tidegate_core::{
    Block, Capabilities, Check, Error, ErrorKind, Key, Limiter, LimiterExt, MemoryLimiter, Millis, Policy, Quota,
    Refund, UnixMillis,
};
use tidegate_testing::{NOW, Table, at, per_minute, together, turn};

/// A table that several limiters use, each as if it were in a process of its own.
#[derive(Clone, Debug, Default)]
struct Shared {
    table: Arc<Table>,
    /// Whether no call is answered.
    halted: Arc<AtomicBool>,
}

impl Shared {
    fn of(tells: bool) -> Self {
        Self { table: Arc::new(Table { tells, ..Table::default() }), ..Self::default() }
    }

    fn telling() -> Self {
        Self::of(true)
    }

    fn halt(&self, halted: bool) {
        self.halted.store(halted, Ordering::Relaxed);
    }

    async fn answering(&self) {
        while self.halted.load(Ordering::Relaxed) {
            turn().await;
        }
    }

    fn limiter(&self) -> RememberingLimiter<Self> {
        VersionedLimiter::new(self.clone()).attempts(200).remembering(100)
    }

    fn take_calls(&self) -> u32 {
        self.table.calls.swap(0, Ordering::Relaxed)
    }
}

impl Versioned for Shared {
    type Version = u64;

    fn capabilities(&self) -> Capabilities {
        self.table.capabilities()
    }

    async fn read(&self, key: &str) -> Result<Option<VersionedValue<u64>>, Error> {
        self.answering().await;
        self.table.read(key).await
    }

    async fn create(&self, key: &str, bytes: &[u8], ttl: Millis) -> Result<Swap, Error> {
        self.answering().await;
        self.table.create(key, bytes, ttl).await
    }

    async fn update(&self, key: &str, bytes: &[u8], version: u64, ttl: Millis) -> Result<Swap, Error> {
        self.answering().await;
        self.table.update(key, bytes, version, ttl).await
    }

    async fn swap(&self, key: &str, bytes: &[u8], version: Option<u64>, ttl: Millis) -> Result<Swapped<u64>, Error> {
        self.answering().await;
        self.table.swap(key, bytes, version, ttl).await
    }

    async fn delete(&self, key: &str) -> Result<(), Error> {
        self.answering().await;
        self.table.delete(key).await
    }
}

fn allowed(limiter: &impl Limiter, policy: &Policy, key: &Key) -> bool {
    block_on(limiter.check(Check::new(policy, key, NOW))).unwrap().is_allowed()
}

#[test]
fn a_decision_takes_one_call() {
    let (shared, policy, key) = (Shared::telling(), per_minute(3), Key::new("k"));
    let (limiter, other) = (shared.limiter(), shared.limiter());
    assert_eq!(limiter.capabilities().round_trips, 1);
    for expected in [true, true] {
        assert_eq!(allowed(&limiter, &policy, &key), expected);
        assert_eq!(shared.take_calls(), 1, "it creates at once, and swaps at once");
    }
    assert!(allowed(&other, &policy, &key));
    assert_eq!(shared.take_calls(), 2, "a lost creation tells what is there");
    assert!(!allowed(&limiter, &policy, &key));
    assert_eq!(shared.take_calls(), 1, "a lost swap tells what is there, and that denies");
    assert!(!allowed(&limiter, &policy, &key));
    assert_eq!(shared.take_calls(), 1, "a denial is read");
    assert_eq!(shared.table.writes.load(Ordering::Relaxed), 3);
}

#[test]
fn what_is_remembered_never_denies() {
    let (shared, policy, key) = (Shared::telling(), per_minute(1), Key::new("k"));
    let (limiter, other) = (shared.limiter(), shared.limiter());
    assert!(allowed(&limiter, &policy, &key));
    assert!(!allowed(&limiter, &policy, &key));
    block_on(other.refund(Refund::new(&policy, &key, 1, NOW, NOW))).unwrap();
    assert!(allowed(&limiter, &policy, &key), "another process has given it back");
    block_on(other.reset(&policy, (&key).into())).unwrap();
    assert!(allowed(&limiter, &policy, &key), "another process has reset it");
    block_on(limiter.reset(&policy, (&key).into())).unwrap();
    shared.take_calls();
    assert!(allowed(&limiter, &policy, &key));
    assert_eq!(shared.take_calls(), 1, "it has forgotten what it has removed");
}

#[test]
fn a_store_that_tells_nothing_is_read() {
    let (shared, policy, key) = (Shared::default(), per_minute(3), Key::new("k"));
    let limiter = shared.limiter();
    assert!(allowed(&limiter, &policy, &key));
    assert_eq!(shared.take_calls(), 1);
    assert!(allowed(&limiter, &policy, &key));
    assert_eq!(shared.take_calls(), 2, "a read and a swap, and no creation that would be lost");
}

#[test]
fn decisions_that_wait_are_made_together() {
    let (shared, policy, key) = (Shared::telling(), per_minute(30), Key::new("k"));
    let limiter = shared.limiter();
    shared.halt(true);
    let mut calls: Vec<_> = (0..500).map(|_| Box::pin(limiter.check(Check::new(&policy, &key, NOW)))).collect();
    for call in &mut calls {
        assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    shared.halt(false);
    let answers = together(calls);
    let mut remaining: Vec<_> = answers
        .into_iter()
        .map(Result::unwrap)
        .filter(|decision| decision.is_allowed())
        .map(|decision| decision.binding().remaining().unwrap())
        .collect();
    remaining.sort_unstable();
    assert_eq!(remaining, (0..30).collect::<Vec<_>>(), "each has an answer of its own");
    assert_eq!(shared.take_calls(), 2, "the first, and all that came meanwhile");
}

#[test]
fn limiters_that_share_a_table_admit_the_limit() {
    for tells in [true, false] {
        let shared = Shared::of(tells);
        let (policy, key) = (per_minute(60), Key::new("k"));
        let limiters: Vec<_> = (0..5).map(|_| shared.limiter()).collect();
        let check = || Check::new(&policy, &key, NOW);
        let answers = together((0..500).map(|nth| limiters[nth % 5].check(check())));
        let admitted = answers.iter().filter(|answer| answer.as_ref().unwrap().is_allowed()).count();
        assert_eq!(admitted, 60);
    }
}

#[test]
fn exhausted_attempts_are_contended_and_charge_nothing() {
    let table = Table { rivals: AtomicU32::new(3), ..Table::default() };
    let limiter = VersionedLimiter::new(table).attempts(3).remembering(10);
    let (policy, key) = (per_minute(5), Key::new("k"));
    let error = block_on(limiter.check(Check::new(&policy, &key, NOW))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Contended);
    assert_eq!(limiter.store().writes.load(Ordering::Relaxed), 0);
    assert_eq!(block_on(limiter.check(Check::new(&policy, &key, NOW))).unwrap().binding().remaining(), Some(4));
}

#[test]
fn a_check_that_is_dropped_holds_up_nobody() {
    let (shared, policy, key) = (Shared::telling(), per_minute(5), Key::new("k"));
    let limiter = shared.limiter();
    let mut context = Context::from_waker(Waker::noop());
    let mut check = || {
        let mut call = Box::pin(limiter.check(Check::new(&policy, &key, NOW)));
        assert!(call.as_mut().poll(&mut context).is_pending());
        call
    };
    shared.halt(true);
    // The first one has sent a call, and the others wait for its end.
    let [first, second, third] = [check(), check(), check()];
    drop(first);
    drop(third);
    shared.halt(false);
    assert_eq!(block_on(second).unwrap().binding().remaining(), Some(4), "neither of them has come to the table");
    assert_eq!(shared.table.writes.load(Ordering::Relaxed), 1);
}

#[test]
fn a_call_goes_on_without_the_check_that_has_begun_it() {
    let (shared, policy, key) = (Shared::telling(), per_minute(5), Key::new("k"));
    let limiter = shared.limiter();
    let mut context = Context::from_waker(Waker::noop());
    let check = || Box::pin(limiter.check(Check::new(&policy, &key, NOW)));
    shared.halt(true);
    let mut first = check();
    assert!(first.as_mut().poll(&mut context).is_pending());
    let [mut second, mut third] = [check(), check()];
    assert!(second.as_mut().poll(&mut context).is_pending());
    assert!(third.as_mut().poll(&mut context).is_pending());
    shared.halt(false);
    block_on(first).unwrap();
    // The other two share the second call, which has begun.
    drop(second);
    assert_eq!(block_on(third).unwrap().binding().remaining(), Some(2), "the one that was dropped is charged");
    assert_eq!(shared.table.writes.load(Ordering::Relaxed), 2);
}

#[test]
fn an_error_is_that_of_each_decision_of_the_call() {
    /// Fails all calls.
    struct Down;
    impl Versioned for Down {
        type Version = u64;
        fn capabilities(&self) -> Capabilities {
            Table::default().capabilities()
        }
        async fn read(&self, _: &str) -> Result<Option<VersionedValue<u64>>, Error> {
            turn().await;
            Err(Error::new(ErrorKind::Timeout, "no answer").with_advice("wait"))
        }
        async fn create(&self, key: &str, _: &[u8], _: Millis) -> Result<Swap, Error> {
            self.read(key).await.map(|_| Swap::Done)
        }
        async fn update(&self, key: &str, _: &[u8], _: u64, _: Millis) -> Result<Swap, Error> {
            self.read(key).await.map(|_| Swap::Done)
        }
        async fn delete(&self, key: &str) -> Result<(), Error> {
            self.read(key).await.map(drop)
        }
    }
    let limiter = VersionedLimiter::new(Down).remembering(10);
    let (policy, key) = (per_minute(5), Key::new("k"));
    for answer in together((0..5).map(|_| limiter.check(Check::new(&policy, &key, NOW)))) {
        let error = answer.unwrap_err();
        assert_eq!((error.kind(), error.advice()), (ErrorKind::Timeout, Some("wait")));
    }
}

#[test]
fn a_corrupt_state_is_an_error_and_is_left_unchanged() {
    let (policy, key) = (per_minute(5), Key::new("k"));
    for bytes in [&b""[..], b"\x14", b"not a state", &[0xff; 42]] {
        let shared = Shared::telling();
        shared.table.rows.lock().unwrap().insert(key.storage_key(&policy), (bytes.into(), 7));
        let error = block_on(shared.limiter().check(Check::new(&policy, &key, NOW))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert_eq!(shared.table.row(&key.storage_key(&policy)), Some((bytes.to_vec(), 7)));
    }
}

#[test]
fn a_store_that_panics_fails_its_own_call() {
    /// Panics once.
    #[derive(Default)]
    struct Panicking(Table, AtomicU32);
    impl Versioned for Panicking {
        type Version = u64;
        fn capabilities(&self) -> Capabilities {
            self.0.capabilities()
        }
        async fn read(&self, key: &str) -> Result<Option<VersionedValue<u64>>, Error> {
            self.0.read(key).await
        }
        async fn create(&self, key: &str, bytes: &[u8], ttl: Millis) -> Result<Swap, Error> {
            turn().await;
            assert!(self.1.fetch_add(1, Ordering::Relaxed) > 0, "the first call");
            self.0.create(key, bytes, ttl).await
        }
        async fn update(&self, key: &str, bytes: &[u8], version: u64, ttl: Millis) -> Result<Swap, Error> {
            self.0.update(key, bytes, version, ttl).await
        }
        async fn delete(&self, key: &str) -> Result<(), Error> {
            self.0.delete(key).await
        }
    }
    let limiter = VersionedLimiter::new(Panicking::default()).remembering(10);
    let (policy, key) = (per_minute(5), Key::new("k"));
    let mut context = Context::from_waker(Waker::noop());
    let [mut first, mut second] = [(); 2].map(|()| Box::pin(limiter.check(Check::new(&policy, &key, NOW))));
    assert!(first.as_mut().poll(&mut context).is_pending());
    // Whoever waits drives the call.
    let polled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| second.as_mut().poll(&mut context)));
    assert!(polled.is_err());
    drop(second);
    assert_eq!(block_on(first).unwrap_err().kind(), ErrorKind::Contended);
    assert!(allowed(&limiter, &policy, &key));
}

/// A step of one of the processes.
#[derive(Clone, Debug)]
enum Step {
    Check(u64),
    Peek(u64),
    Refund(u64),
    Block(u64),
    Reset,
    Forward(u64),
    Back(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => prop_oneof![Just(1), 0..8u64].prop_map(Step::Check),
        1 => (0..8u64).prop_map(Step::Peek),
        1 => (0..8u64).prop_map(Step::Refund),
        1 => (0..3_000u64).prop_map(Step::Block),
        1 => Just(Step::Reset),
        3 => (1..2_000u64).prop_map(Step::Forward),
        1 => (1..500u64).prop_map(Step::Back),
    ]
}

fn policies() -> impl Strategy<Value = Policy> {
    (1..12u64, 1..3_000u64, 0..6u8, any::<bool>()).prop_map(|(limit, ms, algorithm, charge_denied)| {
        let span = Millis::new(ms);
        let quota = match algorithm {
            0 => Quota::fixed_window(limit, span),
            1 => Quota::sliding_window(limit, span),
            2 => Quota::sliding_log(limit, span),
            3 => Quota::leaky_bucket(limit, 1, span),
            _ => Quota::token_bucket(limit, limit.div_ceil(2), span),
        };
        let block = Quota::block(Millis::from_secs(60)).unwrap();
        Policy::new("api", [quota.unwrap(), block]).unwrap().charge_denied(charge_denied)
    })
}

proptest! {
    /// Several processes take turns on one table, each with what it remembers. One of them does not remember.
    #[test]
    fn decisions_are_those_of_one_process_alone(
        policy in policies(),
        tells in any::<bool>(),
        keys in 1..3usize,
        steps in prop::collection::vec((0..3usize, 0..2usize, step()), 1..60),
    ) {
        let shared = Shared::of(tells);
        let remembering = [shared.limiter(), VersionedLimiter::new(shared.clone()).remembering(keys)];
        let plain = VersionedLimiter::new(shared.clone());
        let (reference, keys) = (VersionedLimiter::new(Table::default()), [Key::new("a"), Key::new("b")]);
        let mut now = at(10_000);
        for (process, key, step) in steps {
            let key = &keys[key];
            let mut asked = None;
            match step {
                Step::Forward(ms) => now = now + Millis::new(ms),
                Step::Back(ms) => now = UnixMillis::new(now.get() - ms),
                other => asked = Some(other),
            }
            let Some(asked) = asked else { continue };
            let expected = apply(&reference, &asked, &policy, key, now);
            let decided = match process {
                0 => apply(&plain, &asked, &policy, key, now),
                process => apply(&remembering[process - 1], &asked, &policy, key, now),
            };
            prop_assert_eq!(decided, expected, "{:?} by {}", asked, process);
        }
    }

    /// Checks of several processes at once: the admitted ones are as many as one after another.
    #[test]
    fn decisions_at_once_admit_what_the_memory_store_admits(
        policy in policies(),
        tells in any::<bool>(),
        bursts in prop::collection::vec((1..40usize, 0..2_000u64), 1..6),
    ) {
        let shared = Shared::of(tells);
        let remembering: Vec<_> = (0..3).map(|_| shared.limiter()).collect();
        let plain = VersionedLimiter::new(shared.clone()).attempts(200);
        let (memory, key) = (MemoryLimiter::new(), Key::new("a"));
        let mut now = at(10_000);
        for (checks, pause) in bursts {
            now = now + Millis::new(pause);
            let check = Check::new(&policy, &key, now);
            let mut expected: Vec<_> = (0..checks).map(|_| memory.decide(check).unwrap()).map(|d| told(&d)).collect();
            let mut decided: Vec<_> = together((0..checks).map(|nth| {
                let (remembering, plain) = (&remembering, &plain);
                async move {
                    match nth % 4 {
                        3 => plain.check(check).await,
                        process => remembering[process].check(check).await,
                    }
                }
            })).into_iter().map(|decision| told(&decision.unwrap())).collect();
            expected.sort_unstable();
            decided.sort_unstable();
            prop_assert_eq!(decided, expected);
        }
    }
}

fn told(decision: &tidegate_core::Decision) -> (bool, Option<u64>, Option<Millis>) {
    (decision.is_allowed(), decision.binding().remaining(), decision.retry_after())
}

fn apply(
    limiter: &impl Limiter,
    step: &Step,
    policy: &Policy,
    key: &Key,
    now: UnixMillis,
) -> Option<tidegate_core::Decision> {
    match step {
        Step::Check(cost) => Some(block_on(limiter.check(Check::new(policy, key, now).cost(*cost))).unwrap()),
        Step::Peek(cost) => Some(block_on(limiter.peek(Check::new(policy, key, now).cost(*cost))).unwrap()),
        Step::Refund(cost) => {
            block_on(limiter.refund(Refund::new(policy, key, *cost, now, now))).unwrap();
            None
        }
        Step::Block(ms) => {
            block_on(limiter.block(Block::new(policy, key, Millis::new(*ms), now))).unwrap();
            None
        }
        Step::Reset => {
            block_on(limiter.reset(policy, key.into())).unwrap();
            None
        }
        Step::Forward(_) | Step::Back(_) => None,
    }
}

#[test]
fn it_remembers_so_many_keys() {
    let shared = Shared::telling();
    let limiter = VersionedLimiter::new(shared.clone()).remembering(10);
    let policy = per_minute(100);
    let keys: Vec<_> = (0..50).map(|nth| Key::new(format!("k{nth}"))).collect();
    for key in &keys {
        assert!(allowed(&limiter, &policy, key));
    }
    shared.take_calls();
    // Those that were used last are remembered; the others are there already when they are created.
    let calls = |key: &Key| {
        assert!(allowed(&limiter, &policy, key));
        shared.take_calls()
    };
    assert_eq!(keys[46..].iter().map(calls).collect::<Vec<_>>(), [1; 4]);
    assert_eq!(keys[..40].iter().map(calls).collect::<Vec<_>>(), [2; 40]);
    let nothing = VersionedLimiter::new(shared.clone()).remembering(0);
    for _ in 0..2 {
        assert!(allowed(&nothing, &policy, &keys[0]));
        assert_eq!(shared.take_calls(), 2);
    }
    let pinned = pin!(nothing.check(Check::new(&policy, &keys[0], NOW)));
    assert!(matches!(pinned.poll(&mut Context::from_waker(Waker::noop())), Poll::Pending));
}
