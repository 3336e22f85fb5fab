//! Counters of events in bounded memory.

mod space_saving;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::space_saving::SpaceSaving;
use super::{Event, EventSink, Outcome};

/// Counts outcomes, and finds for each rule the keys with the most requests and those that are denied most, in bounded memory.
///
/// The keys are found by the Space-Saving algorithm (Metwally, Agrawal, El Abbadi: Efficient Computation of Frequent and
/// Top-k Elements in Data Streams, 2005). A key with more than `requests / capacity` of a rule's requests is always among its busiest, and
/// one that is denied more than `denied / capacity` times among the most denied. Its count may be too high by [`TopKey::error`], which is at most
/// that quotient, and is never too low. An event counts as the requests that it stands for ([`Event::weight`]): of a
/// [sample](super::Events::sample_allowed), the counts are estimates.
///
/// Clones share their counts, so keep one to read them.
///
/// ```
/// use tidegate_core::gate::{Events, Gate, Request, Rules, Tally};
/// use tidegate_core::{ClientIpSource, MemoryLimiter, Platform, UnixMillis};
/// # fn main() -> Result<(), tidegate_core::Error> {
/// let rules = Rules::parse("rules.json", r#"{
///     "limits": { "api": { "quotas": [{ "algorithm": "fixed_window", "limit": 2, "window_ms": 60000 }] } },
///     "rules": [{ "path": "/api/*", "limits": ["api"] }]
/// }"#)?;
/// let tally = Tally::new(100);
/// let events = Events::new(tally.clone()).key_secret([7; 16]);
/// let gate = Gate::new(rules, MemoryLimiter::new(), ClientIpSource::new(Platform::Vercel))?.events(events);
/// for address in ["192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.2"] {
///     let headers = [("x-vercel-forwarded-for", address)];
///     pollster::block_on(gate.check(&Request::new("GET", "/api/items", &headers, UnixMillis::new(0))));
/// }
/// let tallied = tally.read();
/// let api = &tallied.rules[0];
/// assert_eq!((&*api.rule, api.decided, api.denied), ("/api/*", 4, 1));
/// assert_eq!((api.busiest[0].count, api.busiest[1].count, api.most_denied[0].count), (3, 1, 1));
/// assert_eq!(api.busiest[0].key, api.most_denied[0].key);
/// assert!(tallied.prometheus(10).contains("tidegate_busiest_key_requests{rule=\"/api/*\",key=\""));
/// assert!(tallied.line(10).starts_with("{\"busiest_keys\":[{\"rule\":\"/api/*\",\"decided\":4,\"denied\":1,\"busiest\":[{\"key\":\""));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Tally(Arc<Mutex<Counts>>);

#[derive(Debug)]
struct Counts {
    totals: Tallied,
    capacity: usize,
    rules_max: usize,
    denied: SpaceSaving,
    rules: BTreeMap<Box<str>, RuleCounts>,
}

/// The counts of one rule.
#[derive(Debug)]
struct RuleCounts {
    decided: u64,
    denied: u64,
    busiest: SpaceSaving,
    most_denied: SpaceSaving,
}

/// What a [`Tally`] has counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tallied {
    /// Requests that a limit admitted.
    pub allowed: u64,
    /// Of these, the requests after which less than a tenth of the limit remained.
    pub near_limit: u64,
    /// Requests that a limit denied.
    pub denied: u64,
    /// Requests of senders on the list `deny`.
    pub listed: u64,
    /// Requests that have to pass a challenge.
    pub challenged: u64,
    /// Requests that were refused because of an invalid token.
    pub invalid_tokens: u64,
    /// Requests that the limiter did not decide on.
    pub failed: u64,
    /// The keys that were denied most, by all rules, most first.
    pub top: Vec<TopKey>,
    /// What was counted of each rule, the rule with the most requests first.
    pub rules: Vec<RuleTally>,
}

/// What a [`Tally`] has counted of one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuleTally {
    /// The rule. Empty for those beyond [`Tally::rules_max`].
    pub rule: Box<str>,
    /// Requests that a limit admitted or denied.
    pub decided: u64,
    /// Of these, those that a limit denied.
    pub denied: u64,
    /// The keys with the most requests, most first.
    pub busiest: Vec<TopKey>,
    /// The keys that were denied most, most first.
    pub most_denied: Vec<TopKey>,
}

/// A key that was seen often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopKey {
    /// [`Event::key`].
    pub key: u64,
    /// How often it was seen, at most.
    pub count: u64,
    /// By how much `count` may be too high.
    pub error: u64,
}

impl Tally {
    /// The rules that a tally tells apart, unless the caller says otherwise.
    pub const RULES_MAX: usize = 256;

    /// A tally that remembers at most `capacity` keys in each list, and at least one: two lists for each rule, and one for all.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let (totals, denied, rules) = (Tallied::default(), SpaceSaving::new(capacity), BTreeMap::new());
        let rules_max = Self::RULES_MAX;
        Self(Arc::new(Mutex::new(Counts { totals, capacity, rules_max, denied, rules })))
    }

    /// Sets how many rules it tells apart: 1 at least. Those that come later are counted together. The rules of a file are few, but a
    /// process may reload them often.
    #[must_use]
    pub fn rules_max(self, rules: usize) -> Self {
        self.counts().rules_max = rules.max(1);
        self
    }

    /// What was counted so far.
    #[must_use]
    pub fn read(&self) -> Tallied {
        let counts = self.counts();
        let mut rules: Vec<RuleTally> = counts.rules.iter().map(|(rule, counts)| RuleTally::of(rule, counts)).collect();
        rules.sort_by_key(|tally| std::cmp::Reverse(tally.decided));
        Tallied { top: counts.denied.top(), rules, ..counts.totals.clone() }
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RuleTally {
    fn of(rule: &str, counts: &RuleCounts) -> Self {
        let RuleCounts { decided, denied, busiest, most_denied } = counts;
        let (decided, denied) = (*decided, *denied);
        Self { rule: rule.into(), decided, denied, busiest: busiest.top(), most_denied: most_denied.top() }
    }
}

/// The name of a metric, and what it tells of a rule and of a key.
type Metric = (&'static str, &'static str, fn(&RuleTally) -> &[TopKey], fn(&TopKey) -> u64);

const METRICS: [Metric; 4] = [
    (
        "tidegate_busiest_key_requests",
        "Requests of the busiest keys of a rule, at most",
        |tally| &tally.busiest,
        |top| top.count,
    ),
    (
        "tidegate_busiest_key_requests_error",
        "By how much that may be too high",
        |tally| &tally.busiest,
        |top| top.error,
    ),
    (
        "tidegate_most_denied_key_requests",
        "Denied requests of the most denied keys of a rule, at most",
        |tally| &tally.most_denied,
        |top| top.count,
    ),
    (
        "tidegate_most_denied_key_requests_error",
        "By how much that may be too high",
        |tally| &tally.most_denied,
        |top| top.error,
    ),
];

impl Tallied {
    /// The `first` keys of each list of each rule, in the text format of Prometheus. Append it to the other metrics of a process.
    ///
    /// They are gauges, because a key may leave its list: do not compute rates of them. The number of series is bounded by `first`.
    #[must_use]
    pub fn prometheus(&self, first: usize) -> String {
        let mut out = String::new();
        for (name, help, list, number) in METRICS {
            let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} gauge\n");
            for tally in &self.rules {
                for top in list(tally).iter().take(first) {
                    // The names of rules need no escapes.
                    let _ = writeln!(out, "{name}{{rule=\"{}\",key=\"{:016x}\"}} {}", tally.rule, top.key, number(top));
                }
            }
        }
        out
    }

    /// The `first` keys of each list of each rule, as one line of JSON for a log, without a line end.
    #[must_use]
    pub fn line(&self, first: usize) -> String {
        let list = |out: &mut String, all: &[TopKey]| {
            for (place, TopKey { key, count, error }) in all.iter().take(first).enumerate() {
                let comma = if place == 0 { "" } else { "," };
                let _ = write!(out, r#"{comma}{{"key":"{key:016x}","count":{count},"error":{error}}}"#);
            }
        };
        let mut out = String::from(r#"{"busiest_keys":["#);
        for (place, RuleTally { rule, decided, denied, busiest, most_denied }) in self.rules.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            let _ = write!(out, r#"{comma}{{"rule":"{rule}","decided":{decided},"denied":{denied},"busiest":["#);
            list(&mut out, busiest);
            out.push_str(r#"],"most_denied":["#);
            list(&mut out, most_denied);
            out.push_str("]}");
        }
        out.push_str("]}");
        out
    }
}

impl EventSink for Tally {
    fn event(&self, event: &Event<'_>) {
        let (mut counts, weight) = (self.counts(), u64::from(event.weight));
        match event.outcome {
            Outcome::Allowed => {
                counts.totals.allowed += weight;
                let is_near = |(limit, remaining): (u64, u64)| remaining.saturating_mul(10) < limit;
                if event.limit.zip(event.remaining).is_some_and(is_near) {
                    counts.totals.near_limit += weight;
                }
                counts.decided(event, false);
            }
            Outcome::Denied | Outcome::NeverAdmissible => {
                counts.totals.denied += weight;
                if let Some(key) = event.key {
                    counts.denied.add(key, weight);
                }
                counts.decided(event, true);
            }
            Outcome::Listed => counts.totals.listed += weight,
            Outcome::Challenged => counts.totals.challenged += weight,
            Outcome::InvalidToken => counts.totals.invalid_tokens += weight,
            Outcome::FailedOpen | Outcome::FailedClosed => counts.totals.failed += weight,
        }
    }
}

impl Counts {
    fn decided(&mut self, event: &Event<'_>, is_denied: bool) {
        let weight = u64::from(event.weight);
        let is_apart = self.rules.contains_key(event.rule) || self.rules.len() + 1 < self.rules_max;
        let (name, capacity) = (if is_apart { event.rule } else { "" }, self.capacity);
        if !self.rules.contains_key(name) {
            let list = || SpaceSaving::new(capacity);
            self.rules.insert(name.into(), RuleCounts { decided: 0, denied: 0, busiest: list(), most_denied: list() });
        }
        let Some(counts) = self.rules.get_mut(name) else { return };
        counts.decided += weight;
        if let Some(key) = event.key {
            counts.busiest.add(key, weight);
        }
        if is_denied {
            counts.denied += weight;
            if let Some(key) = event.key {
                counts.most_denied.add(key, weight);
            }
        }
    }
}
