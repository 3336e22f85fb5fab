//! Verdicts: compares a subject's answers with the reference's.
//!
//! - **Exact**: the answers to each step equal the reference's, as a multiset of whole decisions with their response
//!   fields. The order does not matter, because a burst's requests are decided in any order.
//! - **Approximate, per location**: two bounds hold for each key. In any interval, the cost admitted is at most
//!   [`Accuracy::ceiling`] of the algorithm's own maximum in that interval. By any instant, at least as many requests
//!   are admitted as by an exact limiter with the limit that [`Accuracy::floor`] returns.
//! - **Restart**: some answers are errors while the store is down, so the whole fixture is judged by bounds: admitted
//!   is at most the reference's count, and admitted plus errors is at least that count. A charge that is lost or made
//!   twice breaks one of them.

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

/// The result of a fixture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The answers are correct.
    Pass,
    /// The target declares that it does not support this, and answers `Unsupported`.
    Unsupported,
    /// The emulator cannot show this.
    Unverified,
    /// The emulator is not installed.
    Unavailable,
    /// The answers are wrong.
    Fail,
}

/// A verdict with its numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// The verdict.
    pub verdict: Verdict,
    /// Why it failed, the most informative reason first.
    pub reasons: Vec<String>,
    /// The number of checks offered.
    pub offered: u64,
    /// The number of checks admitted.
    pub admitted: u64,
    /// The number of checks that were answered with an error.
    pub errors: u64,
    /// The number of checks that the reference admits.
    pub exact: u64,
    /// The fewest checks that had to be admitted.
    pub floor: u64,
    /// The most checks that could be admitted.
    pub ceiling: u64,
    /// Whether more checks than the ceiling were offered, so that it could have been broken.
    pub ceiling_tested: bool,
}

/// Judges one replay. `isolates` is the number of isolates that serve a fixture with one location.
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
            // A limiter that holds units back may spend them later, and one that loses racing updates undercounts a
            // burst. Neither has to meet `admitted_max`.
            if matches!(accuracy, Accuracy::Approximate(drift) if drift.floor.held == 0 && !loses_racing_updates(drift))
            {
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

/// Returns every malformed answer and every request that got no answer.
#[must_use]
pub fn unanswered(fixture: &Fixture, found: &Replay) -> Vec<String> {
    let mut reasons = form::wrong(fixture, found);
    reasons.extend(failures(fixture, found, fixture.disturbs(Disturb::Restart)));
    reasons
}

/// Whether requests in flight at the same time can overwrite each other's counts.
fn loses_racing_updates(drift: &Drift) -> bool {
    let alone = Load { limit: 2, in_flight: 1, locations: 1 };
    (drift.ceiling)(Load { in_flight: 2, ..alone }) > (drift.ceiling)(alone)
}

/// Counts the checks that were answered with an error.
fn errors(fixture: &Fixture, found: &Replay) -> u64 {
    let checks = fixture.steps.iter().zip(&found.steps).filter(|(step, _)| step.op == Op::Check);
    checks.flat_map(|(_, answers)| answers).filter(|one| matches!(one.answer, Answer::Error(_))).count() as u64
}

/// Lists the unexpected errors, one line per kind. A restart excuses `unavailable` and `timeout`.
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
