//! Decides on the requests of a log.

use std::collections::HashMap;

use futures_util::FutureExt as _;
use serde::Serialize;
use tidegate_core::gate::{Gate, Prepared, Reason, Request, Verdict};
use tidegate_core::{ClientIpSource, Decision, Error, Key, MemoryLimiter, Platform, Policy, Status};

use super::adapted::{Adapted, JA4};
use super::clients::Client;
use super::entry::Entry;

/// The keys that have counts of their own. See [`MemoryLimiter::max_keys`] for what happens beyond.
const KEYS: usize = 1 << 22;

/// Decides on the requests of a log, one after another, on the log's time.
///
/// ```
/// use tidegate_traffic::accesslog::{Adapted, Fields, Outcome, Parsed, Parser, Replay};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let rules = serde_json::json!({
///     "limits": { "site": { "quotas": [{ "algorithm": "fixed_window", "limit": 1, "window_ms": 60000 }] } },
///     "rules": [{ "limits": ["site"] }]
/// });
/// let mut replay = Replay::new(&Adapted::new(rules))?;
/// let mut parser = Parser::new(Fields::default());
/// let line = r#"192.0.2.1 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 5"#;
/// let Ok(Parsed::Request(entry)) = parser.parse(line) else { panic!() };
/// let client = replay.client(&entry);
/// assert_eq!(replay.decide(&entry, client), Outcome::Admitted);
/// assert!(matches!(replay.decide(&entry, client), Outcome::Denied(cause) if replay.cause(cause).limit == "site"));
/// # Ok(())
/// # }
/// ```
pub struct Replay {
    gate: Gate<'static>,
    source: ClientIpSource,
    dimensions: Vec<String>,
    causes: Vec<Cause>,
    /// The places of each rule's causes.
    places: HashMap<String, Vec<usize>>,
}

/// What denied requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// The rule.
    pub rule: String,
    /// The limit, by the name of its quota. `the list deny` or `a challenge`, if that refused them before any limit.
    pub limit: String,
}

/// What the rules do with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its limits admit it.
    Admitted,
    /// No limit applies to it.
    Unlimited,
    /// It is denied. The number is that of the [`Cause`].
    Denied(usize),
}

const NO_HEADERS: [(&str, &str); 0] = [];

impl Replay {
    /// A replay with no counts.
    ///
    /// # Errors
    /// As [`Adapted::rules`].
    pub fn new(rules: &Adapted) -> Result<Self, Error> {
        let source = ClientIpSource::new(Platform::Direct);
        let store = MemoryLimiter::with_shards(1).max_keys(KEYS);
        let gate = Gate::new(rules.rules()?, store, source.clone())?;
        let dimensions = rules.dimensions().to_vec();
        Ok(Self { gate, source, dimensions, causes: Vec::new(), places: HashMap::new() })
    }

    /// The client that sent a request.
    #[must_use]
    pub fn client(&self, entry: &Entry<'_>) -> Client {
        Client::new(self.source.find(NO_HEADERS, entry.peer).ok())
    }

    /// What denied the requests with this number in [`Outcome::Denied`].
    #[must_use]
    pub fn cause(&self, place: usize) -> &Cause {
        &self.causes[place]
    }

    /// All causes so far, by their numbers.
    #[must_use]
    pub fn causes(&self) -> &[Cause] {
        &self.causes
    }

    /// Decides on a request.
    pub fn decide(&mut self, entry: &Entry<'_>, client: Client) -> Outcome {
        self.decide_seen(entry, client, |_, _| {})
    }

    /// Decides on a request, and shows the decision.
    pub(super) fn decide_seen(
        &mut self,
        entry: &Entry<'_>,
        client: Client,
        see: impl FnOnce(&Policy, &Decision),
    ) -> Outcome {
        if self.dimensions.is_empty() {
            return self.decide_with(entry, &[], see);
        }
        // What only the application or the platform knows counts by the address.
        let (key, dimensions) = (client.key(), std::mem::take(&mut self.dimensions));
        let keys: Vec<(&str, &Key)> = dimensions.iter().map(|name| (name.as_str(), &key)).collect();
        let outcome = self.decide_with(entry, &keys, see);
        self.dimensions = dimensions;
        outcome
    }

    fn decide_with(
        &mut self,
        entry: &Entry<'_>,
        keys: &[(&str, &Key)],
        see: impl FnOnce(&Policy, &Decision),
    ) -> Outcome {
        let mut request = Request::new(&entry.method, &entry.path, &NO_HEADERS, entry.at).peer(entry.peer).keys(keys);
        if let Some(host) = &entry.host {
            request = request.with_host(host);
        }
        if let Some(subject) = &entry.subject {
            request = request.subject(subject);
        }
        if let Some(tier) = &entry.tier {
            request = request.tier(tier);
        }
        if let Some((_, key)) = keys.iter().find(|(name, _)| *name == JA4) {
            request = request.ja4(key.as_str());
        }
        let pending = match self.gate.prepare(&request) {
            Prepared::Pending(pending) => pending,
            Prepared::Decided(Verdict::Pass(_)) => return Outcome::Unlimited,
            Prepared::Decided(Verdict::Refuse(refusal)) => {
                let rules = self.gate.rules();
                let rule = rules.find(&request).map_or("", |rule| rule.name());
                return self.denied(rule, before_any_limit(refusal.reason()));
            }
        };
        // The memory store answers at once.
        let Some(verdict) = self.gate.decide(&pending).now_or_never() else { return Outcome::Unlimited };
        let Some(decision) = verdict.decision() else { return self.denied(pending.rule(), "an error") };
        // Otherwise it may be by the policy of another rule.
        let policy = Some(pending.policy()).filter(|_| pending.is_alone());
        if let Some(policy) = policy {
            see(policy, decision);
        }
        match decision.status() {
            Status::Allowed => Outcome::Admitted,
            _ => {
                let limit =
                    policy.map_or("one of several rules", |policy| policy.quotas()[decision.binding_index()].name());
                self.denied(pending.rule(), limit)
            }
        }
    }

    fn denied(&mut self, rule: &str, limit: &str) -> Outcome {
        let known = self.places.get(rule).map_or(&[][..], Vec::as_slice);
        if let Some(place) = known.iter().find(|place| self.causes[**place].limit == limit) {
            return Outcome::Denied(*place);
        }
        let place = self.causes.len();
        self.causes.push(Cause { rule: rule.into(), limit: limit.into() });
        self.places.entry(rule.into()).or_default().push(place);
        Outcome::Denied(place)
    }
}

const fn before_any_limit(reason: &Reason) -> &'static str {
    match reason {
        Reason::Listed => "the list deny",
        Reason::Challenged(_) => "a challenge",
        _ => "an error",
    }
}
