//! The [`Namespace`] on Cloudflare: each call is a method call of the object.

use tidegate_core::{Error, ErrorKind, Millis};
use worker::js_sys::Reflect;
use worker::wasm_bindgen::prelude::wasm_bindgen;
use worker::wasm_bindgen::{self, JsCast as _, JsValue};
use worker::{Env, ObjectNamespace};

use crate::durable_objects::calls::{Outcome, PendingCall, Settled};
use crate::durable_objects::config::{Config, Jurisdiction};
use crate::durable_objects::error::{self, Thrown, late};
use crate::durable_objects::store::{Address, DurableObjects, Namespace};
use crate::durable_objects::wire::Reply;

/// The shortest and the longest deadline.
const DEADLINES: (Millis, Millis) = (Millis::new(1), Millis::from_secs(3_600));

#[wasm_bindgen(module = "/src/durable_objects/host.js")]
extern "C" {
    #[wasm_bindgen(catch)]
    #[allow(clippy::too_many_arguments, reason = "all in one call of JavaScript")]
    fn ask(
        namespace: &JsValue,
        name_and_question: &str,
        jurisdiction: Option<&str>,
        location_hint: Option<&str>,
        deadline_ms: f64,
        call: f64,
        settled: &Settled,
    ) -> Result<(), JsValue>;
}

impl DurableObjects<ObjectNamespace> {
    /// A store in the namespace that is bound as `name`.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) if there is no such binding.
    pub fn from_env(env: &Env, name: &str, config: Config) -> Result<Self, Error> {
        // `Env::durable_object` describes a binding of another type in detail, which takes much code.
        let property = |of: &JsValue, name: &str| Reflect::get(of, &JsValue::from_str(name)).unwrap_or_default();
        let namespace = property(env.as_ref(), name);
        if !property(&namespace, "getByName").is_function() {
            return Err(error::missing(name));
        }
        Ok(Self::with_config(namespace.unchecked_into(), config))
    }
}

impl Namespace for ObjectNamespace {
    async fn call(&self, object: Address<'_>, body: Vec<u8>) -> Result<Reply, Error> {
        let deadline = object.deadline.clamp(DEADLINES.0, DEADLINES.1);
        #[allow(clippy::cast_precision_loss, reason = "an hour at most")]
        let deadline_ms = deadline.get() as f64;
        let question = object.question(&body);
        let asked = PendingCall::by(|call, settled| {
            let jurisdiction = object.jurisdiction.map(Jurisdiction::name);
            ask(self.as_ref(), &question, jurisdiction, object.location_hint, deadline_ms, call, settled)
        });
        match asked.map_err(|error| not_sent(&error.into()))?.await {
            Outcome::Answered(reply) => Ok(reply),
            Outcome::Late { objects_answer } => Err(late(deadline, objects_answer)),
            Outcome::Threw { error, is_first } => Err(thrown(error, is_first).into()),
        }
    }
}

/// A JavaScript error, with the properties that the platform adds to its own.
fn thrown(error: JsValue, is_first: bool) -> Thrown {
    let is = |property: &str| Reflect::get(&error, &JsValue::from_str(property)).is_ok_and(|it| it.is_truthy());
    let (overloaded, retryable, remote) = (is("overloaded"), is("retryable"), is("remote"));
    Thrown { message: worker::Error::from(error).to_string(), overloaded, retryable, remote, is_first }
}

/// An error before the call was sent.
fn not_sent(error: &worker::Error) -> Error {
    let message = format!("durable object: the namespace did not take the call: {error}; nothing was charged");
    Error::new(ErrorKind::Refused, message)
}
