//! Other rate limiters on the same fixtures.
//!
//! A [`Peer`] gets the fixtures that it can take: one quota, and checks that neither go back in time nor change the policy. Each
//! is judged by what the peer itself claims, in the terms of its documentation. Its windows begin at multiples of their length or
//! with the first request, and at most the limit is admitted in each. The documentation of few peers says whether a denial
//! is charged, so both are accepted and told apart. A denial's wait is right if a request sent after it is admitted, and it is
//! not a second longer than that.

mod due;
mod list;
mod score;

pub use list::all;
pub use score::{Found, Score, Waits};

use serde::Serialize;
use tidegate_conformance::fixture::{Fixture, Op, Step};
use tidegate_conformance::reference;
use tidegate_conformance::replay::replay;
use tidegate_core::{Policy, Rule};
use tidegate_harness::run;
use tidegate_harness::target::peer::{self as host, Host};
use tidegate_harness::target::{Running, Target};

/// A rate limiter of this project or of another.
#[derive(Clone, Copy)]
pub struct Peer {
    /// The name of the package.
    pub name: &'static str,
    /// Where it counts.
    pub store: &'static str,
    /// Its algorithms, by their names in policies.
    pub algorithms: &'static [&'static str],
    /// What its documentation says, and where.
    pub claim: &'static str,
    windows: Windows,
    /// Whether it takes a cost other than 1.
    costs: bool,
    /// Whether its buckets refill once per period, not continuously.
    refills_in_batches: bool,
    /// Whether time can be advanced for it.
    on_virtual_time: bool,
    place: Place,
}

/// When a peer's windows begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Windows {
    /// At multiples of their length since the epoch.
    Aligned,
    /// With the first request that is counted in them.
    FirstRequest,
    /// The same, in a key that Redis keeps through the millisecond in which it expires.
    RedisKey,
}

/// What runs a limiter.
#[derive(Clone, Copy)]
enum Place {
    /// One of the suite's targets.
    Target(&'static dyn Target),
    /// The limiter of another project.
    Peer(Host),
}

/// A limiter's results with one algorithm.
#[derive(Clone, Debug, Serialize)]
pub struct PeerReport {
    /// The name of the package.
    pub name: String,
    /// The version, unless the limiter is code of this workspace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Where it counts.
    pub store: String,
    /// The algorithm, by its name in policies.
    pub algorithm: String,
    /// What its documentation says, and where.
    pub claim: String,
    /// The results of the fixtures that it can take.
    pub scores: Vec<Score>,
}

/// The longest window of a fixture. JavaScript's timers cannot be longer, and the documentation of middleware says so.
const WINDOW_MAX_MS: u64 = i32::MAX as u64;

/// The shortest window for a peer that reads the wall clock, which must not end within a burst.
const WINDOW_MIN_MS: u64 = 10_000;

/// How much earlier than due a wait may end for a peer that reads the wall clock, which runs during a burst.
const SLACK_MS: u64 = 5_000;

impl Peer {
    /// Returns the version, or nothing if the limiter is code of this workspace.
    ///
    /// # Errors
    /// Says what is missing and how to install it.
    pub fn version(&self) -> Result<Option<String>, String> {
        match self.place {
            Place::Target(target) => target.emulator().map(|_| Some(env!("CARGO_PKG_VERSION").to_string())),
            Place::Peer(host) => host::version(host),
        }
    }

    /// Replays the fixtures that the limiter can take. Calls `done` after each of them. Returns a report for each algorithm.
    ///
    /// # Errors
    /// Fails if the limiter does not start.
    pub async fn run(&self, fixtures: &[&Fixture], mut done: impl FnMut(&str)) -> Result<Vec<PeerReport>, String> {
        let version = self.version()?;
        let running = self.start().await?;
        let mut reports = Vec::new();
        for algorithm in self.algorithms {
            let mut scores = Vec::new();
            for fixture in fixtures.iter().filter(|fixture| self.takes(algorithm, fixture)) {
                let prefix = format!("p{:x}-{}-{}.", std::process::id(), reports.len(), scores.len());
                let found = replay(fixture, &running, &prefix).await;
                let free = self.due(fixture, false).await;
                let charged = self.due(fixture, true).await;
                let slack_ms = if self.on_virtual_time { 0 } else { SLACK_MS };
                scores.push(score::of(fixture, &found, &free, &charged, slack_ms));
                done(&fixture.id);
            }
            reports.push(PeerReport {
                name: self.name.into(),
                version: version.clone(),
                store: self.store.into(),
                algorithm: (*algorithm).into(),
                claim: self.claim.into(),
                scores,
            });
        }
        running.stop().await;
        Ok(reports)
    }

    async fn start(&self) -> Result<Running, String> {
        match self.place {
            Place::Target(target) => run::start(target).await,
            Place::Peer(host) => host::start(host).await,
        }
    }

    /// Whether the limiter has what a fixture needs.
    fn takes(&self, algorithm: &str, fixture: &Fixture) -> bool {
        let steps = &fixture.steps;
        let shared = match self.place {
            Place::Target(_) => true,
            Place::Peer(host) => host::is_shared(host),
        };
        let [quota] = fixture.policy.quotas() else { return false };
        let fits = match quota.rule() {
            // One token at a time is the same in batches. Other peers count in nanoseconds.
            Rule::TokenBucket(rule) if self.refills_in_batches => rule.refill() == 1,
            Rule::TokenBucket(rule) => {
                rule.per().get() % 1_000 == 0 && rule.per().get() * 1_000_000 % rule.refill() == 0
            }
            rule => rule.window().get() % 1_000 == 0,
        };
        let checks = |step: &Step| {
            let plain = step.op == Op::Check && step.token.is_none() && step.policy.is_none() && step.keys.is_none();
            let cost = step.cost == 1 || (self.costs && step.cost > 0);
            plain && cost && step.disturb.is_none() && !step.is_refused()
        };
        let is_instant = || {
            let at_once = steps.iter().all(|step| step.at_ms == steps[0].at_ms);
            at_once && quota.rule().window().get() >= WINDOW_MIN_MS
        };
        quota.rule().name() == algorithm
            && fits
            && quota.rule().window().get() <= WINDOW_MAX_MS
            && u32::try_from(quota.rule().limit()).is_ok()
            && !fixture.policy.charges_denied()
            && !fixture.policy.has_slots()
            && (shared || fixture.locations == 1)
            && steps.iter().all(checks)
            && steps.is_sorted_by_key(|step| step.at_ms)
            && (self.on_virtual_time || is_instant())
    }

    /// What is due by the limiter's own claim.
    async fn due(&self, fixture: &Fixture, charge_denied: bool) -> Vec<due::Due> {
        match self.windows {
            Windows::FirstRequest => due::from_first_requests(fixture, charge_denied, 0),
            Windows::RedisKey => due::from_first_requests(fixture, charge_denied, 1),
            Windows::Aligned => {
                let policy: Policy = fixture.policy.clone().charge_denied(charge_denied);
                let fixture = Fixture { policy, ..fixture.clone() };
                due::of(&reference::answers(&fixture).await)
            }
        }
    }
}

impl PeerReport {
    /// The number of fixtures with this result.
    #[must_use]
    pub fn count(&self, is: impl Fn(&Found) -> bool) -> usize {
        self.scores.iter().filter(|score| is(&score.found)).count()
    }

    /// The waits of all fixtures.
    #[must_use]
    pub fn waits(&self) -> Waits {
        self.scores.iter().fold(Waits::default(), |sum, score| sum + score.waits)
    }
}
