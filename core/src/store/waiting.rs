use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::task::{Context, Poll, Waker};
use std::sync::OnceLock;

use crate::{Error, ErrorKind, Millis};

/// The questions under way by their numbers, and the checks that wait for their answers.
#[derive(Debug, Default)]
pub(super) struct Questions(BTreeMap<u64, Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    /// What all that wait cost.
    cost: u64,
    wakers: Vec<Waker>,
    failure: Arc<OnceLock<ErrorKind>>,
}

/// A check that waits.
#[derive(Debug)]
pub(super) struct Wait {
    nth: u64,
    /// The place of its waker, once it has one.
    place: Option<usize>,
    failure: Arc<OnceLock<ErrorKind>>,
}

impl Questions {
    pub(super) fn begin(&mut self, nth: u64) {
        self.0.insert(nth, Waiting::default());
    }

    /// Ends a question, which may have failed. Returns what the checks cost that have waited for it, and their wakers.
    pub(super) fn end(&mut self, nth: u64, failure: Option<ErrorKind>) -> (u64, Vec<Waker>) {
        let waiting = self.0.remove(&nth).unwrap_or_default();
        if let Some(kind) = failure {
            let _ = waiting.failure.set(kind);
        }
        (waiting.cost, waiting.wakers)
    }

    /// Has a check wait for a question, if what its answer probably grants is enough for all that do.
    pub(super) fn join(&mut self, nth: u64, cost: u64, expected: u64) -> Option<Wait> {
        let waiting = self.0.get_mut(&nth)?;
        let cost = waiting.cost.saturating_add(cost);
        (cost <= expected).then(|| {
            waiting.cost = cost;
            Wait { nth, place: None, failure: Arc::clone(&waiting.failure) }
        })
    }

    /// Whether the question has ended. Otherwise the task is woken then.
    pub(super) fn poll(&mut self, wait: &mut Wait, context: &Context<'_>) -> Poll<()> {
        let Some(Waiting { wakers, .. }) = self.0.get_mut(&wait.nth) else { return Poll::Ready(()) };
        match wait.place.and_then(|place| wakers.get_mut(place)) {
            Some(waker) => waker.clone_from(context.waker()),
            None => {
                wait.place = Some(wakers.len());
                wakers.push(context.waker().clone());
            }
        }
        Poll::Pending
    }
}

/// How often a check has waited, and how long.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Waits {
    count: u32,
    time: Millis,
}

/// What was granted may not be enough for all that have waited for it. After so many times, a check asks plainly.
const WAITS_MAX: u32 = 3;

impl Waits {
    pub(super) fn add(&mut self, time: Millis) {
        self.count += 1;
        self.time = self.time + time;
    }

    pub(super) const fn are_over(self) -> bool {
        self.count >= WAITS_MAX
    }

    /// How long it has waited, if it has.
    pub(super) fn time(self) -> Option<Millis> {
        (self.count > 0).then_some(self.time)
    }
}

impl Wait {
    /// The error of the question, if it has failed.
    pub(super) fn result(&self) -> Result<(), Error> {
        let message = "the store did not answer the question for which this check has waited; nothing was charged";
        self.failure.get().map_or(Ok(()), |kind| Err(Error::new(*kind, message)))
    }
}
