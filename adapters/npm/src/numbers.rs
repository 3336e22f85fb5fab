//! Decisions as numbers, which pass the boundary of WebAssembly at the least cost.
//!
//! | place | number |
//! |-|-|
//! | 0 | status: 0 allowed, 1 denied, 2 never admissible |
//! | 1 | index of the binding quota |
//! | 2, 3, 4 | wait, delay and instant in milliseconds |
//! | 5 | origin, by its place in [`Origin`] |
//! | 6 | 1 for a replay, otherwise 0 |
//! | 7 | what a balance paid |
//! | 8 + 3 n | the n-th quota's limit, what remains, and the milliseconds until its reset |
//!
//! [`UNKNOWN`] stands for a number that is unknown. Whole numbers up to 2^53 are exact.

use tidegate_core::{Decision, Millis, Origin, QuotaStatus, Status, UnixMillis};

/// Stands for a number that is unknown.
const UNKNOWN: f64 = -1.0;

const STATUSES: [Status; 3] = [Status::Allowed, Status::Denied, Status::NeverAdmissible];
const ORIGINS: [Origin; 5] = [Origin::Store, Origin::DenyCache, Origin::Fallback, Origin::Near, Origin::Lease];

/// How many numbers come before those of the quotas.
pub(crate) const QUOTAS_AT: usize = 8;

/// How many numbers a quota has.
pub(crate) const EACH: usize = 3;

/// Passes each number of a decision with its place.
#[cfg(feature = "reference")]
pub(crate) fn put(decision: &Decision, mut set: impl FnMut(usize, f64)) {
    set(0, f64::from(decision.status() as u8));
    set(1, number(decision.binding_index() as u64));
    set(2, decision.retry_after().map_or(UNKNOWN, |span| number(span.get())));
    set(3, number(decision.delay().get()));
    set(4, number(decision.decided_at().get()));
    set(5, f64::from(decision.origin() as u8));
    set(6, if decision.is_replay() { 1.0 } else { 0.0 });
    set(7, number(decision.from_balance()));
    for (nth, quota) in decision.quotas().iter().enumerate() {
        let at = QUOTAS_AT + EACH * nth;
        set(at, number(quota.limit()));
        set(at + 1, quota.remaining().map_or(UNKNOWN, number));
        set(at + 2, quota.reset_after().map_or(UNKNOWN, |span| number(span.get())));
    }
}

/// The decision with these numbers. `None` if they are not those of a decision on at least one quota.
pub(crate) fn take(numbers: &[f64]) -> Option<Decision> {
    let (facts, quotas) = numbers.split_at_checked(QUOTAS_AT)?;
    let (quotas, []) = quotas.as_chunks::<EACH>() else { return None };
    let known = |number: f64| (number != UNKNOWN).then(|| whole(number));
    let quota = |[limit, remaining, reset]: &[f64; EACH]| {
        QuotaStatus::new(whole(*limit), known(*remaining), known(*reset).map(Millis::new))
    };
    let place = |number: f64| usize::try_from(whole(number)).ok();
    let (status, origin) = (*STATUSES.get(place(facts[0])?)?, *ORIGINS.get(place(facts[5])?)?);
    let wait = if status == Status::Allowed { Some(whole(facts[3])) } else { known(facts[2]) };
    let (mut quotas, decided_at) = (quotas.iter().map(quota).collect::<Vec<_>>(), UnixMillis::new(whole(facts[4])));
    let payer = quotas.iter_mut().rfind(|quota| quota.reset_after().is_none());
    if let (Some(payer), paid @ 1..) = (payer, whole(facts[7])) {
        *payer = payer.paying(paid);
    }
    let decision = Decision::from_parts(status, wait.map(Millis::new), quotas, place(facts[1])?, decided_at).ok()?;
    Some(decision.with_origin(origin).replayed(facts[6] == 1.0))
}

#[cfg(feature = "reference")]
#[allow(clippy::cast_precision_loss, reason = "documented: exact up to 2^53")]
const fn number(value: u64) -> f64 {
    value as f64
}

/// Saturates: what is negative or not a number becomes 0.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
const fn whole(number: f64) -> u64 {
    number as u64
}
