//! Redis as the store: Upstash over REST, or any server behind a client of JavaScript.
//!
//! The host sends plain checks by itself, with the words that it gets here for each key, and passes the answer on. All other calls,
//! and plain checks without an answer, are futures that it resumes.

use std::rc::Rc;

use tidegate_core::store::{AtomicLimiter, Operation};
use tidegate_core::{
    Block, Capabilities, Check, Decision, Error, Key, Keys, Limiter, Millis, Policy, Refund, Settle, UnixMillis,
};
use tidegate_redis::wire::{Call, Script, answer};
use tidegate_redis::{Clock, NoAnswer, Response, Rest, RestConfig, Transport};
use wasm_bindgen::prelude::*;

use crate::call::key_of;
use crate::error::{misplaced, thrown};
use crate::gate::Gate;
use crate::numbers;
use crate::options::{Options, whole};
use crate::wire::{Met, Wire};

#[wasm_bindgen]
extern "C" {
    /// The options of a limiter on Redis.
    #[wasm_bindgen(extends = Options)]
    type Database;

    #[wasm_bindgen(method, getter)]
    fn url(this: &Database) -> Option<String>;

    #[wasm_bindgen(method, getter)]
    fn token(this: &Database) -> String;

    #[wasm_bindgen(method, getter, js_name = allowInsecureHttp)]
    fn allow_insecure_http(this: &Database) -> bool;

    #[wasm_bindgen(method, getter, js_name = keyLocking)]
    fn key_locking(this: &Database) -> Option<bool>;

    /// Whether the server's clock decides.
    #[wasm_bindgen(method, getter, js_name = isTimeless)]
    fn server_clock(this: &Database) -> bool;

    #[wasm_bindgen(method, getter, js_name = minTtlMs)]
    fn min_ttl_ms(this: &Database) -> f64;
}

pub(crate) struct Store {
    rest: AtomicLimiter<Rest<Endpoint>>,
    clock: Clock,
    min_ttl: Millis,
    key_locking: bool,
    /// Stands for the key of a check whose answer is read.
    anyone: Key,
}

pub(crate) fn open(options: &Options, wire: Rc<Wire>) -> Result<Store, JsValue> {
    let database: &Database = options.unchecked_ref();
    let clock = if database.server_clock() { Clock::Server } else { Clock::Caller };
    let min_ttl = Millis::new(whole(database.min_ttl_ms()));
    let token = database.token();
    // Without a URL, the host has a client.
    let config = database.url().map_or_else(RestConfig::for_client, |url| {
        RestConfig::new(url, &token).allow_insecure_http(database.allow_insecure_http())
    });
    let mut config = config.deadline(options.deadline()).clock(clock).min_ttl(min_ttl);
    if let Some(yes) = database.key_locking() {
        config = config.key_locking(yes);
    }
    let key_locking = config.locks_keys();
    let rest = Rest::over(Endpoint { wire, token }, config).map_err(|error| misplaced("", error))?.limiter();
    Ok(Store { rest, clock, min_ttl, key_locking, anyone: Key::missing_ip() })
}

impl Limiter for Store {
    fn capabilities(&self) -> Capabilities {
        self.rest.capabilities()
    }

    async fn check(&self, check: Check<'_>) -> Result<Decision, Error> {
        self.rest.check(check).await
    }

    async fn peek(&self, check: Check<'_>) -> Result<Decision, Error> {
        self.rest.peek(check).await
    }

    async fn refund(&self, refund: Refund<'_>) -> Result<(), Error> {
        self.rest.refund(refund).await
    }

    async fn settle(&self, settle: Settle<'_>) -> Result<Decision, Error> {
        self.rest.settle(settle).await
    }

    async fn block(&self, block: Block<'_>) -> Result<(), Error> {
        self.rest.block(block).await
    }

    async fn reset(&self, policy: &Policy, keys: Keys<'_>) -> Result<(), Error> {
        self.rest.reset(policy, keys).await
    }
}

#[wasm_bindgen]
impl Gate {
    /// The script for several decisions in one command.
    #[wasm_bindgen(js_name = batchScript)]
    pub fn batch_script(&self) -> String {
        tidegate_redis::batch_script(self.store().key_locking)
    }

    /// The script for plain checks.
    #[wasm_bindgen(js_name = plainScript)]
    pub fn plain_script(&self) -> String {
        Script::Plain.text(self.store().key_locking).into()
    }

    /// Its SHA-1.
    #[wasm_bindgen(js_name = plainSha1)]
    pub fn plain_sha1(&self) -> String {
        Script::Plain.sha1(self.store().key_locking).into()
    }

    /// The words after the script in the command of a plain check, one on each line. Empty if a check of this cost is none.
    pub fn plain(&self, key: &str, cost: f64, now: f64) -> String {
        let Store { clock, min_ttl, .. } = self.store();
        let key = key_of(key, self.limit.is_of_gate);
        let check = Check::new(&self.limit.policy, &key, UnixMillis::new(whole(now))).cost(whole(cost));
        let mut words = String::new();
        if let Ok(call) = Call::new(Operation::Check(check), *clock, *min_ttl)
            && call.script() == Script::Plain
        {
            call.words(Script::Plain, |word| {
                words.push_str(word);
                words.push('\n');
            });
        }
        words.pop();
        words
    }

    /// Reads the answer to a plain check, of so many bytes that the host has written. Returns 0 if it is a decision, 1 if the
    /// general script has to decide, and 2 for an error, which [`Gate::failure`] throws.
    pub fn read(&self, length: usize, cost: f64, now: f64) -> u32 {
        match self.decision(length, cost, now) {
            Ok(Some(decision)) => {
                numbers::leave(&decision);
                0
            }
            Ok(None) => 1,
            Err(_) => 2,
        }
    }

    /// Throws the error of such an answer.
    pub fn failure(&self, length: usize, cost: f64, now: f64) -> Result<(), JsValue> {
        self.decision(length, cost, now).map(drop).map_err(thrown)
    }
}

impl Gate {
    fn store(&self) -> &Store {
        self.limit.limiter.limiter()
    }

    fn decision(&self, length: usize, cost: f64, now: f64) -> Result<Option<Decision>, Error> {
        let Store { clock, anyone, .. } = self.store();
        let check = Check::new(&self.limit.policy, anyone, UnixMillis::new(whole(now))).cost(whole(cost));
        let tells = *clock == Clock::Server;
        let read = |bytes: &[u8]| answer(&Operation::Check(check), tells, Script::Plain, bytes);
        numbers::with_bytes(length, read)?.map(|applied| applied.decision(&check)).transpose()
    }
}

/// The database's REST endpoint, or a client. The host sends the commands.
pub(crate) struct Endpoint {
    wire: Rc<Wire>,
    token: String,
}

impl Transport for Endpoint {
    /// The host keeps the deadline.
    type Deadline = ();

    fn deadline(&self, _: Millis) {}

    async fn post(&self, command: String, (): &()) -> Result<Response, NoAnswer> {
        match self.wire.ask(command).await {
            Met::Answer(answer) => Ok(Response { status: answer.status, body: answer.bytes }),
            // An error of `fetch` may contain the token, and does not say whether the request was sent.
            Met::Failed { name, message } => {
                let text = format!("{name}: {message}");
                let text = if self.token.is_empty() { text } else { text.replace(&self.token, "…") };
                Err(NoAnswer::Lost(text.into()))
            }
            Met::Late => Err(NoAnswer::Late),
        }
    }
}
