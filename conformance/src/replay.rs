//! Replays a fixture: the steps run in order, and the requests of a step run concurrently.

use std::cell::Cell;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::join;
use futures_util::stream::FuturesUnordered;
use tidegate_core::Policy;
use tidegate_guest_protocol::{Answer, Call, Failure, Outcome, Reply, Route, Token};
use tokio::sync::Notify;

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
    let token = own.zip(step.token_ttl_ms);
    let prefixed = |key: &String| format!("{prefix}{key}");
    let keys = step.keys.iter().flatten().map(|(dimension, key)| (dimension.clone(), prefixed(key)));
    Call {
        policy: policy.clone(),
        key: step.key.as_ref().map(prefixed).unwrap_or_default(),
        keys: keys.collect(),
        cost: step.cost,
        now_ms: fixture.instant(step.at_ms),
        charged_at_ms: step.charged_at_ms.map(|at_ms| fixture.instant(at_ms)),
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
    let first_answered = Notify::new();
    let answers = async {
        let send = |nth| async move {
            let (_one, sent) = (under_way.enter(), Instant::now());
            let own = usize::try_from(nth).unwrap_or(usize::MAX).min(bodies.len() - 1);
            let reply = subject.send(route(step.op), bodies[own].clone(), Place { location, nth }).await;
            (Answered::read(reply), sent.elapsed())
        };
        let mut coming: FuturesUnordered<_> = (0..step.burst).map(send).collect();
        let mut answers = Vec::with_capacity(coming.len());
        let mut take = |(answer, latency)| {
            answers.push(answer);
            latencies.push(latency);
        };
        if step.burst > 1
            && let Some(first) = coming.next().await
        {
            take(first);
        }
        if step.disturb.is_some() {
            // The first answer has arrived and most have not, so the store is disturbed during the burst.
            first_answered.notify_one();
            tokio::task::yield_now().await;
        }
        while let Some(answer) = coming.next().await {
            take(answer);
        }
        answers
    };
    let Some(disturb) = step.disturb else { return answers.await };
    let (disturbed, mut answers) = match disturb {
        // A platform evicts only what is idle. Of a process that is killed during a request, nobody knows what it has decided.
        Disturb::Evict | Disturb::Kill => (subject.disturb(disturb).await, answers.await),
        // The requests gather at a store that does not answer.
        Disturb::Hang | Disturb::LoseAnswers => match subject.prepare(disturb).await {
            Ok(()) => join(subject.disturb(disturb), answers).await,
            Err(message) => (Err(message), answers.await),
        },
        Disturb::Restart | Disturb::ScriptFlush => {
            let disturbed = async {
                first_answered.notified().await;
                subject.disturb(disturb).await
            };
            join(disturbed, answers).await
        }
    };
    if let Err(message) = disturbed {
        answers.push(Answered::read(Err(format!("{} failed: {message}", name(disturb)))));
    }
    answers
}

const fn name(disturb: Disturb) -> &'static str {
    match disturb {
        Disturb::ScriptFlush => "flushing the store's scripts",
        Disturb::Restart => "restarting the store",
        Disturb::Hang => "halting the store",
        Disturb::LoseAnswers => "losing the store's answers",
        Disturb::Evict => "evicting what counts",
        Disturb::Kill => "killing what asks the store",
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
