//! Runs fixtures on targets.

pub(crate) mod gate;

use std::time::Instant;

use serde_json::Value;
use tidegate_core::{Capabilities, Check, ErrorKind, Key, UnixMillis};
use tidegate_guest_protocol::{Answer, Route};

use crate::fixture::{Case, ExpectError, Fixture, Op, RequestFixture, Step};
use crate::judge::{Judgement, Verdict, judge, unanswered};
use crate::oracle;
use crate::replay::{self, Replay, replay};
use crate::report::{FixtureReport, Status, TargetReport};
use crate::subject::{Place, Subject};
use crate::target::Target;

/// A fixture with the reference's answers.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The fixture.
    pub case: Case,
    /// The reference's answers. It is empty for all but a [`Fixture`].
    pub reference: Replay,
}

/// Computes the reference's answers, and rejects fixtures that contradict them.
///
/// # Errors
/// Lists each expectation that the reference does not meet, with the fixture's id.
pub async fn prepare(cases: Vec<Case>) -> Result<Vec<Prepared>, Vec<String>> {
    let (mut prepared, mut wrong) = (Vec::with_capacity(cases.len()), Vec::new());
    for case in cases {
        let reference = match &case {
            Case::Decision(fixture) => oracle::agreed(fixture).await,
            Case::Request(_) => Ok(Replay::default()),
            Case::Gate(fixture) => match gate::contradictions(fixture).await {
                unmet if unmet.is_empty() => Ok(Replay::default()),
                unmet => Err(unmet),
            },
        };
        match reference {
            Ok(reference) => prepared.push(Prepared { case, reference }),
            Err(unmet) => wrong.extend(unmet.into_iter().map(|unmet| format!("{}: {unmet}", case.id()))),
        }
    }
    if wrong.is_empty() { Ok(prepared) } else { Err(wrong) }
}

/// Starts a target, runs fixtures on it, and stops it. Calls `done` after each fixture.
pub async fn target(target: &dyn Target, cases: &[Prepared], mut done: impl FnMut(&FixtureReport)) -> TargetReport {
    let declared = target.capabilities();
    let mut report = TargetReport::new(target.name(), &declared.accuracy);
    match target.emulator() {
        Ok(emulator) => report.emulator = Some(emulator),
        Err(reason) => return report.ended(Status::Unavailable, reason),
    }
    let running = match target.start().await {
        Ok(running) => running,
        Err(reason) => return report.ended(Status::Fail, format!("did not start: {reason}")),
    };
    let began = Instant::now();
    let ready = async {
        running.check(&declared).await?;
        running.settle().await
    };
    if let Err(reason) = ready.await {
        running.stop().await;
        return report.ended(Status::Fail, reason);
    }
    report.fixtures = fixtures(target, &running, cases, &mut done).await;
    running.stop().await;
    report.elapsed_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    report.concluded(&declared.accuracy, target.stub())
}

/// Replays fixtures on a running target.
pub(crate) async fn fixtures(
    target: &dyn Target,
    subject: &impl Subject,
    cases: &[Prepared],
    done: &mut impl FnMut(&FixtureReport),
) -> Vec<FixtureReport> {
    let declared = target.capabilities();
    let mut reports = Vec::with_capacity(cases.len());
    for (place, prepared) in cases.iter().enumerate() {
        let one = case(target, &declared, subject, prepared, &prefix(place)).await;
        done(&one);
        reports.push(one);
    }
    reports
}

/// The prefix of a fixture's keys. It differs between processes, so that runs on the same store do not interfere.
fn prefix(place: usize) -> String {
    let run = std::process::id();
    format!("t{run:x}-{place}.")
}

async fn case(
    target: &dyn Target,
    declared: &Capabilities,
    subject: &impl Subject,
    prepared: &Prepared,
    prefix: &str,
) -> FixtureReport {
    match &prepared.case {
        Case::Request(fixture) => request(fixture, subject).await,
        Case::Gate(fixture) => gate::gate(target, declared, fixture, subject, prefix).await,
        Case::Decision(fixture) => match unsupported(target, declared, fixture) {
            None => match target.unverified(fixture) {
                Some(reason) => FixtureReport::new(&fixture.id, Verdict::Unverified).because(reason),
                None if let Some(reason) = target.stub() => answered(fixture, subject, prefix, reason).await,
                None => decision(declared, fixture, &prepared.reference, subject, prefix).await,
            },
            Some(Missing::Disturbance) => {
                let reason = "the target has no store that can be disturbed from outside";
                FixtureReport::new(&fixture.id, Verdict::Unsupported).because(reason)
            }
            Some(Missing::Capability(places)) => declined(fixture, subject, prefix, &places).await,
        },
    }
}

async fn decision(
    declared: &Capabilities,
    fixture: &Fixture,
    reference: &Replay,
    subject: &impl Subject,
    prefix: &str,
) -> FixtureReport {
    let before = subject.round_trips().await;
    let found = replay(fixture, subject, prefix).await;
    let after = subject.round_trips().await;
    let disturbed = fixture.steps.iter().any(|step| step.disturb.is_some());
    // The next fixture must find the store as if nothing had happened.
    if disturbed && let Err(reason) = subject.settle().await {
        return FixtureReport::new(&fixture.id, Verdict::Fail).because(&reason);
    }
    let Judgement { verdict, reasons, offered, admitted, errors, exact, floor, ceiling, ceiling_tested } =
        judge(&declared.accuracy, subject.isolates(), fixture, reference, &found);
    // A store that lost its scripts receives some calls twice, and a restarted store counts from zero. Neither count
    // gives the round trips of a decision.
    let trips = before.zip(after).and_then(|(before, after)| after.checked_sub(before));
    FixtureReport {
        reason: reasons.first().cloned(),
        reasons,
        offered,
        admitted,
        errors,
        exact,
        floor,
        ceiling,
        ceiling_tested,
        round_trips: trips.filter(|_| !disturbed).map(|trips| per_decision(fixture, trips)),
        in_flight_peak: found.in_flight_peak,
        elapsed_ms: u64::try_from(found.elapsed.as_millis()).unwrap_or(u64::MAX),
        ..FixtureReport::new(&fixture.id, verdict)
    }
}

/// Checks only that a stub answers every request in the right form. What it admits proves nothing.
async fn answered(fixture: &Fixture, subject: &impl Subject, prefix: &str, stub: &str) -> FixtureReport {
    let found = replay(fixture, subject, prefix).await;
    let reasons = unanswered(fixture, &found);
    match reasons.first() {
        Some(reason) => {
            FixtureReport { reasons: reasons.clone(), ..FixtureReport::new(&fixture.id, Verdict::Fail).because(reason) }
        }
        None => FixtureReport::new(&fixture.id, Verdict::Unverified).because(stub),
    }
}

/// The round trips per decision, rounded to three decimal places. A refund and a settlement count as decisions.
#[expect(clippy::cast_precision_loss, reason = "counts of a run are far below 2^53")]
fn per_decision(fixture: &Fixture, trips: u64) -> f64 {
    let asked: u64 = fixture.steps.iter().filter(|step| step.op != Op::Reset).map(|step| step.burst).sum();
    (trips as f64 / asked.max(1) as f64 * 1_000.0).round() / 1_000.0
}

/// Why a target does not support a fixture.
enum Missing {
    /// The target's store cannot be disturbed.
    Disturbance,
    /// These steps need a capability that is not declared.
    Capability(Vec<usize>),
}

fn unsupported(target: &dyn Target, declared: &Capabilities, fixture: &Fixture) -> Option<Missing> {
    if fixture.steps.iter().filter_map(|step| step.disturb).any(|disturb| !target.can(disturb)) {
        return Some(Missing::Disturbance);
    }
    let needs_more = fixture.steps_with_policy().filter(|(_, step, policy)| {
        // What a limiter supports does not depend on the keys.
        let key = Key::new("");
        let mut check = Check::new(policy, &key, UnixMillis::new(fixture.instant(step.at_ms)));
        check.cost = step.cost;
        if let (Some(token), Some(ttl_ms)) = (&step.token, step.token_ttl_ms) {
            check = check.idempotent(token, tidegate_core::Millis::new(ttl_ms));
        }
        let lacks = |supported: Result<(), tidegate_core::Error>| {
            supported.is_err_and(|error| error.kind() == ErrorKind::Unsupported)
        };
        match step.op {
            Op::Check => !target.takes(policy) || lacks(declared.supports(&check)),
            Op::Peek => !declared.peek || !target.takes(policy) || lacks(declared.supports(&check)),
            Op::Settle | Op::Release => !declared.idempotency || lacks(declared.supports_policy(policy)),
            Op::Refund => !declared.refund || lacks(declared.supports_policy(policy)),
            Op::Reset => !declared.reset || lacks(declared.supports_policy(policy)),
        }
    });
    let places: Vec<usize> = needs_more.map(|(place, ..)| place).collect();
    (!places.is_empty()).then_some(Missing::Capability(places))
}

/// Sends the steps that need an undeclared capability. Each must be answered with `Unsupported`, or with the error that
/// it expects.
async fn declined(fixture: &Fixture, subject: &impl Subject, prefix: &str, places: &[usize]) -> FixtureReport {
    let mut reasons = Vec::new();
    for (place, step, policy) in fixture.steps_with_policy().filter(|(place, ..)| places.contains(place)) {
        let body = replay::body(fixture, step, policy, prefix);
        let at = Place { location: None, nth: 0 };
        let answered = match subject.send(replay::route(step.op), body, at).await {
            Ok(reply) => serde_json::from_slice(&reply.body).map_err(|error| error.to_string()),
            Err(error) => Err(error),
        };
        let expected = step.expect.as_ref().and_then(|expect| expect.error).map(ExpectError::name);
        let is_right = |kind: &str| kind == ErrorKind::Unsupported.name() || Some(kind) == expected;
        if !matches!(&answered, Ok(Answer::Error(failure)) if is_right(&failure.kind)) {
            reasons.push(undeclared(place, step, &answered));
        }
    }
    let verdict = if reasons.is_empty() { Verdict::Unsupported } else { Verdict::Fail };
    FixtureReport { reason: reasons.first().cloned(), reasons, ..FixtureReport::new(&fixture.id, verdict) }
}

fn undeclared(place: usize, step: &Step, answered: &Result<Answer, String>) -> String {
    let step = crate::expectation::named(place, step);
    format!("{step}: the target does not declare this, so the answer must be `unsupported`; found {answered:?}")
}

async fn request(fixture: &RequestFixture, subject: &impl Subject) -> FixtureReport {
    let wrong = identify(fixture, subject).await;
    match wrong {
        Ok(()) => FixtureReport::new(&fixture.id, Verdict::Pass),
        Err((verdict, reason)) => FixtureReport::new(&fixture.id, verdict).because(&reason),
    }
}

/// Asks which key a request is counted against.
///
/// # Errors
/// Returns the verdict and the reason if the answer is not the expected key.
pub async fn identify(fixture: &RequestFixture, subject: &impl Subject) -> Result<(), (Verdict, String)> {
    let body = serde_json::to_vec(&fixture.arrival()).unwrap_or_default();
    let reply = subject.send(Route::Identify, body.into(), Place { location: None, nth: 0 }).await;
    let reply = reply.map_err(|error| (Verdict::Fail, error))?;
    match serde_json::from_slice(&reply.body) {
        Ok(Answer::Identity(found)) => {
            let expected = &fixture.expect;
            let source = expected.source.unwrap_or(found.source);
            if (expected.key.as_str(), source) == (found.key.as_str(), found.source) {
                return Ok(());
            }
            let wanted = format!("expected key {:?} from {}", expected.key, name(&source));
            Err((Verdict::Fail, format!("{wanted}, found {:?} from {}", found.key, name(&found.source))))
        }
        Ok(Answer::Error(failure)) if failure.kind == "unsupported" => Err((Verdict::Unsupported, failure.message)),
        other => Err((Verdict::Fail, format!("expected an identity, found {other:?}"))),
    }
}

fn name(source: &impl serde::Serialize) -> String {
    serde_json::to_value(source).ok().as_ref().and_then(Value::as_str).unwrap_or("?").to_string()
}
