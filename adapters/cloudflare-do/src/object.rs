//! The object: Cloudflare's events in, a [`Counter`]'s answers out.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use tidegate_core::{Error, UnixMillis};
use worker::State;
use worker::js_sys::{self, Date};
use worker::wasm_bindgen::prelude::wasm_bindgen;
use worker::wasm_bindgen::{self, JsError, JsValue};
use worker::wasm_bindgen_futures::{JsFuture, future_to_promise};

use crate::bytes::from_hex;
use crate::counter::Counter;
use crate::storage::{ObjectStorage, from_f64};
use crate::wire::Reply;

#[wasm_bindgen(module = "/src/cloudflare.js")]
extern "C" {
    /// What makes the class of an instance one that a Worker can call. To be called before the class is looked at.
    #[doc(hidden)]
    pub fn derive(instance: &JsValue);
}

/// What [`durable_object!`](crate::durable_object) wraps in a class of your own.
#[derive(Clone, Debug)]
pub struct Object(Rc<Inner>);

#[derive(Debug)]
struct Inner {
    state: State,
    /// Made at the first event: whether an alarm is pending cannot be asked before.
    counter: RefCell<Option<Counter<ObjectStorage>>>,
}

impl Object {
    /// The object over its storage, which is SQLite: list the class in `new_sqlite_classes`.
    #[must_use]
    pub fn new(state: State) -> Self {
        Self(Rc::new(Inner { state, counter: RefCell::new(None) }))
    }

    /// Answers one call: a text, or at the object's first event a promise of it.
    ///
    /// From the first look at the rows to the answer nothing waits, so no other event comes between; the platform's output
    /// gate holds the answer until the rows are durable.
    #[must_use]
    pub fn answer(&self, question: &str) -> JsValue {
        if self.0.counter.borrow().is_some() {
            return self.0.answer(question);
        }
        let (object, question) = (Rc::clone(&self.0), question.to_owned());
        let woken = async move {
            object.wake().await?;
            Ok(object.answer(&question))
        };
        promise(Box::pin(woken))
    }

    /// Removes the rows that have expired; with the last of them all that is stored, so that an object nobody asks for
    /// again is no object any more. A promise, broken by whatever keeps the storage from answering: the platform then
    /// fires the alarm again.
    #[must_use]
    pub fn alarm(&self) -> JsValue {
        let object = Rc::clone(&self.0);
        let swept = async move {
            object.wake().await?;
            object.sweep().await?;
            Ok(JsValue::UNDEFINED)
        };
        promise(Box::pin(swept))
    }
}

/// Of one kind of future, so that it is built once.
fn promise(future: Pin<Box<dyn Future<Output = Result<JsValue, JsValue>>>>) -> JsValue {
    future_to_promise(future).into()
}

impl Inner {
    fn answer(&self, question: &str) -> JsValue {
        let call = from_hex(question);
        let answered = self.with_counter(|counter| Ok(counter.answer(&call, clock()))).unwrap_or_else(Reply::error);
        JsValue::from_str(&answered.to_text())
    }

    async fn sweep(&self) -> Result<(), JsValue> {
        let swept = self.with_counter(|counter| counter.sweep(clock()));
        if !swept.map_err(|error| JsError::new(&error.to_string()))? {
            JsFuture::from(self.state.storage().as_raw().delete_all()?).await?;
        }
        Ok(())
    }

    /// Makes the counter, once in the object's time in memory.
    async fn wake(&self) -> Result<(), JsValue> {
        if self.counter.borrow().is_some() {
            return Ok(());
        }
        let alarm = JsFuture::from(self.state.storage().as_raw().get_alarm(js_sys::Object::new())?).await?;
        let rows = ObjectStorage::new(self.state.storage());
        // Another event may have made it meanwhile.
        self.counter.borrow_mut().get_or_insert_with(|| Counter::new(rows, alarm.as_f64().map(from_f64)));
        Ok(())
    }

    fn with_counter<T>(&self, step: impl FnOnce(&mut Counter<ObjectStorage>) -> Result<T, Error>) -> Result<T, Error> {
        match self.counter.borrow_mut().as_mut() {
            Some(counter) => step(counter),
            None => unreachable!("an event wakes the object first"),
        }
    }
}

fn clock() -> UnixMillis {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number after the epoch")]
    UnixMillis::new(Date::now() as u64)
}
