//! Limiters that lend wrongly.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::ready;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_conformance::fixture::{Disturb, Fixture, Op};
use tidegate_core::lending::{Answer, Lease, Lender, Loan, Question};
use tidegate_core::store::{Applied, Atomic, AtomicLimiter, LendingLimiter, lending_capabilities};
use tidegate_core::{
    Capabilities, Check, Dimensions, Error, Key, Keys, Millis, Operation, Policy, PolicyState, UnixMillis,
};
use tidegate_guest_protocol::{Call, Reply, Route, serve};

/// What is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    SpentAfterItsEnd,
    OutlivesItsWindow,
    DeadKeepTheirs,
    ReturnedTwice,
    DrainsBelowLoans,
    DenialKept,
    LostWithItsRequest,
    GraceNeverTold,
    GraceBeyondItsBound,
    GraceToDenied,
    GraceToldTwice,
}

pub(super) const ALL: &[(&str, &str, Fault)] = &[
    ("loan-spent-after-its-end", "a loan of one window is spent in the next one", Fault::SpentAfterItsEnd),
    (
        "loan-outlives-its-window",
        "a loan lives for its whole lifetime, also beyond the window that it is charged to",
        Fault::OutlivesItsWindow,
    ),
    (
        "loans-of-the-dead-stay",
        "what was lent to a borrower that died counts as used when the loan has ended",
        Fault::DeadKeepTheirs,
    ),
    ("loan-returned-twice", "what a borrower did not spend is taken back twice", Fault::ReturnedTwice),
    (
        "bucket-drains-below-loans",
        "a bucket drains while its tokens are lent, and admits the loan and the refill",
        Fault::DrainsBelowLoans,
    ),
    ("denial-kept-past-refill", "a borrower repeats a denial after the refill", Fault::DenialKept),
    (
        "loan-lost-with-its-request",
        "a request that its client aborts loses the loan that it has asked for",
        Fault::LostWithItsRequest,
    ),
    ("grace-never-told", "what a borrower admits by grace is never told to the store", Fault::GraceNeverTold),
    ("grace-beyond-its-bound", "a borrower admits more by grace than it may", Fault::GraceBeyondItsBound),
    ("grace-to-a-denied-key", "a borrower gives a grace to a key whose last answer was a denial", Fault::GraceToDenied),
    ("grace-charged-twice", "what a borrower has admitted by grace is charged twice", Fault::GraceToldTwice),
];

/// How many borrowers there are.
pub(super) const BORROWERS: u64 = 3;

/// Their limiters, over one store.
pub(super) struct Borrowed {
    store: Store,
    limiters: RefCell<Vec<Arc<Borrower>>>,
}

type Borrower = LendingLimiter<'static, AtomicLimiter<Store>>;

/// A fixture knows only what holds for a lifetime.
pub(super) const LEASE: Lease = Lease::new(4, Millis::from_secs(60));

/// The floor is near the limit, so that little may be charged twice.
pub(super) const GRACE: Lease = Lease { in_background: true, grace: 3, ..Lease::new(1, Millis::from_secs(60)) };

impl Fault {
    /// What borrowers with this fault declare.
    pub(super) const fn lease(self) -> Lease {
        match self {
            Self::GraceNeverTold | Self::GraceBeyondItsBound | Self::GraceToDenied | Self::GraceToldTwice => GRACE,
            _ => LEASE,
        }
    }
}

impl Borrowed {
    pub(super) fn new(fault: Fault, lease: Lease) -> Result<Self, Error> {
        let store = Store { fault, lease, rows: Arc::default(), halted: Arc::default() };
        let limiters = RefCell::new(store.borrowers()?);
        Ok(Self { store, limiters })
    }

    pub(super) fn capabilities(&self) -> Capabilities {
        lending_capabilities(self.store.capabilities(), &self.store.lease)
    }

    pub(super) async fn answer(&self, nth: u64, route: Route, body: &[u8]) -> Reply {
        let place = usize::try_from(nth % BORROWERS).unwrap_or_default();
        let limiter = Arc::clone(&self.limiters.borrow()[place]);
        let reply = serve(&limiter, route, body).await;
        if let Ok(call) = Call::from_body(body) {
            // The others of a burst are decided before it is told, and it is told before the next step.
            tokio::task::yield_now().await;
            limiter.after(|| UnixMillis::new(call.now_ms), ready(())).await;
        }
        if self.store.fault == Fault::GraceToDenied
            && reply.status == 429
            && let Ok(new) = self.store.borrower()
        {
            self.limiters.borrow_mut()[place] = new;
        }
        reply
    }

    /// Has the store not answer, or answer again.
    pub(super) fn halt(&self, halted: bool) {
        self.store.halted.store(halted, Ordering::Relaxed);
    }

    /// Drops all borrowers with what they hold, and makes others.
    pub(super) fn kill(&self) -> Result<(), Error> {
        self.limiters.replace(self.store.borrowers()?);
        Ok(())
    }

    /// Whether the limiters take all of a fixture.
    pub(super) fn takes(&self, fixture: &Fixture) -> bool {
        let can = self.capabilities();
        let key = Key::new("");
        fixture.steps_with_policy().all(|(_, step, policy)| {
            let mut check = Check::new(policy, &key, UnixMillis::new(0));
            check.cost = step.cost;
            let asked = matches!(step.op, Op::Check | Op::Peek | Op::Reset) && step.token.is_none();
            asked && step.disturb.is_none_or(can_be_disturbed) && can.supports(&check).is_ok()
        })
    }
}

/// Whether they can be disturbed in this way.
pub(super) const fn can_be_disturbed(disturb: Disturb) -> bool {
    matches!(disturb, Disturb::Kill | Disturb::Abort)
}

/// Rows by storage key.
type Rows = HashMap<String, Row>;

/// A state, and what is lent of it.
struct Row {
    state: PolicyState,
    lender: Lender,
    /// The loans whose fate was not told, by their numbers: those of the dead remain.
    untold: HashMap<u64, u64>,
}

#[derive(Clone)]
struct Store {
    fault: Fault,
    lease: Lease,
    rows: Arc<Mutex<Rows>>,
    /// Whether it does what is asked without an answer.
    halted: Arc<AtomicBool>,
}

impl Store {
    fn borrowers(&self) -> Result<Vec<Arc<Borrower>>, Error> {
        (0..BORROWERS).map(|_| self.borrower()).collect()
    }

    fn borrower(&self) -> Result<Arc<Borrower>, Error> {
        let more = if self.fault == Fault::GraceBeyondItsBound { 2 } else { 1 };
        let lease = Lease { grace: more * self.lease.grace, ..self.lease };
        let limiter = LendingLimiter::new(AtomicLimiter::new(self.clone()), lease)?;
        Ok(Arc::new(if self.fault == Fault::LostWithItsRequest { limiter.apart() } else { limiter }))
    }

    /// Waits while the store is halted.
    async fn answers(&self) {
        while self.halted.load(Ordering::Relaxed) {
            tokio::task::yield_now().await;
        }
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Performs a step on a check's row, which is brought to the check's time.
    fn step<T>(&self, check: &Check<'_>, step: impl FnOnce(&mut Row) -> T) -> Result<T, Error> {
        let Check { policy, now, .. } = *check;
        let name = check.keys.single(policy)?.storage_key(policy);
        let mut rows = self.rows();
        let new = || Row { state: policy.initial_state(), lender: Lender::default(), untold: HashMap::new() };
        let row = rows.entry(name).or_insert_with(new);
        if self.fault == Fault::DrainsBelowLoans {
            Lender::default().settle(policy, &mut row.state, now);
        } else {
            row.lender.settle(policy, &mut row.state, now);
        }
        let is_unused =
            policy.peek(&row.state, now, 1).quotas().iter().all(|quota| quota.remaining() == Some(quota.limit()));
        if self.fault == Fault::DeadKeepTheirs && is_unused {
            let _ = policy.decide(&mut row.state, now, row.untold.values().sum());
        }
        Ok(step(row))
    }
}

impl Atomic for Store {
    fn capabilities(&self) -> Capabilities {
        Capabilities::EXACT.dimensions(Dimensions::One).idempotency(false).lends(true)
    }

    async fn apply(&self, operation: Operation<'_>) -> Result<Applied, Error> {
        let (policy, now, cost) = (operation.policy(), operation.now(), operation.cost());
        let check = Check::new(policy, operation.keys(), now).cost(cost);
        let is_peek = match operation {
            Operation::Check(_) => false,
            Operation::Peek(_) => true,
            Operation::Lend(check, question) => return self.lend(check, question).await.map(Applied::from),
            Operation::Reset { .. } => return self.delete(policy, operation.keys()).map(Applied::from),
            _ => return Err(operation.unsupported()),
        };
        let applied = self.step(&check, |Row { state, lender, .. }| {
            let decision = if is_peek { policy.peek(state, now, cost) } else { policy.decide(state, now, cost) };
            lender.corrected(policy, state, now, cost, decision).into()
        });
        self.answers().await;
        applied
    }
}

impl Store {
    async fn lend(&self, check: Check<'_>, question: &Question) -> Result<Answer, Error> {
        let Check { policy, now, cost, .. } = check;
        let answer = self.step(&check, |Row { state, lender, untold }| {
            if let Some(back) = question.back {
                untold.remove(&back.loan);
                if self.fault == Fault::ReturnedTwice {
                    policy.refund(state, now, now, back.unspent);
                }
            }
            if self.fault == Fault::GraceToldTwice {
                let _ = lender.decide(policy, state, now, 0, &Question { wanted: 0, back: None, ..*question });
            }
            let owed = if self.fault == Fault::GraceNeverTold { 0 } else { question.owed };
            let mut answer = lender.decide(policy, state, now, cost, &Question { owed, ..*question });
            untold.extend(answer.granted.map(|granted| (granted.number, granted.units)));
            match (self.fault, &mut answer) {
                (Fault::OutlivesItsWindow, Answer { granted: Some(Loan { lasts, .. }), .. }) => {
                    *lasts = question.lifetime;
                }
                (Fault::SpentAfterItsEnd, Answer { granted: Some(Loan { lasts, .. }), .. }) => {
                    *lasts = Millis::new(10 * lasts.get());
                }
                (Fault::DenialKept, answer) => answer.denies_for = Millis::new(10 * answer.denies_for.get()),
                _ => {}
            }
            answer
        });
        self.answers().await;
        answer
    }

    fn delete(&self, policy: &Policy, keys: Keys<'_>) -> Result<(), Error> {
        let name = keys.single(policy)?.storage_key(policy);
        let mut rows = self.rows();
        if let Some(Row { state, lender, untold }) = rows.remove(&name)
            && let Some((lender, state)) = lender.reset(policy, &state)
        {
            rows.insert(name, Row { state, lender, untold });
        }
        Ok(())
    }
}
