//! The reference store: in memory, exact under any number of threads.

#[cfg(not(loom))]
use std::sync::{Mutex, MutexGuard};

#[cfg(loom)]
use loom::sync::{Mutex, MutexGuard};

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::PoisonError;

use hashbrown::HashTable;
use siphasher::sip::SipHasher13;

use crate::limiter::{Capabilities, Check, Idempotency, Limiter, Refund};
use crate::policy_state::Settled;
use crate::{Decision, Error, Key, Millis, Policy, PolicyState, UnixMillis};

/// A limiter that counts in memory: for one process, and for checking all the others against.
///
/// Exact at any concurrency. Keys are spread over shards, each behind its own lock; a decision takes one lock for some
/// tens of nanoseconds. A key is forgotten a while after its last request, when all it used has been given back: one
/// window later, or the time a bucket takes to drain. A shard is swept whenever it has grown to twice what was live at
/// its last sweep, so memory follows the live keys, not all the keys ever seen: 64 bytes each.
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
    hasher: SipHasher13,
}

/// A shard on cache lines of its own, so that one core's lock does not slow another's.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded(Mutex<Shard>);

#[derive(Debug, Default)]
struct Shard {
    entries: HashTable<Entry>,
    /// Sweep the entries when there are this many.
    sweep_at: usize,
    /// First answers by idempotency token, and until when each holds.
    answers: HashMap<Fingerprint, (UnixMillis, Decision)>,
}

/// One key's state of one policy: a cache line, so that a decision touches one.
#[derive(Debug)]
#[repr(align(64))]
struct Entry {
    fingerprint: Fingerprint,
    state: PolicyState,
    expires_at: UnixMillis,
}

/// What stands for a policy and a key, and where there is one a token: SipHash under a secret drawn at random, so that
/// nobody can make two collide. The keys themselves are not kept. By chance, some two of a million live keys share a
/// count once in 37 million such millions.
type Fingerprint = u64;

/// A shard is not swept before it has this many entries.
const MIN_SWEEP: usize = 16;

impl MemoryLimiter {
    /// A limiter with 16 shards for each of the machine's threads: two that meet in one are rare.
    #[must_use]
    pub fn new() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self::with_shards(threads * 16)
    }

    /// A limiter with at least `shards` shards, rounded up to a power of two.
    #[must_use]
    pub fn with_shards(shards: usize) -> Self {
        let shards = (0..shards.next_power_of_two()).map(|_| Padded::default()).collect();
        // The standard library's own source of random secrets.
        let secret = || RandomState::new().build_hasher().finish();
        Self { shards, hasher: SipHasher13::new_with_keys(secret(), secret()) }
    }

    /// Decides as [`Limiter::check`] does, without a future: memory is always there.
    #[must_use]
    pub fn decide(&self, check: Check<'_>) -> Decision {
        let (fingerprint, mut shard) = self.shard(check.policy, check.key);
        if let Some(idempotency) = check.idempotency {
            let token = self.token(fingerprint, idempotency);
            return shard.decide_once(fingerprint, token, &check, idempotency);
        }
        let settled = shard.settle(fingerprint, &check);
        drop(shard);
        settled.decision(check.now)
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
            shard.entries.shrink_to_fit(|entry| entry.fingerprint);
            shard.answers.retain(|_, (until, _)| *until > now);
            shard.answers.shrink_to_fit();
        }
    }

    #[allow(clippy::cast_possible_truncation, reason = "a shard's number takes no more bits")]
    #[inline]
    fn shard(&self, policy: &Policy, key: &Key) -> (Fingerprint, MutexGuard<'_, Shard>) {
        let fingerprint = self.hasher.hash(key.as_str().as_bytes()) ^ policy.digest();
        // The table takes its bits from both ends of the fingerprint, the shard its own from the middle.
        let index = usize::from((fingerprint >> 32) as u16) & (self.shards.len() - 1);
        (fingerprint, lock(&self.shards[index].0))
    }

    fn token(&self, fingerprint: Fingerprint, idempotency: Idempotency<'_>) -> Fingerprint {
        let mut hasher = self.hasher;
        hasher.write_u64(fingerprint);
        hasher.write(idempotency.token.as_bytes());
        hasher.finish()
    }
}

impl Default for MemoryLimiter {
    fn default() -> Self {
        Self::new()
    }
}

impl Shard {
    #[inline]
    fn settle(&mut self, fingerprint: Fingerprint, check: &Check<'_>) -> Settled {
        match self.entries.find_mut(fingerprint, |entry| entry.fingerprint == fingerprint) {
            Some(entry) => entry.settle(check),
            None => self.settle_first(fingerprint, check),
        }
    }

    /// The first request of a key, or the first since it was forgotten.
    #[cold]
    #[inline(never)]
    fn settle_first(&mut self, fingerprint: Fingerprint, check: &Check<'_>) -> Settled {
        let state = check.policy.unused();
        let mut entry = Entry { fingerprint, state, expires_at: UnixMillis::default() };
        let settled = entry.settle(check);
        if check.policy.expires_after(&entry.state, check.now) > Millis::ZERO {
            if self.entries.len() >= self.sweep_at {
                self.sweep(check.now);
                self.sweep_at = (self.entries.len() * 2).max(MIN_SWEEP);
            }
            self.entries.insert_unique(fingerprint, entry, |entry| entry.fingerprint);
        }
        settled
    }

    /// Decides on the first check with a token; answers the others with what it was then.
    fn decide_once(
        &mut self,
        fingerprint: Fingerprint,
        token: Fingerprint,
        check: &Check<'_>,
        Idempotency { ttl, .. }: Idempotency<'_>,
    ) -> Decision {
        match self.answers.get(&token) {
            Some((until, first)) if *until > check.now => return first.clone(),
            // Looking for what has passed at each doubling keeps the work a token constant, whatever their number.
            _ if self.answers.len().is_power_of_two() => self.answers.retain(|_, (until, _)| *until > check.now),
            _ => {}
        }
        let decision = self.settle(fingerprint, check).decision(check.now);
        self.answers.insert(token, (check.now + ttl, decision.clone()));
        decision
    }

    fn find_mut(&mut self, fingerprint: Fingerprint) -> Option<&mut Entry> {
        self.entries.find_mut(fingerprint, |entry| entry.fingerprint == fingerprint)
    }

    fn sweep(&mut self, now: UnixMillis) {
        self.entries.retain(|entry| entry.expires_at > now);
    }
}

impl Entry {
    #[inline]
    fn settle(&mut self, check: &Check<'_>) -> Settled {
        self.expires_at = self.expires_at.max(check.now + check.policy.retention());
        check.policy.settle(&mut self.state, check.now, check.cost)
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
        let (fingerprint, mut shard) = self.shard(check.policy, check.key);
        Ok(match shard.find_mut(fingerprint) {
            Some(entry) => check.policy.peek(&entry.state, check.now, check.cost),
            None => check.policy.peek(&check.policy.unused(), check.now, check.cost),
        })
    }

    async fn refund(&self, refund: Refund<'_>) -> Result<(), Error> {
        let Refund { policy, key, cost, charged_at, now } = refund;
        let (fingerprint, mut shard) = self.shard(policy, key);
        if let Some(entry) = shard.find_mut(fingerprint) {
            policy.refund(&mut entry.state, charged_at, now, cost);
        }
        Ok(())
    }

    async fn reset(&self, policy: &Policy, key: &Key) -> Result<(), Error> {
        let (fingerprint, mut shard) = self.shard(policy, key);
        if let Ok(entry) = shard.entries.find_entry(fingerprint, |entry| entry.fingerprint == fingerprint) {
            entry.remove();
        }
        Ok(())
    }
}

/// A decision does not panic; should one all the same, the other keys of its shard are whole.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
