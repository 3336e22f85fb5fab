//! The store: sends each operation to the object that counts its key.

use std::future::Future;

use tidegate_core::internal::sha256;
use tidegate_core::store::{Applied, Atomic, AtomicLimiter, Operation};
use tidegate_core::{Capabilities, Check, Error, ErrorKind, Key, MaybeSend, MaybeSync, Millis, Policy, UnixMillis};

use crate::config::{Clock, Config};
use crate::wire::{Action, Answer, Call, Once, Reply};

/// A limiter on Durable Objects. It is exact at any concurrency, and a decision takes one round trip.
pub type DurableObjectsLimiter<N> = AtomicLimiter<DurableObjects<N>>;

/// A store of counts in a namespace of Tidegate's objects.
///
/// `N` is the namespace: `worker::ObjectNamespace` on Cloudflare, another [`Namespace`] in tests.
#[derive(Clone, Debug)]
pub struct DurableObjects<N> {
    namespace: N,
    config: Config,
}

/// A way to call objects.
pub trait Namespace: MaybeSend + MaybeSync {
    /// Sends a call to an object. The object's [`Counter`](crate::Counter) answers it.
    ///
    /// # Errors
    /// Whatever keeps the object from answering. An error that a client can cause, by sending more requests than the
    /// object can serve, must not be [`Unavailable`](tidegate_core::ErrorKind::Unavailable) or
    /// [`Timeout`](tidegate_core::ErrorKind::Timeout): on these, callers may fail open.
    fn call(&self, object: Address<'_>, body: Vec<u8>) -> impl Future<Output = Result<Reply, Error>> + MaybeSend;
}

/// Which object to call, and how.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Address<'a> {
    /// Its name.
    pub name: &'a str,
    /// Where to create it if it does not exist.
    pub location_hint: Option<&'a str>,
    /// How long the call may take.
    pub deadline: Millis,
}

impl<N: Namespace> DurableObjects<N> {
    /// A store in a namespace, with the default configuration.
    pub fn new(namespace: N) -> Self {
        Self::with_config(namespace, Config::default())
    }

    /// A store in a namespace.
    pub const fn with_config(namespace: N, config: Config) -> Self {
        Self { namespace, config }
    }

    /// A limiter over this store.
    pub const fn limiter(self) -> DurableObjectsLimiter<N> {
        AtomicLimiter::new(self)
    }

    /// The namespace.
    pub const fn namespace(&self) -> &N {
        &self.namespace
    }

    pub(crate) const fn config(&self) -> &Config {
        &self.config
    }

    /// Builds the call for an action.
    pub(crate) fn prepare<'a>(
        &self,
        action: Action,
        policy: &'a Policy,
        key: &Key,
        cost: u64,
        now: UnixMillis,
    ) -> Call<'a> {
        Call {
            action,
            key: key.storage_key(policy),
            policy,
            cost,
            now: (self.config.clock == Clock::Caller).then_some(now),
            min_ttl: self.config.min_ttl,
            once: None,
        }
    }

    fn prepare_check<'a>(&self, action: Action, check: Check<'a>) -> Call<'a> {
        let once = check.idempotency.map(|idempotency| Once { token: hash(idempotency.token), ttl: idempotency.ttl });
        Call { once, ..self.prepare(action, check.policy, check.key, check.cost, check.now) }
    }

    pub(crate) async fn send(&self, call: &Call<'_>) -> Result<Answer, Error> {
        let name = self.config.placement.object(&call.key);
        let (location_hint, deadline) = (self.config.location_hint.as_deref(), self.config.deadline);
        let address = Address { name: &name, location_hint, deadline };
        self.namespace.call(address, call.encode()).await?.answer()
    }
}

impl<N: Namespace> Atomic for DurableObjects<N> {
    fn capabilities(&self) -> Capabilities {
        Capabilities::EXACT
    }

    async fn apply(&self, operation: Operation<'_>) -> Result<Applied, Error> {
        let call = match operation {
            Operation::Check(check) => self.prepare_check(Action::Check, check),
            Operation::Peek(check) => self.prepare(Action::Peek, check.policy, check.key, check.cost, check.now),
            Operation::Refund(refund) => {
                let action = Action::Refund { charged_at: refund.charged_at };
                self.prepare(action, refund.policy, refund.key, refund.cost, refund.now)
            }
            Operation::Settle(settle) => {
                let action = Action::Settle { token: hash(settle.token) };
                self.prepare(action, settle.policy, settle.key, settle.cost, settle.now)
            }
            _ => return Err(Error::new(ErrorKind::Unsupported, "the object does not know this operation")),
        };
        self.send(&call).await?.before(call.policy)
    }

    async fn delete(&self, policy: &Policy, key: &Key) -> Result<(), Error> {
        let call = self.prepare(Action::Delete, policy, key, 0, UnixMillis::new(0));
        self.send(&call).await.map(drop)
    }
}

impl Answer {
    /// What the core recomputes the decision from.
    pub(crate) fn before(&self, policy: &Policy) -> Result<Applied, Error> {
        let previous = self.before.as_deref().map(|bytes| policy.decode(bytes, self.now)).transpose()?;
        Ok(Applied { previous, now: self.now, cost: self.cost, admitted: self.admitted, replayed: self.replayed })
    }
}

/// The first half of a token's SHA-256.
fn hash(token: &str) -> [u8; 16] {
    let hash = sha256(token.as_bytes());
    std::array::from_fn(|place| hash[place])
}
