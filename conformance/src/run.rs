//! Replays fixtures to a subject, and judges the answers by what it declares.

mod gate;
mod session;
mod shrink;

pub use gate::differences;
pub use session::Session;

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::LazyLock;
use std::time::Duration;

use tidegate_core::{Capabilities, Check, ErrorKind, Key, UnixMillis};
use tidegate_guest_protocol::{Answer, Route};

use crate::declared::Declares;
use crate::fixture::{Case, ExpectError, Fixture, Op, RequestFixture, Step};
use crate::json;
use crate::judge::{self, Judgement, Verdict, judge, unanswered};
use crate::operation::{self, mean};
use crate::reference::{self, Prepared};
use crate::replay::{self, Replay, replay};
use crate::report::{Cause, FixtureReport, Latency, TargetReport};
use crate::subject::{Place, Subject};

/// Computes the reference's answers, and rejects fixtures that contradict them.
///
/// # Errors
/// Lists each expectation that the reference does not meet, with the fixture's id.
pub async fn prepare(cases: Vec<Case>) -> Result<Vec<Prepared>, Vec<String>> {
    let prepared = prepare_all(cases).await;
    let unmet = |one: &Prepared| {
        let id = one.case.id().to_string();
        one.unmet.iter().map(|unmet| format!("{id}: {unmet}")).collect::<Vec<_>>()
    };
    let wrong: Vec<String> = prepared.iter().flat_map(unmet).collect();
    if wrong.is_empty() { Ok(prepared) } else { Err(wrong) }
}

/// Computes the reference's answers. A fixture that contradicts them fails on every target.
pub async fn prepare_all(cases: Vec<Case>) -> Vec<Prepared> {
    let mut prepared = Vec::with_capacity(cases.len());
    for case in cases {
        let reference = match &case {
            Case::Decision(fixture) => reference::agreed(fixture).await,
            Case::Request(_) => Ok(Replay::default()),
            Case::Gate(fixture) => match gate::contradictions(fixture).await {
                unmet if unmet.is_empty() => Ok(Replay::default()),
                unmet => Err(unmet),
            },
        };
        let (reference, unmet) = match reference {
            Ok(reference) => (reference, Vec::new()),
            Err(unmet) => (Replay::default(), unmet),
        };
        prepared.push(Prepared { case, reference, unmet });
    }
    prepared
}

/// Replays fixtures to a subject, and adds the results to its report. Those after its death are missing there.
pub async fn fixtures(
    limiter: &dyn Declares,
    subject: &impl Subject,
    cases: &[Prepared],
    report: &mut TargetReport,
    done: &mut impl FnMut(&FixtureReport),
) {
    let mut session = Session::default();
    let _dead = session.replay(limiter, subject, cases, report, done).await;
    session.conclude(report);
}

/// Replays one fixture to a subject, and judges it by these capabilities. If it fails, it is reduced.
pub async fn one(
    limiter: &dyn Declares,
    declared: &Capabilities,
    subject: &impl Subject,
    prepared: &Prepared,
    prefix: &str,
) -> FixtureReport {
    let mut report = case(limiter, declared, subject, prepared, prefix, &mut Vec::new()).await;
    if let (Verdict::Fail, Case::Decision(fixture)) = (report.verdict, &prepared.case) {
        report.smallest = shrink::smallest(declared, fixture, subject, prefix).await;
    }
    report
}

/// The prefix of a fixture's keys. It differs between runs, so that those on the same store do not interfere. The process's number
/// would not do: in a container it is often the same. It is short, because it is also part of the names of limits.
fn prefix(place: usize) -> String {
    static RUN: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(std::process::id()) & 0xff_ffff);
    format!("t{:x}-{place}.", *RUN)
}

async fn case(
    limiter: &dyn Declares,
    declared: &Capabilities,
    subject: &impl Subject,
    prepared: &Prepared,
    prefix: &str,
    latencies: &mut Vec<Duration>,
) -> FixtureReport {
    if !prepared.unmet.is_empty() {
        let reasons = prepared.unmet.iter().map(|unmet| format!("whichever store counts: {unmet}")).collect();
        return FixtureReport::new(prepared.case.id(), Verdict::Fail).for_reasons(reasons);
    }
    subject.begin().await;
    match &prepared.case {
        Case::Request(fixture) => request(fixture, subject).await,
        Case::Gate(fixture) => gate::gate(limiter, declared, fixture, subject, prefix).await,
        Case::Decision(fixture) => match unsupported(limiter, declared, fixture) {
            None => match limiter.unverified(fixture) {
                Some((cause, reason)) => {
                    FixtureReport::new(&fixture.id, Verdict::Unverified).because(reason).caused(cause)
                }
                None if let Some(reason) = limiter.declared().stub => answered(fixture, subject, prefix, reason).await,
                None => decision(declared, fixture, &prepared.reference, subject, prefix, latencies).await,
            },
            Some(Missing::Disturbance) => {
                let reason = "the target has no store that can be disturbed from outside in this way";
                FixtureReport::new(&fixture.id, Verdict::Unsupported).because(reason).caused(Cause::Emulator)
            }
            Some(Missing::Capability(places)) => {
                declined(fixture, subject, prefix, &places).await.caused(limiter.declared().limited_by())
            }
        },
    }
}

async fn decision(
    declared: &Capabilities,
    fixture: &Fixture,
    reference: &Replay,
    subject: &impl Subject,
    prefix: &str,
    latencies: &mut Vec<Duration>,
) -> FixtureReport {
    let before = subject.operations().await;
    let found = replay(fixture, subject, prefix).await;
    let after = subject.operations().await;
    let disturbed = fixture.steps.iter().any(|step| step.disturb.is_some());
    // The next fixture must find the store as if nothing had happened.
    if disturbed && let Err(reason) = subject.settle().await {
        return FixtureReport::new(&fixture.id, Verdict::Fail).because(&reason);
    }
    let Judgement { verdict, reasons, offered, admitted, errors, exact, floor, ceiling, ceiling_tested, steps } =
        judge(&declared.accuracy, subject.isolates(), fixture, reference, &found);
    latencies.extend_from_slice(&found.latencies);
    // A store that lost its scripts receives some calls twice, and a restarted store counts from zero. Neither count
    // gives the operations of a decision.
    let operations = before.zip(after).filter(|_| !disturbed);
    let operations = operations.and_then(|(before, after)| operation::difference(&before, &after));
    let decisions = fixture.steps.iter().filter(|step| step.op != Op::Reset).map(|step| step.burst).sum();
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
        round_trips: operations.as_ref().map(|done| mean(operation::round_trips(done), decisions)),
        operations: operations.unwrap_or_default(),
        decisions,
        in_flight_peak: found.in_flight_peak,
        elapsed_ms: u64::try_from(found.elapsed.as_millis()).unwrap_or(u64::MAX),
        latency_us: Latency::of(&found.latencies),
        steps: if steps == judge::of_reference(fixture, reference) { Vec::new() } else { steps },
        ..FixtureReport::new(&fixture.id, verdict)
    }
}

/// Checks only that a stub answers every request in the right form. What it admits proves nothing.
async fn answered(fixture: &Fixture, subject: &impl Subject, prefix: &str, stub: &str) -> FixtureReport {
    let found = replay(fixture, subject, prefix).await;
    match unanswered(fixture, &found) {
        none if none.is_empty() => {
            FixtureReport::new(&fixture.id, Verdict::Unverified).because(stub).caused(Cause::Emulator)
        }
        reasons => FixtureReport::new(&fixture.id, Verdict::Fail).for_reasons(reasons),
    }
}

/// Why a limiter does not support a fixture.
enum Missing {
    /// The limiter's store cannot be disturbed.
    Disturbance,
    /// These steps need a capability that is not declared.
    Capability(Vec<usize>),
}

/// Whether a limiter supports a fixture.
#[must_use]
pub fn supports(limiter: &dyn Declares, fixture: &Fixture) -> bool {
    unsupported(limiter, &limiter.declared().capabilities, fixture).is_none()
}

fn unsupported(limiter: &dyn Declares, declared: &Capabilities, fixture: &Fixture) -> Option<Missing> {
    if fixture.steps.iter().filter_map(|step| step.disturb).any(|disturb| !limiter.can(disturb)) {
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
            Op::Check => !limiter.takes(policy) || lacks(declared.supports(&check)),
            Op::Peek => !declared.peek || !limiter.takes(policy) || lacks(declared.supports(&check)),
            Op::Settle | Op::Release => !declared.idempotency || lacks(declared.supports_policy(policy)),
            Op::Refund => !declared.refund || lacks(declared.supports_policy(policy)),
            Op::Block => !declared.block || lacks(declared.supports_policy(policy)),
            Op::Grant => !declared.grant || lacks(declared.supports_policy(policy)),
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
        let body = replay::bodies(fixture, step, policy, prefix).swap_remove(0);
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
    FixtureReport::new(&fixture.id, verdict).for_reasons(reasons)
}

fn undeclared(place: usize, step: &Step, answered: &Result<Answer, String>) -> String {
    let step = crate::expectation::named(place, step);
    format!("{step}: the target does not declare this, so the answer must be `unsupported`; found {answered:?}")
}

async fn request(fixture: &RequestFixture, subject: &impl Subject) -> FixtureReport {
    match identify(fixture, subject).await {
        Ok(()) => FixtureReport::new(&fixture.id, Verdict::Pass),
        Err((verdict, reason)) => FixtureReport {
            cause: (verdict == Verdict::Unsupported).then_some(Cause::Adapter),
            ..FixtureReport::new(&fixture.id, verdict).because(&reason)
        },
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
            let wanted = format!("expected key {:?} from {}", expected.key, json::name(&source));
            Err((Verdict::Fail, format!("{wanted}, found {:?} from {}", found.key, json::name(&found.source))))
        }
        Ok(Answer::Error(failure)) if failure.kind == "unsupported" => Err((Verdict::Unsupported, failure.message)),
        other => Err((Verdict::Fail, format!("expected an identity, found {other:?}"))),
    }
}
