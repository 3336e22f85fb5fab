//! Stores in a [`World`], with the behaviour that their platforms document. Each counts its operations.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_cloudflare_do::{Address, Counter, Namespace, Page, Reply, Row, Rows, Thrown};
use tidegate_cloudflare_ratelimit::Binding;
use tidegate_core::store::BestEffort;
use tidegate_core::{Capabilities, Check, Decision, Error, ErrorKind, Limiter as _, MemoryLimiter, Millis, UnixMillis};

use super::place::Places;
use super::world::World;
use crate::operation::{Operation, Operations};

/// What all stores of a simulation share.
#[derive(Clone, Debug)]
pub(super) struct Ground {
    pub(super) world: World,
    pub(super) places: Arc<Places>,
    pub(super) assumed: Assumed,
    operations: Arc<Mutex<Operations>>,
}

/// What the simulation assumes of platforms. Each has a source.
#[derive(Clone, Copy, Debug)]
pub struct Assumed {
    /// How long an object works on a request. "A single object has a soft limit of 1,000 requests per second":
    /// <https://developers.cloudflare.com/durable-objects/platform/limits/>.
    pub object_us: u64,
    /// How long a request waits in an object's queue at most before the platform answers that the object is overloaded.
    pub object_queue_us: u64,
    /// After which time other locations see a write of Workers KV. "60 seconds or more":
    /// <https://developers.cloudflare.com/kv/concepts/how-kv-works/>.
    pub kv_replication_us: u64,
    /// For how long a location caches what it has read of Workers KV, the least `cacheTtl`.
    pub kv_cache_us: u64,
    /// The least time between two writes of a key: <https://developers.cloudflare.com/kv/platform/limits/>.
    pub kv_spacing_us: u64,
    /// A read of Workers KV that the location has cached. "Under 5 ms":
    /// <https://developers.cloudflare.com/kv/concepts/how-kv-works/>.
    pub kv_hot_us: u64,
}

impl Default for Assumed {
    fn default() -> Self {
        Self {
            object_us: 1_000,
            object_queue_us: 10_000_000,
            kv_replication_us: 60_000_000,
            kv_cache_us: 30_000_000,
            kv_spacing_us: 1_000_000,
            kv_hot_us: 2_000,
        }
    }
}

impl Assumed {
    /// The assumptions, with their sources.
    #[must_use]
    pub fn in_words(&self) -> Vec<String> {
        let seconds = |us: u64| us / 1_000_000;
        let kv = "https://developers.cloudflare.com/kv/concepts/how-kv-works/";
        vec![
            format!(
                "An object serves one request after another, each in {} us, and answers that it is overloaded if a request would \
                 wait longer than {} s (https://developers.cloudflare.com/durable-objects/platform/limits/). It lives where it \
                 was called first.",
                self.object_us,
                seconds(self.object_queue_us)
            ),
            format!(
                "A location sees what others write to Workers KV after {} s, and caches what it reads for {} s ({kv}). A read that it \
                 has cached takes {} ms. A key takes one write in {} s; further ones get 429.",
                seconds(self.kv_replication_us),
                seconds(self.kv_cache_us),
                self.kv_hot_us / 1_000,
                seconds(self.kv_spacing_us)
            ),
            "The Rate Limiting binding counts exactly at each place, in windows of the clock.".into(),
            "A round trip between places takes 2.1 times as long as light on a great circle, and 1 ms more.".into(),
            "Redis and Upstash decide as the core does, which the conformance suite shows, and answer without further delay.".into(),
            "Clocks agree, and no message is lost.".into(),
        ]
    }
}

/// Where stores are that have one place.
pub(super) const HOME: usize = 0;

impl Ground {
    pub(super) fn new(world: World, places: Arc<Places>, assumed: Assumed) -> Self {
        Self { world, places, assumed, operations: Arc::default() }
    }

    pub(super) fn count(&self, operation: Operation, times: u64) {
        *locked(&self.operations).entry(operation).or_default() += times;
    }

    pub(super) fn operations(&self) -> Operations {
        locked(&self.operations).clone()
    }

    /// Half a round trip.
    async fn travel(&self, from: usize, to: usize) {
        self.world.sleep(self.places.rtt_us(from, to) / 2).await;
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A namespace of Durable Objects, as an isolate at a place calls it. An object lives where it was called first.
#[derive(Clone)]
pub(super) struct Objects {
    pub(super) ground: Ground,
    pub(super) place: usize,
    pub(super) all: Arc<Mutex<HashMap<String, Object>>>,
}

/// The adapter's own object over rows in memory.
pub(super) struct Object {
    counter: Counter<MemoryRows>,
    home: usize,
    /// When it has served all requests that have arrived.
    free_at_us: u64,
}

impl Namespace for Objects {
    async fn call(&self, object: Address<'_>, body: Vec<u8>) -> Result<Reply, Error> {
        let Ground { world, assumed, .. } = &self.ground;
        self.ground.count(Operation::ObjectRequest, 1);
        let (deadline, name) = (world.now_us() + object.deadline.get() * 1_000, object.name);
        let home = {
            let mut all = locked(&self.all);
            let new = || Object { counter: Counter::new(MemoryRows::default(), None), home: self.place, free_at_us: 0 };
            all.entry(name.to_owned()).or_insert_with(new).home
        };
        self.ground.travel(self.place, home).await;
        let served_at = {
            let mut all = locked(&self.all);
            let Some(object) = all.get_mut(name) else { return Err(lost()) };
            let waits = object.free_at_us.saturating_sub(world.now_us());
            if waits > assumed.object_queue_us {
                return Err(Thrown {
                    message: "Too many requests queued.".into(),
                    overloaded: true,
                    ..Thrown::default()
                }
                .into());
            }
            object.free_at_us = object.free_at_us.max(world.now_us()) + assumed.object_us;
            object.free_at_us
        };
        world.sleep(served_at - world.now_us()).await;
        let reply = {
            let mut all = locked(&self.all);
            let Some(object) = all.get_mut(name) else { return Err(lost()) };
            let before = object.counter.rows().written;
            let reply = object.counter.answer(&body, world.now());
            self.ground.count(Operation::RowWritten, object.counter.rows().written - before);
            reply
        };
        let back = world.now_us() + self.ground.places.rtt_us(self.place, home) / 2;
        world.sleep(back.min(deadline).saturating_sub(world.now_us())).await;
        if back > deadline { Err(lost()) } else { Ok(reply) }
    }
}

fn lost() -> Error {
    Error::new(ErrorKind::Timeout, "durable object: no answer within the deadline")
}

/// Rows in memory.
#[derive(Debug, Default)]
struct MemoryRows {
    rows: HashMap<String, Row>,
    written: u64,
}

impl Rows for MemoryRows {
    fn load(&self, key: &str) -> Result<Option<Row>, Error> {
        Ok(self.rows.get(key).cloned())
    }

    fn save(&mut self, rows: &[(&str, Row)]) -> Result<(), Error> {
        self.written += rows.len() as u64;
        self.rows.extend(rows.iter().map(|(key, row)| ((*key).to_owned(), row.clone())));
        Ok(())
    }

    fn remove(&mut self, key: &str) -> Result<(), Error> {
        self.rows.remove(key);
        Ok(())
    }

    /// No alarm fires in a simulation: what has expired counts nothing in any case.
    fn sweep(&mut self, _: UnixMillis, _: Option<&str>) -> Result<Page, Error> {
        Ok(Page { kept: self.rows.len() as u64, ..Page::default() })
    }

    fn set_alarm(&mut self, _: UnixMillis) -> Result<(), Error> {
        Ok(())
    }
}

/// A Workers KV namespace, as a location sees it.
#[derive(Clone)]
pub(super) struct Kv {
    pub(super) ground: Ground,
    pub(super) place: usize,
    pub(super) all: Arc<Mutex<HashMap<String, Values>>>,
}

/// What is stored under a key, and what each location has cached of it.
#[derive(Debug, Default)]
pub(super) struct Values {
    writes: Vec<Write>,
    cached: HashMap<usize, (u64, Option<Vec<u8>>)>,
}

#[derive(Debug)]
struct Write {
    at_us: u64,
    place: usize,
    value: Vec<u8>,
    until_us: u64,
}

impl Values {
    /// The newest value that a place sees. It sees its own writes at once.
    fn seen(&self, place: usize, now_us: u64, replication_us: u64) -> Option<Vec<u8>> {
        let sees = |write: &&Write| write.place == place || write.at_us + replication_us <= now_us;
        self.writes.iter().rev().find(sees).filter(|write| write.until_us > now_us).map(|write| write.value.clone())
    }

    /// Forgets what nobody can see any more.
    fn trim(&mut self, now_us: u64, replication_us: u64) {
        if let Some(last) = self.writes.iter().rposition(|write| write.at_us + replication_us <= now_us) {
            let place_of_last = last;
            let mut nth = 0;
            self.writes.retain(|_| {
                nth += 1;
                nth > place_of_last
            });
        }
    }
}

impl Kv {
    pub(super) fn now_us(&self) -> u64 {
        self.ground.world.now_us()
    }
}

impl BestEffort for Kv {
    fn capabilities(&self) -> Capabilities {
        tidegate_cloudflare_kv::CAPABILITIES
    }

    async fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Error> {
        let Assumed { kv_hot_us, kv_cache_us, kv_replication_us, .. } = self.ground.assumed;
        self.ground.count(Operation::KvRead, 1);
        let now = self.now_us();
        let hot = locked(&self.all).get(key).and_then(|values| {
            let (until, value) = values.cached.get(&self.place)?;
            (*until > now).then(|| value.clone())
        });
        if let Some(value) = hot {
            self.ground.world.sleep(kv_hot_us).await;
            return Ok(value);
        }
        self.ground.travel(self.place, HOME).await;
        let value = {
            let (now, mut all) = (self.now_us(), locked(&self.all));
            let values = all.entry(key.to_owned()).or_default();
            let value = values.seen(self.place, now, kv_replication_us);
            values.cached.insert(self.place, (now + kv_cache_us, value.clone()));
            value
        };
        self.ground.travel(self.place, HOME).await;
        Ok(value)
    }

    async fn put(&self, key: &str, bytes: &[u8], ttl: Millis) -> Result<(), Error> {
        let Assumed { kv_spacing_us, kv_replication_us, .. } = self.ground.assumed;
        self.ground.count(Operation::KvWrite, 1);
        self.ground.travel(self.place, HOME).await;
        let throttled = {
            let (at_us, mut all) = (self.now_us(), locked(&self.all));
            let values = all.entry(key.to_owned()).or_default();
            let throttled = values.writes.last().is_some_and(|write| at_us - write.at_us < kv_spacing_us);
            if !throttled {
                values.trim(at_us, kv_replication_us);
                let write =
                    Write { at_us, place: self.place, value: bytes.into(), until_us: at_us + ttl.get() * 1_000 };
                values.writes.push(write);
                values.cached.remove(&self.place);
            }
            throttled
        };
        self.ground.travel(self.place, HOME).await;
        if throttled {
            Err(tidegate_cloudflare_kv::failed("put", "KV PUT failed: 429 Too Many Requests"))
        } else {
            Ok(())
        }
    }

    async fn delete(&self, key: &str) -> Result<(), Error> {
        locked(&self.all).remove(key);
        Ok(())
    }
}

/// The Rate Limiting binding: each place counts in windows of its own.
#[derive(Clone)]
pub(super) struct PlaceCounts {
    pub(super) ground: Ground,
    pub(super) limit: u64,
    pub(super) period_us: u64,
    pub(super) counts: Arc<Mutex<HashMap<String, (u64, u64)>>>,
}

impl Binding for PlaceCounts {
    async fn limit(&self, key: &str) -> Result<bool, Error> {
        self.ground.count(Operation::BindingCall, 1);
        let window = self.ground.world.now_us() / self.period_us;
        let mut counts = locked(&self.counts);
        let count = counts.entry(key.to_owned()).or_insert((window, 0));
        if count.0 != window {
            *count = (window, 0);
        }
        count.1 += u64::from(count.1 < self.limit + 1);
        Ok(count.1 <= self.limit)
    }
}

/// A store at one place whose script decides as the core does, such as Redis or Upstash.
#[derive(Clone)]
pub(super) struct Exact {
    pub(super) ground: Ground,
    pub(super) place: usize,
    pub(super) home: usize,
    pub(super) store: Arc<MemoryLimiter>,
}

impl Exact {
    pub(super) async fn check(&self, check: Check<'_>) -> Result<Decision, Error> {
        self.ground.count(Operation::ScriptCall, 1);
        self.ground.travel(self.place, self.home).await;
        // By the store's clock.
        let at = Check::new(check.policy, check.keys, self.ground.world.now()).cost(check.cost);
        let decision = self.store.check(at).await?;
        // The script, `TIME` and `GET`, and `SET` if it admits.
        self.ground.count(Operation::RedisCommand, 3 + u64::from(decision.is_allowed()));
        self.ground.travel(self.place, self.home).await;
        Ok(decision)
    }
}
