//! Runs traffic through a design, and measures it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use foldhash::{HashSet, HashSetExt as _};
use serde::Serialize;
use tidegate_conformance::operation::{self, Operation, PerDecision};
use tidegate_core::{Check, ErrorKind, Key, LimiterExt as _, Origin, Policy};

use super::bill::{Billed, trips};
use super::design::Design;
use super::environment::{Assumed, Environment, Faults};
use super::isolate::{Fleet, Isolate};
use super::measure::{excess, reference};
use super::place::Places;
use super::traffic::Traffic;
use super::world::World;
use crate::prices;

/// A fleet and its traffic.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The limit.
    pub policy: Policy,
    /// Who sends what.
    pub traffic: Traffic,
    /// Where isolates are. Stores of one place are at the first one.
    pub places: Arc<Places>,
    /// How many isolates serve the requests of a place.
    pub isolates: usize,
    /// How long an isolate lives, in seconds. Then another one takes its place, which knows nothing.
    pub isolate_seconds: u64,
    /// What is assumed of the platforms.
    pub assumed: Assumed,
    /// What goes wrong.
    pub faults: Faults,
    /// What the traffic follows from.
    pub seed: u64,
}

impl Setup {
    /// How many isolates a client meets at most within the longest window of its limit, if each lives as long as isolates do on average:
    /// those of all places, and as many again for each of their lives that ends meanwhile.
    #[must_use]
    pub fn borrowers(&self) -> u64 {
        let window_ms = self.policy.quotas().iter().map(|quota| quota.rule().window().get()).max().unwrap_or_default();
        let ended = window_ms / self.isolate_seconds.max(1).saturating_mul(1_000);
        let at_a_time = self.places.count() as u64 * self.isolates.max(1) as u64;
        at_a_time.saturating_mul(1 + ended)
    }
}

/// What a design did.
#[derive(Clone, Debug, PartialEq, Serialize, Default)]
pub struct Outcome {
    /// The design.
    pub design: &'static str,
    /// Its parameter; empty if there is none.
    pub parameter: String,
    /// What it is.
    pub about: &'static str,
    /// How many requests arrived.
    pub offered: u64,
    /// How many were admitted.
    pub admitted: u64,
    /// How many an exact limiter admits of the same requests.
    pub exact: u64,
    /// Those of the admissions that an exact limiter would have denied, if there had been no other requests.
    pub over: u64,
    /// How many fewer than the exact limiter it admitted, besides those that it admitted over the limit.
    pub under: u64,
    /// The most that a client was admitted in an interval of the limit's length.
    pub worst: u64,
    /// Requests that got an error, by its kind.
    pub errors: BTreeMap<&'static str, u64>,
    /// The time that half of the requests waited for a decision, in milliseconds.
    pub p50_ms: f64,
    /// The time that 99 % waited at most.
    pub p99_ms: f64,
    /// The time that 99.9 % waited at most.
    pub p999_ms: f64,
    /// The requests of clients that are new to their isolate.
    pub first: First,
    /// Calls per decision, without writes that nobody waits for. What travels together is one.
    pub round_trips: f64,
    /// Calls over the network per decision, with those that nobody waits for. What travels together is one.
    pub trips: f64,
    /// What platforms count of these calls.
    pub billed: Billed,
    /// All operations per decision.
    pub operations: PerDecision,
    /// The price of a million decisions in US dollars, if it is known.
    pub usd_per_million: Option<f64>,
}

/// The first request of each client in each isolate. The isolate knows nothing of the client, so most designs ask their store.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Default)]
pub struct First {
    /// Their share of all requests, in percent.
    pub percent: f64,
    /// The time that half of them waited for a decision, in milliseconds.
    pub p50_ms: f64,
    /// The time that 99 % of them waited at most.
    pub p99_ms: f64,
}

impl Outcome {
    /// What was admitted over the limit, in percent of what an exact limiter admits.
    #[must_use]
    pub fn overshoot_percent(&self) -> f64 {
        share_percent(self.over, self.exact)
    }

    /// How many fewer were admitted than by an exact limiter, in percent of those.
    #[must_use]
    pub fn undershoot_percent(&self) -> f64 {
        share_percent(self.under, self.exact)
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of a run are far below 2^53")]
fn share_percent(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64 * 100.0
}

/// What the requests of a run met.
#[derive(Debug, Default)]
struct Seen {
    /// When each client was admitted.
    admitted: Vec<Vec<u64>>,
    arrived: Vec<Vec<u64>>,
    waits_us: Vec<u64>,
    /// The waits of requests of clients that are new to their isolate.
    first_waits_us: Vec<u64>,
    errors: BTreeMap<&'static str, u64>,
}

/// An isolate, until another one takes its place.
struct Living {
    isolate: Arc<Isolate>,
    until_us: u64,
    /// The clients that it has served.
    served: HashSet<u32>,
}

/// Runs the traffic through a design.
///
/// # Errors
/// Why the design cannot count by the policy.
pub fn simulate(setup: &Setup, design: &Design) -> Result<Outcome, String> {
    design.takes(&setup.policy)?;
    let world = World::default();
    let environment =
        Environment::new(world.clone(), Arc::clone(&setup.places), setup.assumed, setup.faults.clone(), setup.seed);
    let mut fleet = Fleet::new(design.model, &environment, true);
    let clients = setup.traffic.keys();
    let keys: Vec<Key> = (0..clients).map(|client| Key::new(format!("client:{client}"))).collect();
    let seen =
        Mutex::new(Seen { admitted: vec![Vec::new(); clients], arrived: vec![Vec::new(); clients], ..Seen::default() });
    let (isolates, life_us) = (setup.isolates.max(1), setup.isolate_seconds.max(1) * 1_000_000);
    let mut living: Vec<Option<Living>> = Vec::new();
    living.resize_with(setup.places.count() * isolates, || None);
    // Otherwise, decisions tell the store's time.
    let own_time = design.model.takes_callers_time();
    let mut failed = None;
    let mut arrivals = setup.traffic.arrivals(setup.places.count(), setup.seed);
    world.run(|| {
        let arrival = arrivals.next()?;
        let slot = arrival.place * isolates + usize::try_from(arrival.draw % isolates as u64).unwrap_or_default();
        let mut serving = match living[slot].take().filter(|living| living.until_us > arrival.at_us) {
            Some(living) => living,
            None => match fleet.isolate(arrival.place).map(Arc::new) {
                Ok(isolate) => {
                    // Isolates do not end at the same time.
                    let until_us = arrival.at_us + life_us / 2 + (arrival.draw >> 16) % life_us;
                    Living { isolate, until_us, served: HashSet::new() }
                }
                Err(error) => {
                    failed.get_or_insert(error.to_string());
                    return None;
                }
            },
        };
        let is_first = serving.served.insert(arrival.client);
        let isolate = Arc::clone(&serving.isolate);
        living[slot] = Some(serving);
        let (world, seen, policy) = (&world, &seen, &setup.policy);
        let client = arrival.client as usize;
        let key = &keys[client];
        let task = async move {
            let (began, now) = (world.now_us(), isolate.time(world.now()));
            let decided = isolate.limiter.check(Check::new(policy, key, now)).await;
            {
                let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                seen.arrived[client].push(began);
                let waited_us = world.now_us() - began;
                seen.waits_us.push(waited_us);
                if is_first {
                    seen.first_waits_us.push(waited_us);
                }
                match decided {
                    Ok(decision) if decision.is_allowed() => {
                        let by_isolate = own_time || matches!(decision.origin(), Origin::Lease | Origin::Fallback);
                        let at = decision.decided_at();
                        let at = if by_isolate { isolate.corrected(at) } else { at };
                        seen.admitted[client].push(at.get() * 1_000);
                    }
                    Ok(_) => {}
                    Err(error) => *seen.errors.entry(ErrorKind::name(error.kind())).or_default() += 1,
                }
            }
            if let Some(after) = isolate.after(now) {
                after.await;
            }
        };
        Some((arrival.at_us, Box::pin(task)))
    });
    fleet.end();
    match failed {
        Some(why) => Err(why),
        None => outcome(setup, design, &environment, &keys, seen.into_inner().unwrap_or_else(PoisonError::into_inner)),
    }
}

/// Runs the traffic through each design, on all processors. Calls `begun` with each when it begins.
///
/// # Errors
/// Why a design cannot count by the policy.
pub fn simulate_all(
    setup: &Setup,
    designs: &[Design],
    begun: impl Fn(usize, &Design) + Sync,
) -> Result<Vec<Outcome>, String> {
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(Vec::new());
    let work = || {
        loop {
            let nth = next.fetch_add(1, Ordering::Relaxed);
            let Some(design) = designs.get(nth) else { return };
            begun(nth, design);
            let outcome = simulate(setup, design);
            outcomes.lock().unwrap_or_else(PoisonError::into_inner).push((nth, outcome));
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let mut outcomes = outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
    outcomes.sort_by_key(|(nth, _)| *nth);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

fn outcome(
    setup: &Setup,
    design: &Design,
    environment: &Environment,
    keys: &[Key],
    mut seen: Seen,
) -> Result<Outcome, String> {
    let (mut over, mut under, mut worst, mut exact, mut admitted) = (0, 0, 0, 0, 0);
    for ((key, times), arrived) in keys.iter().zip(&mut seen.admitted).zip(&mut seen.arrived) {
        times.sort_unstable();
        arrived.sort_unstable();
        let excess = excess(&setup.policy, key, times).map_err(|error| error.to_string())?;
        let due = reference(&setup.policy, key, arrived).map_err(|error| error.to_string())?;
        let count = times.len() as u64;
        over += excess.over;
        worst = worst.max(excess.worst);
        under += due.saturating_sub(count - excess.over);
        exact += due;
        admitted += count;
    }
    let (waits, first) = (&mut seen.waits_us, &mut seen.first_waits_us);
    waits.sort_unstable();
    first.sort_unstable();
    let operations = environment.operations();
    // The binding answers from the machine's own memory.
    let mut remote = operations.clone();
    remote.remove(&Operation::BindingCall);
    let offered = waits.len() as u64;
    let each = operation::per_decision(&operations, offered);
    Ok(Outcome {
        design: design.name,
        parameter: design.parameter.clone(),
        about: design.about,
        offered,
        admitted,
        exact,
        over,
        under,
        worst,
        errors: seen.errors,
        p50_ms: quantile_ms(waits, 500),
        p99_ms: quantile_ms(waits, 990),
        p999_ms: quantile_ms(waits, 999),
        first: First {
            percent: operation::mean(100 * first.len() as u64, offered),
            p50_ms: quantile_ms(first, 500),
            p99_ms: quantile_ms(first, 990),
        },
        round_trips: operation::mean(operation::round_trips(&remote), offered),
        trips: operation::mean(trips(&operations), offered),
        billed: Billed::of(&operations, offered),
        usd_per_million: design
            .provider
            .and_then(|provider| prices::cost(provider, &each))
            .map(|cost| cost.usd_per_million),
        operations: each,
    })
}

#[expect(clippy::cast_precision_loss, reason = "an hour at most")]
fn quantile_ms(sorted_us: &[u64], per_mille: usize) -> f64 {
    let place = (sorted_us.len() * per_mille / 1_000).min(sorted_us.len().saturating_sub(1));
    sorted_us.get(place).map_or(0.0, |us| (*us / 10) as f64 / 100.0)
}
