//! Fixtures: bursts with what they must answer, and requests with the key they must resolve to. Data, one a file.
//!
//! A fixture's `id` is its path below the fixtures folder, without `.json`. Files below `requests/` are
//! [`RequestFixture`]s, all others [`Fixture`]s. `fixtures/schema.json` says the same to editors.

mod load;
mod validate;

#[cfg(test)]
pub(crate) use load::parse;
pub use load::{Problem, load, shipped};

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use tidegate_core::Policy;
use tidegate_guest_protocol::{Arrival, Source};

/// One file of the fixtures folder.
#[derive(Clone, Debug)]
pub enum Case {
    /// Bursts and their decisions.
    Decision(Box<Fixture>),
    /// A request and its key.
    Request(RequestFixture),
}

impl Case {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> &str {
        match self {
            Self::Decision(fixture) => &fixture.id,
            Self::Request(fixture) => &fixture.id,
        }
    }

    /// What it is about.
    #[must_use]
    pub fn about(&self) -> &str {
        match self {
            Self::Decision(fixture) => &fixture.about,
            Self::Request(fixture) => &fixture.about,
        }
    }
}

/// Bursts on a virtual timeline, and what they must answer.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fixture {
    /// Its path below the fixtures folder, without `.json`.
    pub id: String,
    /// One sentence.
    pub about: String,
    /// The specification or the bug it comes from.
    pub source: Option<String>,
    /// The virtual epoch time of `at_ms` 0.
    #[serde(default = "start_ms")]
    pub start_ms: u64,
    /// The locations that serve it.
    #[serde(default = "one")]
    pub locations: u64,
    /// What is decided by, until a step brings another.
    pub policy: Policy,
    /// What happens, in order; each step waits for the one before.
    pub steps: Vec<Step>,
}

/// A burst of equal requests at one instant.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// When, from the fixture's start; earlier than the step before where the clock steps back.
    pub at_ms: i64,
    /// What is asked.
    #[serde(default)]
    pub op: Op,
    /// How many at once.
    #[serde(default = "one")]
    pub burst: u64,
    /// Whom to count.
    pub key: String,
    /// What each costs.
    #[serde(default = "one")]
    pub cost: u64,
    /// Where they arrive.
    #[serde(default)]
    pub location: u64,
    /// Replaces the policy from this step on.
    pub policy: Option<Policy>,
    /// Of a refund: when it was charged.
    pub charged_at_ms: Option<i64>,
    /// The idempotency token that the burst shares.
    pub token: Option<String>,
    /// How long the token holds.
    pub token_ttl_ms: Option<u64>,
    /// What is done to the store while the burst is under way.
    pub disturb: Option<Disturb>,
    /// What they must answer.
    pub expect: Option<Expect>,
}

/// What a step asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// Decide and charge.
    #[default]
    Check,
    /// Decide and charge nothing.
    Peek,
    /// Give back.
    Refund,
    /// Forget the key.
    Reset,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Check => "check",
            Self::Peek => "peek",
            Self::Refund => "refund",
            Self::Reset => "reset",
        })
    }
}

/// What is done to a store while a burst is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Disturb {
    /// It forgets its scripts.
    ScriptFlush,
    /// It is killed and started again.
    Restart,
}

/// What a step must answer; what is absent is not checked beyond what the reference says.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// How many are allowed.
    pub admitted: Option<u64>,
    /// The most that a store may allow which counts late, but for all locations.
    pub admitted_max: Option<u64>,
    /// What every denial tells; there must be one.
    pub retry_after_ms: Option<u64>,
    /// The fewest remaining that any answer tells of its binding quota.
    pub remaining: Option<u64>,
    /// How many can never be admitted.
    pub never_admissible: Option<u64>,
    /// The longest delay of an allowed one.
    pub delay_ms: Option<u64>,
    /// The longest time to the binding quota's reset that any answer tells.
    pub reset_after_ms: Option<u64>,
    /// Response fields of the answer, where the burst is 1.
    pub headers: Option<BTreeMap<String, String>>,
}

/// A request, and whom it is counted against.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestFixture {
    /// Its path below the fixtures folder, without `.json`.
    pub id: String,
    /// One sentence.
    pub about: String,
    /// The specification or the bug it comes from.
    pub source: Option<String>,
    /// The platform it came through.
    pub platform: PlatformName,
    /// The address that the platform's own API or socket gives.
    pub peer: Option<String>,
    /// The prefix length that IPv6 addresses fold to.
    pub ipv6_prefix: Option<u8>,
    /// Whether `true-client-ip` is believed.
    #[serde(default)]
    pub trust_true_client_ip: bool,
    /// The header fields, in order, a repeated name once for each value.
    pub headers: Vec<(String, String)>,
    /// The subject of a verified token.
    pub subject: Option<String>,
    /// The API key.
    pub api_key: Option<String>,
    /// Whom it is counted against.
    pub expect: ExpectKey,
}

/// A platform that tells the client's address in its own way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each is the name of its platform")]
pub enum PlatformName {
    Cloudflare,
    Vercel,
    Netlify,
    Fastly,
    Spin,
    Direct,
}

/// Whom a request is counted against.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectKey {
    /// The key.
    pub key: String,
    /// What it was made of.
    pub source: Option<Source>,
}

impl Fixture {
    /// The steps with the policy that each goes by.
    pub fn steps_with_policy(&self) -> impl Iterator<Item = (usize, &Step, &Policy)> {
        let mut policy = &self.policy;
        self.steps.iter().enumerate().map(move |(place, step)| {
            policy = step.policy.as_ref().unwrap_or(policy);
            (place, step, policy)
        })
    }

    /// The virtual time of an `at_ms`; [`load`] has made sure that there is one.
    #[must_use]
    pub fn instant(&self, at_ms: i64) -> u64 {
        self.start_ms.saturating_add_signed(at_ms)
    }

    /// The requests it offers: those that ask for a decision.
    #[must_use]
    pub fn offered(&self) -> u64 {
        self.steps.iter().filter(|step| step.op == Op::Check).map(|step| step.burst).sum()
    }

    /// Whether a token is used again once its time has passed.
    #[must_use]
    pub fn outlives_a_token(&self) -> bool {
        let mut until: BTreeMap<(&str, &str), i64> = BTreeMap::new();
        self.steps.iter().any(|step| {
            let Some((token, ttl_ms)) = step.token.as_deref().zip(step.token_ttl_ms) else { return false };
            let ends = step.at_ms.saturating_add_unsigned(ttl_ms);
            *until.entry((&step.key, token)).or_insert(ends) <= step.at_ms
        })
    }

    /// Whether some step does this to the store.
    #[must_use]
    pub fn disturbs(&self, disturb: Disturb) -> bool {
        self.steps.iter().any(|step| step.disturb == Some(disturb))
    }
}

impl RequestFixture {
    /// The request as a guest gets it.
    #[must_use]
    pub fn arrival(&self) -> Arrival {
        let platform = serde_json::to_value(self.platform).ok();
        Arrival {
            platform: platform.and_then(|name| name.as_str().map(str::to_string)).unwrap_or_default(),
            peer: self.peer.clone(),
            ipv6_prefix: self.ipv6_prefix,
            trust_true_client_ip: self.trust_true_client_ip,
            headers: self.headers.clone(),
            subject: self.subject.clone(),
            api_key: self.api_key.clone(),
        }
    }
}

const fn start_ms() -> u64 {
    1_800_000_000_000
}

const fn one() -> u64 {
    1
}
