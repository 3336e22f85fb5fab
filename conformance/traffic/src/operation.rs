//! What decisions do at their store, and what a platform charges for it.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

/// An operation at a store, as a platform counts and charges it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// A call of a script at Redis, or a request to its REST endpoint.
    ScriptCall,
    /// A command at Redis: a script, and each command that it runs.
    RedisCommand,
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

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PriceList {
    date: String,
    source: String,
    operations: BTreeMap<Operation, Price>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Price {
    usd_per_million: f64,
    free_per_day: Option<u64>,
}

/// The price lists by platform.
static PRICES: LazyLock<BTreeMap<String, PriceList>> =
    LazyLock::new(|| serde_json::from_str(include_str!("../prices.json")).unwrap_or_default());

/// Prices the operations of a decision. `None` if the platform's prices, or that of an operation, are not known.
#[must_use]
pub fn cost(provider: &str, operations: &PerDecision) -> Option<Cost> {
    let PriceList { date, source, operations: prices } = PRICES.get(provider)?;
    let (mut usd_per_million, mut free_per_day) = (0.0, None::<u64>);
    for (operation, each) in operations.iter().filter(|(_, each)| **each > 0.0) {
        let price = prices.get(operation)?;
        usd_per_million += price.usd_per_million * each;
        if let Some(free) = price.free_per_day {
            let covered = decisions(free, *each);
            free_per_day = Some(free_per_day.map_or(covered, |least| least.min(covered)));
        }
    }
    let usd_per_million = (usd_per_million * 1_000.0).round() / 1_000.0;
    Some(Cost { provider: provider.into(), usd_per_million, free_per_day, date: date.clone(), source: source.clone() })
}

/// The decisions that a number of operations allows.
#[expect(clippy::cast_precision_loss, reason = "free plans allow far less than 2^53")]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "both are positive, and it is rounded down"
)]
fn decisions(operations: u64, each: f64) -> u64 {
    (operations as f64 / each) as u64
}

#[cfg(test)]
mod tests {
    use super::{Operation, Operations, PRICES, PerDecision, cost, difference, per_decision, round_trips};

    #[test]
    fn every_price_list_is_read() {
        assert_eq!(PRICES.keys().collect::<Vec<_>>(), ["cloudflare", "upstash"]);
        assert!(PRICES.values().all(|list| list.source.starts_with("https://") && list.date.len() == 10));
    }

    #[test]
    fn a_decision_costs_what_it_does() {
        let before = Operations::from([(Operation::ObjectRequest, 10)]);
        let after = Operations::from([(Operation::ObjectRequest, 1_010), (Operation::RowWritten, 500)]);
        let done = difference(&before, &after).expect("it only grew");
        assert_eq!(round_trips(&done), 1_000);
        assert_eq!(difference(&after, &before), None);
        let each = per_decision(&done, 1_000);
        let priced = cost("cloudflare", &each).expect("known prices");
        // A request costs $0.15 and a row $1 per million; a free plan has 100,000 of each.
        assert_eq!((priced.usd_per_million, priced.free_per_day), (0.65, Some(100_000)));
        assert_eq!(cost("upstash", &each), None);
        // A script that reads and writes a key is billed as three commands.
        let upstash = PerDecision::from([(Operation::ScriptCall, 1.0), (Operation::RedisCommand, 3.0)]);
        let priced = cost("upstash", &upstash).expect("known prices");
        assert_eq!((priced.usd_per_million, priced.free_per_day), (6.0, Some(5_555)));
        assert_eq!(cost("nowhere", &each), None);
    }
}
