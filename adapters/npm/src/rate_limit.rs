//! Cloudflare's Rate Limiting binding as the store. The host calls it.

use std::rc::Rc;

use tidegate_cloudflare::rate_limit::{Binding, RateLimit, RateLimitLimiter, failed};
use tidegate_core::algorithm::Algorithm as _;
use tidegate_core::{Error, ErrorKind, Millis, Rule};
use wasm_bindgen::prelude::*;

use crate::error::misplaced;
use crate::options::Options;
use crate::wire::{Met, Wire};

pub(crate) type Store = RateLimitLimiter<Host>;

pub(crate) fn open(options: &Options, wire: Rc<Wire>) -> Result<Store, JsValue> {
    let policy = options.policy()?;
    let [quota] = policy.quotas() else { return Err(not_one_window("policy.quotas")) };
    let Rule::FixedWindow(window) = quota.rule() else { return Err(not_one_window("policy.quotas[0]")) };
    let deadline = options.deadline();
    let store = RateLimit::new(Host { wire, deadline }, window.limit(), window.window());
    Ok(store.map_err(|error| misplaced("policy.quotas[0].fixedWindow.", error))?.limiter())
}

fn not_one_window(place: &str) -> JsValue {
    let right =
        "write one quota with the numbers of the binding, such as { fixedWindow: { limit: 100, windowMs: 60000 } }";
    misplaced("", Error::new(ErrorKind::Unsupported, format!("{place}: the binding counts one fixed window; {right}")))
}

/// The binding, which the host has.
pub(crate) struct Host {
    wire: Rc<Wire>,
    deadline: Millis,
}

impl Binding for Host {
    /// Asks the host to count a request under `["key"]`. Nothing in a key needs an escape.
    async fn limit(&self, key: &str) -> Result<bool, Error> {
        match self.wire.ask(format!("[\"{key}\"]")).await {
            Met::Answer(answer) => Ok(answer.status == 200),
            Met::Failed { name, message } => Err(failed(&format!("{name}: {message}"))),
            Met::Late => Err(Error::new(
                ErrorKind::Timeout,
                format!("Rate Limiting binding: no answer within {}; the request may have been counted", self.deadline),
            )),
        }
    }
}
