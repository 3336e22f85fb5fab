//! Runs a future: synchronously until it first waits, and then whenever it is woken. A future that never waits
//! completes at once.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use worker::send::{SendFuture, SendWrapper};
use worker::wasm_bindgen::prelude::wasm_bindgen;
use worker::wasm_bindgen::{self, JsValue};

#[wasm_bindgen(module = "/src/guest.js")]
extern "C" {
    fn promise() -> JsValue;
    fn keep(promise: &JsValue, value: &JsValue);
}

/// Returns the future's value, or a promise of it. `#[event(fetch)]` always creates a promise, and polls in a
/// microtask.
pub(crate) fn run(future: impl Future<Output = JsValue> + 'static) -> JsValue {
    let task = Arc::new(Task {
        future: Mutex::new(Some(Box::pin(SendFuture::new(future)))),
        woken: AtomicBool::new(false),
        promise: Mutex::new(None),
    });
    match task.poll() {
        Poll::Ready(value) => value,
        Poll::Pending => {
            let promised = promise();
            *task.promise.lock().unwrap_or_else(PoisonError::into_inner) = Some(SendWrapper::new(promised.clone()));
            promised
        }
    }
}

struct Task {
    /// `None` after it has completed.
    future: Mutex<Option<Pin<Box<dyn Future<Output = JsValue> + Send>>>>,
    /// Whether it was woken while it ran.
    woken: AtomicBool,
    promise: Mutex<Option<SendWrapper<JsValue>>>,
}

impl Task {
    fn poll(self: &Arc<Self>) -> Poll<JsValue> {
        let waker = Waker::from(Arc::clone(self));
        let Ok(mut slot) = self.future.try_lock() else {
            self.woken.store(true, Ordering::Relaxed);
            return Poll::Pending;
        };
        while let Some(future) = slot.as_mut() {
            let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
            if polled.is_ready() {
                *slot = None;
                return polled;
            }
            if !self.woken.swap(false, Ordering::Relaxed) {
                break;
            }
        }
        Poll::Pending
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        if let Poll::Ready(value) = self.poll()
            && let Some(promise) = self.promise.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            keep(&promise, &value);
        }
    }
}
