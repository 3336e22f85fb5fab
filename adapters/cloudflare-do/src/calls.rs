//! Calls that wait for JavaScript to answer, by number.
//!
//! What a `JsFuture` does with two new functions of JavaScript for each promise, this does with two for all.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use worker::wasm_bindgen::JsValue;
use worker::wasm_bindgen::closure::Closure;

use crate::wire::Reply;

/// An answer, nothing where none came in time, or what was thrown.
type Answer = Result<Option<Reply>, JsValue>;

pub(crate) type Settled = Closure<dyn Fn(f64, JsValue, bool)>;

/// Ascending by number. A call whose request was cancelled stays: the platform drops nothing of it.
struct Calls {
    last: f64,
    waiting: Vec<(f64, Waiting)>,
}

#[derive(Default)]
struct Waiting {
    waker: Option<Waker>,
    answer: Option<Answer>,
}

thread_local! {
    static CALLS: RefCell<Calls> = const { RefCell::new(Calls { last: 0.0, waiting: Vec::new() }) };
    static SETTLED: Settled = Closure::new(|call, value: JsValue, failed| {
        settle(call, if failed { Err(value) } else { Ok(value.as_string().map(|text| Reply::from_text(&text))) });
    });
}

/// One call: ready when one of the two functions has been called with its number.
pub(crate) struct Asked(f64);

impl Asked {
    /// Begins a call by whatever `ask` does with its number and the two functions.
    pub(crate) fn by(ask: impl FnOnce(f64, &Settled) -> Result<(), JsValue>) -> Result<Self, JsValue> {
        let call = CALLS.with_borrow_mut(|calls| {
            calls.last += 1.0;
            calls.waiting.push((calls.last, Waiting::default()));
            Self(calls.last)
        });
        SETTLED.with(|settled| ask(call.0, settled))?;
        Ok(call)
    }
}

impl Future for Asked {
    type Output = Answer;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        CALLS.with_borrow_mut(|calls| {
            let Some(waiting) = calls.find(self.0) else { return Poll::Pending };
            if let Some(answer) = waiting.answer.take() {
                return Poll::Ready(answer);
            }
            waiting.waker = Some(context.waker().clone());
            Poll::Pending
        })
    }
}

impl Drop for Asked {
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

/// Takes the first answer to a call, unless nobody waits for it any more.
fn settle(call: f64, answer: Answer) {
    let waker = CALLS.with_borrow_mut(|calls| {
        let waiting = calls.find(call).filter(|waiting| waiting.answer.is_none())?;
        waiting.answer = Some(answer);
        waiting.waker.take()
    });
    if let Some(waker) = waker {
        waker.wake();
    }
}
