//! Parts of a quota that an isolate borrows and spends without a round trip.

mod slot;

use std::num::NonZero;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate_core::internal::SortedMap;
use tidegate_core::store::AtomicLimiter;
use tidegate_core::{
    Accuracy, Block, Capabilities, Check, Decision, Drift, Error, ErrorKind, Floor, Keys, Limiter, Millis, Origin,
    Policy, Refund, Settle, UnixMillis,
};

use crate::durable_objects::held::{LIFETIME_MAX, can_lend};
use crate::durable_objects::leases::slot::{Slot, Spent};
use crate::durable_objects::store::{CAPABILITIES, DurableObjects, DurableObjectsLimiter, Namespace};
use crate::durable_objects::wire::{Action, Returned};

/// A limiter that leases parts of a quota from the key's object, and admits requests from a lease without a call.
///
/// Keep one for the isolate's life, in a `static` or a `thread_local`, because it holds the leases. It leases policies of
/// one token bucket or one fixed window that do not charge denials. Checks by other policies, checks with a token and
/// settlements are plain calls, as [`DurableObjects::limiter`] makes them.
///
/// **Ceiling:** the limit, as without leases. A lease is charged when it is granted, so the leases and the object together
/// never hold more than the quota. **Floor:** what an exact limiter with a lower limit admits, because other isolates
/// cannot use what one isolate holds, or held when it died. [`lease_capabilities`] says how much lower.
///
/// - The first request for a key in a lifetime gets no lease. Leases then double each time they are spent. The next call
///   returns what was not spent. The object lends at most half of what is left, so a lone isolate spends a window to
///   the last unit.
/// - If requests come faster than leases do, an isolate asks for the next lease earlier, when up to half of the current
///   one is left. Requests spend the rest meanwhile.
/// - A decision from a lease has no `remaining`, because the isolate does not know what others have left. Only the object
///   denies. If the object fails, what is left of a lease is still spent, and then checks return the error.
/// - A reset does not recall leases: lent units stay charged until the lease ends. After a change of the limit, the
///   next check returns the lease.
/// - The isolate measures a lease's lifetime by its own clock, from before it asked. So the clocks of isolates and objects
///   need not agree.
#[derive(Debug)]
pub struct Leases<N> {
    calls: DurableObjectsLimiter<N>,
    slice: NonZero<u64>,
    lifetime: Millis,
    slots: Mutex<Slots>,
}

/// What an isolate holds, by storage key.
#[derive(Debug, Default)]
struct Slots {
    by_key: SortedMap<Slot>,
    /// The number of slots at which those that are no longer of use are dropped.
    sweep_at: usize,
    swept_at: UnixMillis,
}

/// Fewer slots than this are never swept.
const SWEEP_MIN: usize = 64;

/// The most keys of which an isolate holds leases.
const SLOTS_MAX: usize = 16_384;

/// The capabilities of [`Leases`] with a slice and a lifetime.
///
/// It never admits more than the limit. Of requests of cost 1, it admits at least as many as an exact limiter whose limit
/// is lower by two slices per isolate, isolates that died included, within one lifetime of a key's first request. One slice
/// may be unspent. The other may be spent without the object knowing, which keeps a bucket from draining. In each further
/// lifetime, each isolate that falls silent may cost another slice.
///
/// ```
/// use std::num::NonZero;
/// use tidegate_core::{Load, Millis};
/// const SLICE: NonZero<u64> = NonZero::new(10).unwrap();
/// let can = tidegate_cloudflare::durable_objects::lease_capabilities(SLICE, Millis::from_secs(2));
/// let load = Load { limit: 1_000, quota: 1_000, in_flight: 500, locations: 3 };
/// assert_eq!((can.accuracy.floor(load), can.accuracy.ceiling(load)), (940, 1_000));
/// ```
#[must_use]
pub const fn lease_capabilities(slice: NonZero<u64>, lifetime: Millis) -> Capabilities {
    let floor = Floor { held: slice.get().saturating_mul(2), within: Some(lifetime) };
    let accuracy = Accuracy::Approximate(Drift { floor, ..Drift::WITHIN_LIMIT });
    CAPABILITIES.accuracy(accuracy).refund(false)
}

impl<N: Namespace> Leases<N> {
    /// A limiter that leases up to `slice` units at a time, for up to `lifetime`.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if `lifetime` is zero or longer than a minute.
    pub fn new(store: DurableObjects<N>, slice: NonZero<u64>, lifetime: Millis) -> Result<Self, Error> {
        if lifetime == Millis::ZERO || lifetime > LIFETIME_MAX {
            let what = format!("lifetime: {lifetime} is out of range; write 1 ms to {LIFETIME_MAX}");
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        Ok(Self { calls: AtomicLimiter::new(store), slice, lifetime, slots: Mutex::default() })
    }

    /// Asks for a lease along with the decision on a check.
    async fn ask(&self, key: &str, check: Check<'_>, want: u64, back: Option<Returned>) -> Result<Decision, Error> {
        let _asking = Asking { limiter: self, key };
        let action = Action::Lease { want, lifetime: self.lifetime, back };
        let answer = self.calls.store().ask(action, check).await?;
        if let Some(granted) = answer.lease {
            let rule = *check.policy.quotas()[0].rule();
            // The object granted it after `check.now`, so it ends here before it ends there.
            let spendable = (check.now, check.now + granted.until.since(answer.decision.decided_at()));
            self.with_slot(key, |slot| slot.keep(granted, rule, spendable, back));
        }
        Ok(answer.decision)
    }

    /// What a check gets without a call.
    fn spend(&self, key: &str, check: &Check<'_>) -> Spent {
        let mut slots = self.slots();
        if let Some(slot) = slots.by_key.get_mut(key) {
            return slot.spend(check, self.slice.get(), self.lifetime, self.calls.store().config().deadline);
        }
        if slots.has_room(check.now, self.lifetime) {
            slots.by_key.insert(key, Slot::asked(check.now));
        }
        Spent::AskPlainly
    }

    fn with_slot<T>(&self, key: &str, step: impl FnOnce(&mut Slot) -> T) -> Option<T> {
        self.slots().by_key.get_mut(key).map(step)
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slots {
    /// Makes room for one more slot. Slots are swept when their number has doubled since the last sweep; when they are as
    /// many as there may be, once in a lifetime.
    fn has_room(&mut self, now: UnixMillis, lifetime: Millis) -> bool {
        let full = self.by_key.len() >= SLOTS_MAX;
        let due = now < self.swept_at || now.since(self.swept_at) >= lifetime;
        if self.by_key.len() >= self.sweep_at.max(SWEEP_MIN) && (due || !full) {
            self.by_key.retain(|slot| slot.is_of_use(now, lifetime));
            self.sweep_at = (self.by_key.len() * 2).min(SLOTS_MAX);
            self.swept_at = now;
        }
        self.by_key.len() < SLOTS_MAX
    }
}

/// A call for a lease in flight.
struct Asking<'a, N: Namespace> {
    limiter: &'a Leases<N>,
    key: &'a str,
}

impl<N: Namespace> Drop for Asking<'_, N> {
    /// Lets the next check ask, even if this call failed or its future was dropped.
    fn drop(&mut self) {
        self.limiter.with_slot(self.key, Slot::answered);
    }
}

impl<N: Namespace> Limiter for Leases<N> {
    fn capabilities(&self) -> Capabilities {
        lease_capabilities(self.slice, self.lifetime)
    }

    async fn check(&self, check: Check<'_>) -> Result<Decision, Error> {
        self.capabilities().supports(&check)?;
        let limit = check.policy.quotas()[0].rule().limit();
        if !can_lend(check.policy) || check.idempotency.is_some() || check.cost > limit {
            return self.calls.check(check).await;
        }
        let key = check.keys.sole(check.policy)?.storage_key(check.policy);
        let admitted = || Ok(Decision::native(true, limit, check.now).with_origin(Origin::Lease));
        match self.spend(&key, &check) {
            Spent::Admitted => admitted(),
            Spent::AskForMore { want, back } => match self.ask(&key, check, want, back).await {
                // What is left of the lease that was kept is charged already.
                Err(_) if self.with_slot(&key, |slot| slot.spend_kept(&check)) == Some(true) => admitted(),
                decision => decision,
            },
            Spent::AskPlainly => self.calls.check(check).await,
        }
    }

    /// Returns the object's counts, in which lent units count as used.
    async fn peek(&self, check: Check<'_>) -> Result<Decision, Error> {
        self.calls.peek(check).await
    }

    /// Unsupported: the object cannot tell spent units from lent ones, and would return both.
    async fn refund(&self, _: Refund<'_>) -> Result<(), Error> {
        Err(Error::new(
            ErrorKind::Unsupported,
            "leases do not support refunds: a refund would also give back what is lent",
        ))
    }

    /// Settles the charge of a check with a token, which was a plain call.
    async fn settle(&self, settle: Settle<'_>) -> Result<Decision, Error> {
        self.calls.settle(settle).await
    }

    /// Blocks keys in their objects. A policy that can block is never leased.
    async fn block(&self, block: Block<'_>) -> Result<(), Error> {
        self.calls.block(block).await
    }

    async fn reset(&self, policy: &Policy, keys: Keys<'_>) -> Result<(), Error> {
        self.calls.reset(policy, keys).await
    }
}
