//! Decisions as numbers, for hosts that pass nothing else, such as JavaScript around WebAssembly.
//!
//! | place | number |
//! |-|-|
//! | 0 | status: 0 allowed, 1 denied, 2 never admissible |
//! | 1 | index of the binding quota |
//! | 2, 3, 4 | wait, delay and instant in milliseconds |
//! | 5 | origin, by its place in [`Origin`] |
//! | 6 | 1 for a replay, otherwise 0 |
//! | 7 + 3 n | the n-th quota's limit, what remains, and the milliseconds until its reset |
//!
//! [`UNKNOWN`] stands for a number that is unknown. Whole numbers up to 2^53 are exact.

use super::{Decision, Origin, QuotaStatus, Status};
use crate::few::Few;
use crate::{Millis, UnixMillis};

/// Stands for a number that is unknown.
pub const UNKNOWN: f64 = -1.0;

const STATUSES: [Status; 3] = [Status::Allowed, Status::Denied, Status::NeverAdmissible];
const ORIGINS: [Origin; 5] = [Origin::Store, Origin::DenyCache, Origin::Fallback, Origin::Near, Origin::Lease];

/// How many numbers come before those of the quotas.
pub const QUOTAS_AT: usize = 7;

/// How many numbers a quota has.
pub const EACH: usize = 3;

/// Passes each number of a decision with its place.
#[inline]
pub fn put(decision: &Decision, mut set: impl FnMut(usize, f64)) {
    set(0, decision.status as u8 as f64);
    set(1, number(decision.binding_index() as u64));
    set(2, decision.retry_after().map_or(UNKNOWN, |span| number(span.get())));
    set(3, number(decision.delay().get()));
    set(4, number(decision.decided_at.get()));
    set(5, decision.origin as u8 as f64);
    set(6, if decision.replay { 1.0 } else { 0.0 });
    for (nth, quota) in decision.quotas.iter().enumerate() {
        let at = QUOTAS_AT + EACH * nth;
        set(at, number(quota.limit()));
        set(at + 1, quota.remaining().map_or(UNKNOWN, number));
        set(at + 2, quota.reset_after().map_or(UNKNOWN, |span| number(span.get())));
    }
}

/// The decision with these numbers. `None` if they are not those of a decision on at least one quota.
pub fn take(numbers: &[f64]) -> Option<Decision> {
    let (facts, quotas) = numbers.split_at_checked(QUOTAS_AT)?;
    let (quotas, []) = quotas.as_chunks::<EACH>() else { return None };
    let binding = usize::try_from(whole(facts[1])).ok().filter(|place| *place < quotas.len())?;
    let known = |number: f64| (number != UNKNOWN).then(|| whole(number));
    let quota =
        |[limit, remaining, reset]: &[f64; EACH]| QuotaStatus::told(whole(*limit), known(*remaining), known(*reset));
    let quotas = match quotas {
        [only] => Few::one(quota(only)),
        _ => quotas.iter().map(quota).collect(),
    };
    let status = *STATUSES.get(usize::try_from(whole(facts[0])).ok()?)?;
    let step = status.step(Millis::new(whole(facts[3])), known(facts[2]).map(Millis::new));
    let origin = *ORIGINS.get(usize::try_from(whole(facts[5])).ok()?)?;
    let decision = Decision::new(step, quotas, Some(binding), UnixMillis::new(whole(facts[4])));
    Some(decision.with_origin(origin).replayed(facts[6] == 1.0))
}

#[allow(clippy::cast_precision_loss, reason = "documented: exact up to 2^53")]
const fn number(value: u64) -> f64 {
    value as f64
}

/// Saturates: what is negative or not a number becomes 0.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
const fn whole(number: f64) -> u64 {
    number as u64
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::{put, take};
    use crate::{Decision, Millis, Origin, Policy, Quota, UnixMillis};

    fn numbers(decision: &Decision) -> Vec<f64> {
        let mut numbers = Vec::new();
        put(decision, |place, value| {
            assert_eq!(place, numbers.len());
            numbers.push(value);
        });
        numbers
    }

    #[test]
    fn every_decision_survives() -> Result<(), crate::Error> {
        let (second, now) = (Millis::from_secs(1), UnixMillis::new(1_800_000_000_000));
        let bucket = Quota::leaky_bucket(3, 1, second)?;
        let policy = Policy::new("api", [Quota::sliding_window(5, second)?, bucket.named("slow")?])?;
        let mut state = policy.initial_state();
        let mut decisions =
            vec![Decision::native(false, 7, now), Decision::native(true, 7, now).with_origin(Origin::Lease)];
        for cost in [1, 1, 1, 1, 0, 9] {
            decisions.push(policy.decide(&mut state, now, cost));
        }
        for decision in decisions {
            let replay = decision.clone().replayed(true);
            assert_eq!(take(&numbers(&decision)), Some(decision));
            assert_eq!(take(&numbers(&replay)), Some(replay));
        }
        Ok(())
    }

    #[test]
    fn other_numbers_are_no_decision() {
        let good = numbers(&Decision::native(true, 7, UnixMillis::new(1)));
        for length in 0..good.len() {
            assert_eq!(take(&good[..length]), None);
        }
        for (place, wrong) in [(0, 3.0), (1, 1.0), (1, 1e300), (5, 5.0)] {
            let mut numbers = good.clone();
            numbers[place] = wrong;
            assert_eq!(take(&numbers), None, "{place}");
        }
        let nonsense = [f64::NAN, f64::INFINITY, -5.0]
            .map(|value| take(&[0.0, 0.0, value, value, value, 0.0, value, value, value, value]));
        assert!(nonsense.iter().all(Option::is_some));
    }
}
