use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use tidegate_core::{Capabilities, Decision, Error, Millis, Status};

use crate::Identified;

/// What a guest answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// To a check or a peek.
    Decision(Decided),
    /// To a refund or a reset.
    Done,
    /// To an identification.
    Identity(Identified),
    /// To the question what the limiter can do.
    Capabilities(Able),
    /// To anything that could not be answered.
    Error(Failure),
}

/// A [`Decision`], whole but for where and when it was made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Decided {
    /// Allowed, denied, or never admissible.
    pub status: Outcome,
    /// Which of the quotas bound.
    pub binding: usize,
    /// Each quota's count, in the policy's order.
    pub quotas: Vec<Counted>,
    /// Of a denial: how long until it is admitted.
    pub retry_after_ms: Option<u64>,
    /// How long to hold an allowed request.
    pub delay_ms: u64,
}

/// A [`Status`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It may go on.
    Allowed,
    /// Not now.
    Denied,
    /// Never.
    NeverAdmissible,
}

/// A quota's count.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Counted {
    /// The most that is ever admitted at once.
    pub limit: u64,
    /// How many more requests of cost 1 fit.
    pub remaining: Option<u64>,
    /// How long until the quota is unused.
    pub reset_after_ms: Option<u64>,
}

/// An [`Error`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// [`ErrorKind::name`](tidegate_core::ErrorKind::name).
    pub kind: String,
    /// What it says.
    pub message: String,
}

/// [`Capabilities`] as the guest's limiter declares them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Able {
    /// [`Accuracy::name`](tidegate_core::Accuracy::name).
    pub class: String,
    /// The accuracy with its formula, in words.
    pub accuracy: String,
    /// The algorithms it takes.
    pub algorithms: Vec<String>,
    /// The most quotas a policy may have.
    pub max_quotas: usize,
    /// Whether a request may cost other than 1.
    pub costs: bool,
    /// Whether it can charge denials.
    pub charge_denied: bool,
    /// Whether it can peek.
    pub peek: bool,
    /// Whether it can refund.
    pub refund: bool,
    /// Whether it can reset.
    pub reset: bool,
    /// Whether it takes idempotency tokens.
    pub idempotency: bool,
    /// Round trips to the store that a decision takes as a rule.
    pub round_trips: u32,
}

impl From<&Decision> for Decided {
    fn from(decision: &Decision) -> Self {
        let counted = decision.quotas().iter().map(|quota| Counted {
            limit: quota.limit(),
            remaining: quota.remaining(),
            reset_after_ms: quota.reset_after().map(Millis::get),
        });
        Self {
            status: decision.status().into(),
            binding: decision.binding_index(),
            quotas: counted.collect(),
            retry_after_ms: decision.retry_after().map(Millis::get),
            delay_ms: decision.delay().get(),
        }
    }
}

impl From<Status> for Outcome {
    fn from(status: Status) -> Self {
        match status {
            Status::Allowed => Self::Allowed,
            Status::NeverAdmissible => Self::NeverAdmissible,
            _ => Self::Denied,
        }
    }
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        Self { kind: error.kind().name().to_string(), message: alloc::format!("{error:?}") }
    }
}

impl From<&Capabilities> for Able {
    fn from(able: &Capabilities) -> Self {
        Self {
            class: able.accuracy.name().to_string(),
            accuracy: able.accuracy.to_string(),
            algorithms: able.algorithms.iter().map(ToString::to_string).collect(),
            max_quotas: able.max_quotas,
            costs: able.costs,
            charge_denied: able.charge_denied,
            peek: able.peek,
            refund: able.refund,
            reset: able.reset,
            idempotency: able.idempotency,
            round_trips: able.round_trips,
        }
    }
}
