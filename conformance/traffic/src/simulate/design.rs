//! The designs that are compared.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZero;
use std::sync::{Arc, Mutex, PoisonError};

use tidegate_cloudflare_do::{DurableObjects, Leases};
use tidegate_cloudflare_kv::{Isolate, KvLimiter};
use tidegate_cloudflare_ratelimit::{RateLimit, RateLimitLimiter};
use tidegate_core::store::{AtomicLimiter, BestEffort as _};
use tidegate_core::{
    BoxFuture, Check, Decision, DenyCache, Error, Limiter as _, MemoryLimiter, Millis, Policy, Rule, UnixMillis,
};

use super::stores::{Exact, Ground, HOME, Kv, Objects, PlaceCounts};

/// A way to count, with its parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Design {
    /// The designs with this name are one curve.
    pub name: &'static str,
    /// Who has it: an adapter of Tidegate, or what is often recommended.
    pub about: &'static str,
    /// What distinguishes it from the others of its name, such as `slice 10`. Empty if there is one.
    pub parameter: String,
    /// The platform whose prices apply, as in `prices.json`.
    pub provider: Option<&'static str>,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Objects,
    DenyCache,
    Leases(NonZero<u64>),
    WorkersKv(u64),
    Binding,
    Exact,
    PerPlace,
    NaiveKv,
    Synchronized(u64),
}

/// The designs.
#[must_use]
pub fn designs() -> Vec<Design> {
    let design = |name, about, parameter: String, provider, kind| Design { name, about, parameter, provider, kind };
    let cloudflare = Some("cloudflare");
    let mut all = vec![
        design(
            "durable-object",
            "tidegate-cloudflare-do, one object for each key",
            String::new(),
            cloudflare,
            Kind::Objects,
        ),
        design(
            "durable-object-deny-cache",
            "the same, with a DenyCache in each isolate",
            String::new(),
            cloudflare,
            Kind::DenyCache,
        ),
        design("redis", "tidegate-redis, one server at the first place", String::new(), None, Kind::Exact),
        design(
            "upstash",
            "tidegate-redis over REST, one database at the first place",
            String::new(),
            Some("upstash"),
            Kind::Exact,
        ),
        design(
            "rate-limit-binding",
            "tidegate-cloudflare-ratelimit, a count at each place",
            String::new(),
            cloudflare,
            Kind::Binding,
        ),
        design("per-location", "an exact store at each place, without the others", String::new(), None, Kind::PerPlace),
        design("kv-counter", "a counter in Workers KV, as in tutorials", String::new(), cloudflare, Kind::NaiveKv),
    ];
    for slice in [1, 2, 5, 10, 20, 50] {
        let Some(slice) = NonZero::new(slice) else { continue };
        let about = "tidegate-cloudflare-do with leases";
        all.push(design("durable-object-leased", about, format!("slice {slice}"), cloudflare, Kind::Leases(slice)));
    }
    for seconds in [1, 5, 30] {
        let about = "tidegate-cloudflare-kv, counts in each isolate and in Workers KV";
        all.push(design("workers-kv", about, format!("refresh {seconds} s"), cloudflare, Kind::WorkersKv(seconds)));
    }
    for ms in [10, 100, 1_000, 10_000] {
        let about = "counts in each isolate, synchronized through a server at the first place";
        all.push(design("synchronized", about, format!("every {ms} ms"), None, Kind::Synchronized(ms)));
    }
    all
}

/// What serves the requests of one isolate.
pub(super) trait Serve: Send + Sync {
    fn check<'a>(&'a self, check: Check<'a>) -> BoxFuture<'a, Result<Decision, Error>>;

    /// What is done after the response to a request of this time.
    fn after(&self, _now: UnixMillis) -> Option<BoxFuture<'_, ()>> {
        None
    }
}

/// The stores of a design, from which isolates are made.
pub(super) struct Fleet {
    kind: Kind,
    ground: Ground,
    policy: Policy,
    objects: Arc<Mutex<HashMap<String, super::stores::Object>>>,
    values: Arc<Mutex<HashMap<String, super::stores::Values>>>,
    /// One for each place.
    exact: Vec<Arc<MemoryLimiter>>,
    counts: Vec<PlaceCounts>,
    totals: Arc<Mutex<HashMap<String, Total>>>,
    isolates: u64,
}

impl Design {
    /// Whether its parameter is the adapter's own default, or there is none.
    #[must_use]
    pub fn is_default(&self) -> bool {
        match self.kind {
            Kind::Leases(slice) => slice.get() == 10,
            Kind::WorkersKv(seconds) => seconds == 1,
            Kind::Synchronized(_) => false,
            _ => true,
        }
    }

    /// Why this design cannot count by the policy, if so.
    ///
    /// # Errors
    /// The reason.
    pub fn takes(&self, policy: &Policy) -> Result<(), String> {
        let [quota] = policy.quotas() else { return Err("it takes one quota".into()) };
        let binding = |window: Millis| RateLimit::<PlaceCounts>::PERIODS.contains(&window);
        match (self.kind, quota.rule()) {
            (Kind::Binding, Rule::FixedWindow(window)) if binding(window.window()) => Ok(()),
            (Kind::Binding, _) => Err("it takes a fixed window of 10 or 60 s".into()),
            (Kind::NaiveKv | Kind::Synchronized(_), Rule::FixedWindow(_)) => Ok(()),
            (Kind::NaiveKv | Kind::Synchronized(_), _) => Err("it takes a fixed window".into()),
            (Kind::Leases(_), Rule::FixedWindow(_) | Rule::TokenBucket(_)) => Ok(()),
            (Kind::Leases(_), _) => Err("it takes a fixed window or a token bucket".into()),
            (Kind::WorkersKv(_), Rule::SlidingLog(_) | Rule::LeakyBucket(_)) => {
                Err("it takes a window with counters or a token bucket".into())
            }
            (_, Rule::Concurrency(_) | Rule::Penalty(_)) => Err("it takes a rate".into()),
            _ => Ok(()),
        }
    }

    pub(super) fn fleet(&self, ground: &Ground, policy: &Policy) -> Fleet {
        let places = ground.places.count();
        let rule = *policy.quotas()[0].rule();
        let counts = |_| PlaceCounts {
            ground: ground.clone(),
            limit: rule.limit(),
            period_us: rule.window().get().max(1) * 1_000,
            counts: Arc::default(),
        };
        Fleet {
            kind: self.kind,
            ground: ground.clone(),
            policy: policy.clone(),
            objects: Arc::default(),
            values: Arc::default(),
            exact: (0..places).map(|_| Arc::new(MemoryLimiter::with_shards(1))).collect(),
            counts: (0..places).map(counts).collect(),
            totals: Arc::default(),
            isolates: 0,
        }
    }
}

impl Fleet {
    /// A new isolate at a place.
    pub(super) fn isolate(&mut self, place: usize) -> Result<Arc<dyn Serve>, Error> {
        self.isolates += 1;
        let ground = self.ground.clone();
        let objects = || Objects { ground: ground.clone(), place, all: Arc::clone(&self.objects) };
        let kv = || Kv { ground: ground.clone(), place, all: Arc::clone(&self.values) };
        Ok(match self.kind {
            Kind::Objects => Arc::new(Plain(DurableObjects::new(objects()).limiter())),
            Kind::DenyCache => Arc::new(Remembered(DenyCache::new(DurableObjects::new(objects()).limiter()))),
            Kind::Leases(slice) => {
                Arc::new(Leased(Leases::new(DurableObjects::new(objects()), slice, Millis::from_secs(2))?))
            }
            Kind::WorkersKv(seconds) => {
                let refresh = Millis::from_secs(seconds);
                let config = tidegate_cloudflare_kv::Config::default().refresh(refresh).write_spacing(refresh);
                Arc::new(Shared { isolate: Isolate::new(self.isolates, config), kv: kv() })
            }
            Kind::Binding => {
                let rule = self.policy.quotas()[0].rule();
                Arc::new(Bound(RateLimit::new(self.counts[place].clone(), rule.limit(), rule.window())?.limiter()))
            }
            Kind::Exact => Arc::new(Exact { ground, place, home: HOME, store: Arc::clone(&self.exact[HOME]) }),
            Kind::PerPlace => Arc::new(Exact { ground, place, home: place, store: Arc::clone(&self.exact[place]) }),
            Kind::NaiveKv => Arc::new(Naive { kv: kv(), policy: self.policy.clone() }),
            Kind::Synchronized(ms) => Arc::new(Synchronized {
                ground,
                place,
                every_us: ms * 1_000,
                policy: self.policy.clone(),
                totals: Arc::clone(&self.totals),
                local: Mutex::default(),
            }),
        })
    }
}

struct Plain(AtomicLimiter<DurableObjects<Objects>>);

impl Serve for Plain {
    fn check<'a>(&'a self, check: Check<'a>) -> BoxFuture<'a, Result<Decision, Error>> {
        Box::pin(self.0.check(check))
    }
}

struct Remembered(DenyCache<AtomicLimiter<DurableObjects<Objects>>>);

impl Serve for Remembered {
    fn check<'a>(&'a self, check: Check<'a>) -> BoxFuture<'a, Result<Decision, Error>> {
        Box::pin(self.0.check(check))
    }
}

struct Leased(Leases<Objects>);

impl Serve for Leased {
    fn check<'a>(&'a self, check: Check<'a>) -> BoxFuture<'a, Result<Decision, Error>> {
        Box::pin(self.0.check(check))
    }
}

struct Bound(RateLimitLimiter<PlaceCounts>);

impl Serve for Bound {
    fn check<'a>(&'a self, check: Check<'a>) -> BoxFuture<'a, Result<Decision, Error>> {
        Box::pin(self.0.check(check))
    }
}

impl Serve for Exact {
    fn check<'a>(&'a self, check: Check<'a>) -> BoxFuture<'a, Result<Decision, Error>> {
        Box::pin(Self::check(self, check))
    }
}

/// An isolate that shares its counts through Workers KV.
struct Shared {
    isolate: Isolate,
    kv: Kv,
}

impl Serve for Shared {
    fn check<'a>(&'a self, check: Check<'a>) -> BoxFuture<'a, Result<Decision, Error>> {
        Box::pin(async move { KvLimiter::new(&self.isolate, self.kv.clone()).check(check).await })
    }

    /// Writes as a Worker does in `waitUntil`.
    fn after(&self, _: UnixMillis) -> Option<BoxFuture<'_, ()>> {
        Some(Box::pin(async move {
            let world = &self.kv.ground.world;
            let limiter = KvLimiter::new(&self.isolate, self.kv.clone());
            while let Some(wait) = limiter.flush(world.now()).await {
                world.sleep(wait.get().max(1) * 1_000).await;
            }
        }))
    }
}

/// Reads a count, decides, and writes it: the counter of tutorials.
struct Naive {
    kv: Kv,
    policy: Policy,
}

impl Serve for Naive {
    fn check<'a>(&'a self, check: Check<'a>) -> BoxFuture<'a, Result<Decision, Error>> {
        Box::pin(async move {
            let rule = self.policy.quotas()[0].rule();
            let (limit, window) = (rule.limit(), rule.window().get().max(1));
            let now = self.kv.ground.world.now();
            let key = format!("{}:{}", check.keys.sole(check.policy)?.as_str(), now.get() / window);
            let found = self.kv.get(&key).await?.and_then(|bytes| Some(u64::from_le_bytes(bytes.try_into().ok()?)));
            let count = found.unwrap_or_default();
            if count >= limit {
                return Ok(Decision::native(false, limit, now));
            }
            // Tutorials do not look at what became of the write.
            let _lost = self.kv.put(&key, &(count + 1).to_le_bytes(), Millis::new(2 * window)).await;
            Ok(Decision::native(true, limit, now))
        })
    }
}

/// All counts of a window, at the server.
#[derive(Clone, Copy, Debug, Default)]
struct Total {
    window: u64,
    count: u64,
}

/// What an isolate knows of a key's window.
#[derive(Clone, Copy, Debug, Default)]
struct Local {
    window: u64,
    /// What others had counted at the last synchronization, and this isolate.
    known: u64,
    /// What this isolate has counted since.
    unreported: u64,
    next_us: u64,
}

/// Decides by its own count and what it last heard, and synchronizes after the fact.
struct Synchronized {
    ground: Ground,
    place: usize,
    every_us: u64,
    policy: Policy,
    totals: Arc<Mutex<HashMap<String, Total>>>,
    /// In an order of their own, so that the same seed gives the same run.
    local: Mutex<BTreeMap<String, Local>>,
}

impl Synchronized {
    /// Reports what was counted, and returns what all have. Nobody waits for it.
    async fn report(&self, key: String, window: u64, unreported: u64) {
        use crate::operation::Operation;
        self.ground.count(Operation::ScriptCall, 1);
        let half = self.ground.places.rtt_us(self.place, HOME) / 2;
        self.ground.world.sleep(half).await;
        let total = {
            let mut totals = self.totals.lock().unwrap_or_else(PoisonError::into_inner);
            let total = totals.entry(key.clone()).or_default();
            if total.window < window {
                *total = Total { window, count: 0 };
            }
            if total.window == window {
                total.count += unreported;
            }
            *total
        };
        self.ground.world.sleep(half).await;
        let mut local = self.local.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(local) = local.get_mut(&key)
            && local.window == total.window
        {
            local.known = local.known.max(total.count);
        }
    }
}

impl Serve for Synchronized {
    fn check<'a>(&'a self, check: Check<'a>) -> BoxFuture<'a, Result<Decision, Error>> {
        Box::pin(async move {
            let rule = self.policy.quotas()[0].rule();
            let now = self.ground.world.now();
            let window = now.get() / rule.window().get().max(1);
            let key = check.keys.sole(check.policy)?.as_str();
            let mut all = self.local.lock().unwrap_or_else(PoisonError::into_inner);
            let local = all.entry(key.to_owned()).or_default();
            if local.window != window {
                *local = Local { window, next_us: local.next_us, ..Local::default() };
            }
            let admitted = local.known + local.unreported < rule.limit();
            local.unreported += u64::from(admitted);
            Ok(Decision::native(admitted, rule.limit(), now))
        })
    }

    fn after(&self, _: UnixMillis) -> Option<BoxFuture<'_, ()>> {
        let now = self.ground.world.now_us();
        let mut due = Vec::new();
        let mut all = self.local.lock().unwrap_or_else(PoisonError::into_inner);
        for (key, local) in all.iter_mut() {
            if local.unreported > 0 && now >= local.next_us {
                local.next_us = now + self.every_us;
                // Until the answer, the isolate's own count stands for what it reports.
                local.known += local.unreported;
                due.push((key.clone(), local.window, std::mem::take(&mut local.unreported)));
            }
        }
        drop(all);
        (!due.is_empty()).then(|| -> BoxFuture<'_, ()> {
            Box::pin(async move {
                for (key, window, unreported) in due {
                    self.report(key, window, unreported).await;
                }
            })
        })
    }
}
