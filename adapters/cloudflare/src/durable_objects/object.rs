//! The object on Cloudflare: passes events to a [`Counter`].

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use tidegate_core::UnixMillis;
use worker::State;
use worker::js_sys::{self, Date, Promise};
use worker::wasm_bindgen::prelude::wasm_bindgen;
use worker::wasm_bindgen::{self, JsError, JsValue};
use worker::wasm_bindgen_futures::{JsFuture, future_to_promise};

use crate::durable_objects::counter::{Counter, Sweep};
use crate::durable_objects::storage::{HostRows, ObjectStorage};

#[wasm_bindgen(module = "/src/durable_objects/host.js")]
extern "C" {
    /// Makes the class of an instance a Durable Object class. Must be called before the platform reads the class.
    #[doc(hidden)]
    pub fn derive(instance: &JsValue);

    fn turn() -> Promise;
}

#[wasm_bindgen(module = "/src/durable_objects/rows.js")]
extern "C" {
    fn rows(storage: &JsValue) -> HostRows;
}

/// What [`durable_object!`](crate::durable_object) wraps in a class of your own.
#[derive(Clone, Debug)]
pub struct Object(Rc<Inner>);

#[derive(Debug)]
struct Inner {
    state: State,
    /// `None` until the first event: whether an alarm is pending can only be asked asynchronously.
    counter: RefCell<Option<Counter<ObjectStorage>>>,
}

impl Object {
    /// An object over its SQLite storage. Declare the class in `new_sqlite_classes` of `migrations`.
    #[must_use]
    pub fn new(state: State) -> Self {
        Self(Rc::new(Inner { state, counter: RefCell::new(None) }))
    }

    /// Answers one call with a text. At the object's first event it returns a promise of the text.
    ///
    /// Nothing between reading the rows and the answer waits, so no other event comes between. The platform's output
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

    /// Removes the rows that have expired, a page at a time. If none are left, deletes all of the object's storage, so
    /// that the object ceases to exist. Returns a promise, which is rejected if the storage fails; the platform then
    /// fires the alarm again.
    #[must_use]
    pub fn alarm(&self) -> JsValue {
        let object = Rc::clone(&self.0);
        let swept = async move {
            object.wake().await?;
            loop {
                match object.sweep()? {
                    Sweep::More => JsFuture::from(turn()).await?,
                    Sweep::RowsRemain => return Ok(JsValue::UNDEFINED),
                    // In the same step as the sweep that found no row: no event comes between.
                    Sweep::Empty => return JsFuture::from(object.state.storage().as_raw().delete_all()?).await,
                };
            }
        };
        promise(Box::pin(swept))
    }
}

/// Takes a boxed future, so that its code is compiled once.
fn promise(future: Pin<Box<dyn Future<Output = Result<JsValue, JsValue>>>>) -> JsValue {
    future_to_promise(future).into()
}

impl Inner {
    fn answer(&self, question: &str) -> JsValue {
        JsValue::from_str(&self.with_counter(|counter| counter.answer_text(question, clock())))
    }

    fn sweep(&self) -> Result<Sweep, JsValue> {
        let swept = self.with_counter(|counter| counter.sweep(clock()));
        Ok(swept.map_err(|error| JsError::new(&error.to_string()))?)
    }

    /// Creates the counter at the first event after the object was loaded.
    async fn wake(&self) -> Result<(), JsValue> {
        if self.counter.borrow().is_some() {
            return Ok(());
        }
        let alarm = JsFuture::from(self.state.storage().as_raw().get_alarm(js_sys::Object::new())?).await?;
        let rows = ObjectStorage::new(rows(self.state.storage().as_raw()));
        // Another event may have created it meanwhile.
        self.counter.borrow_mut().get_or_insert_with(|| Counter::new(rows, alarm.as_f64().map(from_f64)));
        Ok(())
    }

    fn with_counter<T>(&self, step: impl FnOnce(&mut Counter<ObjectStorage>) -> T) -> T {
        match self.counter.borrow_mut().as_mut() {
            Some(counter) => step(counter),
            None => unreachable!("every event wakes the object first"),
        }
    }
}

fn clock() -> UnixMillis {
    from_f64(Date::now())
}

/// The instant of a JavaScript time.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number after the epoch")]
fn from_f64(ms: f64) -> UnixMillis {
    UnixMillis::new(ms as u64)
}
