//! What platforms charge for operations at their stores.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;
use tidegate_conformance::operation::{Cost, Operation, PerDecision};

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
    use tidegate_conformance::operation::{Operation, Operations, PerDecision, difference, per_decision, round_trips};

    use super::{PRICES, cost};

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
