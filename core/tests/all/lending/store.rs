//! A store that lends.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use tidegate_core::lending::Lender;
use tidegate_core::store::{Applied, Atomic};
use tidegate_core::{Capabilities, Check, Dimensions, Error, ErrorKind, Operation, PolicyState};

/// The state of each row, and what is lent of it.
type Rows = HashMap<String, (PolicyState, Lender)>;

/// A store that lends, counts its calls, and can be silent or switched off.
#[derive(Clone, Default)]
pub(crate) struct Store(Arc<Inner>);

#[derive(Default)]
struct Inner {
    rows: Mutex<Rows>,
    is_down: AtomicBool,
    plain: AtomicU64,
    lent: AtomicU64,
    is_silent: AtomicBool,
    keeps_answers: AtomicBool,
}

impl Store {
    pub(crate) fn is_down(&self, is_down: bool) {
        self.0.is_down.store(is_down, Ordering::Relaxed);
    }

    /// Has questions of borrowers wait for their answers until it is not silent any more, and they are polled again.
    pub(crate) fn is_silent(&self, is_silent: bool) {
        self.0.is_silent.store(is_silent, Ordering::Relaxed);
    }

    /// Has the answers to questions of borrowers be kept, which the store has decided on.
    pub(crate) fn keeps_answers(&self, keeps: bool) {
        self.0.keeps_answers.store(keeps, Ordering::Relaxed);
    }

    /// How many calls were made without a question and with one since this was asked last.
    pub(crate) fn calls(&self) -> (u64, u64) {
        (self.0.plain.swap(0, Ordering::Relaxed), self.0.lent.swap(0, Ordering::Relaxed))
    }

    fn step<T>(
        &self,
        check: &Check<'_>,
        calls: &AtomicU64,
        step: impl FnOnce(&mut PolicyState, &mut Lender) -> T,
    ) -> Result<T, Error> {
        calls.fetch_add(1, Ordering::Relaxed);
        if self.0.is_down.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Unavailable, "switched off"));
        }
        let mut rows = self.0.rows.lock().unwrap();
        let row = rows.entry(check.keys.single(check.policy)?.storage_key(check.policy));
        let (state, lender) = row.or_insert_with(|| (check.policy.initial_state(), Lender::default()));
        lender.settle(check.policy, state, check.now);
        Ok(step(state, lender))
    }
}

impl Atomic for Store {
    fn capabilities(&self) -> Capabilities {
        Capabilities::EXACT.dimensions(Dimensions::One).lends(true)
    }

    async fn apply(&self, operation: Operation<'_>) -> Result<Applied, Error> {
        let (policy, now, cost) = (operation.policy(), operation.now(), operation.cost());
        match operation {
            Operation::Check(check) => self.step(&check, &self.0.plain, |state, lender| {
                let decision = policy.decide(state, now, cost);
                lender.corrected(policy, state, now, cost, decision).into()
            }),
            Operation::Lend(check, question) => {
                is_over(&self.0.is_silent).await;
                let answer =
                    self.step(&check, &self.0.lent, |state, lender| lender.decide(policy, state, now, cost, question));
                is_over(&self.0.keeps_answers).await;
                answer.map(Applied::from)
            }
            Operation::Reset { .. } => Ok(().into()),
            _ => panic!("{operation:?}"),
        }
    }
}

/// Waits until this is over, and is polled again.
async fn is_over(state: &AtomicBool) {
    poll_fn(|_| if state.load(Ordering::Relaxed) { Poll::Pending } else { Poll::Ready(()) }).await;
}
