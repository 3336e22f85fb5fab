//! Gates that note what they charge.

use serde_json::Value;
use tidegate_core::gate::{Gate, Rules};
use tidegate_core::{
    Capabilities, Check, ClientIpSource, Decision, Error, Keys, Limiter, MemoryLimiter, Platform, Policy, Refund,
    Settle,
};
use tidegate_evasion::{Seen, rules};

/// A gate with a limit for each of these routes, named as the route, and one for everything else.
pub(crate) fn gate(seen: &Seen, routes: &[(&str, &str)]) -> Gate<'static> {
    gate_of(seen, &rules(routes))
}

/// A gate of these rules.
pub(crate) fn gate_of(seen: &Seen, rules: &Value) -> Gate<'static> {
    let rules = Rules::parse("rules.json", &rules.to_string()).unwrap();
    let limiter = Recording { inner: MemoryLimiter::new(), seen: seen.clone() };
    Gate::new(rules, limiter, ClientIpSource::new(Platform::Vercel)).unwrap()
}

/// Notes the names of the limits that are charged.
struct Recording {
    inner: MemoryLimiter,
    seen: Seen,
}

impl Limiter for Recording {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn check(&self, check: Check<'_>) -> Result<Decision, Error> {
        self.seen.charge(check.policy.quotas().iter().map(|quota| quota.name().to_string()));
        self.inner.check(check).await
    }

    async fn peek(&self, check: Check<'_>) -> Result<Decision, Error> {
        self.inner.peek(check).await
    }

    async fn refund(&self, refund: Refund<'_>) -> Result<(), Error> {
        self.inner.refund(refund).await
    }

    async fn settle(&self, settle: Settle<'_>) -> Result<Decision, Error> {
        self.inner.settle(settle).await
    }

    async fn reset(&self, policy: &Policy, keys: Keys<'_>) -> Result<(), Error> {
        self.inner.reset(policy, keys).await
    }
}
