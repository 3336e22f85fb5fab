//! Fixtures: bursts with the expected decisions, requests with the expected key, and requests to a gate with the expected
//! responses. Each fixture is a JSON file.
//!
//! A fixture's `id` is its path below the fixtures folder, without `.json`. Files below `requests/` are
//! [`RequestFixture`]s, and files below `gate/` are [`GateFixture`]s. All others are [`Fixture`]s. `fixtures/schema.json` describes the format to editors.

mod gate;
mod load;
mod validate;

pub use gate::{ExpectGate, GateFixture, GateStep};
pub use load::{Problem, load, parse, shipped};

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use tidegate_core::{ErrorKind, Grant, Policy, Rule, UnixMillis};
use tidegate_guest_protocol::{Arrival, Source};

use crate::json;

/// One file in the fixtures folder.
#[derive(Clone, Debug)]
pub enum Case {
    /// Bursts with the expected decisions.
    Decision(Box<Fixture>),
    /// A request with the expected key.
    Request(RequestFixture),
    /// Requests to a gate with the expected responses.
    Gate(Box<GateFixture>),
}

impl Case {
    /// The id of the fixture.
    #[must_use]
    pub fn id(&self) -> &str {
        match self {
            Self::Decision(fixture) => &fixture.id,
            Self::Request(fixture) => &fixture.id,
            Self::Gate(fixture) => &fixture.id,
        }
    }

    /// The sentence that describes the fixture.
    #[must_use]
    pub fn about(&self) -> &str {
        match self {
            Self::Decision(fixture) => &fixture.about,
            Self::Request(fixture) => &fixture.about,
            Self::Gate(fixture) => &fixture.about,
        }
    }
}

/// Bursts on a virtual timeline, with the expected decisions.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fixture {
    /// The path below the fixtures folder, without `.json`.
    pub id: String,
    /// One sentence that describes the fixture.
    pub about: String,
    /// The specification or the bug that the fixture is based on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The virtual time of `at_ms` 0, in milliseconds since the epoch.
    #[serde(default = "start_ms")]
    pub start_ms: u64,
    /// The number of locations.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub locations: u64,
    /// The policy, until a step replaces it.
    pub policy: Policy,
    /// The steps in order. Each step waits for the previous one.
    pub steps: Vec<Step>,
}

/// A burst of identical requests at one instant.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// The time from the fixture's start. It is earlier than in the previous step if the clock steps back.
    pub at_ms: i64,
    /// The operation.
    #[serde(default, skip_serializing_if = "is_check")]
    pub op: Op,
    /// The number of concurrent requests.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub burst: u64,
    /// The key, if the policy has one dimension.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The key of each dimension, by its name. In place of `key`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<BTreeMap<String, String>>,
    /// The cost of each request, the units to refund or to grant, or the actual cost of a charge.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub cost: u64,
    /// The location at which the requests arrive.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub location: u64,
    /// Replaces the policy from this step on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
    /// For a refund: when the cost was charged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub charged_at_ms: Option<i64>,
    /// For a grant: when its units expire. Without it, they do not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at_ms: Option<i64>,
    /// For a block: how long it is. 0 ends one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_ms: Option<u64>,
    /// The idempotency token. All requests of the burst share it, unless it has `{n}`, which stands for the number of the request
    /// in the burst, from 1. For a settlement or a release: the token of the charge. For a grant: its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The lifetime of the token. That of a grant is 90 days by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_ttl_ms: Option<u64>,
    /// How to disturb the store during the burst.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disturb: Option<Disturb>,
    /// The expected answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expect: Option<Expect>,
}

/// The operation of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// Decide and charge.
    #[default]
    Check,
    /// Decide without charging.
    Peek,
    /// Correct a charge to its actual cost, and give back its slots.
    Settle,
    /// Give back the slots of a charge, which cost what was charged.
    Release,
    /// Return units to the quotas.
    Refund,
    /// Block the key, or end its block.
    Block,
    /// Add units to the balance.
    Grant,
    /// Forget the key's counts.
    Reset,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Check => "check",
            Self::Peek => "peek",
            Self::Settle => "settle",
            Self::Release => "release",
            Self::Refund => "refund",
            Self::Block => "block",
            Self::Grant => "grant",
            Self::Reset => "reset",
        })
    }
}

/// A disturbance of the store during a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Disturb {
    /// The store loses its cached scripts.
    ScriptFlush,
    /// The store is killed and started again.
    Restart,
    /// The store does not answer for a second.
    Hang,
    /// The store performs requests, and their clients get an error or nothing.
    LoseAnswers,
    /// Before the burst, while it is idle, what counts is dropped from the platform's memory. What is stored stays.
    Evict,
    /// Before the burst, while they are idle, the processes that ask the store are killed, and others take their places. What they had
    /// borrowed is not returned.
    Kill,
    /// The store does not answer until the clients have aborted their requests.
    Abort,
}

impl Disturb {
    /// The name, as in a fixture.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ScriptFlush => "script_flush",
            Self::Restart => "restart",
            Self::Hang => "hang",
            Self::LoseAnswers => "lose_answers",
            Self::Evict => "evict",
            Self::Kill => "kill",
            Self::Abort => "abort",
        }
    }

    /// Whether some answers may be errors.
    #[must_use]
    pub const fn interrupts(self) -> bool {
        matches!(self, Self::Restart | Self::Hang | Self::LoseAnswers | Self::Abort)
    }

    /// Whether the store itself fails, so that nobody knows what is charged in the end.
    #[must_use]
    pub const fn fails_the_store(self) -> bool {
        matches!(self, Self::Restart | Self::Hang | Self::LoseAnswers)
    }
}

/// The expected answers to a step. Absent fields are still compared with the reference's answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// The number of admitted requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admitted: Option<u64>,
    /// The most requests that an eventually consistent store may admit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admitted_max: Option<u64>,
    /// The wait in every denial. There must be at least one denial.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// The smallest remaining count of the binding quota in any answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remaining: Option<u64>,
    /// The number of requests that can never be admitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub never_admissible: Option<u64>,
    /// The longest delay of an admitted request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
    /// The longest time until the binding quota's reset in any answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reset_after_ms: Option<u64>,
    /// The most units that the balance paid in any answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_balance: Option<u64>,
    /// The number of answers that repeat an earlier one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replayed: Option<u64>,
    /// The error that every answer is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ExpectError>,
    /// The dimension of the binding quota in every denial. There must be at least one denial.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dimension: Option<String>,
    /// Response fields of the answer to a burst of 1. `None` for a field that must be absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headers: Option<BTreeMap<String, Option<String>>>,
}

/// An error that a caller can cause, and that charges nothing. An error of another kind is a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExpectError {
    /// [`ErrorKind::Invalid`].
    Invalid,
    /// [`ErrorKind::TokenReused`].
    TokenReused,
    /// [`ErrorKind::UnknownCharge`].
    UnknownCharge,
}

impl ExpectError {
    /// The name of the error's kind in an answer.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Invalid => ErrorKind::Invalid.name(),
            Self::TokenReused => ErrorKind::TokenReused.name(),
            Self::UnknownCharge => ErrorKind::UnknownCharge.name(),
        }
    }
}

/// A request with the expected key.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestFixture {
    /// The path below the fixtures folder, without `.json`.
    pub id: String,
    /// One sentence that describes the fixture.
    pub about: String,
    /// The specification or the bug that the fixture is based on.
    pub source: Option<String>,
    /// The platform that received the request.
    pub platform: PlatformName,
    /// The address from the platform's API or the socket.
    pub peer: Option<String>,
    /// The prefix length to which IPv6 addresses are reduced.
    pub ipv6_prefix: Option<u8>,
    /// Whether `true-client-ip` is trusted.
    #[serde(default)]
    pub trust_true_client_ip: bool,
    /// The header fields in order, one entry per value.
    pub headers: Vec<(String, String)>,
    /// The subject of a verified token.
    pub subject: Option<String>,
    /// The API key.
    pub api_key: Option<String>,
    /// The expected key.
    pub expect: ExpectKey,
}

/// A platform that reports the client's address in its own way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
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

/// The expected key of a request.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectKey {
    /// The key.
    pub key: String,
    /// The expected source of the key.
    pub source: Option<Source>,
}

impl Fixture {
    /// Gives each step a policy with the calendar windows of its time, as whoever checks has to.
    pub(crate) fn find_windows(&mut self) {
        let mut policy = self.policy.clone();
        for step in &mut self.steps {
            if let Some(changed) = &step.policy {
                policy = changed.clone();
            }
            let now = UnixMillis::new(self.start_ms.saturating_add_signed(step.at_ms));
            if let Cow::Owned(current) = policy.at(now) {
                policy = current.clone();
                step.policy = Some(current);
            }
        }
    }

    /// Iterates over the steps with the policy that applies to each.
    pub fn steps_with_policy(&self) -> impl Iterator<Item = (usize, &Step, &Policy)> {
        let mut policy = &self.policy;
        self.steps.iter().enumerate().map(move |(place, step)| {
            policy = step.policy.as_ref().unwrap_or(policy);
            (place, step, policy)
        })
    }

    /// The virtual time of an `at_ms`. [`load`] has checked that it is valid.
    #[must_use]
    pub fn instant(&self, at_ms: i64) -> u64 {
        self.start_ms.saturating_add_signed(at_ms)
    }

    /// The number of checks.
    #[must_use]
    pub fn offered(&self) -> u64 {
        self.steps.iter().filter(|step| step.op == Op::Check).map(|step| step.burst).sum()
    }

    /// Whether a token is used again or settled after it has expired.
    #[must_use]
    pub fn outlives_a_token(&self) -> bool {
        let mut until: BTreeMap<(String, String, bool), i64> = BTreeMap::new();
        self.steps_with_policy().any(|(_, step, policy)| {
            step.tokens().into_iter().any(|token| {
                // A grant and a check may have the same token.
                let charge = (step.keys_in_words(), token, step.op == Op::Grant);
                if let Some(ttl_ms) = step.remembered_ms(policy) {
                    until.entry(charge.clone()).or_insert(step.at_ms.saturating_add_unsigned(ttl_ms));
                }
                until.get(&charge).is_some_and(|ends| *ends <= step.at_ms)
            })
        })
    }

    /// Whether a check of a policy with a concurrency limit has no token.
    #[must_use]
    pub fn lacks_a_token(&self) -> bool {
        let lacks = |step: &Step, policy: &Policy| step.op == Op::Check && step.token.is_none() && policy.has_slots();
        self.steps_with_policy().any(|(_, step, policy)| lacks(step, policy))
    }

    /// Whether the store does not answer some of the requests.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        self.steps.iter().filter_map(|step| step.disturb).any(Disturb::interrupts)
    }
}

/// What stands for the number of a request in a token.
const NUMBER: &str = "{n}";

/// Whether each request of a burst has a token of its own.
pub(crate) fn has_number(token: &str) -> bool {
    token.contains(NUMBER)
}

/// The token of the request with this place in its burst.
pub(crate) fn numbered(token: &str, nth: u64) -> String {
    token.replace(NUMBER, &(nth + 1).to_string())
}

impl Step {
    /// All keys, as messages show them. Equal texts mean equal keys, so this also identifies a count.
    #[must_use]
    pub fn keys_in_words(&self) -> String {
        match (&self.key, &self.keys) {
            (_, Some(keys)) => format!("{keys:?}"),
            (key, None) => format!("{:?}", key.as_deref().unwrap_or_default()),
        }
    }

    /// Whether both have the same key in some dimension.
    #[must_use]
    pub fn shares_a_key_with(&self, other: &Self) -> bool {
        match (&self.keys, &other.keys) {
            (Some(keys), Some(others)) => keys.iter().any(|(dimension, key)| others.get(dimension) == Some(key)),
            _ => self.keys_in_words() == other.keys_in_words(),
        }
    }

    /// The tokens of the burst: one that all requests share, or one for each.
    pub(crate) fn tokens(&self) -> Vec<String> {
        let Some(token) = &self.token else { return Vec::new() };
        let count = if has_number(token) { self.burst } else { 1 };
        (0..count).map(|nth| numbered(token, nth)).collect()
    }

    /// How long a charge with the step's token is remembered: for the token's lifetime, or as long as its slot may be
    /// held. A grant has a token of its own.
    #[must_use]
    pub fn remembered_ms(&self, policy: &Policy) -> Option<u64> {
        match self.op {
            Op::Grant => Some(self.token_ttl_ms.unwrap_or(Grant::REMEMBERED.get())),
            _ => Some(self.token_ttl_ms?.max(longest_slot_ms(policy))),
        }
    }

    /// Whether every answer is expected to be an error, so that the step changes nothing.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.expect.as_ref().is_some_and(|expect| expect.error.is_some())
    }
}

impl RequestFixture {
    /// The request in the form that guests receive.
    #[must_use]
    pub fn arrival(&self) -> Arrival {
        Arrival {
            platform: json::name(&self.platform),
            peer: self.peer.clone(),
            ipv6_prefix: self.ipv6_prefix,
            trust_true_client_ip: self.trust_true_client_ip,
            headers: self.headers.clone(),
            subject: self.subject.clone(),
            api_key: self.api_key.clone(),
        }
    }
}

/// How long a request may hold a slot.
#[must_use]
pub fn longest_slot_ms(policy: &Policy) -> u64 {
    let slots = policy.quotas().iter().filter_map(|quota| match quota.rule() {
        Rule::Concurrency(rule) => Some(rule.lifetime().get()),
        _ => None,
    });
    slots.max().unwrap_or(0)
}

const fn start_ms() -> u64 {
    1_800_000_000_000
}

const fn one() -> u64 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_one(number: &u64) -> bool {
    *number == 1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_check(op: &Op) -> bool {
    matches!(op, Op::Check)
}
