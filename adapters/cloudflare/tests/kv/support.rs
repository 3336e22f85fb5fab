//! A model of Workers KV on virtual time: it can be late, cached, throttled and lossy.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use pollster::block_on;
use proptest::prelude::*;
use tidegate_cloudflare::kv::{Config, Isolate, KvLimiter};
use tidegate_core::store::BestEffort;
use tidegate_core::{
    Accuracy, Capabilities, Check, Decision, Drift, Error, ErrorKind, Key, LimiterExt, Millis, Policy, Quota, Rule,
    UnixMillis,
};
use tidegate_testing::{NOW, turn};

/// How a namespace behaves. By default, every write is visible everywhere at once, and nothing fails.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// How long it takes until another location sees a write.
    pub(crate) replication_ms: u64,
    /// How long a location answers from its cache, also if there was no value.
    pub(crate) cache_ms: u64,
    /// Whether a second write of a key within a second is rejected.
    pub(crate) throttles: bool,
    /// Percentages of operations.
    pub(crate) reads_fail: u64,
    pub(crate) writes_fail: u64,
    pub(crate) writes_lost: u64,
    pub(crate) reads_garbled: u64,
}

impl Faults {
    /// What Cloudflare documents, with the minimum `cacheTtl`, which `WorkersKv` uses.
    pub(crate) const DOCUMENTED: Self = Self {
        replication_ms: 60_000,
        cache_ms: Config::CACHE_TTL_MIN.get(),
        throttles: true,
        reads_fail: 0,
        writes_fail: 0,
        writes_lost: 0,
        reads_garbled: 0,
    };
}

#[derive(Clone)]
struct Row {
    at: UnixMillis,
    location: usize,
    bytes: Vec<u8>,
    expires: UnixMillis,
}

/// What a location answers from its cache, and until when.
type Cached = (UnixMillis, Option<Vec<u8>>);

#[derive(Default)]
pub(crate) struct World {
    pub(crate) now: UnixMillis,
    pub(crate) faults: Faults,
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) throttled: u64,
    /// The least time between two attempts of one isolate to write a key.
    pub(crate) least_spacing: Option<Millis>,
    pub(crate) least_ttl: Option<Millis>,
    pub(crate) longest_key: usize,
    rows: HashMap<String, Vec<Row>>,
    caches: HashMap<(usize, String), Cached>,
    tries: HashMap<(usize, String), UnixMillis>,
    draws: u64,
}

impl World {
    fn draw(&mut self, percent: u64) -> bool {
        self.draws = self.draws.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.draws >> 33) % 100 < percent
    }

    fn visible(&self, key: &str, location: usize) -> Option<Vec<u8>> {
        let delay = Millis::new(self.faults.replication_ms);
        let sees = |row: &&Row| row.location == location || row.at + delay <= self.now;
        let row = self.rows.get(key)?.iter().rfind(sees)?;
        (row.expires > self.now).then(|| row.bytes.clone())
    }

    fn get(&mut self, key: &str, location: usize) -> Result<Option<Vec<u8>>, Error> {
        self.reads += 1;
        self.longest_key = self.longest_key.max(key.len());
        if self.draw(self.faults.reads_fail) {
            return Err(Error::new(ErrorKind::Unavailable, "read failed"));
        }
        if self.draw(self.faults.reads_garbled) {
            return Ok(Some(b"not ours".to_vec()));
        }
        let place = (location, key.to_owned());
        if let Some((until, cached)) = self.caches.get(&place)
            && *until > self.now
        {
            return Ok(cached.clone());
        }
        let found = self.visible(key, location);
        self.caches.insert(place, (self.now + Millis::new(self.faults.cache_ms), found.clone()));
        Ok(found)
    }

    fn put(&mut self, key: &str, bytes: &[u8], ttl: Millis, writer: (usize, usize)) -> Result<(), Error> {
        self.writes += 1;
        self.least_ttl = Some(self.least_ttl.map_or(ttl, |least| least.min(ttl)));
        if let Some(last) = self.tries.insert((writer.1, key.to_owned()), self.now) {
            let spacing = self.now.since(last);
            self.least_spacing = Some(self.least_spacing.map_or(spacing, |least| least.min(spacing)));
        }
        let newest = self.rows.get(key).and_then(|rows| rows.last()).map(|row| row.at);
        if self.faults.throttles && newest.is_some_and(|at| self.now.since(at) < Millis::from_secs(1)) {
            self.throttled += 1;
            return Err(Error::new(ErrorKind::Contended, "429 Too Many Requests"));
        }
        if self.draw(self.faults.writes_fail) {
            return Err(Error::new(ErrorKind::Unavailable, "write failed"));
        }
        if self.draw(self.faults.writes_lost) {
            return Ok(());
        }
        let (at, location) = (self.now, writer.0);
        let row = Row { at, location, bytes: bytes.to_vec(), expires: at + ttl };
        self.rows.entry(key.to_owned()).or_default().push(row);
        Ok(())
    }
}

/// The namespace, seen from one isolate in one location.
#[derive(Clone)]
pub(crate) struct Kv {
    world: Arc<Mutex<World>>,
    location: usize,
    isolate: usize,
}

impl Kv {
    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }
}

impl BestEffort for Kv {
    fn capabilities(&self) -> Capabilities {
        Capabilities::EXACT.accuracy(Accuracy::Approximate(Drift::LAST_WRITER_WINS))
    }

    async fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Error> {
        turn().await;
        self.world().get(key, self.location)
    }

    async fn put(&self, key: &str, bytes: &[u8], ttl: Millis) -> Result<(), Error> {
        turn().await;
        self.world().put(key, bytes, ttl, (self.location, self.isolate))
    }

    async fn delete(&self, key: &str) -> Result<(), Error> {
        self.world().rows.remove(key);
        Ok(())
    }
}

/// Isolates in locations around one namespace.
pub(crate) struct Edge {
    pub(crate) kv: Kv,
    pub(crate) isolates: Vec<Isolate>,
    pub(crate) locations: usize,
    flushes: Vec<Option<UnixMillis>>,
}

impl Edge {
    pub(crate) fn new(isolates: usize, locations: usize, faults: Faults) -> Self {
        Self::with_config(isolates, locations, faults, Config::default())
    }

    pub(crate) fn with_config(isolates: usize, locations: usize, faults: Faults, config: Config) -> Self {
        let world = World { now: NOW, faults, draws: 7, ..World::default() };
        let kv = Kv { world: Arc::new(Mutex::new(world)), location: 0, isolate: 0 };
        let made = (0..isolates).map(|place| Isolate::new(1_000 + place as u64, config)).collect();
        Self { kv, isolates: made, locations, flushes: vec![None; isolates] }
    }

    pub(crate) fn now(&self) -> UnixMillis {
        self.kv.world().now
    }

    /// Reads and writes so far.
    pub(crate) fn operations(&self) -> (u64, u64) {
        let world = self.kv.world();
        (world.reads, world.writes)
    }

    /// Advances time, and runs the flushes that become due.
    pub(crate) fn pass(&mut self, ms: u64) {
        let end = self.now() + Millis::new(ms);
        loop {
            let due = (0..self.isolates.len()).filter_map(|place| Some((self.flushes[place]?, place))).min();
            let Some((at, place)) = due.filter(|(at, _)| *at <= end) else { break };
            self.kv.world().now = at.max(self.now());
            self.flushes[place] = None;
            self.flush(place);
        }
        self.kv.world().now = end;
    }

    pub(crate) fn limiter(&self, place: usize) -> KvLimiter<'_, Kv> {
        let kv = Kv { location: place % self.locations, isolate: place, ..self.kv.clone() };
        KvLimiter::new(&self.isolates[place], kv)
    }

    /// One request, without a flush.
    pub(crate) fn check(&self, place: usize, policy: &Policy, key: &Key, cost: u64) -> Decision {
        let check = Check::new(policy, key, self.now()).cost(cost);
        block_on(self.limiter(place).check(check)).unwrap()
    }

    /// What remains of the policy's first quota after all of the key's values have been read.
    pub(crate) fn remaining(&mut self, place: usize, policy: &Policy, key: &Key) -> Option<u64> {
        for _ in 0..4 {
            self.pass(1_000);
            self.check(place, policy, key, 0);
        }
        self.check(place, policy, key, 0).quotas()[0].remaining()
    }

    pub(crate) fn flush(&mut self, place: usize) {
        let now = self.now();
        if let Some(wait) = block_on(self.limiter(place).flush(now)) {
            self.flushes[place] = Some(now + wait);
        }
    }

    /// One request with the flush after it.
    pub(crate) fn request(&mut self, place: usize, policy: &Policy, key: &Key, cost: u64) -> bool {
        let allowed = self.check(place, policy, key, cost).is_allowed();
        self.flush(place);
        allowed
    }
}

/// Policies with small numbers, so that limits are reached and windows end.
pub(crate) fn policies() -> impl Strategy<Value = Policy> {
    let windows = (1u64..12, prop::sample::select(vec![500u64, 3_000, 20_000]));
    let quota = prop_oneof![
        windows.clone().prop_map(|(limit, ms)| Quota::fixed_window(limit, Millis::new(ms)).unwrap()),
        windows.prop_map(|(limit, ms)| Quota::sliding_window(limit, Millis::new(ms)).unwrap()),
        (1u64..12, 1u64..6, prop::sample::select(vec![300u64, 1_000, 10_000]))
            .prop_map(|(capacity, refill, ms)| Quota::token_bucket(capacity, refill, Millis::new(ms)).unwrap()),
    ];
    prop::collection::vec(quota, 1..3).prop_map(|quotas| Policy::new("p", quotas).unwrap())
}

pub(crate) fn faults() -> impl Strategy<Value = Faults> {
    let rate = || prop_oneof![2 => Just(0u64), 1 => 0u64..101];
    let spans = (prop::sample::select(vec![0u64, 700, 60_000]), prop::sample::select(vec![0u64, 900, 60_000]));
    (spans, any::<bool>(), rate(), rate(), rate(), rate()).prop_map(
        |((replication_ms, cache_ms), throttles, reads_fail, writes_fail, writes_lost, reads_garbled)| Faults {
            replication_ms,
            cache_ms,
            throttles,
            reads_fail,
            writes_fail,
            writes_lost,
            reads_garbled,
        },
    )
}

/// Everything that was admitted, and whether the policy's formulas admit another request.
#[derive(Default)]
pub(crate) struct Truth(Vec<(UnixMillis, u64)>);

impl Truth {
    pub(crate) fn charge(&mut self, now: UnixMillis, cost: u64) {
        self.0.push((now, cost));
    }

    pub(crate) fn admits(&self, policy: &Policy, now: UnixMillis, cost: u64) -> bool {
        policy.quotas().iter().all(|quota| {
            let limit = quota.rule().limit();
            match quota.rule() {
                Rule::FixedWindow(rule) => self.in_window(now, rule.window().get(), 0) + cost <= limit,
                Rule::SlidingWindow(rule) => {
                    let window = rule.window().get();
                    let left = window - now.get() % window;
                    let counted = self.in_window(now, window, 1) * left + self.in_window(now, window, 0) * window;
                    counted + cost * window <= limit * window
                }
                Rule::TokenBucket(rule) => {
                    let (mut level, mut at) = (0u64, NOW);
                    for (then, charged) in self.0.iter().copied().chain([(now, cost)]) {
                        level = level.saturating_sub(then.since(at).get() * rule.refill()) + charged * rule.per().get();
                        at = then;
                    }
                    level <= limit * rule.per().get()
                }
                _ => unreachable!("`policies` makes no other rule"),
            }
        })
    }

    fn in_window(&self, now: UnixMillis, window: u64, back: u64) -> u64 {
        let wanted = (now.get() / window).checked_sub(back);
        self.0.iter().filter(|(at, _)| Some(at.get() / window) == wanted).map(|(_, cost)| cost).sum()
    }
}
