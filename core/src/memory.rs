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

use crate::algorithm::{BucketState, WindowState};
use crate::limiter::{Capabilities, Check, Idempotency, Limiter, Refund};
use crate::policy_state::decide_alone;
use crate::{Decision, Error, Key, Millis, Policy, PolicyState, QuotaState, Rule, UnixMillis};

/// A limiter that counts in memory: for one process, and for checking all the others against.
///
/// Exact at any concurrency. Keys are spread over shards, each behind its own lock; a decision takes one lock for some
/// tens of nanoseconds. A key is forgotten a while after its last request, when all it used has been given back: one
/// window later, or the time a bucket takes to drain. A shard is swept whenever it has grown to twice what was live at
/// its last sweep, so memory follows the live keys, not all the keys ever seen: 40 to 75 bytes each for a bucket or a fixed
/// window, some 70 more for others.
///
/// Time is the caller's. Two callers whose clocks differ by `d` see what one caller whose clock steps back by `d` would;
/// a key that was swept while a clock ran ahead is unused again when it steps back.
///
/// ```
/// use tidegate_core::{Check, Key, MemoryLimiter, Millis, Policy, Quota, UnixMillis};
/// # fn main() -> Result<(), tidegate_core::Error> {
/// let limiter = MemoryLimiter::new();
/// let policy = Policy::new("api", [Quota::sliding_window(100, Millis::from_secs(60))?])?;
/// let key = Key::new("ip:192.0.2.1");
/// let decision = limiter.decide(Check::new(&policy, &key, UnixMillis::new(1_800_000_000_000)));
/// assert_eq!(decision.binding().remaining(), Some(99));
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

/// One key's state of one policy. Half a cache line for most: with many keys, a decision's time is that of fetching it.
#[derive(Debug)]
struct Entry {
    fingerprint: Fingerprint,
    kept: Kept,
}

/// A state in the smallest form, with the time from which it says nothing any more.
#[derive(Debug)]
enum Kept {
    Bucket(Expiry, BucketState),
    Window(Expiry, WindowState),
    Other(Expiry, Box<PolicyState>),
}

/// Whole seconds since the epoch, rounded up; the last one means never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Expiry(u32);

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
    #[inline]
    pub fn decide(&self, check: Check<'_>) -> Decision {
        let (fingerprint, mut shard) = self.shard(check.policy, check.key);
        if let Some(idempotency) = check.idempotency {
            let token = self.token(fingerprint, idempotency);
            return shard.decide_once(fingerprint, token, &check, idempotency);
        }
        shard.decide(fingerprint, &check)
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
    /// use tidegate_core::{Check, Key, MemoryLimiter, Millis, Policy, Quota, UnixMillis};
    /// # fn main() -> Result<(), tidegate_core::Error> {
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
    fn decide(&mut self, fingerprint: Fingerprint, check: &Check<'_>) -> Decision {
        match self.entries.find_mut(fingerprint, |entry| entry.fingerprint == fingerprint) {
            Some(entry) => entry.kept.decide(check),
            None => self.decide_first(fingerprint, check),
        }
    }

    /// The first request of a key, or the first since it was forgotten.
    #[cold]
    #[inline(never)]
    fn decide_first(&mut self, fingerprint: Fingerprint, check: &Check<'_>) -> Decision {
        let mut state = check.policy.initial_state();
        let decision = check.policy.decide(&mut state, check.now, check.cost);
        if check.policy.expires_after(&state, check.now) > Millis::ZERO {
            if self.entries.len() >= self.sweep_at {
                self.sweep(check.now);
                self.sweep_at = (self.entries.len() * 2).max(MIN_SWEEP);
            }
            let kept = Kept::new(state, Expiry::of(check));
            self.entries.insert_unique(fingerprint, Entry { fingerprint, kept }, |entry| entry.fingerprint);
        }
        decision
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
        let decision = self.decide(fingerprint, check);
        self.answers.insert(token, (check.now + ttl, decision.clone()));
        decision
    }

    fn find_mut(&mut self, fingerprint: Fingerprint) -> Option<&mut Entry> {
        self.entries.find_mut(fingerprint, |entry| entry.fingerprint == fingerprint)
    }

    fn sweep(&mut self, now: UnixMillis) {
        self.entries.retain(|entry| !entry.kept.expiry().has_passed(now));
    }
}

impl Kept {
    fn new(state: PolicyState, expiry: Expiry) -> Self {
        match state.parts() {
            [QuotaState::Bucket(state)] => Self::Bucket(expiry, *state),
            [QuotaState::Window(state)] => Self::Window(expiry, *state),
            _ => Self::Other(expiry, Box::new(state)),
        }
    }

    const fn expiry(&self) -> Expiry {
        match self {
            Self::Bucket(expiry, _) | Self::Window(expiry, _) | Self::Other(expiry, _) => *expiry,
        }
    }

    #[inline]
    fn decide(&mut self, check: &Check<'_>) -> Decision {
        let (now, cost) = (check.now, check.cost);
        match (&mut *self, check.policy.sole_rule()) {
            (Self::Bucket(until, state), Some(Rule::TokenBucket(rule))) => {
                *until = Expiry::of(check).max(*until);
                decide_alone(rule, state, now, cost)
            }
            (Self::Bucket(until, state), Some(Rule::LeakyBucket(rule))) => {
                *until = Expiry::of(check).max(*until);
                decide_alone(rule, state, now, cost)
            }
            (Self::Window(until, state), Some(Rule::FixedWindow(rule))) => {
                *until = Expiry::of(check).max(*until);
                decide_alone(rule, state, now, cost)
            }
            _ => self.update(Expiry::of(check), |state| check.policy.decide(state, now, cost)),
        }
    }

    /// Changes the state, and keeps it until `expiry` at least.
    #[inline]
    fn update<T>(&mut self, expiry: Expiry, change: impl FnOnce(&mut PolicyState) -> T) -> T {
        let expiry = expiry.max(self.expiry());
        let mut state = match self {
            Self::Bucket(_, state) => PolicyState::of_one(QuotaState::Bucket(*state)),
            Self::Window(_, state) => PolicyState::of_one(QuotaState::Window(*state)),
            Self::Other(until, state) => {
                *until = expiry;
                return change(state);
            }
        };
        let answer = change(&mut state);
        *self = Self::new(state, expiry);
        answer
    }
}

impl Expiry {
    /// When what a check charges says nothing any more, at the latest.
    #[inline]
    fn of(check: &Check<'_>) -> Self {
        let at = check.now + check.policy.retention();
        Self(u32::try_from(at.as_secs_ceil()).unwrap_or(u32::MAX))
    }

    fn has_passed(self, now: UnixMillis) -> bool {
        self.0 < u32::MAX && u64::from(self.0) * 1_000 <= now.get()
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
        let peek = |state: &mut PolicyState| check.policy.peek(state, check.now, check.cost);
        Ok(match shard.find_mut(fingerprint) {
            Some(entry) => entry.kept.update(Expiry(0), peek),
            None => peek(&mut check.policy.initial_state()),
        })
    }

    async fn refund(&self, refund: Refund<'_>) -> Result<(), Error> {
        let Refund { policy, key, cost, charged_at, now } = refund;
        let (fingerprint, mut shard) = self.shard(policy, key);
        if let Some(entry) = shard.find_mut(fingerprint) {
            entry.kept.update(Expiry(0), |state| policy.refund(state, charged_at, now, cost));
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
