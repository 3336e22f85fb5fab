//! Isolates of a design: the adapters' own limiters over simulated stores.

use std::collections::HashMap;
use std::future::ready;
use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use tidegate_cloudflare::durable_objects::{Clock, DurableObjects, Leases, Placement};
use tidegate_cloudflare::kv::{Isolate as Counts, KvLimiter};
use tidegate_conformance::operation::Operations;
use tidegate_core::lending::{Lease, PAUSE};
use tidegate_core::store::{NativeLimiter, VersionedLimiter};
use tidegate_core::{
    Accuracy, Capabilities, DenyCache, ErasedLimiter, Error, Fallback, Limiter, MemoryLimiter, Millis, Operation,
    Reply, UnixMillis,
};
use tidegate_spin::{SpinAtomics, SpinKv, SpinWindow};

use super::after_response::AfterResponse;
use super::environment::{Assumed, Environment, Faults, HOME, Pipeline, locked};
use super::model::Model;
use super::place::Places;
use super::recommended::{Naive, Synchronized, Total};
use super::stores::{Counted, Counters, Exact, Host, Kv, PlaceCounts, Replicas, Timed, Values, Window};
use super::world::World;

/// Stores in memory that any number of isolates share.
type Shared<T> = Arc<Mutex<HashMap<String, T>>>;

/// The stores of a design, from which isolates are made.
pub struct Fleet {
    model: Model,
    environment: Environment,
    /// Whether stores decide by their own clocks, where they have one.
    own_clocks: bool,
    counters: Shared<Counted>,
    values: Shared<Values>,
    totals: Shared<Total>,
    /// One for each place.
    exact: Vec<Arc<MemoryLimiter>>,
    counts: Vec<Shared<Window>>,
    isolates: u64,
}

/// What serves requests at a place.
pub struct Isolate {
    /// The limiter.
    pub limiter: Box<dyn ErasedLimiter>,
    after: Option<Box<dyn AfterResponse>>,
    /// How far its clock is off, in milliseconds.
    skew_ms: i64,
}

impl Isolate {
    /// The time by its own clock.
    pub(super) const fn time(&self, now: UnixMillis) -> UnixMillis {
        skewed(now, self.skew_ms)
    }

    /// The time of an instant that its own clock tells.
    pub(super) const fn corrected(&self, own: UnixMillis) -> UnixMillis {
        skewed(own, -self.skew_ms)
    }

    /// What is done after the response to a request of this time, by its own clock.
    #[must_use]
    pub fn after(&self, now: UnixMillis) -> Option<BoxFuture<'static, ()>> {
        self.after.as_ref()?.after(now)
    }
}

impl Fleet {
    pub(super) fn new(model: Model, environment: &Environment, own_clocks: bool) -> Self {
        let places = environment.places.count();
        Self {
            model,
            environment: environment.clone(),
            own_clocks,
            counters: Arc::default(),
            values: Arc::default(),
            totals: Arc::default(),
            exact: (0..places).map(|_| Arc::new(MemoryLimiter::with_shards(1))).collect(),
            counts: (0..places).map(|_| Arc::default()).collect(),
            isolates: 0,
        }
    }

    /// The stores of a model as emulators on one machine have them, with the callers' clocks. Each operation takes `rtt_us`.
    #[must_use]
    pub fn emulated(world: &World, model: Model, places: usize, rtt_us: u64) -> Self {
        let places = Arc::new(Places::on_one_machine(places, rtt_us));
        let environment = Environment::new(world.clone(), places, Assumed::emulator(), Faults::default(), 0);
        Self::new(model, &environment, false)
    }

    /// The last request was long ago: objects have removed what has expired.
    pub(super) fn end(&self) {
        if !matches!(self.model, Model::Objects | Model::DenyCache | Model::Leases(_) | Model::ShardedLeases(..)) {
            return;
        }
        for counted in locked(&self.counters).values_mut() {
            counted.sweep(&self.environment, UnixMillis::MAX);
        }
    }

    /// The operations so far.
    #[must_use]
    pub fn operations(&self) -> Operations {
        self.environment.operations()
    }

    /// A new isolate at a place.
    ///
    /// # Errors
    /// The design cannot be configured so.
    pub fn isolate(&mut self, place: usize) -> Result<Isolate, Error> {
        self.isolates += 1;
        let environment = self.environment.clone();
        let counters = |host: Host, placement| {
            let all = Arc::clone(&self.counters);
            let counters =
                Counters { environment: environment.clone(), place, host, pipeline: Pipeline::default(), all };
            let clock = if self.own_clocks { Clock::default() } else { Clock::Caller };
            DurableObjects::with_config(counters, host.config(&environment.assumed).clock(clock).placement(placement))
        };
        let objects = || counters(Host::Objects, Placement::PerKey);
        let exact = |home: usize| Exact {
            environment: environment.clone(),
            place,
            home,
            accuracy: if self.model == Model::PerPlace { Accuracy::PerLocation } else { Accuracy::Exact },
            store: Arc::clone(&self.exact[home]),
            own_clock: self.own_clocks,
        };
        let kv = || Kv { environment: environment.clone(), place, all: Arc::clone(&self.values) };
        let replicas = |replication_us| Replicas {
            environment: environment.clone(),
            place,
            replication_us,
            all: Arc::clone(&self.values),
        };
        let mut after = None::<Box<dyn AfterResponse>>;
        let skew_ms = self.environment.skew_ms();
        let mut lending = |store, lease: Lease| -> Result<Box<dyn ErasedLimiter>, Error> {
            let limiter = Arc::new(Leases::with_lease(store, lease)?);
            if lease.in_background && !self.own_clocks {
                return Ok(Box::new(Telling(limiter)));
            }
            if lease.in_background {
                let world = self.environment.world.clone();
                after = Some(Box::new(Lending { limiter: Arc::clone(&limiter), world, skew_ms }));
            }
            Ok(Box::new(limiter))
        };
        let limiter: Box<dyn ErasedLimiter> = match self.model {
            Model::Objects => Box::new(objects().limiter()),
            Model::DenyCache => Box::new(DenyCache::new(objects().limiter())),
            Model::Leases(lease) => lending(objects(), lease)?,
            Model::ShardedLeases(lease, shards) => lending(counters(Host::Objects, Placement::Shards(shards)), lease)?,
            Model::ExactLeases(lease) => lending(counters(Host::Server, Placement::PerKey), lease)?,
            Model::RestLeases(lease) => lending(counters(Host::Rest, Placement::PerKey), lease)?,
            Model::WorkersKv(seconds) => {
                let refresh = Millis::from_secs(seconds);
                let config = tidegate_cloudflare::kv::Config::default().refresh(refresh).write_spacing(refresh);
                let shared = SharedKv { counts: Arc::new(Counts::new(self.isolates, config)), kv: kv() };
                after = Some(Box::new(shared.clone()));
                Box::new(shared)
            }
            Model::Binding => {
                let counts = Arc::clone(&self.counts[place]);
                Box::new(NativeLimiter::new(PlaceCounts { environment, machine: self.isolates, counts }))
            }
            Model::Exact => Box::new(exact(HOME)),
            Model::ExactDenyCache => Box::new(DenyCache::new(exact(HOME))),
            Model::Fallback(percent) => Box::new(Fallback::new(exact(HOME), percent)?),
            Model::PerPlace => Box::new(exact(place)),
            Model::Memory => Box::new(Arc::clone(&self.exact[HOME])),
            Model::PerProcess => Box::new(MemoryLimiter::with_shards(1)),
            Model::FastlyKv => Box::new(compare_and_swap(replicas(environment.assumed.fastly_replication_us))),
            Model::Versioned => Box::new(compare_and_swap(replicas(0))),
            Model::SpinKv => Box::new(SpinKv::new(replicas(environment.assumed.akamai_replication_us)).limiter()),
            Model::SpinAtomics => Box::new(SpinAtomics::new(replicas(0)).limiter()),
            Model::SpinWindow => Box::new(SpinWindow::new(replicas(0))),
            Model::NaiveKv => Box::new(NativeLimiter::new(Naive { kv: kv() })),
            Model::Synchronized(ms) => {
                let synchronized = Synchronized::new(environment, place, Millis::new(ms), Arc::clone(&self.totals));
                after = Some(Box::new(synchronized.clone()));
                Box::new(NativeLimiter::new(synchronized))
            }
        };
        Ok(Isolate { limiter, after, skew_ms })
    }
}

const fn skewed(time: UnixMillis, ms: i64) -> UnixMillis {
    UnixMillis::new(time.get().saturating_add_signed(ms))
}

fn compare_and_swap(replicas: Replicas) -> VersionedLimiter<Timed<tidegate_fastly::Kv<Replicas>>> {
    let store = tidegate_fastly::Kv::new(replicas.clone());
    VersionedLimiter::new(Timed { replicas, store })
}

/// An isolate that tells its store after responses what it has admitted, and asks for the next loans.
struct Lending {
    limiter: Arc<Leases<'static, Counters>>,
    world: World,
    skew_ms: i64,
}

impl AfterResponse for Lending {
    fn after(&self, _: UnixMillis) -> Option<BoxFuture<'static, ()>> {
        let (limiter, world, skew_ms) = (Arc::clone(&self.limiter), self.world.clone(), self.skew_ms);
        Some(Box::pin(async move {
            limiter.after(|| skewed(world.now(), skew_ms), world.sleep(PAUSE.get() * 1_000)).await;
        }))
    }
}

/// A guest of the suite, which tells its store at the end of each request: virtual time stands still, so no pause would end.
struct Telling(Arc<Leases<'static, Counters>>);

impl Limiter for Telling {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    async fn apply(&self, operation: Operation<'_>) -> Result<Reply, Error> {
        let reply = self.0.apply(operation).await;
        self.0.after(|| operation.now(), ready(())).await;
        reply
    }
}

/// How long a Worker goes on after its response.
const LINGER_MAX: Millis = Millis::from_secs(25);

/// An isolate that shares its counts through Workers KV.
#[derive(Clone)]
struct SharedKv {
    counts: Arc<Counts>,
    kv: Kv,
}

impl SharedKv {
    fn limiter(&self) -> KvLimiter<'_, Kv> {
        KvLimiter::new(&self.counts, self.kv.clone())
    }
}

impl Limiter for SharedKv {
    fn capabilities(&self) -> Capabilities {
        self.limiter().capabilities()
    }

    async fn apply(&self, operation: Operation<'_>) -> Result<Reply, Error> {
        self.limiter().apply(operation).await
    }
}

impl AfterResponse for SharedKv {
    /// Writes as a Worker does in `waitUntil`, for 25 s at most.
    fn after(&self, now: UnixMillis) -> Option<BoxFuture<'static, ()>> {
        let this = self.clone();
        Some(Box::pin(async move {
            let mut waited = Millis::ZERO;
            while let Some(wait) = this.limiter().flush(now + waited).await {
                waited = waited + wait.max(Millis::new(1));
                if waited > LINGER_MAX {
                    return;
                }
                this.kv.environment.world.sleep(wait.get().max(1) * 1_000).await;
            }
        }))
    }
}
