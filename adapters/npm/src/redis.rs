//! Redis as the store: Upstash over REST, or any server behind a client of JavaScript.

use std::rc::Rc;

use tidegate_core::Millis;
use tidegate_core::store::AtomicLimiter;
use tidegate_redis::{Clock, NoAnswer, Response, Rest, RestConfig, Transport};
use wasm_bindgen::prelude::*;

use crate::error::misplaced;
use crate::gate::Gate;
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
    // Without a URL, the host has a client.
    let config = database.url().map_or_else(RestConfig::for_client, |url| {
        RestConfig::new(url, &token).allow_insecure_http(database.allow_insecure_http())
    });
    let mut config =
        config.deadline(options.deadline()).clock(clock).min_ttl(Millis::new(whole(database.min_ttl_ms())));
    if let Some(yes) = database.key_locking() {
        config = config.key_locking(yes);
    }
    Ok(Rest::over(Endpoint { wire, token }, config).map_err(|error| misplaced("", error))?.limiter())
}

#[wasm_bindgen]
impl Gate {
    /// The script for several decisions in one command.
    #[wasm_bindgen(js_name = batchScript)]
    pub fn batch_script(&self) -> String {
        self.limit.limiter.limiter().store().batch_script()
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
