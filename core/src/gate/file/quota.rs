//! The quotas of a limit, with the field names of [`Quota`]'s `Deserialize`.

use super::Item;
use crate::algorithm::Concurrency;
use crate::suggestion::Suggestion;
use crate::{Error, Millis, Quota, Rule};

const ALGORITHMS: [&str; 8] = [
    "fixed_window",
    "sliding_window",
    "sliding_log",
    "token_bucket",
    "leaky_bucket",
    "concurrency",
    "penalty",
    "block",
];

/// Reads what a quota counts by: a name, or none for the sender.
type ReadDimension<'a> = dyn Fn(&Item<'_>) -> Result<Option<Box<str>>, Error> + 'a;

/// The quotas of a limit.
pub(in crate::gate) fn quotas(limit: &Item<'_>, dimension: &ReadDimension<'_>) -> Result<Vec<Quota>, Error> {
    limit.required("quotas")?.each(&mut |item| quota(item, dimension))
}

fn quota(item: &Item<'_>, dimension: &ReadDimension<'_>) -> Result<Quota, Error> {
    let algorithm = item.required("algorithm")?;
    let number = |name: &str| item.required(name)?.number();
    let only = |fields: &[&str]| item.only(&[&["algorithm", "name", "by"], fields].concat());
    let quota = match algorithm.text()? {
        name @ ("fixed_window" | "sliding_window" | "sliding_log") => {
            only(&["limit", "window_ms"])?;
            let (limit, window) = (number("limit")?, Millis::new(number("window_ms")?));
            match name {
                "fixed_window" => Quota::fixed_window(limit, window),
                "sliding_window" => Quota::sliding_window(limit, window),
                _ => Quota::sliding_log(limit, window),
            }
        }
        name @ ("token_bucket" | "leaky_bucket") => {
            only(&["capacity", "refill", "per_ms"])?;
            let (capacity, refill, per) = (number("capacity")?, number("refill")?, Millis::new(number("per_ms")?));
            if name == "token_bucket" {
                Quota::token_bucket(capacity, refill, per)
            } else {
                Quota::leaky_bucket(capacity, refill, per)
            }
        }
        "concurrency" => {
            only(&["limit", "lifetime_ms", "returns_cost"])?;
            let returns = item.has("returns_cost")?;
            let rule = Concurrency::new(number("limit")?, Millis::new(number("lifetime_ms")?));
            rule.map(|rule| Rule::Concurrency(rule.returns_cost(returns)).into())
        }
        "penalty" => {
            only(&["base_ms", "factor", "cap_ms"])?;
            Quota::penalty(Millis::new(number("base_ms")?), number("factor")?, Millis::new(number("cap_ms")?))
        }
        "block" => {
            only(&["cap_ms"])?;
            Quota::block(Millis::new(number("cap_ms")?))
        }
        other => {
            let suggestion = Suggestion::of(other, &ALGORITHMS);
            return Err(algorithm.wrong(other, format_args!("is not an algorithm; {suggestion}")));
        }
    };
    let name = item.field("name").map(|name| name.text()).transpose()?;
    let named = match name {
        Some(name) => quota.and_then(|quota| quota.named(name)),
        None => quota,
    };
    let by = match item.field("by") {
        Some(item) => dimension(&item)?,
        None => None,
    };
    let by = named.and_then(|quota| by.map_or(Ok(quota.clone()), |dimension| quota.by(&dimension)));
    by.map_err(|error| item.at(&error))
}
