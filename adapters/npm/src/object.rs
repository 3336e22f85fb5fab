//! Durable Objects as the store, and the object itself. The host calls objects, and carries the events of one.

use std::num::NonZero;
use std::rc::Rc;

use tidegate_cloudflare::durable_objects::{
    Address, Clock, Config, Counter, DurableObjects, HostRows, Leases, Namespace, ObjectStorage, Placement, Reply,
    Sweep, Thrown,
};
use tidegate_core::{
    Block, Capabilities, Check, Decision, ErasedLimiter, Error, ErrorKind, Keys, Limiter, Millis, Policy, Refund,
    Settle, UnixMillis,
};
use wasm_bindgen::prelude::*;

use crate::call::key_of;
use crate::error::{misplaced, thrown};
use crate::gate::Gate;
use crate::numbers;
use crate::options::{Options, whole};
use crate::wire::{Met, Wire};

#[wasm_bindgen]
extern "C" {
    /// The options of a limiter on Durable Objects.
    #[wasm_bindgen(extends = Options)]
    type Objects;

    /// Whether the object's clock decides.
    #[wasm_bindgen(method, getter, js_name = isTimeless)]
    fn object_clock(this: &Objects) -> bool;

    /// The number of objects, or 0 for one for each key.
    #[wasm_bindgen(method, getter)]
    fn shards(this: &Objects) -> u32;

    /// The largest lease, or 0 for none.
    #[wasm_bindgen(method, getter)]
    fn slice(this: &Objects) -> f64;

    #[wasm_bindgen(method, getter, js_name = lifetimeMs)]
    fn lifetime_ms(this: &Objects) -> f64;

    #[wasm_bindgen(method, getter, js_name = minTtlMs)]
    fn min_ttl_ms(this: &Objects) -> f64;
}

pub(crate) struct Store {
    limiter: Box<dyn ErasedLimiter>,
    /// The same objects, for the calls that the host makes by itself. None if the isolate has leases.
    objects: Option<DurableObjects<Host>>,
}

pub(crate) fn open(options: &Options, wire: Rc<Wire>) -> Result<Store, JsValue> {
    let objects: &Objects = options.unchecked_ref();
    let clock = if objects.object_clock() { Clock::Object } else { Clock::Caller };
    let placement = NonZero::new(objects.shards()).map_or(Placement::PerKey, Placement::Shards);
    let config = Config::default().placement(placement).clock(clock).deadline(options.deadline());
    let config = config.min_ttl(Millis::new(whole(objects.min_ttl_ms())));
    let store = DurableObjects::with_config(Host(wire), config);
    let Some(slice) = NonZero::new(whole(objects.slice())) else {
        return Ok(Store { limiter: Box::new(store.clone().limiter()), objects: Some(store) });
    };
    let leases = Leases::new(store, slice, Millis::new(whole(objects.lifetime_ms())));
    Ok(Store { limiter: Box::new(leases.map_err(|error| misplaced("leases.", error))?), objects: None })
}

impl Limiter for Store {
    fn capabilities(&self) -> Capabilities {
        self.limiter.capabilities()
    }

    async fn check(&self, check: Check<'_>) -> Result<Decision, Error> {
        self.limiter.check(check).await
    }

    async fn peek(&self, check: Check<'_>) -> Result<Decision, Error> {
        self.limiter.peek(check).await
    }

    async fn refund(&self, refund: Refund<'_>) -> Result<(), Error> {
        self.limiter.refund(refund).await
    }

    async fn settle(&self, settle: Settle<'_>) -> Result<Decision, Error> {
        self.limiter.settle(settle).await
    }

    async fn block(&self, block: Block<'_>) -> Result<(), Error> {
        self.limiter.block(block).await
    }

    async fn reset(&self, policy: &Policy, keys: Keys<'_>) -> Result<(), Error> {
        self.limiter.reset(policy, keys).await
    }
}

#[wasm_bindgen]
impl Gate {
    /// The object of a plain check and what it is asked, on two lines. Empty if the host cannot ask by itself.
    pub fn plain(&self, key: &str, cost: f64, now: f64) -> String {
        let key = key_of(key, self.limit.is_of_gate);
        let check = Check::new(&self.limit.policy, &key, UnixMillis::new(whole(now))).cost(whole(cost));
        let objects = self.limit.limiter.limiter().objects.as_ref();
        let asked = objects.and_then(|objects| objects.question(check).ok()).unwrap_or_default();
        asked.rsplit_once('?').map_or_else(String::new, |(name, question)| [name, "\n", question].concat())
    }

    /// Reads the answer to a plain check, of so many bytes that the host has written. Returns 0 if it is a decision, and 2 for an
    /// error, which [`Gate::failure`] throws.
    pub fn read(&self, length: usize, _cost: f64, _now: f64) -> u32 {
        self.decision(length).map_or(2, |decision| {
            numbers::leave(&decision);
            0
        })
    }

    /// Throws the error of such an answer.
    pub fn failure(&self, length: usize, _cost: f64, _now: f64) -> Result<(), JsValue> {
        self.decision(length).map(drop).map_err(thrown)
    }
}

impl Gate {
    fn decision(&self, length: usize) -> Result<Decision, Error> {
        let read = |bytes: &[u8]| Reply::from_text(&String::from_utf8_lossy(bytes)).decision(&self.limit.policy);
        numbers::with_bytes(length, read)
    }
}

/// The namespace, which the host has.
#[derive(Clone)]
struct Host(Rc<Wire>);

impl Namespace for Host {
    /// Asks the host to call an object: `["name?question"]`. Nothing in either needs an escape.
    async fn call(&self, object: Address<'_>, body: Vec<u8>) -> Result<Reply, Error> {
        match self.0.ask(["[\"", &object.question(&body), "\"]"].concat()).await {
            Met::Answer(answer) if answer.status == 200 => {
                Ok(Reply::from_text(&String::from_utf8_lossy(&answer.bytes)))
            }
            // The version is the names of the error's properties.
            Met::Answer(answer) => {
                let properties = answer.version.unwrap_or_default();
                let is = |name| properties.split(' ').any(|property| property == name);
                let message = String::from_utf8_lossy(&answer.bytes).into_owned();
                Err(Thrown { message, overloaded: is("overloaded"), retryable: is("retryable"), remote: is("remote") }
                    .into())
            }
            Met::Failed { name, message } => Err(Error::new(
                ErrorKind::Refused,
                format!("durable object: the namespace did not take the call: {name}: {message}; nothing was charged"),
            )),
            Met::Late => Err(Error::new(
                ErrorKind::Timeout,
                format!("durable object: no answer within {}; the request may have been charged", object.deadline),
            )),
        }
    }
}

/// The counts of one object.
#[wasm_bindgen]
pub struct ObjectCounter(Counter<ObjectStorage>);

#[wasm_bindgen]
impl ObjectCounter {
    /// Over the rows of an object whose pending alarm fires at `alarm_ms`.
    #[wasm_bindgen(constructor)]
    pub fn new(rows: HostRows, alarm_ms: Option<f64>) -> Self {
        Self(Counter::new(ObjectStorage::new(rows), alarm_ms.map(instant)))
    }

    /// Answers a call with a text.
    pub fn answer(&mut self, question: &str, now: f64) -> String {
        self.0.answer_text(question, instant(now))
    }

    /// Removes a page of expired rows. Returns true if there are more, false if rows remain, and nothing if none do.
    pub fn sweep(&mut self, now: f64) -> Result<Option<bool>, JsValue> {
        Ok(match self.0.sweep(instant(now)).map_err(thrown)? {
            Sweep::More => Some(true),
            Sweep::RowsRemain => Some(false),
            Sweep::Empty => None,
        })
    }
}

fn instant(ms: f64) -> UnixMillis {
    UnixMillis::new(whole(ms))
}
