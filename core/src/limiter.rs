//! The trait [`Limiter`], which every adapter implements, and its capabilities.

#[cfg(feature = "std")]
mod deny_cache;
mod erased;

#[cfg(feature = "std")]
pub use deny_cache::DenyCache;
pub use erased::{BoxFuture, ErasedLimiter};

use alloc::format;
use core::fmt;
use core::future::Future;

use crate::algorithm::MAX_UNITS;
use crate::sha256::sha256;
use crate::{Decision, Error, ErrorKind, Keys, Millis, Policy, UnixMillis};

/// `Send` on native hosts, and no requirement on WebAssembly, where an isolate has one thread and its host's handles are not
/// `Send`. So one [`Limiter`] trait serves both, and generic native code can move its futures between threads.
#[cfg(not(target_arch = "wasm32"))]
pub trait MaybeSend: Send {}
#[cfg(not(target_arch = "wasm32"))]
impl<T: Send + ?Sized> MaybeSend for T {}

/// `Send` on native hosts, and no requirement on WebAssembly.
#[cfg(target_arch = "wasm32")]
pub trait MaybeSend {}
#[cfg(target_arch = "wasm32")]
impl<T: ?Sized> MaybeSend for T {}

/// `Sync` on native hosts, and no requirement on WebAssembly; see [`MaybeSend`].
#[cfg(not(target_arch = "wasm32"))]
pub trait MaybeSync: Sync {}
#[cfg(not(target_arch = "wasm32"))]
impl<T: Sync + ?Sized> MaybeSync for T {}

/// `Sync` on native hosts, and no requirement on WebAssembly; see [`MaybeSend`].
#[cfg(target_arch = "wasm32")]
pub trait MaybeSync {}
#[cfg(target_arch = "wasm32")]
impl<T: ?Sized> MaybeSync for T {}

/// A rate limiter. Each call names the policy and the key.
///
/// An error is not a denial. A caller may admit requests while the store is down, after a store failure
/// ([`ErrorKind::is_store_failure`]) only: a client can cause every other error.
///
/// References, `Box` and `Arc` of a limiter are limiters too. For one that is selected at run time, see [`ErasedLimiter`].
///
/// ```
/// use tidegate_core::{Check, Key, Limiter, MemoryLimiter, Millis, Policy, Quota, UnixMillis};
/// # fn main() -> Result<(), tidegate_core::Error> {
/// async fn guard(limiter: &impl Limiter, policy: &Policy, key: &Key, now: UnixMillis) -> bool {
///     match limiter.check(Check::new(policy, key, now)).await {
///         Ok(decision) => decision.is_allowed(),
///         // Fail open while the store is down, and only then.
///         Err(error) => error.kind().is_store_failure(),
///     }
/// }
/// let policy = Policy::new("api", [Quota::fixed_window(1, Millis::from_secs(1))?])?;
/// let (limiter, key) = (MemoryLimiter::new(), Key::new("ip:192.0.2.1"));
/// assert!(pollster::block_on(guard(&limiter, &policy, &key, UnixMillis::new(0))));
/// assert!(!pollster::block_on(guard(&limiter, &policy, &key, UnixMillis::new(0))));
/// # Ok(())
/// # }
/// ```
pub trait Limiter: MaybeSend + MaybeSync {
    /// The features that this limiter supports, and its accuracy.
    fn capabilities(&self) -> Capabilities;

    /// Decides on a request, and charges it if every quota admits it.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for a feature that [`Limiter::capabilities`] does not declare, or the reason why the store did
    /// not answer.
    fn check(&self, check: Check<'_>) -> impl Future<Output = Result<Decision, Error>> + MaybeSend;

    /// Returns what [`Limiter::check`] would, and charges nothing. Requires [`Capabilities::peek`].
    ///
    /// # Errors
    /// As [`Limiter::check`].
    fn peek(&self, check: Check<'_>) -> impl Future<Output = Result<Decision, Error>> + MaybeSend;

    /// Returns a charge to its key; see [`Policy::refund`]. Requires [`Capabilities::refund`].
    ///
    /// # Errors
    /// As [`Limiter::check`].
    fn refund(&self, refund: Refund<'_>) -> impl Future<Output = Result<(), Error>> + MaybeSend;

    /// Corrects a charge to its actual cost; see [`Settle`]. Requires [`Capabilities::idempotency`].
    ///
    /// Returns what a request of cost 0 would get now: it is denied while a quota is in debt. If the charge was settled
    /// before, nothing changes, and [`Decision::is_replay`] is true.
    ///
    /// # Errors
    /// [`ErrorKind::UnknownCharge`] if the charge is not remembered, [`ErrorKind::Invalid`] for a cost that no policy can
    /// have, and those of [`Limiter::check`].
    fn settle(&self, settle: Settle<'_>) -> impl Future<Output = Result<Decision, Error>> + MaybeSend {
        let _ = settle;
        async { Err(unsupported("settle")) }
    }

    /// Removes what these keys have used of a policy. Requires [`Capabilities::reset`]. Answers to idempotency tokens remain.
    ///
    /// # Errors
    /// As [`Limiter::check`].
    fn reset(&self, policy: &Policy, keys: Keys<'_>) -> impl Future<Output = Result<(), Error>> + MaybeSend;
}

/// A request for a [`Limiter`] to decide on.
///
/// ```
/// use tidegate_core::{Check, Key, Millis, Policy, Quota, UnixMillis};
/// # fn main() -> Result<(), tidegate_core::Error> {
/// let policy = Policy::new("tokens", [Quota::token_bucket(10_000, 500, Millis::from_secs(1))?])?;
/// let key = Key::new("sub:alice");
/// let check = Check::new(&policy, &key, UnixMillis::new(0)).cost(750).idempotent("req-81f3", Millis::from_secs(60));
/// assert_eq!(check.cost, 750);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Check<'a> {
    /// The policy to decide by.
    pub policy: &'a Policy,
    /// The keys to count against, one for each dimension of the policy.
    pub keys: Keys<'a>,
    /// The cost of the request. The default is 1.
    pub cost: u64,
    /// The caller's clock. A limiter that uses its store's clock ignores it.
    pub now: UnixMillis,
    /// The token under which retries of this check are the same check.
    pub idempotency: Option<Idempotency<'a>>,
}

impl<'a> Check<'a> {
    /// A request of cost 1. `keys` is a `&Key`, or one for each dimension of the policy; see [`Keys`].
    #[must_use]
    pub fn new(policy: &'a Policy, keys: impl Into<Keys<'a>>, now: UnixMillis) -> Self {
        Self { policy, keys: keys.into(), cost: 1, now, idempotency: None }
    }

    /// Sets the cost.
    #[must_use]
    pub const fn cost(mut self, cost: u64) -> Self {
        self.cost = cost;
        self
    }

    /// Sets an idempotency token, for retries of a check whose answer was lost. Within `ttl` of the first check with this
    /// policy, key and token that was admitted and charged, every further one returns its answer and is not charged:
    /// [`Decision::is_replay`]. The token also identifies the charge to [`Limiter::settle`]. With another cost, it is an
    /// error: [`ErrorKind::TokenReused`].
    ///
    /// Never pass on a token that a client chose: the client would send all its requests under one token, and all of them
    /// would repeat the first answer. Use one that the server makes, or accept at most as many replays as retries.
    ///
    /// A policy with a [concurrency limit](crate::algorithm::Concurrency) needs a token, which names the slot. The charge is
    /// then remembered for as long as the slot may be held, if that is longer than `ttl`.
    ///
    /// A check that was denied or costs 0 is not remembered, and a retry of it is decided anew. So the limit bounds the
    /// number of tokens that a store remembers.
    #[must_use]
    pub const fn idempotent(mut self, token: &'a str, ttl: Millis) -> Self {
        self.idempotency = Some(Idempotency { token, ttl });
        self
    }

    /// The token, and how long a store remembers its charge.
    #[must_use]
    pub fn remembered(&self) -> Option<Idempotency<'a>> {
        let Idempotency { token, ttl } = self.idempotency?;
        Some(Idempotency { token, ttl: ttl.max(self.policy.longest_slot()) })
    }

    /// The identity of the charge, if the policy needs it.
    #[must_use]
    pub fn charge_id(&self) -> ChargeId {
        match self.idempotency {
            Some(idempotency) if self.policy.has_slots() => ChargeId::of(idempotency.token),
            _ => ChargeId::NONE,
        }
    }
}

/// Identifies a charge: the first 64 bits of its token's SHA-256.
///
/// ```
/// use tidegate_core::ChargeId;
/// assert_ne!(ChargeId::of("request-1"), ChargeId::of("request-2"));
/// assert_eq!(ChargeId::of("request-1").to_string(), "19f1064b619d49d3");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ChargeId(u64);

impl ChargeId {
    /// Of a charge without a token.
    pub const NONE: Self = Self(0);

    /// Of the charge with a token.
    #[must_use]
    pub fn of(token: &str) -> Self {
        let hash = sha256(token.as_bytes());
        Self(u64::from_be_bytes(core::array::from_fn(|place| hash[place])))
    }

    /// From the number that [`ChargeId::get`] returned.
    #[must_use]
    pub const fn new(id: u64) -> Self {
        Self(id)
    }

    /// As a number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// Sixteen hexadecimal digits.
impl fmt::Display for ChargeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A token that identifies the retries of a check; see [`Check::idempotent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idempotency<'a> {
    /// A text that is unique to the request, of any length.
    pub token: &'a str,
    /// How long the first answer is remembered. It holds while `now < first + ttl`.
    pub ttl: Millis,
}

/// A charge to return; see [`Policy::refund`].
///
/// A store cannot tell whether a charge without a token was refunded before. So every refund is applied, and a key never has
/// more left than its limit. Refund only what was charged: a [replay](Decision::is_replay) charged nothing. A charge that has a
/// token is refunded by [`Limiter::settle`], which pays out once.
///
/// ```
/// use tidegate_core::{Check, Key, Limiter, MemoryLimiter, Millis, Policy, Quota, Refund, UnixMillis};
/// # fn main() -> Result<(), tidegate_core::Error> {
/// # pollster::block_on(async {
/// let policy = Policy::new("tokens", [Quota::fixed_window(100, Millis::from_secs(60))?])?;
/// let (limiter, key, now) = (MemoryLimiter::new(), Key::new("sub:alice"), UnixMillis::new(0));
/// let charged = limiter.check(Check::new(&policy, &key, now).cost(80)).await?;
/// // It cost 30 in the end: give back 50.
/// limiter.refund(Refund::new(&policy, &key, 50, charged.decided_at(), UnixMillis::new(400))).await?;
/// let left = limiter.peek(Check::new(&policy, &key, UnixMillis::new(400))).await?;
/// assert_eq!(left.binding().remaining(), Some(70));
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Refund<'a> {
    /// The policy of the charge.
    pub policy: &'a Policy,
    /// The keys of the charge.
    pub keys: Keys<'a>,
    /// The amount to return.
    pub cost: u64,
    /// The instant of the charge: [`Decision::decided_at`].
    pub charged_at: UnixMillis,
    /// The caller's clock.
    pub now: UnixMillis,
}

impl<'a> Refund<'a> {
    /// A refund of `cost` that was charged at `charged_at`.
    #[must_use]
    pub fn new(
        policy: &'a Policy,
        keys: impl Into<Keys<'a>>,
        cost: u64,
        charged_at: UnixMillis,
        now: UnixMillis,
    ) -> Self {
        Self { policy, keys: keys.into(), cost, charged_at, now }
    }
}

/// The actual cost of a charge, once it is known: a request of unknown cost is charged an estimate, and settled afterwards.
///
/// What the request cost less than charged is returned, less what time has replenished since. What it cost more is charged
/// now, also beyond the limit; see [`Policy::settle`]. A cost of 0 cancels the charge. A slot of a
/// [concurrency limit](crate::algorithm::Concurrency) is given back.
///
/// The charge is the one of the check with this policy, key and [token](Check::idempotent). It is settled once: a further
/// settlement changes nothing, whatever its cost, so it can be retried after a lost answer. If it is never settled, because
/// the caller died, the estimate stays charged.
///
/// ```
/// use tidegate_core::{Check, Key, Limiter, MemoryLimiter, Millis, Policy, Quota, Settle, UnixMillis};
/// # fn main() -> Result<(), tidegate_core::Error> {
/// # pollster::block_on(async {
/// let policy = Policy::new("tokens", [Quota::token_bucket(1_000, 10, Millis::from_secs(1))?])?;
/// let (limiter, key, now) = (MemoryLimiter::new(), Key::new("sub:alice"), UnixMillis::new(0));
/// let estimate = Check::new(&policy, &key, now).cost(300).idempotent("req-81f3", Millis::from_secs(600));
/// assert!(limiter.check(estimate).await?.is_allowed());
/// // The answer has 120 tokens.
/// let settled = limiter.settle(Settle::new(&policy, &key, "req-81f3", 120, now)).await?;
/// assert_eq!(settled.binding().remaining(), Some(880));
/// assert!(limiter.settle(Settle::new(&policy, &key, "req-81f3", 0, now)).await?.is_replay());
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Settle<'a> {
    /// The policy of the charge.
    pub policy: &'a Policy,
    /// The keys of the charge.
    pub keys: Keys<'a>,
    /// The token of the charge.
    pub token: &'a str,
    /// What the request cost. `None` if it cost what was charged.
    pub cost: Option<u64>,
    /// The caller's clock.
    pub now: UnixMillis,
}

impl<'a> Settle<'a> {
    /// Settles the charge with this `token` to `cost`.
    #[must_use]
    pub fn new(policy: &'a Policy, keys: impl Into<Keys<'a>>, token: &'a str, cost: u64, now: UnixMillis) -> Self {
        Self { policy, keys: keys.into(), token, cost: Some(cost), now }
    }

    /// Settles the charge with this `token` to what was charged: it gives back only the request's slots.
    #[must_use]
    pub fn release(policy: &'a Policy, keys: impl Into<Keys<'a>>, token: &'a str, now: UnixMillis) -> Self {
        Self { policy, keys: keys.into(), token, cost: None, now }
    }

    /// The identity of the charge, if the policy needs it.
    #[must_use]
    pub fn charge_id(&self) -> ChargeId {
        if self.policy.has_slots() { ChargeId::of(self.token) } else { ChargeId::NONE }
    }

    pub(crate) fn verify(&self) -> Result<(), Error> {
        match self.cost {
            Some(cost) if cost > MAX_UNITS => {
                Err(Error::invalid(format!("cost: {cost} is out of range; write a whole number from 0 to {MAX_UNITS}")))
            }
            _ => Ok(()),
        }
    }
}

/// The features of a limiter, as data.
///
/// ```
/// use tidegate_core::{Accuracy, Capabilities, Limiter, MemoryLimiter};
/// let can = MemoryLimiter::new().capabilities();
/// assert!(matches!(can.accuracy, Accuracy::Exact));
/// assert!(can.idempotency);
///
/// const WITHOUT_TOKENS: Capabilities = Capabilities::EXACT.idempotency(false).round_trips(2);
/// assert!(!WITHOUT_TOKENS.idempotency);
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Capabilities {
    /// The accuracy.
    pub accuracy: Accuracy,
    /// The supported algorithms, by [`Rule::name`](crate::Rule::name).
    pub algorithms: &'static [&'static str],
    /// The most quotas a policy may have.
    pub max_quotas: usize,
    /// Which policies with several [dimensions](Policy#dimensions) are supported.
    pub dimensions: Dimensions,
    /// Whether a request may have a cost other than 1.
    pub costs: bool,
    /// Whether denials can be charged; see [`Policy::charge_denied`].
    pub charge_denied: bool,
    /// Whether [`Limiter::peek`] works.
    pub peek: bool,
    /// Whether [`Limiter::refund`] works.
    pub refund: bool,
    /// Whether [`Limiter::reset`] works.
    pub reset: bool,
    /// Whether [`Check::idempotent`] and [`Limiter::settle`] work.
    pub idempotency: bool,
    /// The round trips to another process that a decision takes in the usual case. 0 for a store in the caller's process.
    pub round_trips: u32,
}

/// A method for each field that sets it.
macro_rules! setters {
    ($($field:ident: $kind:ty,)*) => {$(
        #[doc = concat!("Sets [`", stringify!($field), "`](Self#structfield.", stringify!($field), ").")]
        #[must_use]
        pub const fn $field(mut self, $field: $kind) -> Self {
            self.$field = $field;
            self
        }
    )*};
}

impl Capabilities {
    /// The algorithms that count requests: all but the concurrency limit and the penalty.
    pub const COUNTING: &'static [&'static str] =
        &["fixed_window", "sliding_window", "sliding_log", "token_bucket", "leaky_bucket"];

    /// Every feature, exactly, in one round trip: the most that an [`Atomic`](crate::store::Atomic) store supports.
    pub const EXACT: Self = Self {
        accuracy: Accuracy::Exact,
        algorithms: &[
            "fixed_window",
            "sliding_window",
            "sliding_log",
            "token_bucket",
            "leaky_bucket",
            "concurrency",
            "penalty",
        ],
        max_quotas: Policy::MAX_QUOTAS,
        dimensions: Dimensions::Any,
        costs: true,
        charge_denied: true,
        peek: true,
        refund: true,
        reset: true,
        idempotency: true,
        round_trips: 1,
    };

    setters! {
        accuracy: Accuracy,
        algorithms: &'static [&'static str],
        max_quotas: usize,
        dimensions: Dimensions,
        costs: bool,
        charge_denied: bool,
        peek: bool,
        refund: bool,
        reset: bool,
        idempotency: bool,
        round_trips: u32,
    }

    /// Checks that these features suffice for a check.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] that names the first missing feature.
    ///
    /// ```
    /// use tidegate_core::{Capabilities, Check, ErrorKind, Key, Millis, Policy, Quota, UnixMillis};
    /// # fn main() -> Result<(), tidegate_core::Error> {
    /// let windows_only = Capabilities::EXACT.algorithms(&["fixed_window"]);
    /// let policy = Policy::new("api", [Quota::token_bucket(10, 5, Millis::from_secs(1))?])?;
    /// let key = Key::new("ip:192.0.2.1");
    /// let refused = windows_only.supports(&Check::new(&policy, &key, UnixMillis::new(0))).unwrap_err();
    /// assert_eq!(refused.kind(), ErrorKind::Unsupported);
    /// # Ok(())
    /// # }
    /// ```
    pub fn supports(&self, check: &Check<'_>) -> Result<(), Error> {
        self.supports_peek(check)?;
        if check.idempotency.is_none() && check.policy.has_slots() {
            return Err(slot_without_token());
        }
        Ok(())
    }

    /// Checks that these features suffice for a check that takes no slot.
    pub(crate) fn supports_peek(&self, check: &Check<'_>) -> Result<(), Error> {
        self.supports_policy(check.policy)?;
        self.require(self.costs || check.cost == 1, "a cost other than 1")?;
        self.require(self.idempotency || check.idempotency.is_none(), "an idempotency token")
    }

    /// Checks that these features suffice for a policy, whatever is asked of it. Call it when the policy is loaded.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] that names the first missing feature.
    pub fn supports_policy(&self, policy: &Policy) -> Result<(), Error> {
        let quotas = policy.quotas();
        if quotas.len() > self.max_quotas {
            return Err(unsupported(&format!("a policy of {} quotas ({} at most)", quotas.len(), self.max_quotas)));
        }
        if let Some(quota) = quotas.iter().find(|quota| !self.algorithms.contains(&quota.rule().name())) {
            let mut what = format!("{} (only", quota.rule().name());
            for (place, algorithm) in self.algorithms.iter().enumerate() {
                what.push_str(if place == 0 { " " } else { ", " });
                what.push_str(algorithm);
            }
            what.push(')');
            return Err(unsupported(&what));
        }
        self.require(self.charge_denied || !policy.charges_denied(), "charge_denied")?;
        self.require(self.idempotency || !policy.has_slots(), "a concurrency limit, whose slots have tokens")?;
        match self.dimensions {
            _ if policy.dimensions().len() == 1 => Ok(()),
            Dimensions::Any => Ok(()),
            Dimensions::Grouped => {
                self.require(policy.group().is_some(), "several dimensions without a group; write group_by")
            }
            Dimensions::One => Err(unsupported("several dimensions in one policy")),
        }
    }

    pub(crate) fn require(&self, able: bool, what: &str) -> Result<(), Error> {
        if able { Ok(()) } else { Err(unsupported(what)) }
    }
}

/// The policies with several [dimensions](Policy#dimensions) that a limiter supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dimensions {
    /// None: a policy counts by one key.
    One,
    /// Those with a [group](Policy::group_by).
    Grouped,
    /// All.
    Any,
}

impl Dimensions {
    /// A stable name in snake case, for reports.
    ///
    /// ```
    /// assert_eq!(tidegate_core::Dimensions::Grouped.name(), "grouped");
    /// ```
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::Grouped => "grouped",
            Self::Any => "any",
        }
    }
}

pub(crate) fn slot_without_token() -> Error {
    Error::invalid("idempotency: a policy with a concurrency limit needs a token, which names the slot; give one")
}

fn unsupported(what: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("this store does not support {what}"))
}

/// The accuracy of a limiter.
///
/// Both bounds apply to one quota and any interval. [`Load::limit`] is then the most that an exact limiter admits in it,
/// [`Rule::maximum`](crate::Rule::maximum).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Accuracy {
    /// Admits exactly as many requests as the reference implementation, at any concurrency.
    Exact,
    /// Admits a number of requests between the floor and the ceiling of its drift.
    Approximate(Drift),
    /// The platform's own limiter. It admits at most limit x locations.
    PerLocation,
}

impl Accuracy {
    /// A stable name: `exact`, `approximate` or `per_location`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Approximate(_) => "approximate",
            Self::PerLocation => "per_location",
        }
    }

    /// The most that one quota admits under a load.
    ///
    /// ```
    /// use tidegate_core::{Accuracy, Load};
    /// let load = Load { limit: 60, in_flight: 500, locations: 3 };
    /// assert_eq!(Accuracy::Exact.ceiling(load), 60);
    /// assert_eq!(Accuracy::PerLocation.ceiling(load), 180);
    /// ```
    #[must_use]
    pub fn ceiling(&self, load: Load) -> u64 {
        match self {
            Self::Exact => load.limit,
            Self::Approximate(drift) => (drift.ceiling)(load),
            Self::PerLocation => load.limit.saturating_mul(load.locations),
        }
    }

    /// This limiter admits at least as much as an exact one with the returned limit, under a load; see [`Floor`].
    ///
    /// ```
    /// use tidegate_core::{Accuracy, Drift, Floor, Load};
    /// let load = Load { limit: 100, in_flight: 500, locations: 3 };
    /// let leases = Drift { floor: Floor { held: 10, ..Floor::NOTHING_HELD }, ..Drift::WITHIN_LIMIT };
    /// assert_eq!(Accuracy::Approximate(leases).floor(load), 70);
    /// assert_eq!(Accuracy::PerLocation.floor(load), 100);
    /// ```
    #[must_use]
    pub const fn floor(&self, load: Load) -> u64 {
        match self {
            Self::Exact | Self::PerLocation => load.limit,
            Self::Approximate(drift) => load.limit.saturating_sub(drift.floor.held.saturating_mul(load.locations)),
        }
    }
}

impl fmt::Display for Accuracy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact => f.write_str("exact: admitted = limit"),
            Self::Approximate(drift) => write!(f, "approximate: {} <= admitted <= {}", drift.floor, drift.formula),
            Self::PerLocation => f.write_str("per location: limit <= admitted <= limit x locations"),
        }
    }
}

/// The bounds of an approximate limiter. The ceiling is a formula, as code and as text.
///
/// ```
/// use tidegate_core::{Accuracy, Drift, Floor, Load};
/// let drift = Drift {
///     formula: "limit x locations",
///     ceiling: |load| load.limit.saturating_mul(load.locations),
///     floor: Floor::NOTHING_HELD,
/// };
/// assert_eq!((drift.ceiling)(Load { limit: 10, in_flight: 50, locations: 3 }), 30);
/// assert_eq!(Accuracy::Approximate(drift).to_string(), "approximate: limit <= admitted <= limit x locations");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Drift {
    /// The ceiling as a formula of [`Load`]'s fields.
    pub formula: &'static str,
    /// The ceiling as a function.
    pub ceiling: fn(Load) -> u64,
    /// The least that is admitted, if enough is requested.
    pub floor: Floor,
}

impl Drift {
    /// At most the limit, and no early denials.
    pub const WITHIN_LIMIT: Self = Self { formula: "limit", ceiling: |load| load.limit, floor: Floor::NOTHING_HELD };
}

/// The least that an approximate limiter admits. By every instant, it has admitted as many requests as an exact limiter with
/// the limit `limit - held x locations`, if the key was unused and all requests cost the same.
///
/// ```
/// use tidegate_core::{Floor, Millis};
/// let leases = Floor { held: 20, within: Some(Millis::from_secs(2)) };
/// assert_eq!(leases.to_string(), "limit - 20 x locations (in the first 2000 ms)");
/// assert_eq!(Floor::NOTHING_HELD.to_string(), "limit");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Floor {
    /// The units that each location may hold unspent, so that the others cannot use them.
    pub held: u64,
    /// How long after a key's first request this holds. `None` means always.
    pub within: Option<Millis>,
}

impl Floor {
    /// No early denials.
    pub const NOTHING_HELD: Self = Self { held: 0, within: None };
}

impl fmt::Display for Floor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("limit")?;
        if self.held > 0 {
            write!(f, " - {} x locations", self.held)?;
        }
        self.within.map_or(Ok(()), |within| write!(f, " (in the first {} ms)", within.get()))
    }
}

/// The variables of a drift.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// The most that an exact limiter admits.
    pub limit: u64,
    /// The most requests of one key that are in flight at once.
    pub in_flight: u64,
    /// The locations (PoPs, regions, isolates) that serve them, including those that ended meanwhile.
    pub locations: u64,
}
