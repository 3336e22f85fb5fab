//! What an isolate keeps between requests: its counts, and when to read and write which key.
//!
//! A state machine with no I/O and no clock: [`Isolate::plan`] says whether to read, [`Isolate::learn`] takes what the
//! read brought, [`Isolate::decide`] decides, [`Isolate::plan_writes`] says what to write, [`Isolate::wrote`] takes what
//! became of it.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_core::internal::SortedMap;
use tidegate_core::{Check, Decision, Error, ErrorKind, Millis, Origin, Policy, UnixMillis};

use crate::account::Account;
use crate::config::Config;
use crate::draws::Draws;
use crate::error;
use crate::pace::{Freshness, Pace};
use crate::record;
use crate::stats::Stats;
use crate::value::Value;

/// The most puts of one flush: a Worker on the free plan has 50 operations an invocation.
const PUTS_MAX: usize = 8;
/// The most waiting keys that one flush looks at.
const LOOKS_MAX: usize = 64;
/// The longest wait for a later flush: what runs after a response is ended after 30 s.
pub(crate) const LINGER_MAX: Millis = Millis::from_secs(25);

/// An isolate's memory: make one, keep it in a `static`, and give it to the [`KvLimiter`](crate::KvLimiter) of each request.
///
/// It is what the bound rests on: a limiter over a new `Isolate` for each request counts nothing.
///
/// ```
/// use tidegate_cloudflare_kv::{Config, Isolate};
/// let isolate = Isolate::new(0x5eed, Config::default());
/// assert_eq!(isolate.stats().reads, 0);
/// ```
pub struct Isolate {
    config: Config,
    inner: Mutex<Inner>,
}

struct Inner {
    slots: SortedMap<Slot>,
    /// Keys with counts to write, the longest waiting first; each once.
    unwritten: Vec<String>,
    policies: Vec<Arc<Policy>>,
    draws: Draws,
    /// How many slots there may be before the unused ones are looked for.
    sweep_at: usize,
    /// When somebody will flush.
    flush_at: Option<UnixMillis>,
    stats: Stats,
}

struct Slot {
    account: Account,
    /// The value that was read last.
    last_read: Value,
    freshness: Freshness,
    pace: Pace,
    /// Whether it is among the unwritten.
    waits: bool,
    /// Whether the last read failed, so that the isolate decides alone.
    alone: bool,
}

/// A value to put.
pub(crate) struct Put {
    pub(crate) key: String,
    pub(crate) value: Value,
    pub(crate) bytes: Vec<u8>,
    pub(crate) ttl: Millis,
}

impl Isolate {
    /// An empty memory. `seed` must be random: entries of two isolates with one seed would overwrite each other.
    #[must_use]
    pub fn new(seed: u64, config: Config) -> Self {
        let inner = Inner {
            slots: SortedMap::new(),
            unwritten: Vec::new(),
            policies: Vec::new(),
            draws: Draws(seed),
            sweep_at: SWEEP_MIN,
            flush_at: None,
            stats: Stats::default(),
        };
        Self { config, inner: Mutex::new(inner) }
    }

    /// What this isolate has done and met so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let inner = self.lock();
        Stats { keys: inner.slots.len() as u64, ..inner.stats }
    }

    /// Which of the key's values to read first, if any: each in its turn.
    pub(crate) fn plan(&self, check: &Check<'_>, key: &str) -> Result<Option<Value>, Error> {
        let mut inner = self.lock();
        let slot = inner.slot(&self.config, check, key)?;
        if !slot.freshness.claim(check.now, self.config.refresh) {
            return Ok(None);
        }
        slot.last_read = slot.last_read.next();
        let read = slot.last_read;
        inner.stats.reads += 1;
        Ok(Some(read))
    }

    /// Takes what a read brought. What cannot be read counts as nothing found, is counted, and is written over.
    pub(crate) fn learn(&self, check: &Check<'_>, key: &str, value: Value, answer: Result<Option<Vec<u8>>, Error>) {
        let mut inner = self.lock();
        let Inner { slots, unwritten, stats, .. } = &mut *inner;
        let Some(slot) = slots.get_mut(key) else { return };
        slot.freshness.answered(check.now, self.config.refresh);
        slot.alone = answer.is_err();
        let found = match answer {
            Ok(None) => Vec::new(),
            Ok(Some(bytes)) => record::decode(check.policy, &bytes, check.now).unwrap_or_else(|_| {
                stats.corrupt += 1;
                Vec::new()
            }),
            Err(_) => {
                stats.reads_failed += 1;
                return;
            }
        };
        // Another isolate wrote over what this one had written: it is written again.
        let own = value == slot.account.value(check.now);
        let lost = own && !slot.account.is_in(&found) && slot.account.is_worth_writing(check.now);
        if lost && !slot.waits && slot.pace.is_settled(check.now) {
            slot.waits = true;
            unwritten.push(key.to_owned());
        }
        slot.account.learn(check.now, found);
    }

    /// Decides by what is known, and counts.
    pub(crate) fn decide(&self, check: &Check<'_>, key: &str) -> Result<Decision, Error> {
        let mut inner = self.lock();
        let slot = inner.slot(&self.config, check, key)?;
        let before = slot.account.total();
        let decision = slot.account.decide(check.now, check.cost);
        let charged = slot.account.total() != before;
        let origin = slot.origin();
        if charged && !std::mem::replace(&mut slot.waits, true) {
            inner.unwritten.push(key.to_owned());
        }
        Ok(decision.with_origin(origin))
    }

    pub(crate) fn peek(&self, check: &Check<'_>, key: &str) -> Result<Decision, Error> {
        let mut inner = self.lock();
        let slot = inner.slot(&self.config, check, key)?;
        Ok(slot.account.peek(check.now, check.cost).with_origin(slot.origin()))
    }

    /// The values that are due.
    pub(crate) fn plan_writes(&self, now: UnixMillis) -> Vec<Put> {
        let mut inner = self.lock();
        let Inner { slots, unwritten, stats, draws, .. } = &mut *inner;
        let mut puts = Vec::new();
        let (mut looked, looks) = (0, unwritten.len().min(LOOKS_MAX));
        while looked < looks && puts.len() < PUTS_MAX {
            let key = std::mem::take(&mut unwritten[looked]);
            looked += 1;
            let Some(slot) = slots.get_mut(&key) else { continue };
            if !slot.account.is_worth_writing(now) {
                slot.waits = false;
            } else if slot.pace.wait(now) > Millis::ZERO {
                unwritten.push(key);
            } else {
                slot.waits = false;
                let writers = slot.account.entries().count().div_ceil(Value::COUNT);
                slot.pace.tried(now, self.config.write_spacing, writers, draws.next());
                stats.writes += 1;
                puts.push(slot.put(key, now));
            }
        }
        unwritten.drain(..looked);
        puts
    }

    /// How long the caller should wait before the next flush. To one caller only: none where another will be back by
    /// then, where nothing waits, and where it waits for longer than a Worker may.
    pub(crate) fn appoint(&self, now: UnixMillis) -> Option<Millis> {
        let mut inner = self.lock();
        let Inner { slots, unwritten, flush_at, .. } = &mut *inner;
        let mut soonest = None;
        for slot in unwritten.iter().take(LOOKS_MAX).filter_map(|key| slots.get(key)) {
            let wait = slot.pace.wait(now);
            soonest = Some(soonest.map_or(wait, |soonest: Millis| soonest.min(wait)));
        }
        let wait = soonest.filter(|wait| *wait <= LINGER_MAX)?;
        let at = now + wait;
        if flush_at.is_some_and(|other| other > now && other <= at) {
            return None;
        }
        *flush_at = Some(at);
        Some(wait)
    }

    /// Takes what became of a put.
    pub(crate) fn wrote(&self, key: &str, answer: &Result<(), Error>) {
        let mut inner = self.lock();
        let Inner { slots, unwritten, stats, .. } = &mut *inner;
        let slot = slots.get_mut(key);
        let Err(error) = answer else {
            return slot.map_or((), |slot| slot.pace.succeeded());
        };
        let throttled = error.kind() == ErrorKind::Contended;
        *if throttled { &mut stats.writes_throttled } else { &mut stats.writes_failed } += 1;
        let Some(slot) = slot else { return };
        if throttled {
            slot.pace.throttled();
        } else {
            slot.pace.failed();
        }
        if !std::mem::replace(&mut slot.waits, true) {
            unwritten.push(key.to_owned());
        }
    }

    /// A panic of another thread leaves counts, which are whole at every step.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn slot(&mut self, config: &Config, check: &Check<'_>, key: &str) -> Result<&mut Slot, Error> {
        if self.slots.get(key).is_none() {
            self.make_room(config, check.now)?;
            let account = Account::new(shared(&mut self.policies, check.policy), self.draws.next());
            self.slots.insert(key, Slot::new(account, check.now));
        }
        let slot = self.slots.get_mut(key).ok_or_else(|| error::full(config.keys_max))?;
        if *slot.account.policy != *check.policy {
            // The limits have changed; what was used stays.
            slot.account.policy = shared(&mut self.policies, check.policy);
        }
        Ok(slot)
    }

    /// Forgets what does not matter any more, each time the number of keys has doubled since, and when it is full.
    fn make_room(&mut self, config: &Config, now: UnixMillis) -> Result<(), Error> {
        if self.slots.len() >= self.sweep_at.min(config.keys_max) {
            self.slots.retain(|slot| !(slot.account.is_unused(now) && slot.freshness.is_over(now)));
            let Self { slots, unwritten, .. } = self;
            unwritten.retain(|key| slots.get(key).is_some());
            self.sweep_at = (2 * self.slots.len()).max(SWEEP_MIN);
        }
        if self.slots.len() >= config.keys_max { Err(error::full(config.keys_max)) } else { Ok(()) }
    }
}

/// One copy of a policy for all its keys.
fn shared(policies: &mut Vec<Arc<Policy>>, policy: &Policy) -> Arc<Policy> {
    if let Some(known) = policies.iter().find(|known| ***known == *policy) {
        return Arc::clone(known);
    }
    if policies.len() >= POLICIES_MAX {
        policies.clear();
    }
    let known = Arc::new(policy.clone());
    policies.push(Arc::clone(&known));
    known
}

impl Slot {
    fn new(account: Account, now: UnixMillis) -> Self {
        let last_read = account.value(now);
        let (freshness, pace) = (Freshness::default(), Pace::default());
        Self { account, last_read, freshness, pace, waits: false, alone: false }
    }

    fn origin(&self) -> Origin {
        if self.alone { Origin::Fallback } else { Origin::Store }
    }

    fn put(&self, key: String, now: UnixMillis) -> Put {
        let ttl = self.account.expires_after(now).max(Config::TTL_MIN);
        let bytes = record::encode(&self.account.policy, self.account.entries());
        Put { key, value: self.account.value(now), bytes, ttl }
    }
}

impl fmt::Debug for Isolate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Isolate").field("config", &self.config).field("stats", &self.stats()).finish_non_exhaustive()
    }
}

/// Fewer keys than this are never looked through.
const SWEEP_MIN: usize = 256;
/// More policies than this are not an application's own.
const POLICIES_MAX: usize = 64;
