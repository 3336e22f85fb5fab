//! Verdicts: compares a subject's answers with the reference's.
//!
//! - **Exact**: the answers to each step equal the reference's, as a multiset of whole decisions with their response
//!   fields. The order does not matter, because a burst's requests are decided in any order.
//! - **Approximate, per location**: two bounds hold for each key. In any interval, the cost admitted is at most
//!   [`Accuracy::ceiling`] of the algorithm's own maximum in that interval. By any instant, at least as many requests
//!   are admitted as by an exact limiter with the limit that [`Accuracy::floor`] returns.
//! - **Expected errors**: if a step names an error, all its answers must be that error, for every accuracy.
//! - **Faults**: some answers are errors while the store is down or its answers are lost, so the whole fixture is judged by
//!   bounds: admitted is at most the reference's count, and admitted plus errors is at least that count. A charge that is
//!   lost or made twice breaks one of them. Each key has bounds of its own, as an approximate limiter has: while only clients
//!   abort requests, each of these lowers the floor of its key by one.

mod bounds;
mod count;
mod exact;
mod form;
mod stretch;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use tidegate_core::{Accuracy, Drift, Load};
use tidegate_guest_protocol::{Answer, Failure};

use crate::expectation;
use crate::fixture::{Fixture, Op, Step};
use crate::replay::{ABORTED, Answered, Replay};

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

/// The answers to one step, and the bounds on the checks admitted by its end. In JSON, it is an array in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "[u64; 5]", into = "[u64; 5]")]
pub struct Tally {
    /// The number of requests admitted.
    pub admitted: u64,
    /// The number of requests denied.
    pub denied: u64,
    /// The number of answers that are errors.
    pub errors: u64,
    /// The fewest checks that had to be admitted, from the fixture's start to the end of the step.
    pub floor: u64,
    /// The most checks that could be admitted, from the fixture's start to the end of the step.
    pub ceiling: u64,
}

impl From<[u64; 5]> for Tally {
    fn from([admitted, denied, errors, floor, ceiling]: [u64; 5]) -> Self {
        Self { admitted, denied, errors, floor, ceiling }
    }
}

impl From<Tally> for [u64; 5] {
    fn from(tally: Tally) -> Self {
        [tally.admitted, tally.denied, tally.errors, tally.floor, tally.ceiling]
    }
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
    /// The number of checks that were answered with an error, unless it is the expected one.
    pub errors: u64,
    /// The number of checks that the reference admits.
    pub exact: u64,
    /// The fewest checks that had to be admitted.
    pub floor: u64,
    /// The most checks that could be admitted.
    pub ceiling: u64,
    /// Whether more checks than the ceiling were offered, so that it could have been broken.
    pub ceiling_tested: bool,
    /// The answers to each step.
    pub steps: Vec<Tally>,
}

/// Judges one replay. `isolates` is the number of isolates that serve a fixture with one location.
#[must_use]
pub fn judge(accuracy: &Accuracy, isolates: u64, fixture: &Fixture, reference: &Replay, found: &Replay) -> Judgement {
    let mut reasons = form::wrong(fixture, found);
    let restarts = fixture.is_interrupted();
    let errors = errors(fixture, found);
    let (offered, admitted, exact) = (fixture.offered(), found.admitted(fixture), reference.admitted(fixture));
    let (by_step, ceiling_tested) = match accuracy {
        Accuracy::Exact => (around_the_reference(fixture, reference, found), offered > exact),
        _ => {
            let bounds = bounds::of(accuracy, isolates, fixture, reference, found);
            reasons.extend(bounds.broken);
            // A limiter that holds units back may spend them later, and one that loses racing updates undercounts a
            // burst. Neither has to meet `admitted_max`.
            if matches!(accuracy, Accuracy::Approximate(drift) if drift.floor.held == 0 && !loses_racing_updates(drift))
            {
                reasons.extend(expectation::too_many(fixture, found));
            }
            (bounds.by_step, bounds.ceiling_tested)
        }
    };
    let (floor, ceiling) = by_step.last().copied().unwrap_or_default();
    reasons.extend(expectation::not_refused(fixture, found));
    reasons.extend(failures(accuracy, fixture, found));
    if matches!(accuracy, Accuracy::Exact) {
        if restarts {
            reasons.extend(bounds::of_fault(exact, admitted, errors));
            reasons.extend(bounds::of(accuracy, isolates, fixture, reference, found).broken);
        } else {
            let differences = exact::differences(fixture, reference, found);
            if differences.is_empty() {
                reasons.extend(expectation::unmet(fixture, found));
            }
            reasons.extend(differences);
        }
    }
    let verdict = if reasons.is_empty() { Verdict::Pass } else { Verdict::Fail };
    let steps = fixture.steps.iter().zip(&found.steps).zip(by_step);
    let steps = steps.map(|((step, answers), (floor, ceiling))| tally(step, answers, floor, ceiling)).collect();
    Judgement { verdict, reasons, offered, admitted, errors, exact, floor, ceiling, ceiling_tested, steps }
}

/// The bounds of an exact limiter by the end of each step: the reference's count. While the store is down, a request
/// that gets an error need not be admitted.
fn around_the_reference(fixture: &Fixture, reference: &Replay, found: &Replay) -> Vec<(u64, u64)> {
    let (mut exact, mut lost) = (0, 0);
    let steps = fixture.steps.iter().zip(reference.steps.iter().zip(&found.steps));
    let bounds = steps.map(|(step, (expected, found))| {
        if step.op == Op::Check {
            exact += allowed(expected);
            lost += found.iter().filter(|one| fixture.is_interrupted() && failure(step, one).is_some()).count() as u64;
        }
        (exact.saturating_sub(lost), exact)
    });
    bounds.collect()
}

/// The reference's own answers.
#[must_use]
pub fn of_reference(fixture: &Fixture, reference: &Replay) -> Vec<Tally> {
    judge(&Accuracy::Exact, 1, fixture, reference, reference).steps
}

fn tally(step: &Step, answers: &[Answered], floor: u64, ceiling: u64) -> Tally {
    let admitted = allowed(answers);
    let errors = answers.iter().filter(|one| failure(step, one).is_some()).count() as u64;
    let decided = answers.iter().filter(|one| matches!(one.answer, Answer::Decision(_))).count() as u64;
    Tally { admitted, denied: decided - admitted, errors, floor, ceiling }
}

fn allowed(answers: &[Answered]) -> u64 {
    answers.iter().filter(|one| one.is_allowed()).count() as u64
}

/// Returns every malformed answer and every request that got no answer.
#[must_use]
pub fn unanswered(fixture: &Fixture, found: &Replay) -> Vec<String> {
    let mut reasons = form::wrong(fixture, found);
    reasons.extend(failures(&Accuracy::Exact, fixture, found));
    reasons
}

/// Whether requests in flight at the same time can overwrite each other's counts.
fn loses_racing_updates(drift: &Drift) -> bool {
    let alone = Load { limit: 2, quota: 2, in_flight: 1, locations: 1 };
    drift.ceiling.of(Load { in_flight: 2, ..alone }) > drift.ceiling.of(alone)
}

/// Counts the checks that were answered with an unexpected error.
fn errors(fixture: &Fixture, found: &Replay) -> u64 {
    let checks = fixture.steps.iter().zip(&found.steps).filter(|(step, _)| step.op == Op::Check);
    checks.map(|(step, answers)| answers.iter().filter(|one| failure(step, one).is_some()).count() as u64).sum()
}

/// The error that an answer is, unless the step expects it.
fn failure<'a>(step: &Step, one: &'a Answered) -> Option<&'a Failure> {
    let expected = step.expect.as_ref().and_then(|expect| expect.error);
    match &one.answer {
        Answer::Error(failure) if expected.is_none_or(|expected| failure.kind != expected.name()) => Some(failure),
        _ => None,
    }
}

/// Lists the unexpected errors, one line per kind. A restart excuses `unavailable` and `timeout`. A limiter that may deny
/// what the reference admits knows no charge where it did.
fn failures(accuracy: &Accuracy, fixture: &Fixture, found: &Replay) -> Vec<String> {
    let interrupted = fixture.is_interrupted();
    let excused = |place: usize, step: &Step, kind: &str| match kind {
        "unavailable" | "timeout" | "contended" | ABORTED => interrupted,
        "unknown_charge" => {
            let settles = matches!(step.op, Op::Settle | Op::Release);
            !matches!(accuracy, Accuracy::Exact) && settles && !is_charged(fixture, found, place)
        }
        _ => false,
    };
    let mut told: Vec<(String, u64, String)> = Vec::new();
    for (place, (step, answers)) in fixture.steps.iter().zip(&found.steps).enumerate() {
        for one in answers {
            let Some(failure) = failure(step, one) else { continue };
            if excused(place, step, &failure.kind) {
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

/// Whether a check with this step's policy, key and token was admitted before it.
fn is_charged(fixture: &Fixture, found: &Replay, place: usize) -> bool {
    let mut charges = BTreeSet::new();
    for (earlier, step, policy) in fixture.steps_with_policy() {
        let charge = (policy.id(), step.keys_in_words(), &step.token);
        if earlier == place {
            return charges.contains(&charge);
        }
        if step.op == Op::Check && found.steps[earlier].iter().any(Answered::is_allowed) {
            charges.insert(charge);
        }
    }
    false
}

#[cfg(test)]
mod tests;
