use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use tidegate_cloudflare::rate_limit::{Binding, CAPABILITIES, RateLimit};
use tidegate_conformance::operation::Operation;
use tidegate_core::store::Native;
use tidegate_core::{Capabilities, Check, Error, Millis};

use crate::simulate::environment::{Environment, locked};

/// The Rate Limiting binding of one machine. Each location counts in windows of its own.
#[derive(Clone)]
pub(in crate::simulate) struct PlaceCounts {
    pub(in crate::simulate) environment: Environment,
    pub(in crate::simulate) machine: u64,
    /// Those of the location.
    pub(in crate::simulate) counts: Arc<Mutex<HashMap<String, Window>>>,
}

/// What a location has counted of a key.
#[derive(Debug, Default)]
pub(in crate::simulate) struct Window {
    start: u64,
    /// What all machines know.
    known: u64,
    /// When each other request was counted, and by which machine.
    recent: VecDeque<(u64, u64)>,
    /// How many of them each machine has counted.
    by_machine: HashMap<u64, u64>,
}

impl PlaceCounts {
    /// Whether the platform offers this period.
    pub(in crate::simulate) fn offers(period: Millis) -> bool {
        RateLimit::<Configured<'_>>::PERIODS.contains(&period)
    }
}

/// The binding with the limit of a policy.
struct Configured<'a> {
    counts: &'a PlaceCounts,
    limit: u64,
    period_us: u64,
}

impl Native for PlaceCounts {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    async fn limit(&self, check: Check<'_>) -> Result<bool, Error> {
        let rule = check.policy.quotas()[0].rule();
        let period_us = rule.window().get().max(1) * 1_000;
        let binding = Configured { counts: self, limit: rule.limit(), period_us };
        RateLimit::new(binding, rule.limit(), rule.window())?.limit(check).await
    }
}

impl Binding for Configured<'_> {
    async fn limit(&self, key: &str) -> Result<bool, Error> {
        let PlaceCounts { environment, machine, counts } = self.counts;
        environment.count(Operation::BindingCall, 1);
        let (now, sync_us) = (environment.world.now_us(), environment.assumed.binding_sync_us);
        let start = now / self.period_us;
        let mut counts = locked(counts);
        let window = counts.entry(key.to_owned()).or_default();
        if window.start != start {
            *window = Window { start, ..Window::default() };
        }
        while let Some((_, by)) = window.recent.pop_front_if(|(at, _)| *at + sync_us <= now) {
            window.known += 1;
            *window.by_machine.entry(by).or_default() -= 1;
        }
        let own = window.by_machine.entry(*machine).or_default();
        let admitted = window.known + *own < self.limit;
        if admitted {
            *own += 1;
            window.recent.push_back((now, *machine));
        }
        Ok(admitted)
    }
}
