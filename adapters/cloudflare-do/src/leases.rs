//! Parts of quotas lent to an isolate, spent there without a round trip.

mod slot;

use std::num::NonZero;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate_core::internal::SortedMap;
use tidegate_core::store::{Applied, Atomic, AtomicLimiter, Operation};
use tidegate_core::{
    Accuracy, Capabilities, Check, Decision, Drift, Error, ErrorKind, Floor, Key, Limiter, Millis, Origin, Policy,
    Refund,
};

use crate::config::Clock;
use crate::held::can_lend;
use crate::leases::slot::{Slot, Spent};
use crate::store::{DurableObjects, DurableObjectsLimiter, Namespace};
use crate::wire::{Action, Returned};

/// A limiter that leases parts of a quota from its object, and admits from a lease without asking.
///
/// Keep one for the isolate's life, in a `thread_local` or a `static`: it holds the leases. Policies of one token
/// bucket or one fixed window are leased; checks by other policies, or under a token, are plain calls, as
/// [`DurableObjects::limiter`] makes them.
///
/// **At most** what an exact limiter admits: a lease is charged when it is granted, so leases and object together never
/// hold more than the quota; by the clocks that [`Check::now`] is read from, as everywhere. **At least** what that
/// admits with a lower limit: what an isolate holds the others cannot have, and what it held when it died nobody can.
/// [`lease_capabilities`] says how much lower.
///
/// To lose little, an isolate that asks for a key once in a lifetime gets no lease, others get one that doubles each
/// time it is spent, and what was not spent is given back with the next call. To wait little, an isolate whose requests
/// outran a lease asks for the next one that much earlier, by half a lease at most, and they spend the rest meanwhile. An
/// object lends at most half of what is left, so that the end of a quota is counted one by one: a lone isolate spends a
/// window to the last.
///
/// A decision from a lease tells no `remaining`: nobody knows what the other isolates have left. A denial is always the
/// object's. A reset forgets what was used, and what is lent stays charged until it ends, for it may be spent yet. When a
/// limit changes, a lease by the old one is given back with the next check.
#[derive(Debug)]
pub struct Leases<N> {
    calls: DurableObjectsLimiter<N>,
    slice: NonZero<u64>,
    lifetime: Millis,
    slots: Mutex<SortedMap<Slot>>,
}

/// Slots are not looked through for what has ended before there are this many.
const MIN_SWEEP: usize = 64;

/// What [`Leases`] of a slice and a lifetime can do.
///
/// Never more than the limit. Of requests of cost 1 at least what an exact limiter admits whose limit is lower by two
/// slices for each isolate, those that died included, within one lifetime of a key's first request: one that it has not
/// spent, and one that it has spent without the object knowing, which keeps a bucket from draining. In each further
/// lifetime another slice may be lost with each isolate that falls silent.
///
/// ```
/// use std::num::NonZero;
/// use tidegate_core::{Load, Millis};
/// const SLICE: NonZero<u64> = NonZero::new(10).unwrap();
/// let can = tidegate_cloudflare_do::lease_capabilities(SLICE, Millis::from_secs(2));
/// let load = Load { limit: 1_000, in_flight: 500, locations: 3 };
/// assert_eq!((can.accuracy.floor(load), can.accuracy.ceiling(load)), (940, 1_000));
/// ```
#[must_use]
pub const fn lease_capabilities(slice: NonZero<u64>, lifetime: Millis) -> Capabilities {
    let floor = Floor { held: slice.get().saturating_mul(2), within: Some(lifetime) };
    let accuracy = Accuracy::Approximate(Drift { floor, ..Drift::WITHIN_LIMIT });
    Capabilities { accuracy, refund: false, ..Capabilities::EXACT }
}

impl<N: Namespace> Leases<N> {
    /// A limiter that leases up to `slice` at a time, for up to `lifetime`.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for a store that goes by [`Clock::Object`], which an isolate cannot read, or a lifetime
    /// of nothing.
    pub fn new(store: DurableObjects<N>, slice: NonZero<u64>, lifetime: Millis) -> Result<Self, Error> {
        if store.config().clock == Clock::Object {
            let what = "clock: an isolate cannot spend a lease by the object's clock; write Clock::Caller";
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        if lifetime == Millis::ZERO {
            return Err(Error::new(ErrorKind::Invalid, "lifetime: 0 ms leaves no time to spend; write at least 1 ms"));
        }
        Ok(Self { calls: AtomicLimiter::new(store), slice, lifetime, slots: Mutex::default() })
    }

    /// What a check can have without asking.
    fn spend(&self, key: &str, check: &Check<'_>) -> Spent {
        let mut slots = self.slots();
        if let Some(slot) = slots.get_mut(key) {
            return slot.spend(check, self.slice.get(), self.lifetime, self.calls.store().config().deadline);
        }
        if slots.len() >= MIN_SWEEP && slots.len().is_power_of_two() {
            slots.retain(|slot| slot.is_of_use(check.now, self.lifetime));
        }
        slots.insert(key, Slot::asked(check.now));
        Spent::AskPlainly
    }

    fn with_slot<T>(&self, key: &str, step: impl FnOnce(&mut Slot) -> T) -> Option<T> {
        self.slots().get_mut(key).map(step)
    }

    fn slots(&self) -> MutexGuard<'_, SortedMap<Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A check that asks for a lease along with its answer. The core makes the decision of that as of any other.
struct Asking<'a, N: Namespace> {
    limiter: &'a Leases<N>,
    key: String,
    want: u64,
    back: Option<Returned>,
}

impl<N: Namespace> Atomic for Asking<'_, N> {
    fn capabilities(&self) -> Capabilities {
        self.limiter.capabilities()
    }

    async fn apply(&self, operation: Operation<'_>) -> Result<Applied, Error> {
        let store = self.limiter.calls.store();
        let Operation::Check(check) = operation else { return store.apply(operation).await };
        let action = Action::Lease { want: self.want, lifetime: self.limiter.lifetime, back: self.back };
        let call = store.prepare(action, check.policy, check.key, check.cost, check.now);
        let answer = store.send(&call).await?;
        if let Some(granted) = answer.lease {
            let rule = *check.policy.quotas()[0].rule();
            self.limiter.with_slot(&self.key, |slot| slot.keep(granted, rule, answer.now, self.back));
        }
        answer.before(check.policy)
    }

    async fn delete(&self, policy: &Policy, key: &Key) -> Result<(), Error> {
        self.limiter.calls.store().delete(policy, key).await
    }
}

impl<N: Namespace> Drop for Asking<'_, N> {
    /// Lets the next one ask, even where this call failed or was dropped half way.
    fn drop(&mut self) {
        self.limiter.with_slot(&self.key, Slot::answered);
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
        let key = check.key.storage_key(check.policy);
        let admitted = || Ok(Decision::native(true, limit, check.now).with_origin(Origin::Lease));
        match self.spend(&key, &check) {
            Spent::Admitted => admitted(),
            Spent::AskForMore { want, back } => {
                let asking = Asking { limiter: self, key: key.clone(), want, back };
                match AtomicLimiter::new(asking).check(check).await {
                    // Others have left some of the lease that is kept.
                    Err(_) if self.with_slot(&key, |slot| slot.spend_kept(&check)) == Some(true) => admitted(),
                    decision => decision,
                }
            }
            Spent::AskPlainly => self.calls.check(check).await,
        }
    }

    /// As the object sees it: what is lent counts as used.
    async fn peek(&self, check: Check<'_>) -> Result<Decision, Error> {
        self.calls.peek(check).await
    }

    /// Unsupported: the object cannot tell what was spent from what is lent, and would give back both.
    async fn refund(&self, _: Refund<'_>) -> Result<(), Error> {
        Err(Error::new(ErrorKind::Unsupported, "this store cannot do refund: what is lent would be given back, too"))
    }

    async fn reset(&self, policy: &Policy, key: &Key) -> Result<(), Error> {
        self.calls.reset(policy, key).await
    }
}
