//! Gates that note what they charge.

use serde_json::Value;
use tidegate_core::gate::{Gate, Rules};
use tidegate_core::{ClientIpSource, MemoryLimiter, Platform};
use tidegate_evasion::{Seen, rules};
use tidegate_guest_protocol::routed::Told;

/// A gate with a limit for each of these routes, named as the route, and one for everything else.
pub(crate) fn gate(seen: &Seen, routes: &[(&str, &str)]) -> Gate<'static> {
    gate_of(seen, &rules(routes))
}

/// A gate of these rules.
pub(crate) fn gate_of(seen: &Seen, rules: &Value) -> Gate<'static> {
    let rules = Rules::parse("rules.json", &rules.to_string()).unwrap();
    let seen = seen.clone();
    let limiter = Told::new(MemoryLimiter::new(), move |limit: &str| seen.charge([limit.to_string()]));
    Gate::new(rules, limiter, ClientIpSource::new(Platform::Vercel)).unwrap()
}
