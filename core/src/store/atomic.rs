use core::future::Future;

use crate::limiter::{Answer, Capabilities, Check, Limiter, MaybeSend, MaybeSync, Operation, Question, Reply};
use crate::{Decision, Error, ErrorKind, Keys, Policy, PolicyState, Status, UnixMillis};

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
///     Capabilities, Check, Dimensions, Error, Key, Keys, LimiterExt, Millis, Operation, Policy, PolicyState, Quota,
///     Refund, UnixMillis,
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
///         let key = operation.keys().sole(policy)?.storage_key(policy);
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
///         Ok(Applied::Decided(decision))
///     }
///
///     async fn delete(&self, policy: &Policy, keys: Keys<'_>) -> Result<(), Error> {
///         self.0.lock().unwrap().remove(&keys.sole(policy)?.storage_key(policy));
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
    /// The features that the store supports.
    fn capabilities(&self) -> Capabilities;

    /// Applies an operation, other than a loan and a reset, to the states of its keys. The store keeps a state until [`Policy::expires_after`] has passed, and
    /// removes it afterwards.
    ///
    /// A check that repeats an idempotency token changes nothing. It returns the [`Applied`] of the first check with that
    /// token, marked as repeated, as long as the token is remembered.
    ///
    /// # Errors
    /// [`Error::token_reused`] for a check whose token is remembered with another cost, and [`Error::unknown_charge`] for a
    /// settlement whose token is not remembered. Otherwise the reason why the store did not answer. [`ErrorKind::Timeout`] if
    /// it may have applied the operation.
    fn apply(&self, operation: Operation<'_>) -> impl Future<Output = Result<Applied, Error>> + MaybeSend;

    /// Decides on a check by [`Lender::decide`](crate::lending::Lender::decide), and stores the new state and the lender. Requires
    /// [`Capabilities::lends`].
    ///
    /// # Errors
    /// The reason why the store did not answer.
    fn lend(&self, check: Check<'_>, question: Question) -> impl Future<Output = Result<Answer, Error>> + MaybeSend {
        let error = Operation::Lend(check, &question).unsupported();
        async { Err(error) }
    }

    /// Removes the states of these keys. It keeps the answers that are remembered under their idempotency tokens.
    ///
    /// # Errors
    /// The reason why the store did not answer.
    fn delete(&self, policy: &Policy, keys: Keys<'_>) -> impl Future<Output = Result<(), Error>> + MaybeSend;
}

impl Operation<'_> {
    /// The decision of this operation, as a store has applied it. Of all but a check and a peek, it is that of
    /// [`Policy::peek`] on a request of cost 0.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if the state is not one of the policy's, or this library decides otherwise than the store did.
    pub fn decided(&self, applied: Applied) -> Result<Decision, Error> {
        match self {
            Self::Check(check) => applied.decision(check),
            Self::Peek(check) => standing(check.policy, applied, check.cost),
            _ => standing(self.policy(), applied, 0),
        }
    }
}

/// How an [`Atomic`] store applied an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The store's decision. For a settlement, that of [`Policy::peek`] on a request of cost 0. Of a refund and a block, it is
    /// ignored.
    Decided(Decision),
    /// The state before the step, from which the driver computes the decision.
    Before {
        /// The state before the step, or `None` if nothing was stored. For a repeated idempotency token, the state before the
        /// first check with it. For a settlement, the state after it.
        previous: Option<PolicyState>,
        /// The instant at which the store applied the operation, by the clock that it uses. For a repeated idempotency token,
        /// the instant of the first check, so that the driver computes the first decision again:
        /// [`Decision::decided_at`] and the waits are those of the first answer.
        now: UnixMillis,
        /// The cost of the request. For a repeated idempotency token, the cost of the first check.
        cost: u64,
        /// Whether the store admitted the request. Only a check's answer uses it.
        admitted: bool,
        /// Whether this is an earlier answer: the check's token is remembered, or the charge is settled already.
        replayed: bool,
    },
}

impl Applied {
    /// The decision on a check that a store has applied: what [`AtomicLimiter`] returns.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if the state is not one of the policy's, or this library decides otherwise than the store did.
    pub fn decision(self, check: &Check<'_>) -> Result<Decision, Error> {
        let (previous, now, cost, admitted, replayed) = match self {
            Self::Decided(decision) => return Ok(decision),
            Self::Before { previous, now, cost, admitted, replayed } => (previous, now, cost, admitted, replayed),
        };
        let mut state = known_state(check.policy, previous, now)?;
        let decision = check.policy.decide_as(&mut state, now, cost, check.charge_id());
        match (admitted == decision.is_allowed(), replayed) {
            (true, replayed) => Ok(decision.replayed(replayed)),
            // The limits have changed since the token's first answer. It holds, but its waits are unknown.
            (false, true) => Ok(decision.overruled(admitted).replayed(true)),
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
        match operation {
            Operation::Lend(check, question) => self.store.lend(check, *question).await.map(Reply::from),
            Operation::Reset { policy, keys } => self.store.delete(policy, keys).await.map(Reply::from),
            _ => {
                let applied = self.store.apply(operation).await?;
                match operation {
                    Operation::Refund(_) | Operation::Block(_) => Ok(Reply::Done),
                    _ => operation.decided(applied).map(Reply::from),
                }
            }
        }
    }
}

/// What a request of `cost` would get now.
fn standing(policy: &Policy, applied: Applied, cost: u64) -> Result<Decision, Error> {
    match applied {
        Applied::Decided(decision) => Ok(decision),
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

fn disagreement(admitted: bool, decided: Status) -> Error {
    let what = alloc::format!(
        "the store and this library disagree on a decision (admitted by the store: {admitted}, here: {decided:?}); \
         do all clients of this store run the same version of Tidegate?"
    );
    Error::new(ErrorKind::Corrupt, what)
}
