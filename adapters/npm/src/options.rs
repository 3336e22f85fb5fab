//! The options. The TypeScript has checked their types and filled in the defaults.

use tidegate_core::algorithm::Concurrency;
use tidegate_core::internal::PolicyParts;
use tidegate_core::{ClientIpSource, Ipv6Prefix, Millis, Policy, Quota, Rule};
use wasm_bindgen::prelude::*;

use crate::error::misplaced;

#[wasm_bindgen]
extern "C" {
    /// The options of a limiter.
    pub type Options;

    #[wasm_bindgen(method, getter)]
    fn name(this: &Options) -> String;

    #[wasm_bindgen(method, getter, js_name = chargeDenied)]
    fn charge_denied(this: &Options) -> bool;

    #[wasm_bindgen(method, getter, js_name = groupBy)]
    fn group_by(this: &Options) -> Option<String>;

    #[wasm_bindgen(method, getter)]
    fn quotas(this: &Options) -> Vec<QuotaOptions>;

    /// In a policy of a gate, the scopes of its quotas, separated by commas.
    #[wasm_bindgen(method, getter)]
    fn scopes(this: &Options) -> Option<String>;

    /// In a policy of a gate, the place of the group's dimension, or -1.
    #[wasm_bindgen(method, getter, js_name = groupAt)]
    fn group_at(this: &Options) -> i32;

    #[wasm_bindgen(method, getter, js_name = placeByKey)]
    fn place_by_key(this: &Options) -> bool;

    #[wasm_bindgen(method, getter)]
    fn platform(this: &Options) -> String;

    #[wasm_bindgen(method, getter, js_name = ipv6Prefix)]
    fn ipv6_prefix(this: &Options) -> u32;

    #[wasm_bindgen(method, getter, js_name = trustTrueClientIp)]
    fn trust_true_client_ip(this: &Options) -> bool;

    /// Whether the body of a denial is `application/problem+json`.
    #[wasm_bindgen(method, getter)]
    pub(crate) fn problem(this: &Options) -> bool;

    #[wasm_bindgen(method, getter, js_name = deadlineMs)]
    fn deadline_ms(this: &Options) -> f64;

    #[wasm_bindgen(method, getter, js_name = holdMs)]
    fn hold_ms(this: &Options) -> f64;

    #[wasm_bindgen(method, getter)]
    pub(crate) fn capacity(this: &Options) -> u32;
}

#[wasm_bindgen]
extern "C" {
    /// A quota of a policy.
    type QuotaOptions;

    #[wasm_bindgen(method, getter)]
    fn name(this: &QuotaOptions) -> Option<String>;

    #[wasm_bindgen(method, getter)]
    fn by(this: &QuotaOptions) -> Option<String>;

    #[wasm_bindgen(method, getter)]
    fn algorithm(this: &QuotaOptions) -> u32;

    /// The place of the numbers in the quota, such as `tokenBucket.`.
    #[wasm_bindgen(method, getter)]
    fn place(this: &QuotaOptions) -> String;

    /// The limit, the capacity, or a penalty's cap.
    #[wasm_bindgen(method, getter)]
    fn amount(this: &QuotaOptions) -> f64;

    /// The window, the bucket's period, the lifetime of a slot, or a penalty's base.
    #[wasm_bindgen(method, getter)]
    fn span(this: &QuotaOptions) -> f64;

    /// The refill, a penalty's factor, or 1 if a concurrency limit returns the cost.
    #[wasm_bindgen(method, getter)]
    fn refill(this: &QuotaOptions) -> f64;
}

impl Options {
    pub(crate) fn policy(&self) -> Result<Policy, JsValue> {
        let mut quotas = Vec::new();
        for options in self.quotas() {
            let place = format!("policy.quotas[{}].", quotas.len());
            let quota = options.quota().map_err(|error| misplaced(&format!("{place}{}", options.place()), error))?;
            quotas.push(options.named(quota).map_err(|error| misplaced(&place, error))?);
        }
        let place = |error| misplaced("policy.", error);
        if let Some(scopes) = self.scopes() {
            let parts = PolicyParts {
                name: self.name(),
                quotas,
                scopes: scopes.split(',').map(Into::into).collect(),
                group: usize::try_from(self.group_at()).ok(),
                place_by_key: self.place_by_key(),
                charge_denied: self.charge_denied(),
            };
            return parts.join().map_err(place);
        }
        let policy = Policy::new(&self.name(), quotas).map_err(place)?.charge_denied(self.charge_denied());
        match self.group_by() {
            Some(dimension) => policy.group_by(&dimension).map_err(place),
            None => Ok(policy),
        }
    }

    pub(crate) fn source(&self) -> Result<ClientIpSource, JsValue> {
        let prefix = Ipv6Prefix::new(u8::try_from(self.ipv6_prefix()).unwrap_or(u8::MAX));
        let source = ClientIpSource::new(self.platform().parse().map_err(|error| misplaced("", error))?);
        let source = source.ipv6_prefix(prefix.map_err(|error| misplaced("", error))?);
        Ok(source.trust_true_client_ip(self.trust_true_client_ip()))
    }

    /// Whether a gate made the policy.
    pub(crate) fn is_of_gate(&self) -> bool {
        self.scopes().is_some()
    }

    #[cfg_attr(feature = "memory", expect(dead_code, reason = "memory needs no time"))]
    pub(crate) fn deadline(&self) -> Millis {
        Millis::new(whole(self.deadline_ms()))
    }

    /// A deny cache in front of a store that is asked.
    #[cfg(not(feature = "memory"))]
    pub(crate) fn deny_cache<S: tidegate_core::Limiter>(&self, store: S) -> tidegate_core::DenyCache<S> {
        let cache = tidegate_core::DenyCache::new(store).hold(Millis::new(whole(self.hold_ms())));
        cache.capacity(self.capacity() as usize)
    }
}

impl QuotaOptions {
    fn quota(&self) -> Result<Quota, tidegate_core::Error> {
        let (amount, span, refill) = (whole(self.amount()), Millis::new(whole(self.span())), whole(self.refill()));
        match self.algorithm() {
            0 => Quota::fixed_window(amount, span),
            1 => Quota::sliding_window(amount, span),
            2 => Quota::sliding_log(amount, span),
            3 => Quota::token_bucket(amount, refill, span),
            4 => Quota::leaky_bucket(amount, refill, span),
            5 => Concurrency::new(amount, span).map(|rule| Rule::Concurrency(rule.returns_cost(refill == 1)).into()),
            6 => Quota::penalty(span, refill, Millis::new(amount)),
            _ => Quota::block(Millis::new(amount)),
        }
    }

    fn named(&self, quota: Quota) -> Result<Quota, tidegate_core::Error> {
        let quota = match self.name() {
            Some(name) => quota.named(&name)?,
            None => quota,
        };
        match self.by() {
            Some(dimension) => quota.by(&dimension),
            None => Ok(quota),
        }
    }
}

/// A number that the TypeScript has checked: whole, not negative and below 2^53.
#[expect(clippy::cast_possible_truncation, reason = "it is whole and below 2^53")]
pub(crate) const fn whole(number: f64) -> u64 {
    number as u64
}
