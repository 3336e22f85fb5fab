//! The interface to TypeScript, which has checked that every number it passes is whole.

use std::net::IpAddr;
use std::rc::Rc;

use tidegate_core::{BodyFormat, ClientIpSource, Identity, Limiter as _};
use wasm_bindgen::prelude::*;

use crate::call::Caller;
use crate::error::misplaced;
use crate::limit::Limit;
use crate::numbers;
use crate::options::Options;
use crate::store;
use crate::verdict;
use crate::wire::Wire;

/// A limiter of one policy.
#[wasm_bindgen]
pub struct Gate {
    source: ClientIpSource,
    pub(crate) limit: Rc<Limit>,
}

#[wasm_bindgen]
impl Gate {
    /// Makes a limiter from its options.
    #[wasm_bindgen(constructor)]
    pub fn new(options: &Options) -> Result<Gate, JsValue> {
        let wire = Rc::<Wire>::default();
        let store = store::open(options, Rc::clone(&wire))?;
        #[cfg(feature = "memory")]
        let limiter = store;
        #[cfg(not(feature = "memory"))]
        let limiter = options.deny_cache(store);
        let body_format = if options.problem() { BodyFormat::Problem } else { BodyFormat::Json };
        let policy = options.policy()?;
        limiter.capabilities().supports_policy(&policy).map_err(|error| misplaced("policy: ", error))?;
        let limit = Limit { policy, limiter, body_format, wire, is_of_gate: options.is_of_gate() };
        Ok(Self { source: options.source()?, limit: Rc::new(limit) })
    }

    /// The names of the policy's dimensions, separated by commas.
    pub fn dimensions(&self) -> String {
        let names: Vec<&str> = self.limit.policy.dimensions().iter().map(|dimension| dimension.name()).collect();
        names.join(",")
    }

    /// The header fields that contain the client's address, separated by commas.
    pub fn fields(&self) -> String {
        self.source.fields().join(",")
    }

    /// The key that a request counts against. `first` and `second` are the values of [`Gate::fields`].
    pub fn key(
        &self,
        first: Option<String>,
        second: Option<String>,
        peer: Option<String>,
        subject: Option<String>,
        api_key: Option<String>,
    ) -> String {
        // Anything but one address counts as missing: a list may contain what the client wrote.
        let peer = peer.and_then(|peer| peer.parse::<IpAddr>().ok());
        let values = [first, second].into_iter();
        let headers = self.source.fields().iter().zip(values).filter_map(|(name, value)| Some((name, value?)));
        let client_ip = self.source.find(headers, peer).ok();
        let identity = Identity { subject: subject.as_deref(), api_key: api_key.as_deref(), client_ip };
        identity.resolve().as_str().to_string()
    }

    /// The names of the policy's quotas, separated by commas.
    pub fn quotas(&self) -> String {
        let names: Vec<&str> = self.limit.policy.quotas().iter().map(|quota| quota.name()).collect();
        names.join(",")
    }

    /// What the client of the decision in the numbers is sent: see [`undecided`](crate::undecided).
    pub fn told(&self) -> String {
        let Limit { policy, body_format, .. } = &*self.limit;
        let decision = numbers::found(policy.quotas().len());
        decision.map_or_else(String::new, |decision| verdict::text(policy, &decision, *body_format))
    }

    /// A caller, which makes calls on this limiter.
    pub fn caller(&self) -> Caller {
        Caller::new(&self.limit)
    }

    /// The store's capabilities, as JSON.
    pub fn capabilities(&self) -> String {
        let can = self.limit.limiter.capabilities();
        let algorithms = can.algorithms.join(r#"",""#);
        format!(
            concat!(
                r#"{{"class":"{}","accuracy":"{}","algorithms":["{}"],"max_quotas":{},"dimensions":"{}","costs":{},"charge_denied":{},"#,
                r#""peek":{},"refund":{},"reset":{},"block":{},"idempotency":{},"round_trips":{}}}"#,
            ),
            can.accuracy.name(),
            can.accuracy,
            algorithms,
            can.max_quotas,
            can.dimensions.name(),
            can.costs,
            can.charge_denied,
            can.peek,
            can.refund,
            can.reset,
            can.block,
            can.idempotency,
            can.round_trips,
        )
    }
}
