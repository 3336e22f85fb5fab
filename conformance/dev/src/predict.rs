//! Predictions: what targets should do, by the simulator.
//!
//! A prediction replays the fixtures of the suite against the simulated stores of a target, in place of the real ones, and judges
//! the answers in the same way. [`compare`] holds it to the report of a real run. So the simulator is tested against reality, and
//! a difference is an error of one of them.

use std::cell::RefCell;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use serde::Serialize;
use tidegate_conformance::fixture::Case;
use tidegate_conformance::judge::Verdict;
use tidegate_conformance::operation::Operations;
use tidegate_conformance::reference::Prepared;
use tidegate_conformance::report::{FixtureReport, TargetReport};
use tidegate_conformance::run;
use tidegate_conformance::subject::{Place, Subject};
use tidegate_core::lending::Lease;
use tidegate_core::{Accuracy, Capabilities, Dimensions, Millis, UnixMillis};
use tidegate_guest_protocol::{Call, Reply, Route, serve};
use tidegate_harness::target::Target;
use tidegate_traffic::simulate::{Fleet, Isolate, Model, World};
use tokio::sync::Semaphore;

/// How many isolates or processes a target has.
const ISOLATES: usize = 3;

/// The lease of the suite's guests.
const LEASE: Lease = Lease::new(10, Millis::from_secs(2));

/// The same with a grace.
const GRACED: Lease = Lease { in_background: true, grace: 1, ..LEASE };

/// How the simulator models a target and its emulator.
#[derive(Clone, Copy)]
struct Emulator {
    model: Model,
    /// Whether each isolate is a location that counts on its own. Requests without a location go to the first.
    apart: bool,
    /// How many requests it works on at the same time, about, on a machine with two processors.
    at_once: usize,
    /// How long an operation at its store takes.
    operation_us: u64,
}

/// The emulator of a target, by its name.
fn emulator(target: &str) -> Option<Emulator> {
    let of = |model| Emulator { model, apart: false, at_once: 2, operation_us: 100 };
    let apart = |model| Emulator { apart: true, ..of(model) };
    // What a grace admits shows how many requests are at each of them when a burst begins: two, about.
    let graced = |lends: fn(Lease) -> Model| Emulator { at_once: 2 * ISOLATES, ..of(lends(GRACED)) };
    Some(match target {
        "memory" | "js-memory" => of(Model::Memory),
        "netlify-blobs" | "deno-kv" => of(Model::Versioned),
        "redis" | "postgres" | "redis-cluster" | "upstash-rest" | "vercel" | "vercel-node" | "netlify" | "js-redis"
        | "js-postgres" | "spin-redis" => of(Model::Exact),
        "fallback" => of(Model::Fallback(10)),
        "cloudflare-do" | "js-durable-object" => of(Model::Objects),
        "cloudflare-do-leased" => of(Model::Leases(LEASE)),
        "redis-leased" => of(Model::ExactLeases(LEASE)),
        "upstash-leased" => of(Model::RestLeases(LEASE)),
        "redis-leased-grace" | "js-redis-leased-grace" => graced(Model::ExactLeases),
        "upstash-leased-grace" => graced(Model::RestLeases),
        "cloudflare-do-leased-grace" => graced(Model::Leases),
        "cloudflare-kv" | "js-kv" => apart(Model::WorkersKv(1)),
        "cloudflare-ratelimit" => apart(Model::Binding),
        "fastly-kv" => apart(Model::FastlyKv),
        // All requests of a burst read before one writes.
        "spin-kv" => Emulator { at_once: 1_000, operation_us: 2_000, ..of(Model::SpinKv) },
        "spin-atomics" | "spin-middleware" => of(Model::SpinAtomics),
        "spin-window" => of(Model::SpinWindow),
        _ => return None,
    })
}

/// Predicts what a target does with the fixtures. `None` if the simulator has no model of it.
///
/// Some fixtures are left out: those that the target does not support, those that disturb the store, because they are about real
/// processes, and those of requests and gates, which need no store.
///
/// # Errors
/// The simulated limiter cannot be configured.
pub async fn predict(target: &dyn Target, cases: &[Prepared]) -> Result<Option<TargetReport>, String> {
    let Some(emulator) = emulator(target.name()) else { return Ok(None) };
    let declared = target.declared().capabilities;
    let predicted = |prepared: &&Prepared| is_predicted(target, emulator.model, &prepared.case);
    let mut report = TargetReport::new(target.name(), &declared.accuracy);
    for one in cases.iter().filter(predicted) {
        // Each in a world of its own, which begins when the fixture does.
        let simulated = Simulated::new(emulator)?;
        let mut done = |_: &FixtureReport| {};
        let replayed = run::fixtures(target, &simulated, std::slice::from_ref(one), &mut report, &mut done);
        tokio::select! {
            biased;
            () = replayed => {}
            () = simulated.drive() => {}
        }
    }
    Ok(Some(report.concluded(&declared.accuracy, target.declared().stub)))
}

fn is_predicted(target: &dyn Target, model: Model, case: &Case) -> bool {
    let Case::Decision(fixture) = case else { return false };
    let is_modelled = || match model {
        // The lender of the models is an object's counter, which knows only the keys of one group.
        Model::Leases(_) | Model::ExactLeases(_) | Model::RestLeases(_) => {
            let object = Capabilities::EXACT.dimensions(Dimensions::Grouped);
            fixture.steps_with_policy().all(|(_, _, policy)| object.supports_policy(policy).is_ok())
        }
        _ => true,
    };
    fixture.steps.iter().all(|step| step.disturb.is_none()) && run::supports(target, fixture) && is_modelled()
}

/// A fleet as a subject of the suite. Each request is a future of its own, and they interleave on virtual time.
struct Simulated {
    world: World,
    fleet: Fleet,
    isolates: Vec<Isolate>,
    apart: bool,
    at_once: Semaphore,
    /// What isolates do after responses.
    after: RefCell<Vec<BoxFuture<'static, ()>>>,
}

impl Simulated {
    fn new(emulator: Emulator) -> Result<Self, String> {
        let Emulator { model, apart, at_once, operation_us } = emulator;
        let world = World::default();
        let mut fleet = Fleet::emulated(&world, model, ISOLATES, operation_us);
        let isolates = (0..ISOLATES).map(|place| fleet.isolate(place)).collect::<Result<_, _>>();
        let isolates = isolates.map_err(|error| error.to_string())?;
        Ok(Self { world, fleet, isolates, apart, at_once: Semaphore::new(at_once), after: RefCell::default() })
    }

    /// Advances the clock whenever nothing else can run.
    async fn drive(&self) {
        let mut after = FuturesUnordered::new();
        loop {
            after.extend(self.after.borrow_mut().drain(..));
            tokio::select! {
                biased;
                Some(()) = after.next() => {}
                () = tokio::task::yield_now() => {
                    let _nothing_waits = self.world.step();
                }
            }
        }
    }
}

impl Subject for Simulated {
    async fn send(&self, route: Route, body: Bytes, place: Place) -> Result<Reply, String> {
        let call_ms = serde_json::from_slice::<Call>(&body).map(|call| call.now_ms).unwrap_or_default();
        let now_ms = self.world.now().get();
        self.world.sleep(call_ms.saturating_sub(now_ms) * 1_000).await;
        let _turn = self.at_once.acquire().await.map_err(|error| error.to_string())?;
        let nth = place.location.unwrap_or(if self.apart { 0 } else { place.nth });
        let nth = usize::try_from(nth).unwrap_or_default();
        let isolate = &self.isolates[nth % self.isolates.len()];
        let reply = serve(&isolate.limiter, route, &body).await;
        self.after.borrow_mut().extend(isolate.after(UnixMillis::new(call_ms)));
        Ok(reply)
    }

    fn isolates(&self) -> u64 {
        if self.apart { 1 } else { self.isolates.len() as u64 }
    }

    async fn operations(&self) -> Option<Operations> {
        Some(self.fleet.operations())
    }
}

/// How a prediction compares with what a target did.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Compared {
    /// The target.
    pub target: String,
    /// Fixtures with the same verdict, and as many admissions.
    pub same: usize,
    /// Fixtures of an approximate target that both pass, with other numbers.
    pub within_bounds: usize,
    /// Fixtures that differ, and how.
    pub different: Vec<String>,
    /// Round trips per decision as predicted, and as counted in the same fixtures, if they were counted.
    pub round_trips: Option<(f64, f64)>,
}

/// Compares a prediction with what the target did. Fixtures that the target did not run are left out.
#[must_use]
pub fn compare(predicted: &TargetReport, real: &TargetReport, accuracy: &Accuracy) -> Compared {
    let mut compared = Compared { target: real.name.clone(), ..Compared::default() };
    let (mut decisions, mut trips) = (0.0, (0.0, 0.0));
    for one in &predicted.fixtures {
        let Some(other) = real.fixtures.iter().find(|other| other.id == one.id) else { continue };
        if let (Some(by_one), Some(by_other)) = (one.round_trips, other.round_trips) {
            #[expect(clippy::cast_precision_loss, reason = "counts of a run are far below 2^53")]
            let weight = one.decisions as f64;
            decisions += weight;
            trips = (trips.0 + by_one * weight, trips.1 + by_other * weight);
        }
        let both_pass = (one.verdict, other.verdict) == (Verdict::Pass, Verdict::Pass);
        if one.verdict == other.verdict && one.admitted == other.admitted {
            compared.same += 1;
        } else if both_pass && !matches!(accuracy, Accuracy::Exact) {
            compared.within_bounds += 1;
        } else {
            let told = |report: &FixtureReport| {
                let reason = report.reason.as_ref().map_or_else(String::new, |reason| format!(" ({reason})"));
                format!("{:?}, {} admitted{reason}", report.verdict, report.admitted)
            };
            compared.different.push(format!("{}: predicted {}; found {}", one.id, told(one), told(other)));
        }
    }
    compared.round_trips = (decisions > 0.0).then(|| (trips.0 / decisions, trips.1 / decisions));
    compared
}
