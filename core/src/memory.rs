//! The reference store: in memory, exact under any number of threads.

#[cfg(not(loom))]
use std::sync::{Mutex, MutexGuard};

#[cfg(loom)]
use loom::sync::{Mutex, MutexGuard};

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Arc, PoisonError};

use hashbrown::HashTable;

use crate::limiter::{Capabilities, Check, Idempotency, Limiter, Refund};
use crate::{Decision, Error, Key, Policy, PolicyState, UnixMillis};

/// A limiter that counts in memory: for one process, and for checking all the others against.
///
/// Exact at any concurrency. Keys are spread over shards, each behind its own lock; a decision takes one lock for some
/// tens of nanoseconds. A key is forgotten once all it used has been given back: a shard is swept whenever it has grown
/// to twice what was live at its last sweep, so memory follows the live keys, not all the keys ever seen.
///
/// Time is the caller's. Two callers whose clocks differ by `d` see what one caller whose clock steps back by `d` would;
/// a key that was swept while a clock ran ahead is unused again when it steps back.
///
/// ```
/// use tollgate_core::{Check, Key, MemoryLimiter, Millis, Policy, Quota, UnixMillis};
/// # fn main() -> Result<(), tollgate_core::Error> {
/// let limiter = MemoryLimiter::new();
/// let policy = Policy::new("api", [Quota::sliding_window(100, Millis::from_secs(60))?])?;
/// let key = Key::new("ip:192.0.2.1");
/// let decision = limiter.decide(Check::new(&policy, &key, UnixMillis::new(1_800_000_000_000)));
/// assert_eq!(decision.binding().remaining, Some(99));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct MemoryLimiter {
    shards: Box<[Padded]>,
    hasher: RandomState,
}

/// A shard on cache lines of its own, so that one core's lock does not slow another's.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded(Mutex<Shard>);

#[derive(Debug, Default)]
struct Shard {
    entries: HashTable<Entry>,
    /// Sweep when it has this many entries.
    sweep_at: usize,
}

#[derive(Debug)]
struct Entry {
    policy: Arc<str>,
    key: Key,
    state: PolicyState,
    expires_at: UnixMillis,
    answers: Option<Box<Answers>>,
}

/// First answers by idempotency token, and until when each holds.
type Answers = HashMap<Box<str>, (UnixMillis, Decision)>;

/// A shard is not swept before it has this many entries.
const MIN_SWEEP: usize = 64;

impl MemoryLimiter {
    /// A limiter with four shards for each of the machine's threads.
    #[must_use]
    pub fn new() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self::with_shards(threads * 4)
    }

    /// A limiter with at least `shards` shards, rounded up to a power of two.
    #[must_use]
    pub fn with_shards(shards: usize) -> Self {
        let shards = (0..shards.next_power_of_two()).map(|_| Padded::default()).collect();
        Self { shards, hasher: RandomState::new() }
    }

    /// Decides as [`Limiter::check`] does, without a future: memory is always there.
    #[must_use]
    pub fn decide(&self, check: Check<'_>) -> Decision {
        let (hash, mut shard) = self.shard(check.policy, check.key);
        let found = shard.entries.find_mut(hash, |entry| entry.is(check.policy, check.key));
        if let Some(entry) = found {
            return entry.decide(&check);
        }
        let mut entry = Entry::new(check.policy, check.key);
        let decision = entry.decide(&check);
        if entry.is_live(check.now) {
            shard.insert(hash, entry, check.now, &self.hasher);
        }
        decision
    }

    /// The number of keys it holds, a policy's key counting once for each policy.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(&shard.0).entries.len()).sum()
    }

    /// Whether it holds no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets every key that is wholly unused at `now`. It does so by itself as keys come; call it to give memory back
    /// when none do.
    ///
    /// ```
    /// use tollgate_core::{Check, Key, MemoryLimiter, Millis, Policy, Quota, UnixMillis};
    /// # fn main() -> Result<(), tollgate_core::Error> {
    /// let limiter = MemoryLimiter::new();
    /// let policy = Policy::new("api", [Quota::fixed_window(1, Millis::from_secs(1))?])?;
    /// limiter.decide(Check::new(&policy, &Key::new("ip:192.0.2.1"), UnixMillis::new(0)));
    /// limiter.sweep(UnixMillis::new(999));
    /// assert_eq!(limiter.len(), 1);
    /// limiter.sweep(UnixMillis::new(1_000));
    /// assert!(limiter.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    pub fn sweep(&self, now: UnixMillis) {
        for shard in &self.shards {
            let mut shard = lock(&shard.0);
            shard.sweep(now);
            shard.entries.shrink_to_fit(|entry| entry.hash(&self.hasher));
        }
    }

    fn shard(&self, policy: &Policy, key: &Key) -> (u64, MutexGuard<'_, Shard>) {
        let hash = hash(&self.hasher, policy.id(), key);
        // The table takes its bits from both ends of the hash; the shard takes its own from the middle.
        let index = usize::try_from(hash >> 32 & 0xffff).unwrap_or_default() & (self.shards.len() - 1);
        (hash, lock(&self.shards[index].0))
    }
}

impl Default for MemoryLimiter {
    fn default() -> Self {
        Self::new()
    }
}

impl Shard {
    fn insert(&mut self, hash: u64, entry: Entry, now: UnixMillis, hasher: &RandomState) {
        if self.entries.len() >= self.sweep_at {
            self.sweep(now);
            self.sweep_at = (self.entries.len() * 2).max(MIN_SWEEP);
        }
        self.entries.insert_unique(hash, entry, |entry| entry.hash(hasher));
    }

    fn sweep(&mut self, now: UnixMillis) {
        self.entries.retain(|entry| entry.is_live(now));
    }
}

impl Entry {
    fn new(policy: &Policy, key: &Key) -> Self {
        Self {
            policy: Arc::clone(policy.id()),
            key: key.clone(),
            state: policy.unused(),
            expires_at: UnixMillis::default(),
            answers: None,
        }
    }

    fn is(&self, policy: &Policy, key: &Key) -> bool {
        self.key == *key && (Arc::ptr_eq(&self.policy, policy.id()) || self.policy == *policy.id())
    }

    fn is_live(&self, now: UnixMillis) -> bool {
        self.expires_at > now
    }

    fn hash(&self, hasher: &RandomState) -> u64 {
        hash(hasher, &self.policy, &self.key)
    }

    fn decide(&mut self, check: &Check<'_>) -> Decision {
        if let Some(idempotency) = check.idempotency {
            return self.decide_once(check, idempotency);
        }
        let decision = check.policy.decide(&mut self.state, check.now, check.cost);
        self.keep_for(&decision);
        decision
    }

    #[cold]
    fn decide_once(&mut self, check: &Check<'_>, Idempotency { token, ttl }: Idempotency<'_>) -> Decision {
        let answers = self.answers.get_or_insert_default();
        match answers.get(token) {
            Some((until, first)) if *until > check.now => return first.clone(),
            // Looking for what has passed at each doubling keeps the work an answer constant, whatever their number.
            _ if answers.len().is_power_of_two() => answers.retain(|_, (until, _)| *until > check.now),
            _ => {}
        }
        let decision = check.policy.decide(&mut self.state, check.now, check.cost);
        let until = check.now + ttl;
        answers.insert(token.into(), (until, decision.clone()));
        self.keep_for(&decision);
        self.expires_at = self.expires_at.max(until);
        decision
    }

    fn keep_for(&mut self, decision: &Decision) {
        let longest = decision.quotas().iter().filter_map(|quota| quota.reset_after).max();
        self.expires_at = self.expires_at.max(decision.decided_at() + longest.unwrap_or_default());
    }
}

impl Limiter for MemoryLimiter {
    fn capabilities(&self) -> Capabilities {
        Capabilities { round_trips: 0, ..Capabilities::EXACT }
    }

    async fn check(&self, check: Check<'_>) -> Result<Decision, Error> {
        Ok(self.decide(check))
    }

    async fn peek(&self, check: Check<'_>) -> Result<Decision, Error> {
        let (hash, shard) = self.shard(check.policy, check.key);
        let found = shard.entries.find(hash, |entry| entry.is(check.policy, check.key));
        Ok(match found {
            Some(entry) => check.policy.peek(&entry.state, check.now, check.cost),
            None => check.policy.peek(&check.policy.unused(), check.now, check.cost),
        })
    }

    async fn refund(&self, refund: Refund<'_>) -> Result<(), Error> {
        let Refund { policy, key, cost, charged_at, now } = refund;
        let (hash, mut shard) = self.shard(policy, key);
        if let Some(entry) = shard.entries.find_mut(hash, |entry| entry.is(policy, key)) {
            policy.refund(&mut entry.state, charged_at, now, cost);
        }
        Ok(())
    }

    async fn reset(&self, policy: &Policy, key: &Key) -> Result<(), Error> {
        let (hash, mut shard) = self.shard(policy, key);
        if let Ok(entry) = shard.entries.find_entry(hash, |entry| entry.is(policy, key)) {
            entry.remove();
        }
        Ok(())
    }
}

fn hash(hasher: &RandomState, policy: &Arc<str>, key: &Key) -> u64 {
    let mut state = hasher.build_hasher();
    policy.hash(&mut state);
    key.hash(&mut state);
    std::hash::Hasher::finish(&state)
}

/// A decision does not panic; should one all the same, the other keys of its shard are whole.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
