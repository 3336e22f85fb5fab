use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use tidegate_cloudflare_ratelimit::{Binding, CAPABILITIES, RateLimit};
use tidegate_core::store::Native;
use tidegate_core::{Capabilities, Check, Error, Millis};

use crate::operation::Operation;
use crate::simulate::ground::{Ground, locked};

/// The Rate Limiting binding of one machine. Each location counts in windows of its own.
#[derive(Clone)]
pub(in crate::simulate) struct PlaceCounts {
    pub(in crate::simulate) ground: Ground,
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
        let PlaceCounts { ground, machine, counts } = self.counts;
        ground.count(Operation::BindingCall, 1);
        let (now, sync_us) = (ground.world.now_us(), ground.assumed.binding_sync_us);
        let start = now / self.period_us;
        let mut counts = locked(counts);
        let window = counts.entry(key.to_owned()).or_default();
        if window.start != start {
            *window = Window { start, ..Window::default() };
        }
        while window.recent.front().is_some_and(|(at, _)| at + sync_us <= now) {
            window.recent.pop_front();
            window.known += 1;
        }
        let own = window.recent.iter().filter(|(_, by)| by == machine).count() as u64;
        let admitted = window.known + own < self.limit;
        if admitted {
            window.recent.push_back((now, *machine));
        }
        Ok(admitted)
    }
}
