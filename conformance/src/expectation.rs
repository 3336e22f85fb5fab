//! Compares answers with the expectations that a fixture states.

use tidegate_core::{Policy, Quota};
use tidegate_guest_protocol::{Answer, Decided, Outcome};

use crate::fixture::{Expect, Fixture, Step};
use crate::replay::{Answered, Replay};

/// Describes every expectation that the answers do not meet.
#[must_use]
pub(crate) fn unmet(fixture: &Fixture, replay: &Replay) -> Vec<String> {
    let mut found = Vec::new();
    for ((place, step, policy), answers) in fixture.steps_with_policy().zip(&replay.steps) {
        let Some(expect) = &step.expect else { continue };
        let mut wrong = of_step(expect, answers);
        wrong.extend(expect.dimension.as_deref().and_then(|dimension| other_dimension(dimension, policy, answers)));
        found.extend(wrong.into_iter().map(|wrong| format!("{}: {wrong}", named(place, step))));
    }
    found.extend(too_many(fixture, replay));
    found.extend(not_refused(fixture, replay));
    found
}

/// Describes every step with an answer that is not the expected error. Approximate stores must meet this expectation
/// too.
#[must_use]
pub(crate) fn not_refused(fixture: &Fixture, replay: &Replay) -> Vec<String> {
    let steps = fixture.steps.iter().zip(&replay.steps).enumerate();
    let passed = steps.filter_map(|(place, (step, answers))| {
        let kind = step.expect.as_ref()?.error?.name();
        let other = answers.iter().find(|one| one.error() != Some(kind))?;
        let found = other.error().unwrap_or("none");
        Some(format!("{}: expect.error: expected {kind}, found {found}", named(place, step)))
    });
    passed.collect()
}

/// Describes every `admitted_max` that was exceeded. Approximate stores must meet this expectation too.
#[must_use]
pub(crate) fn too_many(fixture: &Fixture, replay: &Replay) -> Vec<String> {
    let steps = fixture.steps.iter().zip(&replay.steps).enumerate();
    let passed = steps.filter_map(|(place, (step, answers))| {
        let most = step.expect.as_ref()?.admitted_max?;
        let admitted = answers.iter().filter(|one| one.is_allowed()).count() as u64;
        let told = || format!("{}: expect.admitted_max: expected at most {most}, found {admitted}", named(place, step));
        (admitted > most).then(told)
    });
    passed.collect()
}

/// How messages name a step.
#[must_use]
pub(crate) fn named(place: usize, step: &Step) -> String {
    let times = if step.burst == 1 { String::new() } else { format!(" x{}", step.burst) };
    let cost = if step.cost == 1 { String::new() } else { format!(" of cost {}", step.cost) };
    format!("steps[{place}] ({} ms, {}{times}{cost}, {})", step.at_ms, step.op, step.keys_in_words())
}

fn of_step(expect: &Expect, answers: &[Answered]) -> Vec<String> {
    let decisions: Vec<&Decided> = answers.iter().filter_map(decision).collect();
    let having = |status| decisions.iter().filter(move |decision| decision.status == status);
    let count = |status| Some(having(status).count() as u64);
    let binding = |decision: &&Decided| decision.quotas.get(decision.binding).cloned();
    let bindings = || decisions.iter().filter_map(binding);
    let mut found = Vec::new();
    let mut compare = |name: &str, expected: Option<u64>, actual: Option<u64>| {
        if let Some(expected) = expected.filter(|expected| Some(*expected) != actual) {
            found.push(format!("expect.{name}: expected {expected}, found {}", or_none(actual)));
        }
    };
    compare("admitted", expect.admitted, count(Outcome::Allowed));
    compare("never_admissible", expect.never_admissible, count(Outcome::NeverAdmissible));
    compare("remaining", expect.remaining, bindings().filter_map(|quota| quota.remaining).min());
    compare("reset_after_ms", expect.reset_after_ms, bindings().filter_map(|quota| quota.reset_after_ms).max());
    compare("from_balance", expect.from_balance, decisions.iter().map(|decision| decision.from_balance).max());
    compare("replayed", expect.replayed, Some(decisions.iter().filter(|decision| decision.replayed).count() as u64));
    compare("delay_ms", expect.delay_ms, having(Outcome::Allowed).map(|decision| decision.delay_ms).max());
    if expect.retry_after_ms.is_some() {
        let mut waits: Vec<Option<u64>> = having(Outcome::Denied).map(|denial| denial.retry_after_ms).collect();
        waits.sort_unstable();
        waits.dedup();
        // Every denial must have this wait, so show one that differs.
        let other = waits.iter().find(|wait| **wait != expect.retry_after_ms);
        compare("retry_after_ms", expect.retry_after_ms, *other.or(waits.first()).unwrap_or(&None));
    }
    for (name, expected) in expect.headers.iter().flatten() {
        let sent = answers.last().and_then(|last| field(last, name));
        if sent != expected.as_ref() {
            let (expected, sent) = (or_none(expected.as_ref().map(quoted)), or_none(sent.map(quoted)));
            found.push(format!("expect.headers.{name}: expected {expected}, found {sent}"));
        }
    }
    found
}

/// Describes the first denial whose binding quota is in another dimension.
fn other_dimension(expected: &str, policy: &Policy, answers: &[Answered]) -> Option<String> {
    let denials = answers.iter().filter_map(decision).filter(|decision| decision.status == Outcome::Denied);
    let mut dimensions = denials.map(|denial| policy.quotas().get(denial.binding).map(Quota::dimension)).peekable();
    let found = match dimensions.peek() {
        None => None,
        Some(_) => dimensions.find(|dimension| *dimension != Some(expected))?,
    };
    let found = found.map_or_else(|| "none".to_string(), |found| format!("{found:?}"));
    Some(format!("expect.dimension: expected {expected:?}, found {found}"))
}

fn decision(answered: &Answered) -> Option<&Decided> {
    match &answered.answer {
        Answer::Decision(decision) => Some(decision),
        _ => None,
    }
}

/// Returns a response field of an answer by name.
#[must_use]
pub(crate) fn field<'a>(answered: &'a Answered, name: &str) -> Option<&'a String> {
    answered.headers.iter().find(|(sent, _)| sent.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

fn quoted(text: &String) -> String {
    format!("{text:?}")
}

fn or_none(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "none".to_string(), |value| value.to_string())
}
