//! Designs that are often recommended, to compare with.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use futures_util::future::{BoxFuture, join_all};
use tidegate_conformance::operation::Operation;
use tidegate_core::store::{BestEffort as _, Native};
use tidegate_core::{Capabilities, Check, Error, Millis, UnixMillis};

use super::after_response::AfterResponse;
use super::environment::{Environment, HOME, Pipeline, locked};
use super::stores::Kv;

/// They answer yes or no, and count in fixed windows.
const CAPABILITIES: Capabilities = Capabilities::NATIVE.algorithms(&["fixed_window"]);

/// Reads a count in Workers KV, decides, and writes it: the counter of tutorials.
pub(super) struct Naive {
    pub(super) kv: Kv,
}

impl Native for Naive {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    async fn limit(&self, check: Check<'_>) -> Result<bool, Error> {
        let rule = check.policy.quotas()[0].rule();
        let window = rule.window().get().max(1);
        let key = format!("{}:{}", check.keys.single(check.policy)?.as_str(), check.now.get() / window);
        let found = self.kv.get(&key).await?.and_then(|bytes| Some(u64::from_le_bytes(bytes.try_into().ok()?)));
        let count = found.unwrap_or_default();
        if count >= rule.limit() {
            return Ok(false);
        }
        // Tutorials do not look at what became of the write.
        let _lost = self.kv.put(&key, &(count + 1).to_le_bytes(), Millis::new(2 * window)).await;
        Ok(true)
    }
}

/// All counts of a window, at the server.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Total {
    window: u64,
    count: u64,
}

/// What an isolate knows of a key's window.
#[derive(Clone, Copy, Debug, Default)]
struct Local {
    window: u64,
    /// What others had counted at the last synchronization, and this isolate.
    known: u64,
    /// What this isolate has counted since.
    unreported: u64,
    next_us: u64,
}

/// Decides by its own count and what it last heard, and synchronizes after the fact.
#[derive(Clone)]
pub(super) struct Synchronized {
    environment: Environment,
    place: usize,
    every_us: u64,
    pipeline: Pipeline,
    totals: Arc<Mutex<HashMap<String, Total>>>,
    local: Arc<Mutex<Locals>>,
}

/// What an isolate knows, and the keys with something to report, by the time at which they may.
#[derive(Debug, Default)]
struct Locals {
    keys: HashMap<String, Local>,
    due: BTreeSet<(u64, String)>,
}

impl Synchronized {
    pub(super) fn new(
        environment: Environment,
        place: usize,
        every: Millis,
        totals: Arc<Mutex<HashMap<String, Total>>>,
    ) -> Self {
        Self {
            environment,
            place,
            every_us: every.get() * 1_000,
            pipeline: Pipeline::default(),
            totals,
            local: Arc::default(),
        }
    }

    /// Reports what was counted, and learns what all have. Nobody waits for it.
    async fn report(&self, key: String, window: u64, unreported: u64) {
        const DEADLINE_US: u64 = 1_000_000;
        self.environment.count_script_call(&self.pipeline, &key);
        // `INCRBY`, which returns the sum, and `EXPIRE`.
        self.environment.count(Operation::RedisCommand, 2);
        let add = |now| {
            let mut totals = locked(&self.totals);
            let total = totals.entry(key.clone()).or_default();
            if total.window < window {
                *total = Total { window, count: 0 };
            }
            if total.window == window {
                total.count += unreported;
            }
            (*total, now)
        };
        let Some(total) = self.environment.ask(self.place, HOME, DEADLINE_US, add).await else { return };
        if let Some(local) = locked(&self.local).keys.get_mut(&key)
            && local.window == total.window
        {
            local.known = local.known.max(total.count);
        }
    }
}

impl Native for Synchronized {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    async fn limit(&self, check: Check<'_>) -> Result<bool, Error> {
        let rule = check.policy.quotas()[0].rule();
        let window = check.now.get() / rule.window().get().max(1);
        let key = check.keys.single(check.policy)?.as_str();
        let mut all = locked(&self.local);
        let Locals { keys, due } = &mut *all;
        let local = keys.entry(key.to_owned()).or_default();
        if local.window != window {
            *local = Local { window, next_us: local.next_us, ..Local::default() };
        }
        let admitted = local.known + local.unreported < rule.limit();
        local.unreported += u64::from(admitted);
        if local.unreported == 1 {
            due.insert((local.next_us, key.to_owned()));
        }
        Ok(admitted)
    }
}

impl AfterResponse for Synchronized {
    fn after(&self, _: UnixMillis) -> Option<BoxFuture<'static, ()>> {
        let now = self.environment.world.now_us();
        let mut reports = Vec::new();
        let mut all = locked(&self.local);
        let Locals { keys, due } = &mut *all;
        while due.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, key)) = due.pop_first() else { break };
            let Some(local) = keys.get_mut(&key) else { continue };
            local.next_us = now + self.every_us;
            // Until the answer, the isolate's own count stands for what it reports.
            local.known += local.unreported;
            reports.push((key, local.window, std::mem::take(&mut local.unreported)));
        }
        drop(all);
        let this = self.clone();
        (!reports.is_empty()).then(|| -> BoxFuture<'static, ()> {
            Box::pin(async move {
                let reports = reports.into_iter().map(|(key, window, counted)| this.report(key, window, counted));
                join_all(reports).await;
            })
        })
    }
}
