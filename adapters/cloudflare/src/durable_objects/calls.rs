//! Calls of objects that wait for JavaScript, by number.
//!
//! A `JsFuture` makes two JavaScript functions for every promise. All calls here share one function.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use worker::wasm_bindgen::JsValue;
use worker::wasm_bindgen::closure::Closure;

use crate::durable_objects::wire::Reply;

/// How a call ended.
pub(crate) enum Outcome {
    /// The object answered.
    Answered(Reply),
    /// The deadline passed.
    Late {
        /// Whether any object has answered this isolate since the call began.
        objects_answer: bool,
    },
    /// The call threw.
    Threw {
        /// What.
        error: JsValue,
        /// Whether no object has answered this isolate yet.
        is_first: bool,
    },
}

pub(crate) type Settled = Closure<dyn Fn(f64, JsValue, bool)>;

/// The calls that have begun, in the order of their numbers. A call stays if its request was cancelled: the platform
/// does not drop the future of such a request.
struct Calls {
    last: f64,
    /// How many answers have arrived; those that came after their deadline count, too.
    answers: u32,
    waiting: Vec<(f64, Waiting)>,
}

struct Waiting {
    /// [`Calls::answers`] when the call began.
    answers: u32,
    waker: Option<Waker>,
    outcome: Option<Outcome>,
}

thread_local! {
    static CALLS: RefCell<Calls> = const { RefCell::new(Calls { last: 0.0, answers: 0, waiting: Vec::new() }) };
    static SETTLED: Settled = Closure::new(settle);
}

/// A call in flight.
pub(crate) struct PendingCall(f64);

impl PendingCall {
    /// Begins a call: `ask` sends it, with its number and the function that reports its end.
    pub(crate) fn by(ask: impl FnOnce(f64, &Settled) -> Result<(), JsValue>) -> Result<Self, JsValue> {
        let call = CALLS.with_borrow_mut(|calls| {
            calls.last += 1.0;
            calls.waiting.push((calls.last, Waiting { answers: calls.answers, waker: None, outcome: None }));
            Self(calls.last)
        });
        SETTLED.with(|settled| ask(call.0, settled))?;
        Ok(call)
    }
}

impl Future for PendingCall {
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        CALLS.with_borrow_mut(|calls| {
            let Some(waiting) = calls.find(self.0) else { return Poll::Pending };
            if let Some(outcome) = waiting.outcome.take() {
                return Poll::Ready(outcome);
            }
            waiting.waker = Some(context.waker().clone());
            Poll::Pending
        })
    }
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        CALLS.with_borrow_mut(|calls| {
            if let Ok(place) = calls.place(self.0) {
                calls.waiting.remove(place);
            }
        });
    }
}

impl Calls {
    fn place(&self, call: f64) -> Result<usize, usize> {
        self.waiting.binary_search_by(|(other, _)| other.total_cmp(&call))
    }

    fn find(&mut self, call: f64) -> Option<&mut Waiting> {
        let place = self.place(call).ok()?;
        Some(&mut self.waiting[place].1)
    }
}

/// Records how a call ended: `value` is the answer, undefined once the deadline has passed, or what was thrown. The first
/// report of a call counts.
fn settle(call: f64, value: JsValue, threw: bool) {
    let waker = CALLS.with_borrow_mut(|calls| {
        let reply = if threw { None } else { value.as_string().map(|text| Reply::from_text(&text)) };
        calls.answers = calls.answers.wrapping_add(u32::from(reply.is_some()));
        let answers = calls.answers;
        let waiting = calls.find(call).filter(|waiting| waiting.outcome.is_none())?;
        waiting.outcome = Some(match reply {
            Some(reply) => Outcome::Answered(reply),
            None if threw => Outcome::Threw { error: value, is_first: answers == 0 },
            None => Outcome::Late { objects_answer: waiting.answers != answers },
        });
        waiting.waker.take()
    });
    if let Some(waker) = waker {
        waker.wake();
    }
}
