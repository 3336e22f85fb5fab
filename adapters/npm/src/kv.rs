//! Workers KV as the store, behind this isolate's own counts. The host reads and writes.

use std::cell::OnceCell;
use std::fmt::Write as _;
use std::rc::Rc;

use tidegate_cloudflare::kv::{CAPABILITIES, Config, Isolate, KvLimiter, failed};
use tidegate_core::store::BestEffort;
use tidegate_core::{Capabilities, Error, ErrorKind, Millis, UnixMillis};
use wasm_bindgen::prelude::*;

use crate::call::Caller;
use crate::numbers;
use crate::options::{Options, whole};
use crate::seeded::Seeded;
use crate::wire::{Answer, Met, Wire};

thread_local! {
    /// The counts of all limiters, so that two of the same policy count together.
    static ISOLATE: OnceCell<&'static Isolate> = const { OnceCell::new() };
}

pub(crate) type Store = Seeded<KvLimiter<'static, Host>>;

#[expect(clippy::unnecessary_wraps, reason = "the stores have one signature")]
pub(crate) fn open(options: &Options, wire: Rc<Wire>) -> Result<Store, JsValue> {
    let host = Host { wire: Rc::clone(&wire), deadline: options.deadline() };
    Ok(Seeded::new(wire, CAPABILITIES, move |[seed, _]| {
        let make = || &*Box::leak(Box::new(Isolate::new(seed, Config::default())));
        KvLimiter::new(ISOLATE.with(|isolate| *isolate.get_or_init(make)), host.clone())
    }))
}

/// The namespace, which the host has.
#[derive(Clone)]
pub(crate) struct Host {
    wire: Rc<Wire>,
    deadline: Millis,
}

impl Host {
    /// Asks the host: `["get", key]`, `["put", key, bytes, TTL in seconds]` or `["delete", key]`. Nothing in a key needs an
    /// escape.
    async fn ask(&self, verb: &str, key: &str, rest: &str) -> Result<Answer, Error> {
        match self.wire.ask(format!("[\"{verb}\",\"{key}\"{rest}]")).await {
            Met::Answer(answer) => Ok(answer),
            Met::Failed { name, message } => Err(failed(verb, &format!("{name}: {message}"))),
            Met::Late => Err(Error::new(ErrorKind::Timeout, format!("Workers KV: no answer within {}", self.deadline))),
        }
    }
}

impl BestEffort for Host {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    async fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Error> {
        let answer = self.ask("get", key, "").await?;
        Ok((answer.status == 200).then_some(answer.bytes))
    }

    async fn put(&self, key: &str, bytes: &[u8], ttl: Millis) -> Result<(), Error> {
        let mut rest = String::from(",[");
        for (place, byte) in bytes.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            let _ = write!(rest, "{comma}{byte}");
        }
        let _ = write!(rest, "],{}", ttl.max(Config::TTL_MIN).as_secs_ceil());
        self.ask("put", key, &rest).await.map(drop)
    }

    async fn delete(&self, key: &str) -> Result<(), Error> {
        self.ask("delete", key, "").await.map(drop)
    }
}

#[wasm_bindgen]
impl Caller {
    /// Writes the counts that are due. Leaves how long to wait before the next flush, or -1 if there is none to make.
    pub fn flush(&mut self, now: f64) -> Result<bool, JsValue> {
        let limit = self.limit();
        self.begin(async move {
            let wait = limit.limiter.limiter().made().await.flush(UnixMillis::new(whole(now))).await;
            numbers::leave_wait(wait);
            Ok(())
        })
    }
}
