use std::collections::HashMap;
use std::string::String;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Capabilities, Check, Limiter, Operation, Reply};
use crate::{Decision, Error, Keys, Millis, Origin, Policy, Status, UnixMillis};

/// A cache of denials in front of a limiter. It denies a key again, without asking the limiter, until the wait is over.
///
/// A cached denial holds until its [`retry_after`](Decision::retry_after). Before that, only a refund, a reset or a block could
/// change the limiter's answer, and each removes the denial from the cache. It holds for the same cost and an equal policy only,
/// so a raised limit takes effect at once. The cache passes on checks with an idempotency token, which may have been
/// admitted before, and checks of policies that [charge denials](Policy::charge_denied).
///
/// The cache does not see refunds, resets and blocks in other processes. Their effect is delayed by the [hold](Self::hold) at
/// most. If clocks differ by `d`, a denial may hold `d` too long.
///
/// The [origin](Decision::origin) of a cached decision is [`Origin::DenyCache`]. It has the rest of the wait, and no counts,
/// which the cache does not know.
///
/// ```
/// use tidegate_core::{Check, DenyCache, Key, LimiterExt, MemoryLimiter, Millis, Origin, Policy, Quota, UnixMillis};
/// # fn main() -> Result<(), tidegate_core::Error> {
/// # pollster::block_on(async {
/// let limiter = DenyCache::new(MemoryLimiter::new());
/// let policy = Policy::new("api", [Quota::fixed_window(1, Millis::from_secs(1))?])?;
/// let key = Key::new("ip:192.0.2.1");
/// let at = |ms| Check::new(&policy, &key, UnixMillis::new(ms));
/// assert!(limiter.check(at(0)).await?.is_allowed());
/// assert_eq!(limiter.check(at(100)).await?.origin(), Origin::Store);
/// let denied = limiter.check(at(400)).await?;
/// assert_eq!((denied.origin(), denied.retry_after()), (Origin::DenyCache, Some(Millis::new(600))));
/// assert!(limiter.check(at(1_000)).await?.is_allowed());
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Debug)]
pub struct DenyCache<L> {
    limiter: L,
    hold: Millis,
    capacity: usize,
    memory: Mutex<Memory>,
}

#[derive(Debug, Default)]
struct Memory {
    /// By storage key.
    denials: HashMap<String, Denial>,
    /// The number of refunds, resets and blocks. An answer that was in flight meanwhile may be older than one of them.
    forgotten: u64,
}

#[derive(Debug)]
struct Denial {
    policy: Policy,
    cost: u64,
    from: UnixMillis,
    until: UnixMillis,
    decision: Decision,
}

/// The default of [`DenyCache::hold`].
pub(crate) const HOLD: Millis = Millis::from_secs(10);

/// The default of [`DenyCache::capacity`].
pub(crate) const CAPACITY: usize = 1_024;

impl<L: Limiter> DenyCache<L> {
    /// The default [hold](Self::hold).
    pub const DEFAULT_HOLD: Millis = HOLD;

    /// The default [capacity](Self::capacity).
    pub const DEFAULT_CAPACITY: usize = CAPACITY;

    /// A cache in front of `limiter`.
    pub fn new(limiter: L) -> Self {
        Self { limiter, hold: Self::DEFAULT_HOLD, capacity: Self::DEFAULT_CAPACITY, memory: Mutex::default() }
    }

    /// Sets the longest time that a denial is cached, which bounds how long a refund or a reset in another process goes unseen.
    /// With zero, nothing is cached.
    #[must_use]
    pub const fn hold(mut self, hold: Millis) -> Self {
        self.hold = hold;
        self
    }

    /// Sets the most keys that are cached. A full cache removes the expired denials, or all if none has expired.
    #[must_use]
    pub const fn capacity(mut self, keys: usize) -> Self {
        self.capacity = keys;
        self
    }

    /// The limiter behind the cache.
    pub const fn limiter(&self) -> &L {
        &self.limiter
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn recall_or_check(&self, check: &Check<'_>) -> Result<Reply, Error> {
        let name = name(check.policy, check.keys)?;
        let (recalled, forgotten) = {
            let mut memory = self.memory();
            (memory.recall(&name, check), memory.forgotten)
        };
        if let Some(decision) = recalled {
            return Ok(decision.with_origin(Origin::DenyCache).into());
        }
        let reply = self.limiter.apply(Operation::Check(*check)).await;
        if let Ok(Reply::Decided(decision)) = &reply {
            self.remember(name, check, decision, forgotten);
        }
        reply
    }

    fn forget(&self, policy: &Policy, keys: Keys<'_>) {
        let mut memory = self.memory();
        memory.forgotten += 1;
        if policy.dimensions().len() > 1 {
            // Others may share one of these keys, and be denied by it.
            memory.denials.clear();
        } else if let Ok(name) = name(policy, keys) {
            memory.denials.remove(&name);
        }
    }

    fn remember(&self, name: String, check: &Check<'_>, decision: &Decision, forgotten: u64) {
        let (Status::Denied, Some(wait)) = (decision.status(), decision.retry_after()) else { return };
        // A grant may come at any time, through any process.
        if check.policy.balance_place() == Some(decision.binding_index()) {
            return;
        }
        // What replaces a store that is down does not know what the store would say.
        if !may_be_recalled(check) || decision.origin() == Origin::Fallback {
            return;
        }
        let mut memory = self.memory();
        if memory.forgotten != forgotten {
            return;
        }
        if memory.denials.len() >= self.capacity && !memory.denials.contains_key(&name) {
            memory.denials.retain(|_, denial| check.now < denial.until);
            if memory.denials.len() >= self.capacity {
                memory.denials.clear();
            }
        }
        let denial = Denial {
            policy: check.policy.clone(),
            cost: check.cost,
            from: check.now,
            until: check.now + wait.min(self.hold),
            decision: decision.clone(),
        };
        memory.denials.insert(name, denial);
    }
}

/// The name of a denial: the names of all that was asked for.
fn name(policy: &Policy, keys: Keys<'_>) -> Result<String, Error> {
    match policy.dimensions() {
        [_] => Ok(keys.single(policy)?.storage_key(policy)),
        _ => Ok(keys.storage_keys(policy)?.rows().join(" ")),
    }
}

const fn may_be_recalled(check: &Check<'_>) -> bool {
    check.idempotency.is_none() && !check.policy.charges_denied()
}

impl Memory {
    fn recall(&mut self, name: &str, check: &Check<'_>) -> Option<Decision> {
        let denial = self.denials.get(name)?;
        if check.now >= denial.until {
            // Remove it, so that it does not hold again if the clock steps back: the limiter uses the later time.
            self.denials.remove(name);
            return None;
        }
        let holds = may_be_recalled(check) && denial.from <= check.now;
        let is_same = denial.cost == check.cost && denial.policy == *check.policy;
        (holds && is_same).then(|| denial.decision.recalled(denial.from, check.now))
    }
}

impl<L: Limiter> Limiter for DenyCache<L> {
    fn capabilities(&self) -> Capabilities {
        self.limiter.capabilities().lends(false)
    }

    async fn apply(&self, operation: Operation<'_>) -> Result<Reply, Error> {
        match operation {
            Operation::Check(check) if self.hold != Millis::ZERO => self.recall_or_check(&check).await,
            Operation::Check(_) | Operation::Peek(_) => self.limiter.apply(operation).await,
            Operation::Lend(..) => Err(operation.unsupported()),
            _ => {
                let reply = self.limiter.apply(operation).await;
                // Even if it has failed, because it may have been applied.
                self.forget(operation.policy(), operation.keys());
                reply
            }
        }
    }
}
