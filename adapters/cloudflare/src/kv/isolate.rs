//! What an isolate keeps between requests: its counts, and when to read and write each key.
//!
//! This is a state machine without I/O and without a clock. [`Isolate::plan`] says what to read, [`Isolate::learn`] takes the
//! result, [`Isolate::decide`] decides, [`Isolate::plan_writes`] says what to write, and [`Isolate::wrote`] takes the result.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_core::{Check, Decision, Error, ErrorKind, Millis, Policy, UnixMillis};

use crate::kv::account::Account;
use crate::kv::coarse::Coarse;
use crate::kv::config::Config;
use crate::kv::draws::Draws;
use crate::kv::error;
use crate::kv::pace::is_due;
use crate::kv::record::{self, Id};
use crate::kv::slot::{Put, Slot};
use crate::kv::stats::Stats;
use crate::kv::table::Table;
use crate::kv::value::Value;

/// The maximum number of writes per flush. A Worker on the free plan has 50 operations per invocation.
const PUTS_MAX: usize = 8;
/// The maximum number of keys that a flush takes from those that wait, most of which it writes.
const LOOKS_MAX: usize = 64;
/// The longest wait for another flush. The platform stops work 30 s after the response.
pub(crate) const LINGER_MAX: Millis = Millis::from_secs(25);

/// The memory of an isolate. Keep one in a `static`, and use it for the [`KvLimiter`](crate::kv::KvLimiter) of each request.
///
/// The ceiling depends on this memory. A limiter over a new `Isolate` for each request limits nothing.
///
/// ```
/// use tidegate_cloudflare::kv::{Config, Isolate};
/// let isolate = Isolate::new(0x5eed, Config::default());
/// assert_eq!(isolate.stats().reads, 0);
/// ```
pub struct Isolate {
    config: Config,
    inner: Mutex<Inner>,
}

struct Inner {
    id: Id,
    slots: Table,
    coarse: Coarse,
    /// Keys with counts to write, and since when each may be written. The first is due first.
    unwritten: BinaryHeap<Reverse<(UnixMillis, String)>>,
    policies: Vec<Arc<Policy>>,
    draws: Draws,
    /// When the next flush is due that a caller waits for.
    flush_at: Option<UnixMillis>,
    stats: Stats,
}

impl Isolate {
    /// Creates an empty memory. `seed` must be random: two isolates with the same seed ignore each other's counts, and a client
    /// that knows the seed can choose keys that displace each other.
    #[must_use]
    pub fn new(seed: u64, config: Config) -> Self {
        let mut draws = Draws(seed);
        let inner = Inner {
            id: Id(draws.next()),
            slots: Table::new(config.keys_max, draws.next()),
            coarse: Coarse::default(),
            unwritten: BinaryHeap::new(),
            policies: Vec::new(),
            draws,
            flush_at: None,
            stats: Stats::default(),
        };
        Self { config, inner: Mutex::new(inner) }
    }

    /// Returns what this isolate has done and seen so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let inner = self.lock();
        Stats { keys: inner.slots.len() as u64, ..inner.stats }
    }

    /// Which of the key's values to read before deciding, if any. The values take turns.
    #[doc(hidden)]
    pub fn plan(&self, check: &Check<'_>, key: &str) -> Result<Option<Value>, Error> {
        let mut inner = self.lock();
        let Found::Slot(slot) = inner.find(check, key)? else { return Ok(None) };
        if !slot.freshness.claim(check.now, self.config.refresh) {
            return Ok(None);
        }
        slot.last_read = slot.last_read.next();
        let read = slot.last_read;
        inner.stats.reads += 1;
        Ok(Some(read))
    }

    /// Takes the result of a read. A value that cannot be decoded is counted, ignored and overwritten.
    #[doc(hidden)]
    pub fn learn(&self, check: &Check<'_>, key: &str, value: Value, answer: Result<Option<Vec<u8>>, Error>) {
        let mut inner = self.lock();
        let Inner { slots, stats, .. } = &mut *inner;
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
        // If another isolate has overwritten this isolate's entry, the entry is written again.
        let own = value == slot.account.value(check.now);
        let lost = own && !slot.account.is_in(&found) && slot.account.is_worth_writing(check.now);
        let lost = lost && slot.pace.is_settled(check.now);
        slot.account.learn(check.now, found);
        if lost {
            inner.enqueue(key, check.now, self.config.keys_max);
        }
    }

    /// Decides by what is known, and counts the request if it is admitted.
    #[doc(hidden)]
    pub fn decide(&self, check: &Check<'_>, key: &str) -> Result<Decision, Error> {
        let mut inner = self.lock();
        let slot = match inner.find(check, key)? {
            Found::Slot(slot) => slot,
            Found::Denied(decision) => {
                inner.stats.denied_by_group += 1;
                return Ok(decision);
            }
        };
        let before = slot.account.total();
        let decision = slot.account.decide(check.now, check.cost).with_origin(slot.origin());
        if slot.account.total() != before {
            inner.enqueue(key, check.now, self.config.keys_max);
        }
        Ok(decision)
    }

    #[doc(hidden)]
    pub fn peek(&self, check: &Check<'_>, key: &str) -> Result<Decision, Error> {
        Ok(match self.lock().find(check, key)? {
            Found::Slot(slot) => slot.account.peek(check.now, check.cost).with_origin(slot.origin()),
            Found::Denied(decision) => decision,
        })
    }

    /// The values that are due to be written.
    #[doc(hidden)]
    pub fn plan_writes(&self, now: UnixMillis) -> Vec<Put> {
        let mut inner = self.lock();
        let Inner { slots, unwritten, stats, draws, .. } = &mut *inner;
        let spacing = self.config.write_spacing;
        let mut puts = Vec::new();
        for _ in 0..LOOKS_MAX {
            let has_due = unwritten.peek().is_some_and(|Reverse((due, _))| is_due(*due, now, spacing));
            if !has_due || puts.len() == PUTS_MAX {
                break;
            }
            let Some(Reverse((_, key))) = unwritten.pop() else { break };
            let Some(slot) = slots.get_mut(&key) else { continue };
            // A key that was forgotten while it waited may wait twice.
            if !slot.waits {
                continue;
            }
            // It waits for its turn, too, if a wrong clock has said since when it waits.
            let due = slot.pace.due();
            if !is_due(due, now, spacing) {
                unwritten.push(Reverse((due, key)));
                continue;
            }
            slot.waits = false;
            if slot.account.is_worth_writing(now) {
                let writers = slot.account.entries().count().div_ceil(Value::COUNT);
                slot.pace.tried(now, spacing, writers, draws.next());
                stats.writes += 1;
                puts.push(slot.put(key, now));
            }
        }
        puts
    }

    /// How long the caller should wait before it flushes again. `None` if another caller already waits, if nothing is left to
    /// write, or if the wait is longer than a Worker may run.
    #[doc(hidden)]
    pub fn appoint(&self, now: UnixMillis) -> Option<Millis> {
        let mut inner = self.lock();
        let Reverse((due, _)) = inner.unwritten.peek()?;
        let wait = if is_due(*due, now, self.config.write_spacing) { Millis::ZERO } else { due.since(now) };
        let at = now + wait;
        if wait > LINGER_MAX || inner.flush_at.is_some_and(|other| other > now && other <= at) {
            return None;
        }
        inner.flush_at = Some(at);
        Some(wait)
    }

    /// Takes the result of a write.
    #[doc(hidden)]
    pub fn wrote(&self, key: &str, answer: &Result<(), Error>) {
        let mut inner = self.lock();
        let Inner { slots, stats, .. } = &mut *inner;
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
        let tried = slot.pace.due();
        inner.enqueue(key, tried, self.config.keys_max);
    }

    /// A panic of another thread leaves the counts usable, because each step leaves them consistent.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The result of looking up a key.
enum Found<'a> {
    Slot(&'a mut Slot),
    /// The isolate does not hold the key, and the counts of its group deny it.
    Denied(Decision),
}

impl Inner {
    fn find(&mut self, check: &Check<'_>, key: &str) -> Result<Found<'_>, Error> {
        if self.slots.get(key).is_none()
            && let Some(denied) = self.add(check, key)?
        {
            return Ok(Found::Denied(denied));
        }
        let slot = self.slots.get_mut(key).ok_or_else(error::full)?;
        if *slot.account.policy != *check.policy {
            // The limits have changed. The counts stay.
            slot.account.policy = shared(&mut self.policies, check.policy);
        }
        Ok(Found::Slot(slot))
    }

    /// Adds a key, unless the counts of its group deny the request. If that takes the slot of another key, the group of that key
    /// keeps its count.
    fn add(&mut self, check: &Check<'_>, key: &str) -> Result<Option<Decision>, Error> {
        let Check { policy, now, .. } = *check;
        let origin = self.slots.origin(check.keys.single(policy)?.as_str());
        let carried = self.coarse.of(policy, origin, now);
        if let Some(carried) = &carried {
            let decision = policy.peek(carried, now, check.cost);
            if !decision.is_allowed() {
                return Ok(Some(decision));
            }
        }
        let victim = self.slots.room(key, now);
        if let Some(victim) = &victim {
            let account = &self.slots.chosen(key, victim).account;
            if !self.coarse.remember(victim.remembered_as, &account.policy, account.alone(), now) {
                return Err(error::full());
            }
            self.stats.keys_forgotten += 1;
        }
        let id = self.id.renewed(self.draws.next());
        let account = Account::new(shared(&mut self.policies, policy), id, carried);
        self.slots.insert(key, origin, Slot::new(account, now), victim);
        Ok(None)
    }

    /// Adds a key to those whose counts wait to be written, from this instant on.
    fn enqueue(&mut self, key: &str, since: UnixMillis, keys_max: usize) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        if std::mem::replace(&mut slot.waits, true) {
            return;
        }
        let due = slot.pace.due().max(since);
        // Some waiting keys may have been forgotten. There are this many only if nobody flushes.
        if self.unwritten.len() >= keys_max
            && let Some(Reverse((_, oldest))) = self.unwritten.pop()
            && let Some(slot) = self.slots.get_mut(&oldest)
        {
            slot.waits = false;
        }
        self.unwritten.push(Reverse((due, key.to_owned())));
    }
}

/// Returns the one copy of a policy that all its keys share.
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

impl fmt::Debug for Isolate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Isolate").field("config", &self.config).field("stats", &self.stats()).finish_non_exhaustive()
    }
}

/// The maximum number of policies that are shared.
const POLICIES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use tidegate_core::{Key, Quota};

    use super::*;

    #[test]
    fn at_most_as_many_keys_wait_to_be_written_as_are_held() {
        let isolate = Isolate::new(7, Config::default().keys_max(64).unwrap());
        let policy = Policy::new("api", [Quota::fixed_window(9, Millis::from_secs(86_400)).unwrap()]).unwrap();
        let now = UnixMillis::new(1_800_000_000_000);
        for number in 0..1_000 {
            let key = Key::new(format!("sub:{number}"));
            isolate.decide(&Check::new(&policy, &key, now), &key.storage_key(&policy)).unwrap();
        }
        // The keys that the isolate has forgotten do not wait.
        assert_eq!((isolate.stats().keys, isolate.lock().unwritten.len()), (64, 64));
        let mut written = 0;
        while isolate.appoint(now).is_some() {
            written += isolate.plan_writes(now).len();
        }
        assert!((1..=64).contains(&written), "{written}");
    }

    #[test]
    fn one_caller_waits_for_the_next_write() {
        let policy = Policy::new("api", [Quota::fixed_window(9, Millis::from_secs(86_400)).unwrap()]).unwrap();
        let now = UnixMillis::new(1_800_000_000_000);
        let charge = |isolate: &Isolate, key: &str| {
            let key = Key::new(key);
            isolate.decide(&Check::new(&policy, &key, now), &key.storage_key(&policy)).unwrap();
        };
        let isolate = Isolate::new(7, Config::default());
        assert_eq!(isolate.appoint(now), None);
        charge(&isolate, "a");
        assert_eq!((isolate.appoint(now), isolate.plan_writes(now).len()), (Some(Millis::ZERO), 1));
        charge(&isolate, "a");
        let wait = isolate.appoint(now).unwrap();
        assert!((1_000..2_000).contains(&wait.get()), "{wait}");
        assert_eq!([now, now + Millis::new(500)].map(|now| isolate.appoint(now)), [None, None]);
        // A clock that is set back makes nobody wait for an instant that is far ahead.
        assert_eq!(isolate.appoint(UnixMillis::new(now.get() - 3_600_000)), Some(Millis::ZERO));
        // Another key is due earlier.
        charge(&isolate, "b");
        assert_eq!((isolate.appoint(now), isolate.plan_writes(now).len()), (Some(Millis::ZERO), 1));
        // Nobody waits longer than a Worker may run.
        let slow = Isolate::new(7, Config::default().write_spacing(Millis::from_secs(60)));
        charge(&slow, "a");
        assert_eq!((slow.appoint(now), slow.plan_writes(now).len()), (Some(Millis::ZERO), 1));
        charge(&slow, "a");
        assert_eq!(slow.appoint(now), None);
    }

    #[test]
    fn a_key_waits_for_its_turn_but_not_for_another_key_or_a_clock_that_was_set_back() {
        let isolate = Isolate::new(7, Config::default());
        let policy = Policy::new("api", [Quota::fixed_window(9, Millis::from_secs(86_400)).unwrap()]).unwrap();
        let charge = |key: &str, now| {
            let key = Key::new(key);
            isolate.decide(&Check::new(&policy, &key, now), &key.storage_key(&policy)).unwrap();
        };
        let flush = |now| {
            let written = isolate.plan_writes(now).len();
            isolate.appoint(now);
            written
        };
        let now = UnixMillis::new(1_800_000_000_000);
        charge("a", now);
        assert_eq!(flush(now), 1);
        charge("a", now);
        assert_eq!(flush(now), 0);
        charge("b", now);
        assert_eq!((flush(now), flush(now)), (1, 0));
        let hour = Millis::from_secs(3_600);
        assert_eq!(flush(UnixMillis::new(now.get() - hour.get())), 1);
        charge("a", now);
        assert_eq!(flush(now), 1);
        // A clock that is ahead for one request delays no write for longer than a pause.
        let (isolate, key) = (Isolate::new(7, Config::default()), Key::new("c"));
        let charge = |now| isolate.decide(&Check::new(&policy, &key, now), &key.storage_key(&policy)).unwrap();
        charge(now);
        assert_eq!(isolate.plan_writes(now).len(), 1);
        charge(now + hour);
        assert_eq!(isolate.plan_writes(now).len(), 0);
        assert_eq!(isolate.plan_writes(now + Millis::from_secs(60)).len(), 1);
    }
}
