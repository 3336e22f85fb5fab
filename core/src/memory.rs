//! The reference store, in memory.

mod answers;
mod full;
mod several;
mod shard;
mod table;

#[cfg(not(loom))]
use std::sync::{Mutex, MutexGuard};

#[cfg(loom)]
use loom::sync::{Mutex, MutexGuard};

use std::boxed::Box;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::PoisonError;

use siphasher::sip::SipHasher13;

use crate::limiter::{Block, Capabilities, Check, Grant, Limiter, Operation, Refund, Reply, Settle};
use crate::{Decision, Dimension, Error, ErrorKind, Key, Keys, Policy, UnixMillis};

use self::full::Full;
use self::shard::{Bounds, Row, Shard};
use self::table::Fingerprint;

pub use self::full::WhenFull;

/// A limiter that counts in the memory of one process. It is exact at any concurrency, and the reference for all others.
///
/// Keys are spread over shards, each behind its own lock. A decision takes one lock for some tens of nanoseconds.
///
/// # Memory
/// The limiter stores a fingerprint and a state for each key, not the key itself. With one quota, a token bucket, leaky
/// bucket or fixed window takes 51 to 75 bytes per key, depending on how full the hash tables are. A sliding window takes 50
/// bytes more, two quotas 80 more, each further quota 32, and a sliding log 16 for each request that it holds. An answer to a
/// token takes 190 to 390 bytes, and 160 more with two quotas. Five million keys that ask with two tokens each take 0.6 GB, of
/// which the [answers](Self::answers) are 0.3 GB.
/// `cargo bench -p tidegate-core --bench memory` measures these numbers.
///
/// A key expires when its state has no effect any more: a window's length after its last request, or the time that a
/// bucket takes to drain. Calls remove expired keys: each one inspects a few entries of its own shard while a pass over
/// it is in progress, and every 64th call inspects 256 entries of another shard. A shard consists of hash tables of some hundred
/// entries, each of which grows, splits and shrinks for itself. So no call moves more than about two thousand entries at once,
/// however many there are. [`MemoryLimiter::sweep`] removes all expired keys immediately.
///
/// # Full
/// [`MemoryLimiter::max_keys`] bounds the number of keys. The first further key is logged with the feature `tracing`, at level `WARN`, and
/// [`MemoryLimiter::was_full`] tells of it. [`MemoryLimiter::when_full`] chooses what happens to such keys until others have expired:
///
/// - [`WhenFull::Evict`], the default: the key gets a state of its own, so a stranger's first request is always admitted. It takes the
///   place of one of eight keys that are drawn: one that has expired, or else the one with the largest part of its limit left. A key that
///   has used its limit is forgotten only if none of the eight has anything left. If a share `g` of all keys is used up, that is for
///   `g^8` of the further keys, and for one certain key `g^7 / max_keys`. So to use a key's limit once more, a client has to use up half
///   of all others, and then has `128 * max_keys` further keys admitted; or it uses up all, and has `max_keys` admitted. No key in a
///   block and none that holds a slot is forgotten: if all eight are such keys, the request is [`Refused`](ErrorKind::Refused). But a client
///   with more addresses than `max_keys` is not limited: each request may come from one that is forgotten.
/// - [`WhenFull::Share`]: such keys share states: for each policy, one state per eight keys of the capacity. No key loses its state, so
///   nobody can reset a key by sending requests under many others, and no key admits more than its limit. Together they admit what one key
///   would, and may be denied early.
/// - [`WhenFull::Deny`]: the request is [`Refused`](ErrorKind::Refused). Keys with a state go on.
///
/// Each shard is full for itself.
///
/// [`MemoryLimiter::answers`] bounds the answers to [idempotency tokens](Check::idempotent), and apart from them those to
/// tokens that hold slots. When a shard's answers are full, the ones that were settled first make room, and a retry of their
/// checks is decided anew. If none is settled or has expired, a check with a new token is decided and charged like any other,
/// its retry is charged again, and it cannot be settled. A check that would take a slot is not: it fails with
/// [`Refused`](crate::ErrorKind::Refused) and charges nothing, because nobody could release the slot. As many tokens of grants are
/// remembered, none makes room, and a further grant is [`Refused`](crate::ErrorKind::Refused), because it could be made twice.
///
/// # Balances
/// A [balance](crate::algorithm::Balance) lasts as long as the process. A key with one is never forgotten, and keeps its state until
/// what it has left expires, without an end if it does not. For money, count in a store that keeps it, such as Redis.
///
/// # Time
/// Time is the caller's. Callers whose clocks differ by `d` are treated like one caller whose clock steps back by `d`.
/// A key that expired while a clock was ahead is unused when the clock steps back. A clock that was ahead by more than one
/// minute does not keep a key longer than one minute beyond its policy's time.
///
/// ```
/// use tidegate_core::{Check, Key, MemoryLimiter, Millis, Policy, Quota, UnixMillis};
/// # fn main() -> Result<(), tidegate_core::Error> {
/// let limiter = MemoryLimiter::new();
/// let policy = Policy::new("api", [Quota::sliding_window(100, Millis::from_secs(60))?])?;
/// let key = Key::new("ip:192.0.2.1");
/// let decision = limiter.decide(Check::new(&policy, &key, UnixMillis::new(1_800_000_000_000)))?;
/// assert_eq!(decision.binding().remaining(), Some(99));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct MemoryLimiter {
    shards: Box<[Padded]>,
    /// Keys of one shard.
    max_keys: usize,
    full: Full,
    /// Answers of one shard, and whether they are bounded apart from its keys.
    answers: usize,
    bounds_answers: bool,
    /// Draws fingerprints. Its secret is random, so that nobody can choose two keys with the same one. Among a million
    /// keys, the chance that two share a fingerprint is 1 in 37 million.
    hasher: SipHasher13,
}

/// A shard on its own cache lines, so that the lock of one core does not slow down another.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded(Mutex<Shard>);

impl MemoryLimiter {
    /// The default [number of keys](Self::max_keys): 16,777,216, which take up to 1.3 GB with one bucket or fixed window.
    /// [Answers](Self::DEFAULT_ANSWERS) to tokens come on top.
    pub const DEFAULT_MAX_KEYS: usize = 1 << 24;

    /// The default number of [answers](Self::answers) to tokens: 1,048,576 of checks that hold no slots, which take up to
    /// 0.4 GB, and as many of checks that do.
    pub const DEFAULT_ANSWERS: usize = 1 << 20;

    /// A limiter with 16 shards for each hardware thread, so that two threads rarely meet in one.
    #[must_use]
    pub fn new() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self::with_shards(threads * 16)
    }

    /// A limiter with at least `shards` shards, rounded up to a power of two of at most 65,536.
    #[must_use]
    pub fn with_shards(shards: usize) -> Self {
        let shards = (0..shards.clamp(1, 1 << 16).next_power_of_two()).map(|_| Padded::default()).collect();
        // The standard library's source of random secrets. Loom replays its models, so they must not be random there.
        let secret = || if cfg!(loom) { 1 } else { RandomState::new().build_hasher().finish() };
        let hasher = SipHasher13::new_with_keys(secret(), secret());
        let empty = Self { shards, max_keys: 0, full: Full::default(), answers: 0, bounds_answers: false, hasher };
        empty.max_keys(Self::DEFAULT_MAX_KEYS)
    }

    /// Sets the number of keys that have a state of their own. A policy's key counts once for each policy. See [Full](Self#full) for what
    /// happens beyond it.
    ///
    /// Each shard holds an equal part, rounded up. Keys do not spread perfectly evenly, so the first shard is full a little
    /// before the total is reached.
    ///
    /// ```
    /// use tidegate_core::{Check, Key, MemoryLimiter, Millis, Policy, Quota, UnixMillis, WhenFull};
    /// # fn main() -> Result<(), tidegate_core::Error> {
    /// let limiter = MemoryLimiter::with_shards(1).max_keys(1).when_full(WhenFull::Share);
    /// let policy = Policy::new("api", [Quota::fixed_window(1, Millis::from_secs(60))?])?;
    /// let admits = |key| limiter.decide(Check::new(&policy, &Key::new(key), UnixMillis::new(0))).unwrap().is_allowed();
    /// assert!(admits("ip:192.0.2.1"));
    /// // The shard is full: these two share one limit.
    /// assert!(admits("ip:192.0.2.2"));
    /// assert!(!admits("ip:192.0.2.3"));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn max_keys(mut self, keys: usize) -> Self {
        self.max_keys = keys.div_ceil(self.shards.len()).max(1);
        if !self.bounds_answers {
            self.answers = self.max_keys.min(Self::DEFAULT_ANSWERS.div_ceil(self.shards.len()));
        }
        self
    }

    /// Chooses what happens to further keys. See [Full](Self#full).
    #[must_use]
    pub const fn when_full(mut self, when: WhenFull) -> Self {
        self.full.set(when);
        self
    }

    /// Whether there ever was a key for which a shard had no room.
    #[must_use]
    pub fn was_full(&self) -> bool {
        self.full.was_met()
    }

    /// Sets the number of answers to [idempotency tokens](Check::idempotent) that are remembered, and of as many to tokens that
    /// hold slots. See [Full](Self#full) for what happens beyond it. Without this setting, it is
    /// [`max_keys`](Self::max_keys), and at most [`DEFAULT_ANSWERS`](Self::DEFAULT_ANSWERS).
    ///
    /// Each shard holds an equal part, rounded up.
    #[must_use]
    pub fn answers(mut self, answers: usize) -> Self {
        (self.answers, self.bounds_answers) = (answers.div_ceil(self.shards.len()).max(1), true);
        self
    }

    const fn bounds(&self) -> Bounds<'_> {
        Bounds { keys: self.max_keys, answers: self.answers, full: &self.full }
    }

    /// Draws fingerprints with a secret of your own: 16 random bytes that clients cannot know. By default the secret comes
    /// from the standard library, which has no source of randomness on `wasm32-unknown-unknown`.
    #[must_use]
    pub fn secret(mut self, secret: [u64; 2]) -> Self {
        self.hasher = SipHasher13::new_with_keys(secret[0], secret[1]);
        self
    }

    /// Decides as [`LimiterExt::check`](crate::LimiterExt::check) does, without a future.
    ///
    /// # Errors
    /// [`ErrorKind::TokenReused`](crate::ErrorKind::TokenReused) if the check's token belongs to a charge of another cost.
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if a dimension has no key, or a concurrency limit no token.
    /// [`ErrorKind::Refused`](crate::ErrorKind::Refused) if the check would take a slot that cannot be remembered, or its key gets no
    /// state; see [Full](Self#full).
    #[inline]
    pub fn decide(&self, check: Check<'_>) -> Result<Decision, Error> {
        // Most checks need nothing but a step of one small state.
        let (Some(rule), [dimension]) = (check.rule_alone(), check.policy.rows()) else {
            return self.decide_by_all(&check);
        };
        let (row, index) = self.place(dimension, check.keys.single(check.policy)?, None);
        let mut shard = self.shard_at(index, check.now);
        match shard.step_alone(row, rule, &check) {
            Some((step, left)) => {
                // Unlocking waits for what was written before. The decision is written afterwards.
                drop(shard);
                Ok(Decision::of_one(step, left, check.now))
            }
            None => self.decide_locked(&mut shard, row, &check),
        }
    }

    /// Decides on what takes more: a check with a token, and one by several quotas or by one with a larger state.
    #[inline(never)]
    fn decide_by_all(&self, check: &Check<'_>) -> Result<Decision, Error> {
        check.verify()?;
        let [dimension] = check.policy.rows() else { return self.decide_several(check) };
        let (row, index) = self.place(dimension, check.keys.single(check.policy)?, None);
        self.decide_locked(&mut self.shard_at(index, check.now), row, check)
    }

    /// A shard, locked, for a check.
    #[inline]
    fn shard_at(&self, index: usize, now: UnixMillis) -> MutexGuard<'_, Shard> {
        let mut shard = lock(&self.shards[index].0);
        if let Some(call) = shard.count_call() {
            self.visit_other(index + call, now);
        }
        shard
    }

    /// Decides in a shard that is locked.
    #[inline(never)]
    fn decide_locked(&self, shard: &mut Shard, row: Row<'_>, check: &Check<'_>) -> Result<Decision, Error> {
        match check.remembered() {
            Some(idempotency) => {
                let token = self.token(row.own, idempotency.token);
                shard.decide_once(row, token, check, idempotency.ttl, self.bounds())
            }
            None => shard.decide(row, check, self.bounds()),
        }
    }

    /// The number of keys that have a state. A policy's key counts once for each policy.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(&shard.0).len()).sum()
    }

    /// Whether no key has a state.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes that the hash tables allocate, without the states of policies with several quotas, sliding windows and
    /// sliding logs, which are allocated one by one.
    #[must_use]
    pub fn allocated_bytes(&self) -> usize {
        self.shards.iter().map(|shard| lock(&shard.0).allocated_bytes()).sum()
    }

    /// Removes every key and answer that has expired at `now`, and returns their memory. It locks a part of a shard after another, so that
    /// no other call waits for long.
    ///
    /// Calls do this by themselves, a few entries each. Use this method when there are no calls.
    ///
    /// ```
    /// use tidegate_core::{Check, Key, MemoryLimiter, Millis, Policy, Quota, UnixMillis};
    /// # fn main() -> Result<(), tidegate_core::Error> {
    /// let limiter = MemoryLimiter::new();
    /// let policy = Policy::new("api", [Quota::fixed_window(1, Millis::from_secs(1))?])?;
    /// limiter.decide(Check::new(&policy, &Key::new("ip:192.0.2.1"), UnixMillis::new(0)))?;
    /// limiter.sweep(UnixMillis::new(999));
    /// assert_eq!(limiter.len(), 1);
    /// limiter.sweep(UnixMillis::new(1_000));
    /// assert!(limiter.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    pub fn sweep(&self, now: UnixMillis) {
        for shard in &self.shards {
            // The lock is free between two segments.
            let _ = (0..).take_while(|segment| lock(&shard.0).sweep(*segment, now)).count();
        }
    }

    /// The row of a key, and its shard. A key that is counted for each group has the group's key as its scope.
    #[allow(clippy::cast_possible_truncation, reason = "the index of a shard has at most 16 bits")]
    #[inline]
    fn place<'a>(&self, dimension: &'a Dimension, key: &Key, scope: Option<&Key>) -> (Row<'a>, usize) {
        let mut own = self.hasher.hash(key.as_str().as_bytes());
        if let Some(scope) = scope {
            own = self.mix(self.hasher.hash(scope.as_str().as_bytes()), own);
        }
        own ^= dimension.digest();
        // The hash table uses the bits at both ends of the fingerprint, and this the middle.
        let index = usize::from((own >> 32) as u16) & (self.shards.len() - 1);
        (Row { own, dimension }, index)
    }

    /// The row of a policy's only key, and its shard, locked.
    fn shard<'a>(&self, policy: &'a Policy, keys: Keys<'_>) -> Result<(Row<'a>, MutexGuard<'_, Shard>), Error> {
        let (row, index) = self.place(&policy.rows()[0], keys.single(policy)?, None);
        Ok((row, lock(&self.shards[index].0)))
    }

    fn mix(&self, first: Fingerprint, second: Fingerprint) -> Fingerprint {
        let mut hasher = self.hasher;
        hasher.write_u64(first);
        hasher.write_u64(second);
        hasher.finish()
    }

    fn token(&self, fingerprint: Fingerprint, token: &str) -> Fingerprint {
        let mut hasher = self.hasher;
        hasher.write_u64(fingerprint);
        hasher.write(token.as_bytes());
        hasher.finish()
    }

    /// Continues the sweep of a shard that may have no calls of its own. Skips it if its lock is held, also by the caller.
    #[cold]
    fn visit_other(&self, index: usize, now: UnixMillis) {
        if let Ok(mut shard) = self.shards[index & (self.shards.len() - 1)].0.try_lock() {
            shard.tend(now);
        }
    }
}

impl Default for MemoryLimiter {
    fn default() -> Self {
        Self::new()
    }
}

impl Limiter for MemoryLimiter {
    fn capabilities(&self) -> Capabilities {
        Capabilities::EXACT.grant(true).round_trips(0)
    }

    #[inline]
    fn check_at_once(&self, check: Check<'_>) -> Option<Result<Decision, Error>> {
        Some(self.decide(check))
    }

    #[inline]
    async fn apply(&self, operation: Operation<'_>) -> Result<Reply, Error> {
        match operation {
            Operation::Check(check) => self.decide(check).map(Reply::from),
            _ => self.correct(operation),
        }
    }
}

impl MemoryLimiter {
    /// Applies what is not a check.
    fn correct(&self, operation: Operation<'_>) -> Result<Reply, Error> {
        operation.covered()?;
        if operation.policy().rows().len() > 1 {
            return self.correct_several(operation);
        }
        match operation {
            Operation::Peek(check) => {
                let (row, shard) = self.shard(check.policy, check.keys)?;
                Ok(shard.peek(row, &check, self.bounds()).into())
            }
            Operation::Refund(refund) => {
                refund.verify()?;
                let Refund { policy, keys, cost, charged_at, now } = refund;
                let (row, mut shard) = self.shard(policy, keys)?;
                // It gives no key a state.
                shard.correct(row, policy, now, self.bounds(), None, |state| {
                    policy.refund(state, charged_at, now, cost)
                });
                Ok(Reply::Done)
            }
            Operation::Settle(settle) => self.settle_one(&settle).map(Reply::from),
            Operation::Block(block) => self.block_one(&block).map(Reply::from),
            Operation::Grant(grant) => self.grant_one(&grant).map(Reply::from),
            // The answers to the key's idempotency tokens stay. A key that shares a state, because the shard is full, is not reset:
            // that would reset the others.
            Operation::Reset { policy, keys } => {
                let (row, mut shard) = self.shard(policy, keys)?;
                shard.reset(row.own);
                Ok(Reply::Done)
            }
            _ => Err(operation.unsupported()),
        }
    }

    fn settle_one(&self, settle: &Settle<'_>) -> Result<Decision, Error> {
        settle.verify()?;
        let Settle { policy, keys, now, .. } = *settle;
        let (row, mut shard) = self.shard(policy, keys)?;
        let bounds = self.bounds();
        let room = shard.room_for(row, now, bounds, &[])?;
        let charge = shard.take_charge(self.token(row.own, settle.token), settle, bounds)?;
        let replayed = charge.is_none();
        if let Some(charge) = charge {
            let (charge, paid) = charge;
            let actual = settle.cost.unwrap_or(charge.cost);
            shard.correct(row, policy, now, bounds, room, |state| {
                policy.settle_paid(state, &charge, &paid, now, actual)
            });
        }
        Ok(shard.peek(row, &Check::new(policy, keys, now).cost(0), bounds).replayed(replayed))
    }

    /// Fails with [`Refused`](crate::ErrorKind::Refused) for a key that gets no state of its own, because the shard is full: strangers
    /// would spend what is granted to a shared one.
    fn grant_one(&self, grant: &Grant<'_>) -> Result<Decision, Error> {
        grant.verify()?;
        let Grant { policy, keys, now, .. } = *grant;
        let (row, mut shard) = self.shard(policy, keys)?;
        let (bounds, token) = (self.bounds(), self.token(row.own, grant.token));
        let replayed = shard.was_granted(token, grant)?;
        if !replayed {
            if shard.would_share(row, bounds) {
                return Err(no_own_state("a grant"));
            }
            shard.has_room_for_grant(grant, bounds)?;
            let room = shard.room_for(row, now, bounds, &[])?;
            let mut state = shard.state(row, bounds).unwrap_or_else(|| policy.initial_state());
            policy.grant(&mut state, grant.units, grant.expires, now)?;
            let lasts = policy.expires_after(&state, now);
            shard.store(row, state, policy, now, lasts, bounds, room);
            shard.remember_grant(token, grant);
        }
        Ok(shard.peek(row, &Check::new(policy, keys, now).cost(0), bounds).replayed(replayed))
    }

    /// Fails with [`Refused`](crate::ErrorKind::Refused) for a key that gets no state of its own, because the shard is full: to block a shared
    /// one would block the others.
    fn block_one(&self, block: &Block<'_>) -> Result<(), Error> {
        block.verify()?;
        let Block { policy, keys, span, now } = *block;
        let (row, mut shard) = self.shard(policy, keys)?;
        let bounds = self.bounds();
        if shard.would_share(row, bounds) {
            return Err(no_own_state("a block"));
        }
        let room = shard.room_for(row, now, bounds, &[])?;
        shard.correct(row, policy, now, bounds, room, |state| policy.block(state, now, span));
        Ok(())
    }
}

fn no_own_state(what: &str) -> Error {
    let message = std::format!(
        "the memory limiter is full, and {what} would be of all keys that share a state; raise `MemoryLimiter::max_keys`"
    );
    Error::new(ErrorKind::Refused, message)
}

/// A decision does not panic. If one did, the other keys of its shard would still be intact.
#[inline]
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
