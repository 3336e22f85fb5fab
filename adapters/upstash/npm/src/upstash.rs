//! Upstash as the store.

use tollgate_core::Millis;
use tollgate_upstash::{Clock, Rest, RestConfig, RestLimiter};
use wasm_bindgen::prelude::*;

use crate::error::misplaced;
use crate::options::{Options, whole};

#[wasm_bindgen]
extern "C" {
    /// The options that only Upstash has.
    #[wasm_bindgen(extends = Options)]
    type Database;

    #[wasm_bindgen(method, getter)]
    fn url(this: &Database) -> String;

    #[wasm_bindgen(method, getter)]
    fn token(this: &Database) -> String;

    #[wasm_bindgen(method, getter, js_name = keyLocking)]
    fn key_locking(this: &Database) -> Option<bool>;

    #[wasm_bindgen(method, getter, js_name = serverClock)]
    fn server_clock(this: &Database) -> bool;

    #[wasm_bindgen(method, getter, js_name = minTtlMs)]
    fn min_ttl_ms(this: &Database) -> f64;
}

pub(crate) type Store = RestLimiter;

pub(crate) fn open(options: &Options) -> Result<Store, JsValue> {
    let database: &Database = options.unchecked_ref();
    let clock = if database.server_clock() { Clock::Server } else { Clock::Caller };
    let mut config = RestConfig::new(database.url(), database.token())
        .deadline(options.deadline())
        .clock(clock)
        .min_ttl(Millis::new(whole(database.min_ttl_ms())));
    if let Some(yes) = database.key_locking() {
        config = config.key_locking(yes);
    }
    Ok(Rest::new(config).map_err(|error| misplaced("", error))?.limiter())
}
