//! The store: sends each operation to the object that counts its keys.

use std::future::Future;

use tidegate_core::internal::Batches;
use tidegate_core::lending::Answer;
use tidegate_core::store::{Applied, Atomic, AtomicLimiter};
use tidegate_core::{
    Capabilities, Check, Dimensions, Error, ErrorKind, Grant, MaybeSend, MaybeSync, Millis, Operation,
};

use crate::durable_objects::bytes::to_hex;
use crate::durable_objects::config::{Clock, Config, Jurisdiction, Placement};
use crate::durable_objects::token::Token;
use crate::durable_objects::wire::{Action, CALLS_MAX, Call, Once, Reply, together};

/// A limiter on Durable Objects. It is exact at any concurrency, and a decision takes one round trip.
pub type DurableObjectsLimiter<N> = AtomicLimiter<DurableObjects<N>>;

/// A store of counts in a namespace of Tidegate's objects.
///
/// `N` is the namespace: `worker::ObjectNamespace` on Cloudflare, another [`Namespace`] in tests.
#[derive(Clone, Debug)]
pub struct DurableObjects<N> {
    namespace: N,
    config: Config,
    /// What is told together, and its replies. `None` for an object that takes no several calls.
    told: Batches<Vec<u8>, Option<Reply>>,
}

/// A way to call objects.
pub trait Namespace: MaybeSend + MaybeSync {
    /// Sends a call to an object. The object's [`Counter`](crate::durable_objects::Counter) answers it.
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
    /// Where it runs and stores.
    pub jurisdiction: Option<Jurisdiction>,
    /// Where to create it if it does not exist.
    pub location_hint: Option<&'a str>,
    /// How long the call may take.
    pub deadline: Millis,
}

impl Address<'_> {
    /// The object's name, a question mark and the call in hexadecimal, for hosts that carry texts. The object answers the text
    /// after the last question mark with [`Counter::answer_text`](crate::durable_objects::Counter::answer_text).
    #[must_use]
    pub fn question(&self, body: &[u8]) -> String {
        question(self.name, body)
    }
}

fn question(name: &str, body: &[u8]) -> String {
    [name, "?", &to_hex(body)].concat()
}

impl<N: Namespace> DurableObjects<N> {
    /// A store in a namespace, with the default configuration.
    pub fn new(namespace: N) -> Self {
        Self::with_config(namespace, Config::default())
    }

    /// A store in a namespace.
    pub const fn with_config(namespace: N, config: Config) -> Self {
        Self { namespace, config, told: Batches::new(CALLS_MAX) }
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

    /// Sends an action on a check's keys to the object that counts them.
    pub(crate) async fn ask(&self, action: Action, check: Check<'_>) -> Result<Answer, Error> {
        let Config { jurisdiction, location_hint, deadline, .. } = &self.config;
        let (name, body) = self.config.written(action, check)?;
        let address = Address {
            name: &name,
            jurisdiction: *jurisdiction,
            location_hint: location_hint.as_deref(),
            deadline: *deadline,
        };
        let only_tells = matches!(action, Action::Lend(_)) && check.cost == 0;
        // Without shards, each key has an object of its own.
        if only_tells && self.config.placement != Placement::PerKey {
            let told = self.told.ask(&name, body.clone(), |all| self.tell_all(address, all)).await?;
            if let Some(reply) = told {
                return reply.answer(check.policy);
            }
        }
        self.namespace.call(address, body).await?.answer(check.policy)
    }

    /// Sends an object what several of its keys tell.
    async fn tell_all(
        &self,
        object: Address<'_>,
        all: Vec<Vec<u8>>,
    ) -> Result<Vec<Result<Option<Reply>, Error>>, Error> {
        if let [_] = all[..] {
            return Ok(vec![Ok(None)]);
        }
        let replies = self.namespace.call(object, together(&all)).await?.apart(all.len());
        Ok(match replies {
            Some(replies) => replies.into_iter().map(|reply| Ok(Some(reply))).collect(),
            None => all.iter().map(|_| Ok(None)).collect(),
        })
    }
}

/// An operation as an object gets it: what to do, with the keys and numbers of a check.
fn asked(operation: Operation<'_>) -> Result<(Action, Check<'_>), Error> {
    let check = Check::new(operation.policy(), operation.keys(), operation.now()).cost(operation.cost());
    Ok(match operation {
        Operation::Check(check) => (Action::Check, check),
        Operation::Lend(check, question) => (Action::Lend(*question), check),
        Operation::Reset { .. } => (Action::Delete, check),
        Operation::Peek(_) => (Action::Peek, check),
        Operation::Refund(refund) => (Action::Refund { charged_at: refund.charged_at }, check),
        Operation::Block(block) => (Action::Block { span: block.span }, check),
        Operation::Grant(Grant { token, ttl, expires, units, .. }) => {
            (Action::Grant { token: Token::of(token), ttl, expires }, check.cost(units))
        }
        Operation::Settle(settle) => {
            let token = Token::of(settle.token);
            match settle.cost {
                Some(actual) => (Action::Settle { token }, check.cost(actual)),
                None => (Action::Release { token }, check),
            }
        }
        _ => return Err(operation.unsupported()),
    })
}

/// Calls as texts, as the object gets them.
#[cfg(feature = "testing")]
impl Config {
    /// The object that an operation is for, a question mark, and the call.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for a policy of several dimensions without a group.
    pub fn question(&self, operation: Operation<'_>) -> Result<String, Error> {
        let (action, check) = asked(operation)?;
        let (name, body) = self.written(action, check)?;
        Ok(question(&name, &body))
    }
}

impl Config {
    /// The name of the object, and the call.
    fn written(&self, action: Action, check: Check<'_>) -> Result<(String, Vec<u8>), Error> {
        let keys = check.keys.storage_keys(check.policy)?;
        let place = keys.place().ok_or_else(without_a_group)?;
        let once = match action {
            Action::Check => check.remembered(),
            _ => None,
        };
        let call = Call {
            action,
            policy: check.policy,
            parts: &[],
            rows: keys.rows().iter().map(String::as_str).collect(),
            cost: check.cost,
            now: (self.clock == Clock::Caller).then_some(check.now),
            min_ttl: self.min_ttl,
            once: once.map(|once| Once { token: Token::of(once.token), ttl: once.ttl }),
        };
        Ok((self.placement.object(place).into_owned(), call.encode()))
    }
}

impl<N: Namespace> Atomic for DurableObjects<N> {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    async fn apply(&self, operation: Operation<'_>) -> Result<Applied, Error> {
        let (action, check) = asked(operation)?;
        let answer = self.ask(action, check).await?;
        Ok(if let Operation::Lend(..) = operation { answer.into() } else { answer.decision.into() })
    }
}

/// An object decides exactly on all that it stores: on one key of a policy, or on all keys of a group.
pub const CAPABILITIES: Capabilities = Capabilities::EXACT.dimensions(Dimensions::Grouped).lends(true).grant(true);

fn without_a_group() -> Error {
    let message =
        "durable object: a policy of several dimensions needs a group, which selects the object; write group_by";
    Error::new(ErrorKind::Unsupported, message)
}
