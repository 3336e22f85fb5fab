//! Runs the fixtures of the gate.

use bytes::Bytes;
use futures_util::future::join_all;
use tidegate_core::{
    Accuracy, Capabilities, ClientIpSource, Error, ErrorKind, Limiter, MemoryLimiter, Operation, Platform,
};
use tidegate_guest_protocol::{Answer, Fixed, Judged, Reply, Route};

use crate::declared::Declares;
use crate::fixture::{GateFixture, GateStep, has_number};
use crate::judge::{Tally, Verdict};
use crate::report::{Cause, FixtureReport};
use crate::subject::{InProcess, Place, Subject};

/// What a subject let pass, and what is wrong with it.
#[derive(Default)]
struct Judgement {
    reasons: Vec<String>,
    offered: u64,
    passed: u64,
    steps: Vec<Tally>,
}

/// Returns what the reference does not meet.
pub(super) async fn contradictions(fixture: &GateFixture) -> Vec<String> {
    differences(fixture, &InProcess::new(MemoryLimiter::with_shards(1))).await
}

/// Returns what an exact subject does not meet.
pub async fn differences(fixture: &GateFixture, subject: &impl Subject) -> Vec<String> {
    judge(&Accuracy::Exact, fixture, subject, "").await.reasons
}

pub(super) async fn gate(
    limiter: &dyn Declares,
    declared: &Capabilities,
    fixture: &GateFixture,
    subject: &impl Subject,
    prefix: &str,
) -> FixtureReport {
    let plain = |verdict| FixtureReport::new(&fixture.id, verdict);
    let supported = supports(limiter, declared, fixture).map(|rules| rules && limiter.declared().has_gate);
    let judgement = match supported {
        Ok(true) => match limiter.declared().stub {
            Some(stub) => return plain(Verdict::Unverified).because(stub).caused(Cause::Emulator),
            None => judge(&declared.accuracy, fixture, subject, prefix).await,
        },
        Ok(false) => match declined(fixture, subject, prefix).await {
            reasons if reasons.is_empty() => {
                return plain(Verdict::Unsupported).caused(limiter.declared().limited_by());
            }
            reasons => Judgement { reasons, ..Judgement::default() },
        },
        Err(error) => Judgement { reasons: vec![error.to_string()], ..Judgement::default() },
    };
    let Judgement { reasons, offered, passed, steps } = judgement;
    let exact = fixture.steps.iter().map(|step| step.expect.passed).sum();
    let ceiling = steps.last().map_or(exact, |step| step.ceiling);
    FixtureReport {
        reason: reasons.first().cloned(),
        reasons: reasons.clone(),
        offered,
        admitted: passed,
        exact,
        floor: if matches!(declared.accuracy, Accuracy::Exact) { exact } else { 0 },
        ceiling,
        ceiling_tested: offered > ceiling,
        steps,
        ..plain(if reasons.is_empty() { Verdict::Pass } else { Verdict::Fail })
    }
}

/// Whether a limiter declares all that a fixture needs.
fn supports(limiter: &dyn Declares, declared: &Capabilities, fixture: &GateFixture) -> Result<bool, Error> {
    let rules = fixture.parse_rules()?.verify_tokens(Fixed(None));
    let takes = rules.rules().iter().all(|rule| rule.policies().all(|policy| limiter.takes(policy)));
    let steps = fixture.steps.iter().all(|step| {
        (declared.costs || step.cost.is_none_or(|cost| cost == 1)) && (declared.idempotency || step.token.is_none())
    });
    let store = OnlyDeclares(*declared);
    match tidegate_guest_protocol::gate(rules, &fixture.stores(), &store, ClientIpSource::new(Platform::Direct)) {
        Ok(_) => Ok(takes && steps),
        Err(error) if error.kind() == ErrorKind::Unsupported => Ok(false),
        Err(error) => Err(error),
    }
}

/// Sends each step. Approximate limiters may let fewer requests pass, and more only by a grace of each isolate. They get the requests of a burst one
/// after another, because other fixtures show what they admit at once.
async fn judge(accuracy: &Accuracy, fixture: &GateFixture, subject: &impl Subject, prefix: &str) -> Judgement {
    let at_once = matches!(accuracy, Accuracy::Exact);
    let mut judgement = Judgement::default();
    let Judgement { reasons, offered, passed: all_passed, steps } = &mut judgement;
    let mut ceiling = 0;
    for (place, step) in fixture.steps.iter().enumerate() {
        let replies = send(fixture, step, subject, prefix, at_once).await;
        let (mut judged, mut failed) = (Vec::with_capacity(replies.len()), None);
        for reply in replies {
            match reply.and_then(|reply| read(&reply, step)) {
                Ok((one, error)) => {
                    judged.push(one);
                    failed = failed.or(error);
                }
                Err(reason) => reasons.push(format!("{}: {reason}", named(place, step))),
            }
        }
        let passed = judged.iter().filter(|one| one.passes).count() as u64;
        *offered += step.burst;
        *all_passed += passed;
        let expected = &step.expect;
        let most = (expected.passed + accuracy.drift().grace * subject.isolates()).min(step.burst);
        ceiling += most;
        let floor = if at_once { ceiling } else { 0 };
        let refused = step.burst.saturating_sub(passed);
        steps.push(Tally { admitted: passed, denied: refused, errors: 0, floor, ceiling });
        let is_right = match accuracy {
            Accuracy::Exact => passed == expected.passed,
            _ => passed <= most,
        };
        if !is_right {
            let why = failed.map_or(String::new(), |error| format!("; a request was not decided: {error}"));
            reasons.push(format!("{}: expected {} to pass, found {passed}{why}", named(place, step), expected.passed));
        }
        let remaining = judged.iter().filter_map(|one| one.remaining).min();
        let told = |count: Option<u64>| count.map_or("none".to_string(), |count| count.to_string());
        if let (Accuracy::Exact, Some(wanted)) = (accuracy, expected.remaining)
            && remaining != wanted
        {
            let (wanted, found) = (told(wanted), told(remaining));
            reasons.push(format!("{}: expected {wanted} remaining, found {found}", named(place, step)));
        }
        if matches!(accuracy, Accuracy::Exact) {
            reasons.extend(other_warnings(step, &judged).map(|reason| format!("{}: {reason}", named(place, step))));
        }
    }
    judgement
}

/// What else than expected was told of the parts of a limit that a step's requests have reached.
fn other_warnings(step: &GateStep, judged: &[Judged]) -> Option<String> {
    let level = judged.iter().filter_map(|one| one.level).max().unwrap_or(0);
    if let Some(wanted) = step.expect.level.filter(|wanted| *wanted != level) {
        return Some(format!("expected the level {wanted}, found {level}"));
    }
    let mut warned: Vec<u8> = judged.iter().flat_map(|one| one.warned.iter().copied()).collect();
    warned.sort_unstable();
    let wanted = step.expect.warned.as_ref().filter(|wanted| **wanted != warned)?;
    Some(format!("expected warnings at {wanted:?} %, found {warned:?}"))
}

/// Reads an answer, whose status code must be that of a request which passes, or the expected one. Returns the error of a request
/// that was not decided on, too.
fn read(reply: &Reply, step: &GateStep) -> Result<(Judged, Option<String>), String> {
    let mut error = None;
    let judged = match serde_json::from_slice(&reply.body) {
        Ok(Answer::Verdict(judged)) => judged,
        // A request that the limiter did not decide on.
        Ok(Answer::Error(failure)) if failure.kind != ErrorKind::Unsupported.name() && reply.status != 400 => {
            error = Some(format!("{}: {}", failure.kind, failure.message));
            Judged::plain(false)
        }
        other => return Err(format!("expected a verdict, found {other:?}")),
    };
    let expected = if judged.passes { 200 } else { step.expect.status };
    if reply.status != expected {
        let why = error.map_or(String::new(), |error| format!("; the request was not decided: {error}"));
        return Err(format!("expected the status {expected}, found {}{why}", reply.status));
    }
    Ok((judged, error))
}

/// Sends each step once. Each must be answered with `unsupported`, unless its request is not limited.
async fn declined(fixture: &GateFixture, subject: &impl Subject, prefix: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (place, step) in fixture.steps.iter().enumerate() {
        let once = GateStep { burst: 1, ..step.clone() };
        for reply in send(fixture, &once, subject, prefix, true).await {
            let answer = reply.map(|reply| serde_json::from_slice::<Answer>(&reply.body).ok());
            match answer {
                Ok(Some(Answer::Error(failure))) if failure.kind == ErrorKind::Unsupported.name() => return Vec::new(),
                Ok(Some(Answer::Verdict(_))) => {}
                other => found.push(format!("{}: expected unsupported, found {other:?}", named(place, step))),
            }
        }
    }
    if found.is_empty() {
        found.push("no step was answered with unsupported, and the target does not declare what the rules need".into());
    }
    found
}

async fn send(
    fixture: &GateFixture,
    step: &GateStep,
    subject: &impl Subject,
    prefix: &str,
    at_once: bool,
) -> Vec<Result<Reply, String>> {
    let count = if step.token.as_deref().is_some_and(has_number) { step.burst } else { 1 };
    let body = |nth| serde_json::to_vec(&fixture.call(step, nth, prefix)).unwrap_or_default().into();
    let bodies: Vec<Bytes> = (0..count).map(body).collect();
    let one = |nth: u64| {
        let own = usize::try_from(nth).unwrap_or(usize::MAX).min(bodies.len() - 1);
        subject.send(Route::Gate, bodies[own].clone(), Place { location: None, nth })
    };
    if at_once {
        return join_all((0..step.burst).map(one)).await;
    }
    let mut replies = Vec::new();
    for nth in 0..step.burst {
        replies.push(one(nth).await);
    }
    replies
}

fn named(place: usize, step: &GateStep) -> String {
    format!("steps[{place}] ({} {} at {} ms)", step.method, step.path, step.at_ms)
}

/// A limiter that only declares what it supports.
struct OnlyDeclares(Capabilities);

impl Limiter for OnlyDeclares {
    fn capabilities(&self) -> Capabilities {
        self.0
    }

    async fn apply(&self, operation: Operation<'_>) -> Result<tidegate_core::Reply, Error> {
        Err(operation.unsupported())
    }
}
