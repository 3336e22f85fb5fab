//! What the TypeScript calls. Every number that it hands over it has found to be whole.

use std::net::IpAddr;

use tollgate_core::{
    BodyFormat, Check, ClientIpSource, DenyCache, Identity, Key, Limiter as _, Millis, Policy, Refund, UnixMillis,
};
use wasm_bindgen::prelude::*;

use crate::error::{invalid, thrown};
use crate::options::{Options, whole};
use crate::store::{self, Store};
use crate::verdict::verdict;

/// A limiter of one policy.
#[wasm_bindgen]
pub struct Gate {
    policy: Policy,
    source: ClientIpSource,
    limiter: DenyCache<Store>,
    body_format: BodyFormat,
}

#[wasm_bindgen]
impl Gate {
    /// A limiter by its options.
    #[wasm_bindgen(constructor)]
    pub fn new(options: &Options) -> Result<Gate, JsValue> {
        let limiter = DenyCache::new(store::open(options)?).hold(options.hold()).capacity(options.capacity() as usize);
        let body_format = if options.problem() { BodyFormat::Problem } else { BodyFormat::Json };
        Ok(Self { policy: options.policy()?, source: options.source()?, limiter, body_format })
    }

    /// The header fields that tell the client's address, separated by commas.
    pub fn fields(&self) -> String {
        self.source.fields().join(",")
    }

    /// Whom a request counts against. `first` and `second` are the values of [`Gate::fields`].
    pub fn key(
        &self,
        first: Option<String>,
        second: Option<String>,
        peer: Option<String>,
        subject: Option<String>,
        api_key: Option<String>,
    ) -> Result<String, JsValue> {
        let peer = peer.map(|peer| peer.parse::<IpAddr>()).transpose();
        let peer = peer.map_err(|_| invalid("peer: no address; write an IPv4 or IPv6 address without a port"))?;
        let values = [first, second].into_iter();
        let headers = self.source.fields().iter().zip(values).filter_map(|(name, value)| Some((name, value?)));
        let client_ip = self.source.find(headers, peer).ok();
        let identity = Identity { subject: subject.as_deref(), api_key: api_key.as_deref(), client_ip };
        Ok(identity.resolve().as_str().to_string())
    }

    /// Decides on a request, or where it `peeks` says how it would.
    pub async fn check(
        &self,
        key: String,
        cost: f64,
        now: f64,
        token: Option<String>,
        token_ttl: f64,
        peeks: bool,
    ) -> Result<String, JsValue> {
        let key = Key::new(key);
        let mut check = Check::new(&self.policy, &key, UnixMillis::new(whole(now))).cost(whole(cost));
        if let Some(token) = &token {
            check = check.idempotent(token, Millis::new(whole(token_ttl)));
        }
        let decision = if peeks { self.limiter.peek(check).await } else { self.limiter.check(check).await };
        Ok(verdict(&self.policy, &decision.map_err(thrown)?, self.body_format))
    }

    /// Gives back what a request was charged.
    pub async fn refund(&self, key: String, cost: f64, charged_at: f64, now: f64) -> Result<(), JsValue> {
        let (charged_at, now) = (UnixMillis::new(whole(charged_at)), UnixMillis::new(whole(now)));
        let key = Key::new(key);
        self.limiter.refund(Refund::new(&self.policy, &key, whole(cost), charged_at, now)).await.map_err(thrown)
    }

    /// Forgets what a key used.
    pub async fn reset(&self, key: String) -> Result<(), JsValue> {
        self.limiter.reset(&self.policy, &Key::new(key)).await.map_err(thrown)
    }

    /// What the store can do, as JSON.
    pub fn capabilities(&self) -> String {
        let can = self.limiter.capabilities();
        let algorithms = can.algorithms.join(r#"",""#);
        format!(
            concat!(
                r#"{{"class":"{}","accuracy":"{}","algorithms":["{}"],"max_quotas":{},"costs":{},"charge_denied":{},"#,
                r#""peek":{},"refund":{},"reset":{},"idempotency":{},"round_trips":{}}}"#,
            ),
            can.accuracy.name(),
            can.accuracy,
            algorithms,
            can.max_quotas,
            can.costs,
            can.charge_denied,
            can.peek,
            can.refund,
            can.reset,
            can.idempotency,
            can.round_trips,
        )
    }
}
