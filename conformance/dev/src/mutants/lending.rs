//! Limiters that lend wrongly.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_conformance::fixture::{Fixture, Op};
use tidegate_core::lending::{Answer, Granted, Lender, Question, Terms};
use tidegate_core::store::{Applied, Atomic, AtomicLimiter, LendingLimiter, Operation};
use tidegate_core::{
    Capabilities, Check, Dimensions, Error, ErrorKind, Key, Keys, Limiter as _, Millis, Policy, PolicyState, UnixMillis,
};
use tidegate_guest_protocol::{Reply, Route, serve};

/// What is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    SpentAfterItsEnd,
    ReturnedTwice,
    DrainsBelowLoans,
    DenialKept,
}

pub(super) const ALL: &[(&str, &str, Fault)] = &[
    ("loan-spent-after-its-end", "a loan of one window is spent in the next one", Fault::SpentAfterItsEnd),
    ("loan-returned-twice", "what a borrower did not spend is taken back twice", Fault::ReturnedTwice),
    (
        "bucket-drains-below-loans",
        "a bucket drains while its tokens are lent, and admits the loan and the refill",
        Fault::DrainsBelowLoans,
    ),
    ("denial-kept-past-refill", "a borrower repeats a denial after the refill", Fault::DenialKept),
];

/// How many borrowers there are.
pub(super) const BORROWERS: u64 = 3;

/// Their limiters, over one store.
pub(super) struct Borrowed {
    limiters: Vec<LendingLimiter<AtomicLimiter<Store>>>,
}

impl Borrowed {
    pub(super) fn new(fault: Fault) -> Result<Self, Error> {
        let store = Store { fault, rows: Arc::default() };
        // A fixture knows only what holds for a lifetime.
        let terms = Terms::new(4, Millis::from_secs(60));
        let limiters = (0..BORROWERS).map(|_| LendingLimiter::new(AtomicLimiter::new(store.clone()), terms));
        Ok(Self { limiters: limiters.collect::<Result<_, _>>()? })
    }

    pub(super) fn capabilities(&self) -> Capabilities {
        self.limiters[0].capabilities()
    }

    pub(super) async fn answer(&self, nth: u64, route: Route, body: &[u8]) -> Reply {
        let place = usize::try_from(nth % BORROWERS).unwrap_or_default();
        serve(&self.limiters[place], route, body).await
    }

    /// Whether the limiters take all of a fixture, which disturbs no store.
    pub(super) fn takes(&self, fixture: &Fixture) -> bool {
        let can = self.capabilities();
        let key = Key::new("");
        fixture.steps_with_policy().all(|(_, step, policy)| {
            let mut check = Check::new(policy, &key, UnixMillis::new(0));
            check.cost = step.cost;
            let asked = matches!(step.op, Op::Check | Op::Peek | Op::Reset) && step.token.is_none();
            asked && step.disturb.is_none() && can.supports(&check).is_ok()
        })
    }
}

/// States and what is lent of them, by storage key.
type Rows = HashMap<String, (PolicyState, Lender)>;

#[derive(Clone)]
struct Store {
    fault: Fault,
    rows: Arc<Mutex<Rows>>,
}

impl Store {
    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Performs a step on a check's row, which is brought to the check's time.
    fn step<T>(&self, check: &Check<'_>, step: impl FnOnce(&mut PolicyState, &mut Lender) -> T) -> Result<T, Error> {
        let name = check.keys.sole(check.policy)?.storage_key(check.policy);
        let mut rows = self.rows();
        let (state, lender) = rows.entry(name).or_insert_with(|| (check.policy.initial_state(), Lender::default()));
        if self.fault == Fault::DrainsBelowLoans {
            Lender::default().settle(check.policy, state, check.now);
        } else {
            lender.settle(check.policy, state, check.now);
        }
        Ok(step(state, lender))
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
            _ => return Err(Error::new(ErrorKind::Unsupported, "an unknown operation")),
        };
        self.step(&check, |state, lender| {
            let decision = if is_peek { policy.peek(state, now, cost) } else { policy.decide(state, now, cost) };
            Applied::Decided(lender.corrected(policy, state, now, cost, decision))
        })
    }

    async fn lend(&self, check: Check<'_>, question: Question) -> Result<Answer, Error> {
        let Check { policy, now, cost, .. } = check;
        self.step(&check, |state, lender| {
            if let (Fault::ReturnedTwice, Some(back)) = (self.fault, question.back) {
                policy.refund(state, now, now, back.unspent);
            }
            let mut answer = lender.decide(policy, state, now, cost, &question);
            match (self.fault, &mut answer) {
                (Fault::SpentAfterItsEnd, Answer { granted: Some(Granted { lasts, .. }), .. }) => {
                    *lasts = Millis::new(10 * lasts.get());
                }
                (Fault::DenialKept, answer) => answer.denies_for = Millis::new(10 * answer.denies_for.get()),
                _ => {}
            }
            answer
        })
    }

    async fn delete(&self, policy: &Policy, keys: Keys<'_>) -> Result<(), Error> {
        let name = keys.sole(policy)?.storage_key(policy);
        let mut rows = self.rows();
        if let Some((state, lender)) = rows.remove(&name)
            && let Some((lender, state)) = lender.reset(policy, &state)
        {
            rows.insert(name, (state, lender));
        }
        Ok(())
    }
}
