use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use tidegate_core::{Capabilities, Decision, Error, Millis, Status};

use crate::{Identified, Judged};

/// A guest's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The answer to a check, a peek, a settlement or a grant.
    Decision(Decided),
    /// The answer to a refund, a block or a reset.
    Done,
    /// The answer of a gate.
    Verdict(Judged),
    /// The answer to an identification.
    Identity(Identified),
    /// The capabilities of the limiter.
    Capabilities(Able),
    /// The answer to a request that failed.
    Error(Failure),
}

impl Answer {
    /// Reads a reply's body.
    ///
    /// # Errors
    /// What is wrong with the JSON, and where.
    pub fn from_body(body: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(body)
    }
}

/// A [`Decision`] without its time and origin.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Decided {
    /// Allowed, denied, or never admissible.
    pub status: Outcome,
    /// The index of the binding quota.
    pub binding: usize,
    /// The count of each quota, in the policy's order.
    pub quotas: Vec<Counted>,
    /// For a denial: how long to wait until a retry is admitted.
    pub retry_after_ms: Option<u64>,
    /// How long to delay an admitted request.
    pub delay_ms: u64,
    /// What a balance paid of an admitted request.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub from_balance: u64,
    /// Whether this repeats an earlier answer, and nothing was charged, returned or granted again.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub replayed: bool,
}

/// A [`Status`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The request is admitted.
    Allowed,
    /// The request is denied for now.
    Denied,
    /// The request can never be admitted.
    NeverAdmissible,
}

/// A quota's count.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Counted {
    /// The most units that can be admitted at once.
    pub limit: u64,
    /// How many more requests of cost 1 fit.
    pub remaining: Option<u64>,
    /// How long until the quota is completely unused.
    pub reset_after_ms: Option<u64>,
}

/// An [`Error`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// [`ErrorKind::name`](tidegate_core::ErrorKind::name).
    pub kind: String,
    /// The message.
    pub message: String,
}

/// The [`Capabilities`] of the guest's limiter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Able {
    /// [`Accuracy::name`](tidegate_core::Accuracy::name).
    pub class: String,
    /// The accuracy with its formula, as text.
    pub accuracy: String,
    /// The supported algorithms.
    pub algorithms: Vec<String>,
    /// The most quotas that a policy may have.
    pub max_quotas: usize,
    /// Which policies with several dimensions are supported: [`Dimensions::name`](tidegate_core::Dimensions::name).
    pub dimensions: String,
    /// Whether costs other than 1 are supported.
    pub costs: bool,
    /// Whether denials can be charged.
    pub charge_denied: bool,
    /// Whether it supports peeks.
    pub peek: bool,
    /// Whether it supports refunds.
    pub refund: bool,
    /// Whether it supports resets.
    pub reset: bool,
    /// Whether it supports blocks. A guest that does not know them leaves this out.
    #[serde(default)]
    pub block: bool,
    /// Whether it supports balances, and grants to them. A guest that does not know them leaves this out.
    #[serde(default)]
    pub grant: bool,
    /// Whether it supports idempotency tokens, and settlements of what was charged with them.
    pub idempotency: bool,
    /// The usual number of round trips to the store per decision.
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
            from_balance: decision.from_balance(),
            replayed: decision.is_replay(),
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
            dimensions: able.dimensions.name().to_string(),
            costs: able.costs,
            charge_denied: able.charge_denied,
            peek: able.peek,
            refund: able.refund,
            reset: able.reset,
            block: able.block,
            grant: able.grant,
            idempotency: able.idempotency,
            round_trips: able.round_trips,
        }
    }
}

#[cfg_attr(
    not(target_arch = "wasm32"),
    expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")
)]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}
