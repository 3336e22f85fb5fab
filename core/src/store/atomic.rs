use core::future::Future;

use crate::limiter::{Answer, Capabilities, Check, Limiter, MaybeSend, MaybeSync, Operation, Reply};
use crate::{Decision, Error, ErrorKind, Policy, PolicyState, Status, UnixMillis};

/// A store that applies a whole policy in one indivisible step, such as a Redis script or a Durable Object.
///
/// A store that runs this library returns its decision. A store with its own arithmetic, such as a script, returns the state
/// *before* the step, and the driver computes the decision from it. Such a store only has to change the state correctly, and
/// the driver detects if its answer and the core's arithmetic disagree. See [`Applied`].
///
/// See the [contract of all stores](super#contract).
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::Mutex;
/// use tidegate_core::store::{Atomic, AtomicLimiter, Applied};
/// use tidegate_core::{
///     Capabilities, Check, Dimensions, Error, Key, LimiterExt, Millis, Operation, Policy, PolicyState, Quota, Refund,
///     UnixMillis,
/// };
///
/// /// Each state, and until when it has an effect.
/// #[derive(Default)]
/// struct Table(Mutex<HashMap<String, (PolicyState, UnixMillis)>>);
///
/// impl Atomic for Table {
///     fn capabilities(&self) -> Capabilities {
///         Capabilities::EXACT.dimensions(Dimensions::One).idempotency(false)
///     }
///
///     async fn apply(&self, operation: Operation<'_>) -> Result<Applied, Error> {
///         let (policy, now, cost) = (operation.policy(), operation.now(), operation.cost());
///         let mut rows = self.0.lock().unwrap();
///         let key = operation.keys().single(policy)?.storage_key(policy);
///         if let Operation::Reset { .. } = operation {
///             rows.remove(&key);
///             return Ok(().into());
///         }
///         // A store of more than a few rows removes only some of them with each call.
///         rows.retain(|_, (_, until)| *until > now);
///         let (row, until) = rows.entry(key).or_insert_with(|| (policy.initial_state(), now));
///         let decision = match operation {
///             Operation::Check(_) => policy.decide(row, now, cost),
///             Operation::Peek(_) => policy.peek(row, now, cost),
///             Operation::Refund(refund) => {
///                 policy.refund(row, refund.charged_at, now, cost);
///                 policy.peek(row, now, 0)
///             }
///             _ => return Err(operation.unsupported()),
///         };
///         *until = now + policy.expires_after(row, now);
///         Ok(decision.into())
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
    /// The features that the store supports.
    fn capabilities(&self) -> Capabilities;

    /// Applies an operation to the states of its keys. The store keeps a state until [`Policy::expires_after`] has passed, and
    /// removes it afterwards. A reset keeps the answers that are remembered under idempotency tokens.
    ///
    /// A check that repeats an idempotency token changes nothing. It returns the [`Applied`] of the first check with that
    /// token, marked as repeated, as long as the token is remembered.
    ///
    /// # Errors
    /// [`Error::token_reused`] for a check whose token is remembered with another cost, and [`Error::unknown_charge`] for a
    /// settlement whose token is not remembered. Otherwise the reason why the store did not answer. [`ErrorKind::Timeout`] if
    /// it may have applied the operation.
    fn apply(&self, operation: Operation<'_>) -> impl Future<Output = Result<Applied, Error>> + MaybeSend;
}

impl Operation<'_> {
    /// The reply to this operation, as a store has applied it: what [`AtomicLimiter`] returns.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if the state is not one of the policy's, or this library decides otherwise than the store did.
    pub fn replied(&self, applied: Applied) -> Result<Reply, Error> {
        match self {
            Self::Check(check) => applied.decision(check).map(Reply::from),
            Self::Peek(check) => standing(check.policy, applied, check.cost).map(Reply::from),
            Self::Settle(settle) => standing(settle.policy, applied, 0).map(Reply::from),
            Self::Grant(grant) => standing(grant.policy, applied, 0).map(Reply::from),
            Self::Lend(check, _) => match applied {
                Applied::Replied(reply @ Reply::Lent(_)) => Ok(reply),
                plain => plain.decision(check).map(|decision| Answer::from(decision).into()),
            },
            Self::Refund(_) | Self::Block(_) | Self::Reset { .. } => Ok(Reply::Done),
        }
    }
}

/// How an [`Atomic`] store applied an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The store's reply. Of a refund, a block and a reset, it is ignored.
    Replied(Reply),
    /// The state before the step, from which the driver computes the decision.
    Before {
        /// The state before the step, or `None` if nothing was stored. For a repeated idempotency token, the state before the
        /// first check with it. For a settlement and a grant, the state after it.
        previous: Option<PolicyState>,
        /// The instant at which the store applied the operation, by the clock that it uses. For a repeated idempotency token,
        /// the instant of the first check, so that the driver computes the first decision again:
        /// [`Decision::decided_at`] and the waits are those of the first answer.
        now: UnixMillis,
        /// The cost of the request. For a repeated idempotency token, the cost of the first check.
        cost: u64,
        /// Whether the store admitted the request. Only a check's answer uses it.
        admitted: bool,
        /// Whether this is an earlier answer: the check's or the grant's token is remembered, or the charge is settled already.
        replayed: bool,
        /// What a balance paid of an admitted request. For a repeated idempotency token, what it paid of the first check. 0 for a
        /// policy without a balance.
        from_balance: u64,
    },
}

impl<T: Into<Reply>> From<T> for Applied {
    fn from(reply: T) -> Self {
        Self::Replied(reply.into())
    }
}

impl Applied {
    /// The decision on a check that a store has applied: what [`AtomicLimiter`] returns.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if the state is not one of the policy's, or this library decides otherwise than the store did.
    pub fn decision(self, check: &Check<'_>) -> Result<Decision, Error> {
        let (previous, now, cost, admitted, replayed, paid) = match self {
            Self::Replied(reply) => return reply.decision(),
            Self::Before { previous, now, cost, admitted, replayed, from_balance } => {
                (previous, now, cost, admitted, replayed, from_balance)
            }
        };
        let mut state = known_state(check.policy, previous, now)?;
        let decision = check.policy.decide_as(&mut state, now, cost, check.charge_id());
        let paid_by = |decision: Decision, units| match check.policy.balance_place() {
            Some(place) => decision.paid_by(place, units),
            None => decision,
        };
        match (admitted == decision.is_allowed(), replayed) {
            (true, false) if admitted && paid != decision.from_balance() => {
                Err(other_payment(paid, decision.from_balance()))
            }
            (true, replayed) => Ok(paid_by(decision, paid).replayed(replayed)),
            // The limits have changed since the token's first answer. It holds, but its waits are unknown.
            (false, true) => Ok(paid_by(decision.overruled(admitted), paid).replayed(true)),
            (false, false) => Err(disagreement(admitted, decision.status())),
        }
    }
}

/// A [`Limiter`] over an [`Atomic`] store, which has an example.
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

    async fn apply(&self, operation: Operation<'_>) -> Result<Reply, Error> {
        operation.verify(&self.capabilities())?;
        operation.replied(self.store.apply(operation).await?)
    }
}

/// What a request of `cost` would get now.
fn standing(policy: &Policy, applied: Applied, cost: u64) -> Result<Decision, Error> {
    match applied {
        Applied::Replied(reply) => reply.decision(),
        Applied::Before { previous, now, replayed, .. } => {
            Ok(policy.peek(&known_state(policy, previous, now)?, now, cost).replayed(replayed))
        }
    }
}

/// Verifies that the state from a store belongs to the policy.
fn known_state(policy: &Policy, state: Option<PolicyState>, now: UnixMillis) -> Result<PolicyState, Error> {
    let Some(state) = state else { return Ok(policy.initial_state()) };
    policy.verify(&state, now)?;
    Ok(state)
}

#[cold]
fn other_payment(paid: u64, here: u64) -> Error {
    let what = alloc::format!(
        "the store and this library disagree on what a balance pays (by the store: {paid}, here: {here}); do all clients of \
         this store run the same version of Tidegate?"
    );
    Error::new(ErrorKind::Corrupt, what)
}

fn disagreement(admitted: bool, decided: Status) -> Error {
    let what = alloc::format!(
        "the store and this library disagree on a decision (admitted by the store: {admitted}, here: {decided:?}); \
         do all clients of this store run the same version of Tidegate?"
    );
    Error::new(ErrorKind::Corrupt, what)
}
