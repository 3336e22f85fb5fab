//! Replays a fixture: the steps run in order, and the requests of a step run concurrently.

use std::cell::Cell;
use std::pin::pin;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::{Either, join, select};
use futures_util::stream::FuturesUnordered;
use tidegate_core::{Grant, Policy};
use tidegate_guest_protocol::{Answer, Call, Failure, Outcome, Reply, Route, Token};

use crate::fixture::{Disturb, Fixture, Op, Step, has_number, numbered};
use crate::subject::{Place, Subject};

/// A subject's answers to a fixture.
#[derive(Clone, Debug, Default)]
pub struct Replay {
    /// The answers to each step, in the order they arrived.
    pub steps: Vec<Vec<Answered>>,
    /// How long each answer took, in the order they arrived.
    pub latencies: Vec<Duration>,
    /// The most requests that were in flight at the same time.
    pub in_flight_peak: u64,
    /// The duration of the replay.
    pub elapsed: Duration,
}

/// One answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// The status code.
    pub status: u16,
    /// The response fields.
    pub headers: Vec<(String, String)>,
    /// The answer in the body.
    pub answer: Answer,
}

/// The kind of error recorded if there was no answer, or none that could be parsed.
pub const NO_ANSWER: &str = "no_answer";

/// The kind of error recorded for a request that its client has aborted.
pub const ABORTED: &str = "aborted";

impl Answered {
    /// Whether the request was admitted.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        matches!(&self.answer, Answer::Decision(decision) if decision.status == Outcome::Allowed)
    }

    /// The kind of error that the answer is, if it is one.
    #[must_use]
    pub fn error(&self) -> Option<&str> {
        match &self.answer {
            Answer::Error(failure) => Some(&failure.kind),
            _ => None,
        }
    }

    /// What stands for the answer to a request that its client has aborted.
    fn aborted() -> Self {
        let message = "its client has aborted the request".into();
        Self { status: 0, headers: Vec::new(), answer: Answer::Error(Failure { kind: ABORTED.into(), message }) }
    }

    fn read(reply: Result<Reply, String>) -> Self {
        let failure = |message| Answer::Error(Failure { kind: NO_ANSWER.into(), message });
        match reply {
            Ok(Reply { status, headers, body }) => {
                let answer = Answer::from_body(&body).unwrap_or_else(|error| {
                    failure(format!("status {status}, and the body is not an answer: {error}"))
                });
                Self { status, headers, answer }
            }
            Err(message) => Self { status: 0, headers: Vec::new(), answer: failure(message) },
        }
    }
}

impl Replay {
    /// The number of checks that were admitted.
    #[must_use]
    pub fn admitted(&self, fixture: &Fixture) -> u64 {
        let checks = fixture.steps.iter().zip(&self.steps).filter(|(step, _)| step.op == Op::Check);
        checks.flat_map(|(_, answers)| answers).filter(|one| one.is_allowed()).count() as u64
    }
}

/// Replays a fixture. `prefix` is prepended to every key, so that replays do not see each other's counts.
pub async fn replay(fixture: &Fixture, subject: &impl Subject, prefix: &str) -> Replay {
    let started = Instant::now();
    let under_way = Gauge::default();
    let (mut steps, mut latencies) = (Vec::with_capacity(fixture.steps.len()), Vec::new());
    for (_, step, policy) in fixture.steps_with_policy() {
        let bodies = bodies(fixture, step, policy, prefix);
        let location = (fixture.locations > 1).then_some(step.location);
        steps.push(burst(step, subject, &bodies, location, &under_way, &mut latencies).await);
    }
    Replay { steps, latencies, in_flight_peak: under_way.peak.get(), elapsed: started.elapsed() }
}

/// The bodies of a step's requests: one that all have, or one for each.
pub(crate) fn bodies(fixture: &Fixture, step: &Step, policy: &Policy, prefix: &str) -> Vec<Bytes> {
    let count = if step.token.as_deref().is_some_and(has_number) { step.burst } else { 1 };
    let body = |nth| call(fixture, step, policy, prefix, nth).to_body().into();
    (0..count).map(body).collect()
}

/// The call that a request of a step makes.
fn call(fixture: &Fixture, step: &Step, policy: &Policy, prefix: &str, nth: u64) -> Call {
    let own = step.token.as_ref().map(|token| numbered(token, nth));
    let settles = own.clone().filter(|_| matches!(step.op, Op::Settle | Op::Release));
    let by_default = (step.op == Op::Grant).then_some(Grant::REMEMBERED.get());
    let token = own.zip(step.token_ttl_ms.or(by_default));
    let prefixed = |key: &String| format!("{prefix}{key}");
    let keys = step.keys.iter().flatten().map(|(dimension, key)| (dimension.clone(), prefixed(key)));
    Call {
        policy: policy.clone(),
        key: step.key.as_ref().map(prefixed).unwrap_or_default(),
        keys: keys.collect(),
        cost: step.cost,
        now_ms: fixture.instant(step.at_ms),
        charged_at_ms: step.charged_at_ms.map(|at_ms| fixture.instant(at_ms)),
        expires_at_ms: step.expires_at_ms.map(|at_ms| fixture.instant(at_ms)),
        block_ms: step.block_ms,
        token: token.map(|(text, ttl_ms)| Token { text, ttl_ms }),
        settles,
    }
}

/// The route of an operation.
pub(crate) const fn route(op: Op) -> Route {
    match op {
        Op::Check => Route::Check,
        Op::Peek => Route::Peek,
        Op::Settle => Route::Settle,
        Op::Release => Route::Release,
        Op::Refund => Route::Refund,
        Op::Block => Route::Block,
        Op::Grant => Route::Grant,
        Op::Reset => Route::Reset,
    }
}

async fn burst(
    step: &Step,
    subject: &impl Subject,
    bodies: &[Bytes],
    location: Option<u64>,
    under_way: &Gauge,
    latencies: &mut Vec<Duration>,
) -> Vec<Answered> {
    let send = |nth| async move {
        let (_one, sent) = (under_way.enter(), Instant::now());
        let own = usize::try_from(nth).unwrap_or(usize::MAX).min(bodies.len() - 1);
        let reply = subject.send(route(step.op), bodies[own].clone(), Place { location, nth }).await;
        (Answered::read(reply), sent.elapsed())
    };
    let coming: FuturesUnordered<_> = (0..step.burst).map(send).collect();
    let sent = coming.len();
    let (answered, disturbed) = match step.disturb {
        None => (coming.collect().await, Ok(())),
        Some(disturb) => during(disturb, coming, subject).await,
    };
    let (mut answers, took): (Vec<_>, Vec<_>) = answered.into_iter().unzip();
    latencies.extend(took);
    // All others were answered, if only with an error.
    answers.resize_with(sent, Answered::aborted);
    if let (Some(disturb), Err(message)) = (step.disturb, disturbed) {
        answers.push(Answered::read(Err(format!("{} failed: {message}", name(disturb)))));
    }
    answers
}

/// Disturbs the store during a burst. Returns the answers that have come.
async fn during<T>(
    disturb: Disturb,
    mut coming: FuturesUnordered<impl Future<Output = T>>,
    subject: &impl Subject,
) -> (Vec<T>, Result<(), String>) {
    match disturb {
        // A platform evicts only what is idle. Of a process that is killed during a request, nobody knows what it has decided.
        Disturb::Evict | Disturb::Kill => {
            let disturbed = subject.disturb(disturb).await;
            (coming.collect().await, disturbed)
        }
        // The requests gather at a store that does not answer.
        Disturb::Hang | Disturb::LoseAnswers | Disturb::Abort => match subject.prepare(disturb).await {
            Ok(()) if disturb == Disturb::Abort => {
                let answered = before(coming, subject.arrived()).await;
                (answered, subject.disturb(disturb).await)
            }
            Ok(()) => {
                let (disturbed, answered) = join(subject.disturb(disturb), coming.collect()).await;
                (answered, disturbed)
            }
            Err(message) => (coming.collect().await, Err(message)),
        },
        Disturb::Restart | Disturb::ScriptFlush => {
            let mut answered = Vec::new();
            if coming.len() > 1 {
                // The first answer arrives and most have not, so the store is disturbed during the burst.
                answered.extend(coming.next().await);
            }
            let (disturbed, rest) = join(subject.disturb(disturb), coming.collect::<Vec<_>>()).await;
            answered.extend(rest);
            (answered, disturbed)
        }
    }
}

/// The answers that come before the end. All other requests are dropped.
async fn before<T>(mut coming: FuturesUnordered<impl Future<Output = T>>, end: impl Future<Output = ()>) -> Vec<T> {
    let (mut answered, mut end) = (Vec::new(), pin!(end));
    while let Either::Left((Some(answer), _)) = select(coming.next(), end.as_mut()).await {
        answered.push(answer);
    }
    answered
}

const fn name(disturb: Disturb) -> &'static str {
    match disturb {
        Disturb::ScriptFlush => "flushing the store's scripts",
        Disturb::Restart => "restarting the store",
        Disturb::Hang => "halting the store",
        Disturb::LoseAnswers => "losing the store's answers",
        Disturb::Evict => "evicting what counts",
        Disturb::Kill => "killing what asks the store",
        Disturb::Abort => "aborting requests while the store is halted",
    }
}

/// Counts the requests in flight, and remembers the peak.
#[derive(Debug, Default)]
struct Gauge {
    now: Cell<u64>,
    peak: Cell<u64>,
}

struct UnderWay<'a>(&'a Gauge);

impl Gauge {
    fn enter(&self) -> UnderWay<'_> {
        self.now.set(self.now.get() + 1);
        self.peak.set(self.peak.get().max(self.now.get()));
        UnderWay(self)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.now.set(self.0.now.get() - 1);
    }
}
