//! Questions to a store that go on without the check that has asked them.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::task::Wake;
use alloc::vec::Vec;
use core::fmt;
use core::mem;
use core::task::{Context, Poll, Waker};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::limiter::Answer;
use crate::limiter::BoxFuture;
use crate::{Decision, Error};

/// A question under way. Whoever waits for its answer drives it, so it goes on without the check that has asked it.
pub(super) struct UnderWay<'s> {
    /// The key that it is about.
    pub(super) name: String,
    pub(super) nth: u64,
    call: Mutex<Call<'s>>,
    tasks: Arc<Tasks>,
}

enum Call<'s> {
    Asking(BoxFuture<'s, Result<Answer, Error>>),
    /// What the check gets that has asked, until it takes it.
    Ended(Option<Result<Decision, Error>>),
}

impl<'s> UnderWay<'s> {
    pub(super) fn new(name: String, nth: u64, call: BoxFuture<'s, Result<Answer, Error>>) -> Self {
        Self { name, nth, call: Mutex::new(Call::Asking(call)), tasks: Arc::default() }
    }

    /// Goes on with the call. `ended` takes its answer, before anybody learns that it is there.
    pub(super) fn poll(
        &self,
        context: &Context<'_>,
        ended: impl FnOnce(Result<Answer, Error>) -> Result<Decision, Error>,
    ) -> Poll<()> {
        self.tasks.add(context.waker());
        let mut wakes = Wakes(Some(&self.tasks));
        // A call that has panicked has ended.
        let Ok(mut call) = self.call.lock() else { return Poll::Ready(()) };
        let Call::Asking(asking) = &mut *call else { return Poll::Ready(()) };
        match asking.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::clone(&self.tasks)))) {
            Poll::Ready(answer) => {
                *call = Call::Ended(Some(ended(answer)));
                Poll::Ready(())
            }
            Poll::Pending => {
                wakes.0 = None;
                Poll::Pending
            }
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.call.lock().is_ok_and(|call| matches!(*call, Call::Ended(_))) || self.call.is_poisoned()
    }

    /// What the check gets that has asked.
    pub(super) fn take(&self) -> Option<Result<Decision, Error>> {
        match &mut *self.call.lock().ok()? {
            Call::Ended(decided) => decided.take(),
            Call::Asking(_) => None,
        }
    }
}

impl fmt::Debug for UnderWay<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnderWay").field("name", &self.name).field("nth", &self.nth).finish_non_exhaustive()
    }
}

/// The tasks that wait for a call.
#[derive(Default)]
struct Tasks(Mutex<Vec<Waker>>);

impl Tasks {
    fn lock(&self) -> MutexGuard<'_, Vec<Waker>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, task: &Waker) {
        let mut tasks = self.lock();
        if !tasks.iter().any(|other| other.will_wake(task)) {
            tasks.push(task.clone());
        }
    }
}

impl Wake for Tasks {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let tasks = mem::take(&mut *self.lock());
        tasks.into_iter().for_each(Waker::wake);
    }
}

/// Wakes the tasks once the call is unlocked: it has ended.
struct Wakes<'a>(Option<&'a Arc<Tasks>>);

impl Drop for Wakes<'_> {
    fn drop(&mut self) {
        if let Some(tasks) = self.0 {
            tasks.wake_by_ref();
        }
    }
}

/// The questions under way by their numbers.
#[derive(Debug, Default)]
pub(super) struct Questions<'s>(BTreeMap<u64, Awaited<'s>>);

#[derive(Debug)]
struct Awaited<'s> {
    question: Arc<UnderWay<'s>>,
    /// What all checks cost that wait for it.
    cost: u64,
}

impl<'s> Questions<'s> {
    pub(super) fn begin(&mut self, question: Arc<UnderWay<'s>>) {
        self.0.insert(question.nth, Awaited { question, cost: 0 });
    }

    /// Ends a question. Returns what the checks cost that have waited for it.
    pub(super) fn end(&mut self, nth: u64) -> u64 {
        self.0.remove(&nth).map_or(0, |awaited| awaited.cost)
    }

    /// Has a check wait for a question, if what its answer probably grants is enough for all that do.
    pub(super) fn join(&mut self, nth: u64, cost: u64, expected: u64) -> Option<Arc<UnderWay<'s>>> {
        let awaited = self.0.get_mut(&nth)?;
        let cost = awaited.cost.saturating_add(cost);
        (cost <= expected).then(|| {
            awaited.cost = cost;
            Arc::clone(&awaited.question)
        })
    }
}
