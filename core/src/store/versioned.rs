use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::future::Future;

use crate::limiter::{Capabilities, Limiter, MaybeSend, MaybeSync, Operation, Reply};
use crate::{Decision, Error, ErrorKind, Millis, Policy, UnixMillis};

/// A store with compare-and-swap. `create` and `update` are separate, because on many stores a swap of an absent value is an
/// unconditional write.
///
/// See the [contract of all stores](super#contract).
pub trait Versioned: MaybeSend + MaybeSync {
    /// Identifies the version of a value that was read. A [`RememberingLimiter`](super::RememberingLimiter) needs one that never comes
    /// again for another value of the key, also after the value was deleted.
    type Version: MaybeSend + MaybeSync;

    /// The features that the store supports.
    fn capabilities(&self) -> Capabilities;

    /// Reads the value under `key` and its version.
    ///
    /// # Errors
    /// The reason why the store did not answer.
    fn read(&self, key: &str)
    -> impl Future<Output = Result<Option<VersionedValue<Self::Version>>, Error>> + MaybeSend;

    /// Writes the value if there is none under `key`. The store keeps it for at least `ttl`, by its own clock, and removes it
    /// afterwards.
    ///
    /// # Errors
    /// The reason why the store did not answer.
    fn create(&self, key: &str, bytes: &[u8], ttl: Millis) -> impl Future<Output = Result<Swap, Error>> + MaybeSend;

    /// Writes the value if `key` still has that version. The store keeps it for at least `ttl`, by its own clock, and removes
    /// it afterwards.
    ///
    /// # Errors
    /// The reason why the store did not answer.
    fn update(
        &self,
        key: &str,
        bytes: &[u8],
        version: Self::Version,
        ttl: Millis,
    ) -> impl Future<Output = Result<Swap, Error>> + MaybeSend;

    /// Writes the value if `key` still has that version, or if there is none under `key` and `version` is `None`.
    ///
    /// The default is [`create`](Self::create) or [`update`](Self::update). A store implements it if the same call can tell what it found
    /// in place of the version, or under which version it wrote. A [`RememberingLimiter`](super::RememberingLimiter) calls it, and then
    /// needs no read.
    ///
    /// # Errors
    /// The reason why the store did not answer.
    fn swap(
        &self,
        key: &str,
        bytes: &[u8],
        version: Option<Self::Version>,
        ttl: Millis,
    ) -> impl Future<Output = Result<Swapped<Self::Version>, Error>> + MaybeSend {
        async move {
            let swap = match version {
                Some(version) => self.update(key, bytes, version, ttl).await?,
                None => self.create(key, bytes, ttl).await?,
            };
            Ok(match swap {
                Swap::Done => Swapped::Done(None),
                Swap::Conflict => Swapped::Conflict,
            })
        }
    }

    /// Waits between a [swap](Self::swap) that has lost for the `lost`-th time and the next one, by a timer of the host's. The default
    /// does not wait. Only a [`RememberingLimiter`](super::RememberingLimiter) calls it.
    fn pause(&self, lost: u32) -> impl Future<Output = ()> + MaybeSend {
        let _ = lost;
        core::future::ready(())
    }

    /// Removes the value under `key`.
    ///
    /// # Errors
    /// The reason why the store did not answer.
    fn delete(&self, key: &str) -> impl Future<Output = Result<(), Error>> + MaybeSend;
}

/// How much longer than its state has an effect a value is kept. A request can be on its way to the store when the state ends by
/// the store's clock, and a host's clock can be behind. Without the value, either would be admitted once more.
const SLACK: Millis = Millis::from_secs(10);

/// A value that was read, and its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionedValue<V> {
    /// The value.
    pub bytes: Vec<u8>,
    /// Its version.
    pub version: V,
}

/// The result of a conditional write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swap {
    /// The value is written.
    Done,
    /// Another write came first, and nothing was written.
    Conflict,
}

/// The result of [`Versioned::swap`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swapped<V> {
    /// The value is written, under this version if the store tells it.
    Done(Option<V>),
    /// Another write came first, and nothing was written. This is there now, if anything is.
    Lost(Option<VersionedValue<V>>),
    /// Another write came first, and nothing was written. The store does not tell what is there now.
    Conflict,
}

/// A [`Limiter`] over a [`Versioned`] store. It reads, decides and swaps, and repeats this after a conflict a bounded number of
/// times.
///
/// A denial writes nothing. After the last attempt, the error is [`ErrorKind::Contended`]: nothing was charged. Do not
/// admit a request after it, because a client can cause it by sending many requests at once.
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::Mutex;
/// use tidegate_core::store::{VersionedValue, Swap, Versioned, VersionedLimiter};
/// use tidegate_core::{Capabilities, Check, Dimensions, Error, Key, LimiterExt, Millis, Policy, Quota, UnixMillis};
///
/// /// A real store removes each row after its `ttl`.
/// #[derive(Default)]
/// struct Table(Mutex<HashMap<String, (Vec<u8>, u64)>>);
///
/// impl Versioned for Table {
///     type Version = u64;
///
///     fn capabilities(&self) -> Capabilities {
///         Capabilities::EXACT.dimensions(Dimensions::One).idempotency(false).round_trips(2)
///     }
///
///     async fn read(&self, key: &str) -> Result<Option<VersionedValue<u64>>, Error> {
///         let rows = self.0.lock().unwrap();
///         Ok(rows.get(key).map(|(bytes, version)| VersionedValue { bytes: bytes.clone(), version: *version }))
///     }
///
///     async fn create(&self, key: &str, bytes: &[u8], _ttl: Millis) -> Result<Swap, Error> {
///         let mut rows = self.0.lock().unwrap();
///         if rows.contains_key(key) {
///             return Ok(Swap::Conflict);
///         }
///         rows.insert(key.into(), (bytes.into(), 1));
///         Ok(Swap::Done)
///     }
///
///     async fn update(&self, key: &str, bytes: &[u8], version: u64, _ttl: Millis) -> Result<Swap, Error> {
///         match self.0.lock().unwrap().get_mut(key) {
///             Some(row) if row.1 == version => {
///                 *row = (bytes.into(), version + 1);
///                 Ok(Swap::Done)
///             }
///             _ => Ok(Swap::Conflict),
///         }
///     }
///
///     async fn delete(&self, key: &str) -> Result<(), Error> {
///         self.0.lock().unwrap().remove(key);
///         Ok(())
///     }
/// }
///
/// # fn main() -> Result<(), Error> {
/// # pollster::block_on(async {
/// let limiter = VersionedLimiter::new(Table::default()).attempts(5);
/// let policy = Policy::new("api", [Quota::sliding_window(1, Millis::from_secs(60))?])?;
/// let (key, now) = (Key::new("ip:192.0.2.1"), UnixMillis::new(0));
/// assert!(limiter.check(Check::new(&policy, &key, now)).await?.is_allowed());
/// assert!(!limiter.check(Check::new(&policy, &key, now)).await?.is_allowed());
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct VersionedLimiter<S> {
    store: S,
    attempts: u32,
}

impl<S: Versioned> VersionedLimiter<S> {
    /// The default number of [attempts](Self::attempts).
    pub const DEFAULT_ATTEMPTS: u32 = 16;

    /// A limiter over `store`.
    pub const fn new(store: S) -> Self {
        Self { store, attempts: Self::DEFAULT_ATTEMPTS }
    }

    /// Sets the number of attempts of one decision. At least one is made.
    #[must_use]
    pub const fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts;
        self
    }

    /// A limiter that remembers what it last saw of about `keys` keys, and swaps at once. See
    /// [`RememberingLimiter`](super::RememberingLimiter).
    #[cfg(feature = "std")]
    #[must_use]
    pub fn remembering(self, keys: usize) -> super::RememberingLimiter<S>
    where
        S: 'static,
    {
        super::RememberingLimiter::new(self.store, self.attempts, keys)
    }

    /// The store.
    pub const fn store(&self) -> &S {
        &self.store
    }
}

/// The error of a decision whose swaps have all lost.
pub(super) fn contended(attempts: u32) -> Error {
    Error::new(
        ErrorKind::Contended,
        format!("this key changed during each of {attempts} attempts; retry, or allow more attempts"),
    )
}

/// What an operation makes of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// The decision. Of a refund or a block, it is that of [`Policy::peek`](crate::Policy::peek) on a request of cost 0.
    pub decision: Decision,
    /// The value to store in place of the one that was read, and how long to keep it. `None` if nothing changes.
    pub value: Option<(Vec<u8>, Millis)>,
}

impl Operation<'_> {
    /// Applies this operation to a stored value, for stores with compare-and-swap. The decision counts once the new value has been
    /// swapped in.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if the value is not a state of the policy's, and [`ErrorKind::Unsupported`] for a settlement, a
    /// grant and a loan: such stores remember no charges. A reset is [`Versioned::delete`].
    pub fn change(&self, stored: Option<&[u8]>) -> Result<Changed, Error> {
        Change::of(self)?.apply(self.policy(), self.now(), stored)
    }
}

/// What an operation does to a state. It outlives the operation, whose keys are borrowed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    Check { cost: u64 },
    Peek { cost: u64 },
    Refund { cost: u64, charged_at: UnixMillis },
    Block { span: Millis },
}

impl Change {
    pub(super) fn of(operation: &Operation<'_>) -> Result<Self, Error> {
        Ok(match operation {
            Operation::Check(check) => Self::Check { cost: check.cost },
            Operation::Peek(check) => Self::Peek { cost: check.cost },
            Operation::Refund(refund) => Self::Refund { cost: refund.cost, charged_at: refund.charged_at },
            Operation::Block(block) => Self::Block { span: block.span },
            Operation::Lend(..) | Operation::Settle(_) | Operation::Grant(_) | Operation::Reset { .. } => {
                return Err(operation.unsupported());
            }
        })
    }

    pub(super) fn apply(self, policy: &Policy, now: UnixMillis, stored: Option<&[u8]>) -> Result<Changed, Error> {
        let before = match stored {
            Some(bytes) => policy.decode(bytes, now)?,
            None => policy.initial_state(),
        };
        let mut state = before.clone();
        let decision = match self {
            Self::Check { cost } => policy.decide(&mut state, now, cost),
            Self::Peek { cost } => policy.peek(&state, now, cost),
            Self::Refund { cost, charged_at } => {
                policy.refund(&mut state, charged_at, now, cost);
                policy.peek(&state, now, 0)
            }
            Self::Block { span } => {
                policy.block(&mut state, now, span);
                policy.peek(&state, now, 0)
            }
        };
        // A state that is unused by now still has to overwrite the stored one.
        let value = (state != before).then(|| (policy.encode(&state), policy.expires_after(&state, now) + SLACK));
        Ok(Changed { decision, value })
    }
}

impl<S: Versioned> Limiter for VersionedLimiter<S> {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities().grant(false)
    }

    /// Reads the state, changes it, and swaps it in if it differs.
    async fn apply(&self, operation: Operation<'_>) -> Result<Reply, Error> {
        operation.verify(&self.capabilities())?;
        let key: String = operation.keys().single(operation.policy())?.storage_key(operation.policy());
        if let Operation::Reset { .. } = operation {
            return self.store.delete(&key).await.map(Reply::from);
        }
        for _ in 0..self.attempts.max(1) {
            let found = self.store.read(&key).await?;
            let Changed { decision, value } = operation.change(found.as_ref().map(|found| &found.bytes[..]))?;
            let Some((bytes, ttl)) = value else { return Ok(operation.reply(decision)) };
            let swap = match found {
                Some(VersionedValue { version, .. }) => self.store.update(&key, &bytes, version, ttl).await?,
                None => self.store.create(&key, &bytes, ttl).await?,
            };
            if swap == Swap::Done {
                return Ok(operation.reply(decision));
            }
        }
        Err(contended(self.attempts.max(1)))
    }
}
