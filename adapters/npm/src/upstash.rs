//! Upstash as the store.

use std::rc::Rc;

use tidegate_core::Millis;
use tidegate_core::store::AtomicLimiter;
use tidegate_redis::{Clock, NoAnswer, Response, Rest, RestConfig, Transport};
use wasm_bindgen::prelude::*;

use crate::call::{Met, Wire};
use crate::error::misplaced;
use crate::options::{Options, whole};

#[wasm_bindgen]
extern "C" {
    /// The options of a limiter on Upstash.
    #[wasm_bindgen(extends = Options)]
    type Database;

    #[wasm_bindgen(method, getter)]
    fn url(this: &Database) -> String;

    #[wasm_bindgen(method, getter)]
    fn token(this: &Database) -> String;

    #[wasm_bindgen(method, getter, js_name = allowInsecureHttp)]
    fn allow_insecure_http(this: &Database) -> bool;

    #[wasm_bindgen(method, getter, js_name = keyLocking)]
    fn key_locking(this: &Database) -> Option<bool>;

    #[wasm_bindgen(method, getter, js_name = serverClock)]
    fn server_clock(this: &Database) -> bool;

    #[wasm_bindgen(method, getter, js_name = minTtlMs)]
    fn min_ttl_ms(this: &Database) -> f64;
}

pub(crate) type Store = AtomicLimiter<Rest<Endpoint>>;

pub(crate) fn open(options: &Options, wire: Rc<Wire>) -> Result<Store, JsValue> {
    let database: &Database = options.unchecked_ref();
    let clock = if database.server_clock() { Clock::Server } else { Clock::Caller };
    let token = database.token();
    let mut config = RestConfig::new(database.url(), &token)
        .deadline(options.deadline())
        .allow_insecure_http(database.allow_insecure_http())
        .clock(clock)
        .min_ttl(Millis::new(whole(database.min_ttl_ms())));
    if let Some(yes) = database.key_locking() {
        config = config.key_locking(yes);
    }
    Ok(Rest::over(Endpoint { wire, token }, config).map_err(|error| misplaced("", error))?.limiter())
}

/// The database's REST endpoint. The host sends the requests.
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
                Err(NoAnswer::Lost(format!("{name}: {message}").replace(&self.token, "…").into()))
            }
            Met::Late => Err(NoAnswer::Late),
        }
    }
}
