//! Cloudflare's own way to an object: a call of its method.

use tidegate_core::{Error, ErrorKind, Millis};
use worker::js_sys::Reflect;
use worker::wasm_bindgen::prelude::wasm_bindgen;
use worker::wasm_bindgen::{self, JsCast as _, JsValue};
use worker::{Env, ObjectNamespace};

use crate::bytes::to_hex;
use crate::calls::{Asked, Settled};
use crate::config::Config;
use crate::error::Thrown;
use crate::store::{Address, DurableObjects, Namespace};
use crate::wire::Reply;

/// The least and the longest time to wait for an answer.
const DEADLINES: (Millis, Millis) = (Millis::new(1), Millis::from_secs(3_600));

#[wasm_bindgen(module = "/src/cloudflare.js")]
extern "C" {
    #[wasm_bindgen(catch)]
    #[allow(clippy::too_many_arguments, reason = "all in one call of JavaScript")]
    fn ask(
        namespace: &JsValue,
        name_and_question: &str,
        location_hint: Option<&str>,
        deadline_ms: f64,
        call: f64,
        settled: &Settled,
    ) -> Result<(), JsValue>;
}

impl DurableObjects<ObjectNamespace> {
    /// A store in the namespace bound as `name`.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) where there is no such binding.
    pub fn from_env(env: &Env, name: &str, config: Config) -> Result<Self, Error> {
        // Not `Env::durable_object`, which is large for what else it tells of a binding that is none.
        let property = |of: &JsValue, name: &str| Reflect::get(of, &JsValue::from_str(name)).unwrap_or_default();
        let namespace = property(env.as_ref(), name);
        if !property(&namespace, "getByName").is_function() {
            return Err(missing(name));
        }
        Ok(Self::with_config(namespace.unchecked_into(), config))
    }
}

impl Namespace for ObjectNamespace {
    async fn call(&self, object: Address<'_>, body: Vec<u8>) -> Result<Reply, Error> {
        let deadline = object.deadline.clamp(DEADLINES.0, DEADLINES.1);
        #[allow(clippy::cast_precision_loss, reason = "an hour at most")]
        let deadline_ms = deadline.get() as f64;
        let question = format!("{}?{}", object.name, to_hex(&body));
        let asked =
            Asked::by(|call, settled| ask(self.as_ref(), &question, object.location_hint, deadline_ms, call, settled));
        let asked = asked.map_err(|error| not_bound(&error.into()))?;
        let answer = asked.await.map_err(|error| Error::from(thrown(error)))?;
        answer.ok_or_else(|| timeout(deadline))
    }
}

fn missing(name: &str) -> Error {
    let message =
        format!("durable object: there is no namespace {name}; bind one in wrangler.jsonc, in durable_objects");
    Error::new(ErrorKind::Invalid, message)
}

/// No answer in time.
fn timeout(deadline: Millis) -> Error {
    let message = format!("durable object: no answer within {deadline}; the request may have been charged");
    Error::new(ErrorKind::Timeout, message)
}

/// What was thrown, with the properties that the platform gives its own errors.
fn thrown(error: JsValue) -> Thrown {
    let is = |property: &str| Reflect::get(&error, &JsValue::from_str(property)).is_ok_and(|it| it.is_truthy());
    let (overloaded, retryable, remote) = (is("overloaded"), is("retryable"), is("remote"));
    Thrown { message: worker::Error::from(error).to_string(), overloaded, retryable, remote }
}

/// An error before anything was sent.
fn not_bound(error: &worker::Error) -> Error {
    let message = format!("durable object: no object of that namespace can be reached: {error}; nothing was charged");
    Error::new(ErrorKind::Refused, message)
}
