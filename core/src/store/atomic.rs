use core::future::Future;

use crate::limiter::{Capabilities, Check, Limiter, MaybeSend, MaybeSync, Refund};
use crate::{Decision, Error, ErrorKind, Key, Policy, PolicyState, Status, UnixMillis};

/// A store that applies a whole policy in one indivisible step: a Redis script, a Durable Object.
///
/// It answers with what was stored *before* the step. The decision follows from that by the core's own arithmetic, so
/// the store only has to get the state right, and the driver can tell where it did not.
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::Mutex;
/// use tidegate_core::store::{Atomic, AtomicLimiter, Applied, Operation};
/// use tidegate_core::{Capabilities, Check, Error, Key, Limiter, Millis, Policy, PolicyState, Quota, Refund, UnixMillis};
///
/// #[derive(Default)]
/// struct Table(Mutex<HashMap<String, PolicyState>>);
///
/// impl Atomic for Table {
///     fn capabilities(&self) -> Capabilities {
///         Capabilities { idempotency: false, ..Capabilities::EXACT }
///     }
///
///     async fn apply(&self, operation: Operation<'_>) -> Result<Applied, Error> {
///         let (policy, key, now, cost) = match operation {
///             Operation::Check(check) | Operation::Peek(check) => (check.policy, check.key, check.now, check.cost),
///             Operation::Refund(refund) => (refund.policy, refund.key, refund.now, refund.cost),
///         };
///         let mut rows = self.0.lock().unwrap();
///         let row = rows.entry(key.storage_key(policy)).or_insert_with(|| policy.initial_state());
///         let before = row.clone();
///         let admitted = match operation {
///             Operation::Check(_) => policy.decide(row, now, cost).is_allowed(),
///             Operation::Peek(_) => false,
///             Operation::Refund(refund) => {
///                 policy.refund(row, refund.charged_at, now, cost);
///                 false
///             }
///         };
///         Ok(Applied { previous: Some(before), now, cost, admitted })
///     }
///
///     async fn delete(&self, policy: &Policy, key: &Key) -> Result<(), Error> {
///         self.0.lock().unwrap().remove(&key.storage_key(policy));
///         Ok(())
///     }
/// }
///
/// # fn main() -> Result<(), Error> {
/// # pollster::block_on(async {
/// let limiter = AtomicLimiter::new(Table::default());
/// let policy = Policy::new("api", [Quota::fixed_window(2, Millis::from_secs(60))?])?;
/// let (key, now) = (Key::new("ip:192.0.2.1"), UnixMillis::new(0));
/// let first = limiter.check(Check::new(&policy, &key, now).cost(2)).await?;
/// assert!(!limiter.check(Check::new(&policy, &key, now)).await?.is_allowed());
/// limiter.refund(Refund::new(&policy, &key, 1, first.decided_at(), now)).await?;
/// assert!(limiter.check(Check::new(&policy, &key, now)).await?.is_allowed());
/// # Ok(())
/// # })
/// # }
/// ```
pub trait Atomic: MaybeSend + MaybeSync {
    /// What the store can do.
    fn capabilities(&self) -> Capabilities;

    /// Applies an operation to what is stored under its key, and answers with what was there before.
    ///
    /// # Errors
    /// Whatever keeps the store from answering. [`ErrorKind::Timeout`] where it may have applied it all the same.
    fn apply(&self, operation: Operation<'_>) -> impl Future<Output = Result<Applied, Error>> + MaybeSend;

    /// Removes what is stored of a key.
    ///
    /// # Errors
    /// Whatever keeps the store from answering.
    fn delete(&self, policy: &Policy, key: &Key) -> impl Future<Output = Result<(), Error>> + MaybeSend;
}

/// What an [`Atomic`] store is asked to do in one step.
#[derive(Clone, Copy, Debug)]
pub enum Operation<'a> {
    /// Decide by [`Policy::decide`], and keep the new state.
    Check(Check<'a>),
    /// Read.
    Peek(Check<'a>),
    /// Give back by [`Policy::refund`].
    Refund(Refund<'a>),
}

/// What an [`Atomic`] store found, and what it made of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The state before the step; `None` where nothing was stored.
    pub previous: Option<PolicyState>,
    /// The instant the store applied the operation at, by the clock it goes by.
    pub now: UnixMillis,
    /// What was asked for: of a retried idempotent check, the first one's cost.
    pub cost: u64,
    /// Whether the store admitted it. Of no meaning for a peek or a refund.
    pub admitted: bool,
}

/// A [`Limiter`] over an [`Atomic`] store; see there for an example.
#[derive(Clone, Debug)]
pub struct AtomicLimiter<S> {
    store: S,
}

impl<S: Atomic> AtomicLimiter<S> {
    /// A limiter over `store`.
    pub const fn new(store: S) -> Self {
        Self { store }
    }

    /// The store.
    pub const fn store(&self) -> &S {
        &self.store
    }
}

impl<S: Atomic> Limiter for AtomicLimiter<S> {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    async fn check(&self, check: Check<'_>) -> Result<Decision, Error> {
        self.capabilities().supports(&check)?;
        let applied = self.store.apply(Operation::Check(check)).await?;
        let mut state = known_state(check.policy, applied.previous, applied.now)?;
        let decision = check.policy.decide(&mut state, applied.now, applied.cost);
        match (applied.admitted == decision.is_allowed(), check.idempotency) {
            (true, _) => Ok(decision),
            // The limits have changed since the token's first answer. That answer stands; its waits are not known any more.
            (false, Some(_)) => Ok(decision.overruled(applied.admitted)),
            (false, None) => Err(disagreement(applied.admitted, decision.status())),
        }
    }

    async fn peek(&self, check: Check<'_>) -> Result<Decision, Error> {
        let capabilities = self.capabilities();
        capabilities.require(capabilities.peek, "peek")?;
        capabilities.supports(&check)?;
        let applied = self.store.apply(Operation::Peek(check)).await?;
        let state = known_state(check.policy, applied.previous, applied.now)?;
        Ok(check.policy.peek(&state, applied.now, check.cost))
    }

    async fn refund(&self, refund: Refund<'_>) -> Result<(), Error> {
        let capabilities = self.capabilities();
        capabilities.require(capabilities.refund, "refund")?;
        self.store.apply(Operation::Refund(refund)).await.map(drop)
    }

    async fn reset(&self, policy: &Policy, key: &Key) -> Result<(), Error> {
        let capabilities = self.capabilities();
        capabilities.require(capabilities.reset, "reset")?;
        self.store.delete(policy, key).await
    }
}

/// The state that a store answered with, once it is known to be one of the policy's.
fn known_state(policy: &Policy, state: Option<PolicyState>, now: UnixMillis) -> Result<PolicyState, Error> {
    let Some(state) = state else { return Ok(policy.initial_state()) };
    policy.verify(&state, now)?;
    Ok(state)
}

fn disagreement(admitted: bool, decided: Status) -> Error {
    let what = alloc::format!(
        "the store and this library disagree on a decision (admitted by the store: {admitted}, here: {decided:?}); \
         do all clients of this store run the same version of Tidegate?"
    );
    Error::new(ErrorKind::Corrupt, what)
}
