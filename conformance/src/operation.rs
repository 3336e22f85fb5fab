//! What decisions do at their store.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// An operation at a store, as a platform counts and charges it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// A call of a script at Redis, or a request to its REST endpoint.
    ScriptCall,
    /// A command at Redis: a script, and each command that it runs.
    RedisCommand,
    /// A statement that a database runs.
    SqlStatement,
    /// A request to a Durable Object.
    ObjectRequest,
    /// A row that a Durable Object reads.
    RowRead,
    /// A row that a Durable Object writes or deletes.
    RowWritten,
    /// An alarm that a Durable Object sets.
    AlarmSet,
    /// A read of Workers KV.
    KvRead,
    /// A write to Workers KV.
    KvWrite,
    /// A call of Cloudflare's Rate Limiting binding.
    BindingCall,
    /// An operation on a Spin key-value store.
    SpinOperation,
    /// An operation on Fastly's KV Store.
    FastlyOperation,
    /// A request to Netlify Blobs.
    BlobRequest,
}

/// Counts of operations.
pub type Operations = BTreeMap<Operation, u64>;

/// Operations per decision.
pub type PerDecision = BTreeMap<Operation, f64>;

impl Operation {
    /// Whether the decision waits for it, so that it is a round trip.
    #[must_use]
    pub const fn is_awaited(self) -> bool {
        !matches!(self, Self::RedisCommand | Self::RowRead | Self::RowWritten | Self::AlarmSet | Self::KvWrite)
    }
}

/// The round trips among the operations.
#[must_use]
pub fn round_trips(operations: &Operations) -> u64 {
    operations.iter().filter(|(operation, _)| operation.is_awaited()).map(|(_, count)| count).sum()
}

/// What came on top of earlier counts, or `None` if a store has counted from zero since.
#[must_use]
pub fn difference(before: &Operations, after: &Operations) -> Option<Operations> {
    let of = |(operation, now): (&Operation, &u64)| {
        let then = before.get(operation).copied().unwrap_or(0);
        Some((*operation, now.checked_sub(then)?))
    };
    after.iter().map(of).collect()
}

/// A count per decision, rounded to three decimal places. A refund and a settlement are decisions, too.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "counts of a run are far below 2^53")]
pub fn mean(count: u64, decisions: u64) -> f64 {
    (count as f64 / decisions.max(1) as f64 * 1_000.0).round() / 1_000.0
}

/// Counts per decision.
#[must_use]
pub fn per_decision(operations: &Operations, decisions: u64) -> PerDecision {
    operations.iter().map(|(operation, count)| (*operation, mean(*count, decisions))).collect()
}

/// What decisions cost on a platform.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// The platform, as in `prices.json`.
    pub provider: String,
    /// The price of a million decisions, in US dollars.
    pub usd_per_million: f64,
    /// The decisions that the free plan covers each day, if it does.
    pub free_per_day: Option<u64>,
    /// The date of the prices.
    pub date: String,
    /// Where the prices are published.
    pub source: String,
}
