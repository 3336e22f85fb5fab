//! What all stores of a simulation share: the clock, the network between places, and what goes wrong.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use tidegate_conformance::operation::{Operation, Operations};

use super::place::Places;
use super::world::{START_US, World};

/// Where stores are that have one place.
pub(super) const HOME: usize = 0;

/// How much longer a message may take on a short way, in microseconds. Without it, requests that compete for a key would keep step.
const NOISE_US: u64 = 200;

/// What goes wrong in a world.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Faults {
    /// The share of messages that are lost, from 0 to 1. A decision at a store takes two messages.
    pub loss: f64,
    /// How far the clock of an isolate is off at most, in milliseconds. Stores have the right time.
    pub clock_skew_ms: u64,
    /// When no store answers, in seconds since the start.
    pub outages: Vec<Range<u32>>,
}

#[derive(Clone, Debug)]
pub(super) struct Environment {
    pub(super) world: World,
    pub(super) places: Arc<Places>,
    pub(super) assumed: Assumed,
    pub(super) faults: Arc<Faults>,
    random: Arc<Mutex<ChaCha8Rng>>,
    operations: Arc<Mutex<Operations>>,
}

/// What the simulation assumes of platforms: what they document, with the page, and where they name no number, a guess.
#[derive(Clone, Copy, Debug)]
pub struct Assumed {
    /// The place of all objects among those of the simulation, as a location hint or a jurisdiction decides it. Without it, each lives where it
    /// was called first.
    pub object_at: Option<usize>,
    /// How long an object works on a request. "An individual Object has a soft limit of 1,000 requests per second":
    /// <https://developers.cloudflare.com/durable-objects/platform/limits/>.
    pub object_us: u64,
    /// How long a request waits in an object's queue at most before the platform answers that the object is overloaded. A guess:
    /// the page names no time.
    pub object_queue_us: u64,
    /// After which time other locations see a write of Workers KV, besides what they have cached: 60 seconds or more, by
    /// <https://developers.cloudflare.com/kv/concepts/how-kv-works/>.
    pub kv_replication_us: u64,
    /// For how long a location caches what it has read of Workers KV: the least `cacheTtl`, by
    /// <https://developers.cloudflare.com/kv/platform/limits/>.
    pub kv_cache_us: u64,
    /// The least time between two writes of a key, by the same page.
    pub kv_spacing_us: u64,
    /// A read of Workers KV that the location has cached. A guess.
    pub kv_hot_us: u64,
    /// After which time the other machines of a location see what a machine has counted for the Rate Limiting binding. A guess: the
    /// platform says that counters are updated asynchronously
    /// (<https://developers.cloudflare.com/workers/runtime-apis/bindings/rate-limit/>).
    pub binding_sync_us: u64,
    /// After which time other locations see a write to Fastly's KV Store. A guess, from the 300 ms that a read may take "for data that
    /// has recently changed or is not yet replicated"
    /// (<https://www.fastly.com/documentation/guides/concepts/edge-state/data-stores/>). Where a write compares generations is not
    /// documented; here it is at the writer's location, which is the worst case.
    pub fastly_replication_us: u64,
    /// After which time other regions see a write to the key-value store of Akamai Functions, which is "globally replicated"
    /// (<https://techdocs.akamai.com/akamai-functions/docs/use-the-key-value-store>). A guess.
    pub akamai_replication_us: u64,
    /// How long Redis and Upstash may take, which is the default of the adapter.
    pub redis_deadline_us: u64,
    /// How long a platform's key-value store takes to report a failure. A guess.
    pub kv_deadline_us: u64,
    /// Whether a compare-and-swap compares, as all platforms document.
    pub swaps_compare: bool,
    /// Whether what an isolate asks or tells one server about several keys at the same moment is one trip: a pipeline.
    pub pipelines: bool,
    /// Whether objects remove what has expired.
    pub alarms_fire: bool,
}

impl Default for Assumed {
    fn default() -> Self {
        Self {
            object_at: None,
            object_us: 1_000,
            object_queue_us: 10_000_000,
            kv_replication_us: 60_000_000,
            kv_cache_us: 30_000_000,
            kv_spacing_us: 1_000_000,
            kv_hot_us: 2_000,
            binding_sync_us: 100_000,
            fastly_replication_us: 300_000,
            akamai_replication_us: 1_000_000,
            redis_deadline_us: 250_000,
            kv_deadline_us: 5_000_000,
            swaps_compare: true,
            pipelines: true,
            alarms_fire: true,
        }
    }
}

impl Assumed {
    /// Local emulators on one machine. Locations of Fastly's store see nothing of each other, those of Workers KV after a minute,
    /// and each machine of the Rate Limiting binding is a location.
    #[must_use]
    pub fn emulator() -> Self {
        Self {
            object_us: 0,
            kv_cache_us: 0,
            kv_spacing_us: 0,
            kv_hot_us: 0,
            binding_sync_us: 0,
            fastly_replication_us: u64::MAX,
            akamai_replication_us: 0,
            // Their calls are counted one by one, and their rows outlive each test: fixtures have a time of their own.
            pipelines: false,
            alarms_fire: false,
            ..Self::default()
        }
    }

    /// The assumptions, with their sources.
    #[must_use]
    pub fn in_words(&self, faults: &Faults, places: &Places) -> Vec<String> {
        let home = match self.object_at.and_then(|place| places.names().get(place)) {
            Some(place) => format!("Every object lives at {place}, as a location hint or a jurisdiction has it"),
            None => "An object lives where it was called first".into(),
        };
        let (seconds, ms) = (|us: u64| us / 1_000_000, |us: u64| us / 1_000);
        let mut words = vec![
            "A round trip between places takes 2.1 times as long as light on a great circle, and 1 ms more. Each message takes up \
             to a tenth and 0.2 ms longer, at random."
                .into(),
            format!(
                "{home}, and serves one request after another, each in {} us \
                 (https://developers.cloudflare.com/durable-objects/platform/limits/). It answers that it is overloaded if a \
                 request would wait longer than {} s, which is a guess.",
                self.object_us,
                seconds(self.object_queue_us)
            ),
            format!(
                "A location sees what others write to Workers KV after {} s (https://developers.cloudflare.com/kv/concepts/how-kv-works/), \
                 and caches what it reads for {} s. A key takes one write in {} s; further ones get 429 \
                 (https://developers.cloudflare.com/kv/platform/limits/). A read that is cached takes {} ms, which is a guess.",
                seconds(self.kv_replication_us),
                seconds(self.kv_cache_us),
                seconds(self.kv_spacing_us),
                ms(self.kv_hot_us)
            ),
            format!(
                "The Rate Limiting binding counts in windows of the clock, at each location apart, and asynchronously \
                 (https://developers.cloudflare.com/workers/runtime-apis/bindings/rate-limit/). That a machine sees what the others \
                 of its location have counted after {} ms is a guess.",
                ms(self.binding_sync_us)
            ),
            format!(
                "Fastly's KV Store is eventually consistent \
                 (https://www.fastly.com/documentation/guides/concepts/edge-state/data-stores/). That other locations see a write \
                 after {} ms, that a write compares generations at its own location, and that the last one wins, are guesses.",
                ms(self.fastly_replication_us)
            ),
            format!(
                "The key-value store of Akamai Functions is globally replicated \
                 (https://techdocs.akamai.com/akamai-functions/docs/use-the-key-value-store). That this takes {} ms is a guess.",
                ms(self.akamai_replication_us)
            ),
            "Redis and Upstash decide and lend as the core does, which the conformance suite shows, and answer without further delay. A \
             decision writes, so a read replica serves none."
                .into(),
            "What an isolate asks or tells one server about several keys at the same moment is one trip, a pipeline, and as many \
             commands as apart. Each object has requests of its own."
                .into(),
            "An object sets an alarm and removes expired rows as the adapter does, also after the last request. Both are billed as \
             rows written (https://developers.cloudflare.com/durable-objects/platform/pricing/)."
                .into(),
        ];
        if *faults == Faults::default() {
            words.push("Clocks agree, no message is lost, and every store answers.".into());
        } else {
            words.push(format!(
                "{:.3} % of messages are lost, and clocks of isolates are off by up to {} ms. A decision without an answer fails \
                 after 2 s at an object, {} ms at Redis or Upstash, and {} s at a platform's key-value store.",
                faults.loss * 100.0,
                faults.clock_skew_ms,
                ms(self.redis_deadline_us),
                seconds(self.kv_deadline_us)
            ));
            for outage in &faults.outages {
                words.push(format!("No store answers from second {} to {}.", outage.start, outage.end));
            }
        }
        words
    }
}

/// What isolates are in a simulation.
pub(super) const ISOLATES: [&str; 4] = [
    "An isolate is what serves requests and has memory of its own: a Worker's isolate, a function's instance or a process. A place has \
     several, which share nothing but the store. Each request goes to one of them at random.",
    "In its memory, an isolate has what the adapter keeps there: loans, a deny cache, counts of its own, a breaker. Another isolate takes \
     its place after half of its life to one and a half. It knows nothing, and what was lent to the one before stays lent until the loan \
     ends.",
    "So each client is new to each isolate once in its life. These first requests have columns of their own: where decisions are \
     otherwise made in memory, they are what waits.",
    "Some designs decide in the isolate alone. `memory` counts in each isolate without the others, so that it admits the limit times the \
     isolates that a client reaches. `workers-kv` and `synchronized` count in each isolate, too, and share their counts later. \
     `…-leased` spend in the isolate what the store has lent. `…-leased-grace` also admit the first units of a client that they know nothing \
     bad of, and tell the store within 100 ms: each isolate may admit so many units more than the limit.",
];

/// What a simulation leaves out.
pub(super) const NOT_MODELLED: [&str; 8] = [
    "Computing takes no time: not in isolates, and not at servers, which have no queue. Only objects have one. A server that is too busy, \
     slow queries, garbage collection and cold starts are missing.",
    "A message is late or lost, and otherwise there is no network: no connections to open, no TLS, no retransmission, no bandwidth.",
    "Requests of a client are independent of each other and of their answers, at a rate that stays the same. Real clients come back after \
     a denial, load pages with many requests, and sleep at night. A flood is the only exception.",
    "Platforms prefer isolates that are warm, and start more under load. Here, the number is fixed, and each isolate is as likely as the \
     others, so that more requests are new to their isolate than in reality.",
    "Objects do not move, and are not evicted. What Cloudflare bills for the time that they are active is not in the price, nor are free \
     allowances, bandwidth, storage and read regions.",
    "A Redis server has no replicas and loses nothing. A cluster is one server.",
    "Without a grace, isolates do nothing for leases after a response: a request that finds a loan spent waits for the next one, as in a \
     Worker without `waitUntil`. With one (`…-leased-grace`), they do: they tell what they have admitted, ask for the next loans, and return \
     those that are idle. Reports of one pipeline arrive each after a delay of its own.",
    "Each client has one limit. Several rules, groups, tokens, settlements and refunds are tested by the fixtures of the suite.",
];

impl Environment {
    pub(super) fn new(world: World, places: Arc<Places>, assumed: Assumed, faults: Faults, seed: u64) -> Self {
        let random = Arc::new(Mutex::new(ChaCha8Rng::seed_from_u64(!seed)));
        Self { world, places, assumed, faults: Arc::new(faults), random, operations: Arc::default() }
    }

    pub(super) fn count(&self, operation: Operation, times: u64) {
        *locked(&self.operations).entry(operation).or_default() += times;
    }

    pub(super) fn operations(&self) -> Operations {
        locked(&self.operations).clone()
    }

    /// Counts a call of a script for a key, unless it travels with the one before. Returns whether it does not.
    pub(super) fn count_script_call(&self, pipeline: &Pipeline, key: &str) -> bool {
        let begins = pipeline.begins_with(key, self.world.now_us()) || !self.assumed.pipelines;
        if begins {
            self.count(Operation::ScriptCall, 1);
        }
        begins
    }

    /// How far the clock of a new isolate is off, in milliseconds.
    pub(super) fn skew_ms(&self) -> i64 {
        let most = i64::try_from(self.faults.clock_skew_ms).unwrap_or(i64::MAX);
        if most == 0 { 0 } else { locked(&self.random).random_range(-most..=most) }
    }

    /// Sends a request to a store and waits for its answer. `serve` runs when the request arrives, and returns its answer with
    /// the time at which the store sends it. `None` if no answer arrives within the deadline; the store may have served it.
    pub(super) async fn ask<T>(
        &self,
        from: usize,
        to: usize,
        deadline_us: u64,
        serve: impl FnOnce(u64) -> (T, u64),
    ) -> Option<T> {
        let until = self.world.now_us().saturating_add(deadline_us);
        let mut answered = None;
        if !self.is_lost() {
            // A caller does not wait for a message that takes longer than its deadline, which is then served early.
            let out = self.message_us(from, to);
            self.world.sleep(out.min(deadline_us)).await;
            let now = self.world.now_us();
            if !self.is_down(now) {
                let (answer, sent) = serve(now);
                let back = sent + out.saturating_sub(deadline_us) + self.message_us(from, to);
                if !self.is_lost() && back <= until {
                    answered = Some((answer, back));
                }
            }
        }
        let back = answered.as_ref().map_or(until, |(_, back)| *back);
        self.world.sleep(back.saturating_sub(self.world.now_us())).await;
        answered.map(|(answer, _)| answer)
    }

    /// How long a message takes: half of a round trip, and up to a tenth and [`NOISE_US`] more.
    fn message_us(&self, from: usize, to: usize) -> u64 {
        let half = self.places.rtt_us(from, to) / 2;
        half + locked(&self.random).random_range(0..=half / 10 + NOISE_US)
    }

    fn is_lost(&self) -> bool {
        self.faults.loss > 0.0 && locked(&self.random).random::<f64>() < self.faults.loss
    }

    fn is_down(&self, now_us: u64) -> bool {
        let second = (now_us - START_US) / 1_000_000;
        self.faults.outages.iter().any(|outage| (outage.start.into()..outage.end.into()).contains(&second))
    }
}

/// What an isolate sends to a server. What it sends about several keys at the same moment travels together. Calls for the same key do
/// not: they are checks, of which no adapter waits for another.
#[derive(Clone, Debug, Default)]
pub(super) struct Pipeline {
    /// When the last trip began, with which key, and how many calls it has.
    last: Arc<Mutex<(u64, String, u32)>>,
}

/// The most calls of a trip. Over REST, they are one script.
const TRIP_MAX: u32 = 64;

impl Pipeline {
    /// Whether a call for a key is not of the last trip, but the first of another one.
    fn begins_with(&self, key: &str, now_us: u64) -> bool {
        let mut last = locked(&self.last);
        let (began_us, first, calls) = &mut *last;
        let begins = *began_us != now_us || first == key || *calls == TRIP_MAX;
        if begins {
            (*began_us, *calls) = (now_us, 0);
            key.clone_into(first);
        }
        *calls += 1;
        begins
    }
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
