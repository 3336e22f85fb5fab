//! A limiter of JavaScript as a store of the gate.

use std::cell::Cell;
use std::fmt::Write as _;
use std::rc::Rc;

use tidegate_core::lending::Lease;
use tidegate_core::{
    Accuracy, Capabilities, Ceiling, Decision, Dimensions, Drift, Error, Keys, Limiter, Operation, Policy, Reply,
};

use super::policies::Policies;
use super::told::text;
use super::wire::{Met, Wire, unexpected};
use crate::numbers;

/// A store, which the host has.
pub(super) struct Host {
    /// Its place among the stores.
    pub(super) place: usize,
    pub(super) wire: Rc<Wire>,
    pub(super) policies: Rc<Policies>,
    pub(super) can: Rc<Cell<Capabilities>>,
}

impl Host {
    /// Asks the host: `[verb, store, policy, the policy itself or null, keys, cost, now, token, time to live]`, of a grant with the end of its
    /// units.
    async fn ask(
        &self,
        verb: &str,
        (policy, lease): (&Policy, Option<Lease>),
        keys: Keys<'_>,
        rest: &str,
    ) -> Result<Decision, Error> {
        let mut wanted = format!(r#"["{verb}",{},"#, self.place);
        self.policies.write_place(&mut wanted, policy, lease);
        wanted.push_str(",{");
        for (place, dimension) in policy.dimensions().iter().enumerate() {
            let key = match policy.dimensions() {
                [_] => keys.single(policy)?,
                _ => keys.of(dimension)?,
            };
            // Nothing in a name or a key needs an escape.
            let comma = if place == 0 { "" } else { "," };
            let _ = write!(wanted, r#"{comma}"{}":"{}""#, dimension.name(), key.as_str());
        }
        wanted.push_str("},");
        wanted.push_str(rest);
        wanted.push(']');
        match self.wire.ask(wanted).await {
            Met::Numbers(numbers) => decision(&numbers, policy),
            Met::Failed(error) => Err(error),
            Met::Text(_) => Err(unexpected()),
        }
    }
}

/// The decision in numbers: see [`numbers`].
fn decision(told: &[f64], policy: &Policy) -> Result<Decision, Error> {
    let fits = |decision: &Decision| decision.quotas().len() == policy.quotas().len();
    numbers::take(told).filter(fits).ok_or_else(unexpected)
}

/// A token as JSON.
fn token(out: &mut String, token: Option<&str>) {
    match token {
        Some(token) => text(out, token),
        None => out.push_str("null"),
    }
}

impl Limiter for Host {
    /// The host finds out whether the store borrows when it makes the limiter of a policy with a lease.
    fn capabilities(&self) -> Capabilities {
        self.can.get().borrows(true)
    }

    /// A gate asks only for decisions, settlements and grants.
    async fn apply(&self, operation: Operation<'_>) -> Result<Reply, Error> {
        let now = operation.now().get();
        match operation {
            Operation::Check(check) => {
                let mut rest = format!("{},{now},", check.cost);
                token(&mut rest, check.idempotency.map(|charge| charge.token));
                let _ = write!(rest, ",{}", check.idempotency.map_or(0, |charge| charge.ttl.get()));
                self.ask("check", (check.policy, check.lease), check.keys, &rest).await
            }
            Operation::Settle(settle) => {
                let cost = settle.cost.map_or_else(|| "-1".into(), |cost| cost.to_string());
                let mut rest = format!("{cost},{now},");
                token(&mut rest, Some(settle.token));
                self.ask("settle", (settle.policy, None), settle.keys, &rest).await
            }
            Operation::Grant(grant) => {
                let mut rest = format!("{},{now},", grant.units);
                token(&mut rest, Some(grant.token));
                let _ = write!(rest, ",{},{}", grant.ttl.get(), grant.expires.get());
                self.ask("grant", (grant.policy, None), grant.keys, &rest).await
            }
            _ => Err(operation.unsupported()),
        }
        .map(Reply::from)
    }
}

/// What a store supports, in numbers: the algorithms as bits; the most quotas; 0 for one dimension, 1 for grouped ones and 2 for
/// any; the flags as bits; the round trips; and 0 for an exact store, 1 for an approximate one with this ceiling, and 2 for one
/// limiter at each location.
pub(super) fn capabilities(numbers: &[u32], formula: &str) -> Capabilities {
    let Some([algorithms, quotas, dimensions, flags, trips, accuracy]) = numbers.first_chunk().copied() else {
        return Capabilities::EXACT;
    };
    let has = |flag: u32| flags >> flag & 1 == 1;
    let known = Capabilities::EXACT.algorithms.iter().enumerate();
    let algorithms: Vec<&str> =
        known.filter(|(place, _)| algorithms >> place & 1 == 1).map(|(_, name)| *name).collect();
    let known = Ceiling::KNOWN.into_iter().find(|ceiling| ceiling.formula() == formula);
    // Nothing computes the bound of a store here.
    let other = || Ceiling::Other { formula: formula.to_string().leak(), of: |_| u64::MAX };
    let drift = Drift { ceiling: known.unwrap_or_else(other), ..Drift::WITHIN_LIMIT };
    Capabilities::EXACT
        .accuracy(match accuracy {
            0 => Accuracy::Exact,
            1 => Accuracy::Approximate(drift),
            _ => Accuracy::PerLocation,
        })
        .algorithms(algorithms.leak())
        .max_quotas(usize::try_from(quotas).unwrap_or_default())
        .dimensions(match dimensions {
            0 => Dimensions::One,
            1 => Dimensions::Grouped,
            _ => Dimensions::Any,
        })
        .costs(has(0))
        .charge_denied(has(1))
        .peek(false)
        .refund(false)
        .reset(false)
        .grant(has(3))
        .idempotency(has(2))
        .round_trips(trips)
}
