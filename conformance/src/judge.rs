//! Verdicts: what a subject answered against what the reference answers.
//!
//! - **Exact**: every step's answers are the reference's, as a multiset of whole decisions with their response fields,
//!   for a burst's requests are decided in any order.
//! - **Approximate, per location**: what is admitted of each key in any interval is at most what [`Accuracy::ceiling`] makes of
//!   the algorithm's own maximum in it, and by any instant at least what an exact limiter admits of the limit that
//!   [`Accuracy::floor`] gives.
//! - **Restart**: while the store was down some answers are errors, so the whole fixture is judged by bounds: admitted is
//!   at most the reference's, and admitted plus errors is at least that. A charge that is lost or made twice breaks one.

mod bounds;
mod count;
mod exact;
mod form;
mod stretch;

use serde::{Deserialize, Serialize};
use tidegate_core::{Accuracy, Drift, Load};
use tidegate_guest_protocol::Answer;

use crate::expectation;
use crate::fixture::{Disturb, Fixture, Op};
use crate::replay::Replay;

/// How a fixture went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// As it must.
    Pass,
    /// The target declares that it cannot do this, and answers so.
    Unsupported,
    /// The emulator only stubs this.
    Unverified,
    /// The emulator is not here.
    Unavailable,
    /// Not as it must.
    Fail,
}

/// A verdict with its numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// How it went.
    pub verdict: Verdict,
    /// Why it failed, most telling first.
    pub reasons: Vec<String>,
    /// The checks it offered.
    pub offered: u64,
    /// The checks that were allowed.
    pub admitted: u64,
    /// The answers that were errors.
    pub errors: u64,
    /// The checks that the reference allows.
    pub exact: u64,
    /// The fewest it had to admit.
    pub floor: u64,
    /// The most it was free to admit.
    pub ceiling: u64,
    /// Whether it offered more than the ceiling, so that it could have broken it.
    pub ceiling_tested: bool,
}

/// Judges one replay. `isolates` serve a fixture of one location.
#[must_use]
pub fn judge(accuracy: &Accuracy, isolates: u64, fixture: &Fixture, reference: &Replay, found: &Replay) -> Judgement {
    let mut reasons = form::wrong(fixture, found);
    let restarts = fixture.disturbs(Disturb::Restart);
    let errors = errors(fixture, found);
    let (offered, admitted, exact) = (fixture.offered(), found.admitted(fixture), reference.admitted(fixture));
    let (floor, ceiling, ceiling_tested) = match accuracy {
        Accuracy::Exact => (exact, exact, offered > exact),
        _ => {
            let bounds = bounds::of(accuracy, isolates, fixture, reference, found);
            reasons.extend(bounds.broken);
            // One that holds some back may spend it when the others are done, and one that forgets what races counts no burst whole.
            if matches!(accuracy, Accuracy::Approximate(drift) if drift.floor.held == 0 && !forgets_what_races(drift)) {
                reasons.extend(expectation::too_many(fixture, found));
            }
            (bounds.floor, bounds.ceiling, bounds.ceiling_tested)
        }
    };
    reasons.extend(failures(fixture, found, restarts));
    if matches!(accuracy, Accuracy::Exact) {
        if restarts {
            reasons.extend(bounds::of_restart(floor, admitted, errors));
        } else {
            let differences = exact::differences(fixture, reference, found);
            if differences.is_empty() {
                reasons.extend(expectation::unmet(fixture, found));
            }
            reasons.extend(differences);
        }
    }
    let verdict = if reasons.is_empty() { Verdict::Pass } else { Verdict::Fail };
    Judgement { verdict, reasons, offered, admitted, errors, exact, floor, ceiling, ceiling_tested }
}

/// What was not answered, or not in the form that every answer must have.
#[must_use]
pub fn unanswered(fixture: &Fixture, found: &Replay) -> Vec<String> {
    let mut reasons = form::wrong(fixture, found);
    reasons.extend(failures(fixture, found, fixture.disturbs(Disturb::Restart)));
    reasons
}

/// Whether requests that are under way at once may be admitted on top of each other.
fn forgets_what_races(drift: &Drift) -> bool {
    let alone = Load { limit: 2, in_flight: 1, locations: 1 };
    (drift.ceiling)(Load { in_flight: 2, ..alone }) > (drift.ceiling)(alone)
}

/// Checks that were answered by an error.
fn errors(fixture: &Fixture, found: &Replay) -> u64 {
    let checks = fixture.steps.iter().zip(&found.steps).filter(|(step, _)| step.op == Op::Check);
    checks.flat_map(|(_, answers)| answers).filter(|one| matches!(one.answer, Answer::Error(_))).count() as u64
}

/// Errors that nothing excuses, each kind once.
fn failures(fixture: &Fixture, found: &Replay, restarts: bool) -> Vec<String> {
    let mut told: Vec<(String, u64, String)> = Vec::new();
    for (place, (step, answers)) in fixture.steps.iter().zip(&found.steps).enumerate() {
        for one in answers {
            let Answer::Error(failure) = &one.answer else { continue };
            if restarts && matches!(failure.kind.as_str(), "unavailable" | "timeout") {
                continue;
            }
            match told.iter_mut().find(|(kind, ..)| *kind == failure.kind) {
                Some((_, times, _)) => *times += 1,
                None => {
                    let first = format!("{}: {}", expectation::named(place, step), failure.message);
                    told.push((failure.kind.clone(), 1, first));
                }
            }
        }
    }
    let tell = |(kind, times, first): (String, u64, String)| format!("{times} x error {kind}, the first at {first}");
    told.into_iter().map(tell).collect()
}

#[cfg(test)]
mod tests;
