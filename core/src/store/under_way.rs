//! Questions to a store that go on without the check that has asked them.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::mem;
use core::task::{Context, Poll, Waker};
use std::sync::Mutex;

use super::tasks::{Tasks, Wakes};
use crate::limiter::Answer;
use crate::limiter::BoxFuture;
use crate::{Decision, Error};

/// A question under way. Whoever waits for its answer drives it, so it goes on without the check that has asked it.
pub(super) struct UnderWay<'s> {
    /// The key that it is about.
    pub(super) name: String,
    pub(super) nth: u64,
    /// Its place among the calls that began with it.
    place: usize,
    calls: Arc<Calls<'s>>,
}

/// Calls that began together. Whoever drives one of them drives all, as one task: a store that sends what a task asks at once in one
/// request sends these so.
struct Calls<'s> {
    calls: Mutex<Vec<Call<'s>>>,
    tasks: Arc<Tasks>,
}

enum Call<'s> {
    Asking(BoxFuture<'s, Result<Answer, Error>>),
    Answered(Result<Answer, Error>),
    /// What the check gets that has asked, until it takes it.
    Ended(Option<Result<Decision, Error>>),
}

impl<'s> UnderWay<'s> {
    /// Questions that begin together: of a key, with a number, and how to ask it.
    #[cfg_attr(target_arch = "wasm32", expect(clippy::arc_with_non_send_sync, reason = "there is one thread"))]
    pub(super) fn all(
        questions: impl IntoIterator<Item = (String, u64, BoxFuture<'s, Result<Answer, Error>>)>,
    ) -> Vec<Arc<Self>> {
        let (named, calls): (Vec<_>, Vec<_>) =
            questions.into_iter().map(|(name, nth, call)| ((name, nth), Call::Asking(call))).unzip();
        let calls = Arc::new(Calls { calls: Mutex::new(calls), tasks: Arc::default() });
        let numbered = named.into_iter().enumerate();
        numbered.map(|(place, (name, nth))| Arc::new(Self { name, nth, place, calls: Arc::clone(&calls) })).collect()
    }

    /// Whether both began together, so that who drives one drives the other, too.
    pub(super) fn began_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.calls, &other.calls)
    }

    /// Goes on with the call, and with those that began with it if it `drives` them. `ended` takes its answer, before anybody learns that it
    /// is there.
    pub(super) fn poll(
        &self,
        context: &Context<'_>,
        drives: bool,
        ended: impl FnOnce(Result<Answer, Error>) -> Result<Decision, Error>,
    ) -> Poll<()> {
        let Calls { calls, tasks } = &*self.calls;
        tasks.add(context.waker());
        let mut wakes = Wakes(Some(tasks));
        // Calls of which one has panicked have ended.
        let Ok(mut calls) = calls.lock() else { return Poll::Ready(()) };
        let mut is_news = false;
        if drives {
            let waker = Waker::from(Arc::clone(tasks));
            for call in &mut *calls {
                if let Call::Asking(asking) = call
                    && let Poll::Ready(answer) = asking.as_mut().poll(&mut Context::from_waker(&waker))
                {
                    *call = Call::Answered(answer);
                    is_news = true;
                }
            }
        }
        let call = &mut calls[self.place];
        match mem::replace(call, Call::Ended(None)) {
            Call::Answered(answer) => {
                *call = Call::Ended(Some(ended(answer)));
                Poll::Ready(())
            }
            other => {
                let is_over = matches!(other, Call::Ended(_));
                *call = other;
                if !is_news {
                    wakes.0 = None;
                }
                if is_over { Poll::Ready(()) } else { Poll::Pending }
            }
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        let calls = self.calls.calls.lock();
        calls.map_or(true, |calls| matches!(calls[self.place], Call::Ended(_)))
    }

    /// What the check gets that has asked.
    pub(super) fn take(&self) -> Option<Result<Decision, Error>> {
        match &mut self.calls.calls.lock().ok()?[self.place] {
            Call::Ended(decided) => decided.take(),
            Call::Asking(_) | Call::Answered(_) => None,
        }
    }
}

impl fmt::Debug for UnderWay<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnderWay").field("name", &self.name).field("nth", &self.nth).finish_non_exhaustive()
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
