//! What applications and the conformance suite see of every adapter: [`Limiter`], and what it can do.

#[cfg(feature = "std")]
mod deny_cache;
mod erased;

#[cfg(feature = "std")]
pub use deny_cache::DenyCache;
pub use erased::{BoxFuture, ErasedLimiter};

use alloc::format;
use core::fmt;
use core::future::Future;

use crate::{Decision, Error, ErrorKind, Key, Millis, Policy, UnixMillis};

/// `Send` on native hosts, nothing on WebAssembly, where an isolate has one thread and its host's handles are not
/// `Send`. So the one [`Limiter`] trait serves both, and generic native code may move its futures between threads.
#[cfg(not(target_arch = "wasm32"))]
pub trait MaybeSend: Send {}
#[cfg(not(target_arch = "wasm32"))]
impl<T: Send + ?Sized> MaybeSend for T {}

/// `Send` on native hosts, nothing on WebAssembly.
#[cfg(target_arch = "wasm32")]
pub trait MaybeSend {}
#[cfg(target_arch = "wasm32")]
impl<T: ?Sized> MaybeSend for T {}

/// `Sync` on native hosts, nothing on WebAssembly; see [`MaybeSend`].
#[cfg(not(target_arch = "wasm32"))]
pub trait MaybeSync: Sync {}
#[cfg(not(target_arch = "wasm32"))]
impl<T: Sync + ?Sized> MaybeSync for T {}

/// `Sync` on native hosts, nothing on WebAssembly; see [`MaybeSend`].
#[cfg(target_arch = "wasm32")]
pub trait MaybeSync {}
#[cfg(target_arch = "wasm32")]
impl<T: ?Sized> MaybeSync for T {}

/// A rate limiter over some store: decides on requests of many keys, by the policy that comes with each.
///
/// An error is never a denial. Whether a request passes while the store is down is the caller's choice, and only a
/// store failure ([`ErrorKind::is_store_failure`]) may let it pass: a client can cause every other error.
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
    /// What this limiter can do, and how exact it is.
    fn capabilities(&self) -> Capabilities;

    /// Decides on a request, and charges it if every quota admits it.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for what [`Limiter::capabilities`] does not declare, and whatever keeps the store
    /// from answering.
    fn check(&self, check: Check<'_>) -> impl Future<Output = Result<Decision, Error>> + MaybeSend;

    /// What [`Limiter::check`] would answer, with nothing charged. Needs [`Capabilities::peek`].
    ///
    /// # Errors
    /// As [`Limiter::check`].
    fn peek(&self, check: Check<'_>) -> impl Future<Output = Result<Decision, Error>> + MaybeSend;

    /// Gives back what a request was charged; see [`Policy::refund`]. Needs [`Capabilities::refund`].
    ///
    /// # Errors
    /// As [`Limiter::check`].
    fn refund(&self, refund: Refund<'_>) -> impl Future<Output = Result<(), Error>> + MaybeSend;

    /// Forgets what one key used of a policy. Needs [`Capabilities::reset`].
    ///
    /// # Errors
    /// As [`Limiter::check`].
    fn reset(&self, policy: &Policy, key: &Key) -> impl Future<Output = Result<(), Error>> + MaybeSend;
}

/// A question to a [`Limiter`]: may this request go on?
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
    /// Whom to count.
    pub key: &'a Key,
    /// What the request costs: 1 unless said otherwise.
    pub cost: u64,
    /// The caller's clock. A limiter that goes by its store's clock does not read it.
    pub now: UnixMillis,
    /// What makes a retry of this check the same check.
    pub idempotency: Option<Idempotency<'a>>,
}

impl<'a> Check<'a> {
    /// A request of cost 1.
    #[must_use]
    pub const fn new(policy: &'a Policy, key: &'a Key, now: UnixMillis) -> Self {
        Self { policy, key, cost: 1, now, idempotency: None }
    }

    /// The same request at another cost.
    #[must_use]
    pub const fn cost(mut self, cost: u64) -> Self {
        self.cost = cost;
        self
    }

    /// The same request under a token: within `ttl` of the first check with that token (of this policy and key), every
    /// further one answers what the first did and is not charged again. For retries of a check whose answer was lost.
    #[must_use]
    pub const fn idempotent(mut self, token: &'a str, ttl: Millis) -> Self {
        self.idempotency = Some(Idempotency { token, ttl });
        self
    }
}

/// A token that makes a retried check the same check; see [`Check::idempotent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idempotency<'a> {
    /// Unique to the request, of any length.
    pub token: &'a str,
    /// How long the first answer is remembered.
    pub ttl: Millis,
}

/// What to give back; see [`Policy::refund`].
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
    /// The policy it was charged by.
    pub policy: &'a Policy,
    /// Whom it was charged to.
    pub key: &'a Key,
    /// How much to give back.
    pub cost: u64,
    /// When it was charged: [`Decision::decided_at`].
    pub charged_at: UnixMillis,
    /// The caller's clock.
    pub now: UnixMillis,
}

impl<'a> Refund<'a> {
    /// A refund of `cost` that was charged at `charged_at`.
    #[must_use]
    pub const fn new(policy: &'a Policy, key: &'a Key, cost: u64, charged_at: UnixMillis, now: UnixMillis) -> Self {
        Self { policy, key, cost, charged_at, now }
    }
}

/// What a limiter can do, as plain data.
///
/// ```
/// use tidegate_core::{Accuracy, Limiter, MemoryLimiter};
/// let can = MemoryLimiter::new().capabilities();
/// assert!(matches!(can.accuracy, Accuracy::Exact));
/// assert!(can.idempotency);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Capabilities {
    /// How exact it is.
    pub accuracy: Accuracy,
    /// The algorithms it takes, by [`Rule::name`](crate::Rule::name).
    pub algorithms: &'static [&'static str],
    /// The most quotas a policy may have.
    pub max_quotas: usize,
    /// Whether a request may cost other than 1.
    pub costs: bool,
    /// Whether it can charge denials; see [`Policy::charge_denied`].
    pub charge_denied: bool,
    /// Whether [`Limiter::peek`] works.
    pub peek: bool,
    /// Whether [`Limiter::refund`] works.
    pub refund: bool,
    /// Whether [`Limiter::reset`] works.
    pub reset: bool,
    /// Whether [`Check::idempotent`] works.
    pub idempotency: bool,
    /// Round trips to the store that a decision takes as a rule.
    pub round_trips: u32,
}

impl Capabilities {
    /// Everything, exactly, in one round trip: what an [`Atomic`](crate::store::Atomic) store can give.
    pub const EXACT: Self = Self {
        accuracy: Accuracy::Exact,
        algorithms: &["fixed_window", "sliding_window", "sliding_log", "token_bucket", "leaky_bucket"],
        max_quotas: Policy::MAX_QUOTAS,
        costs: true,
        charge_denied: true,
        peek: true,
        refund: true,
        reset: true,
        idempotency: true,
        round_trips: 1,
    };

    /// Whether a check is within what is declared.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] with what is not.
    ///
    /// ```
    /// use tidegate_core::{Capabilities, Check, ErrorKind, Key, Millis, Policy, Quota, UnixMillis};
    /// # fn main() -> Result<(), tidegate_core::Error> {
    /// let windows_only = Capabilities { algorithms: &["fixed_window"], ..Capabilities::EXACT };
    /// let policy = Policy::new("api", [Quota::token_bucket(10, 5, Millis::from_secs(1))?])?;
    /// let key = Key::new("ip:192.0.2.1");
    /// let refused = windows_only.supports(&Check::new(&policy, &key, UnixMillis::new(0))).unwrap_err();
    /// assert_eq!(refused.kind(), ErrorKind::Unsupported);
    /// # Ok(())
    /// # }
    /// ```
    pub fn supports(&self, check: &Check<'_>) -> Result<(), Error> {
        let quotas = check.policy.quotas();
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
        self.require(self.costs || check.cost == 1, "a cost other than 1")?;
        self.require(self.charge_denied || !check.policy.charges_denied(), "charge_denied")?;
        self.require(self.idempotency || check.idempotency.is_none(), "an idempotency token")
    }

    pub(crate) fn require(&self, able: bool, what: &str) -> Result<(), Error> {
        if able { Ok(()) } else { Err(unsupported(what)) }
    }
}

fn unsupported(what: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("this store cannot do {what}"))
}

/// How exact a limiter is.
///
/// Both bounds are statements on one quota, on any interval: [`Load::limit`] is then what an exact limiter admits at most
/// in it, [`Rule::maximum`](crate::Rule::maximum).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Accuracy {
    /// Admits what the reference admits, to the request, at any concurrency.
    Exact,
    /// Admits at most what its drift says, and at least that.
    Approximate(Drift),
    /// The platform's own limiter: at most limit x locations.
    PerLocation,
}

impl Accuracy {
    /// Its stable name: `exact`, `approximate` or `per_location`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Approximate(_) => "approximate",
            Self::PerLocation => "per_location",
        }
    }

    /// The most that is admitted of one quota under a load.
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

    /// The limit of an exact limiter that this one admits at least as much as, under a load; see [`Floor`].
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

/// How far an approximate limiter may be off its limit. The ceiling is a formula, as code and as text.
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
    /// The ceiling's formula, in the names of [`Load`]'s fields.
    pub formula: &'static str,
    /// The same, computed.
    pub ceiling: fn(Load) -> u64,
    /// What is admitted at least, of as much that is asked for.
    pub floor: Floor,
}

impl Drift {
    /// Never more than the limit, and nobody is denied early.
    pub const WITHIN_LIMIT: Self = Self { formula: "limit", ceiling: |load| load.limit, floor: Floor::NOTHING_HELD };
}

/// What an approximate limiter admits at least: by every instant as many requests as an exact one of the limit
/// `limit - held x locations`, on a key that was unused, of requests that all cost the same.
///
/// ```
/// use tidegate_core::{Floor, Millis};
/// let leases = Floor { held: 20, within: Some(Millis::from_secs(2)) };
/// assert_eq!(leases.to_string(), "limit - 20 x locations (in the first 2000 ms)");
/// assert_eq!(Floor::NOTHING_HELD.to_string(), "limit");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Floor {
    /// Units that each location may have taken and not spent, so that the others are denied them.
    pub held: u64,
    /// How long after a key's first request this holds; always where it is `None`.
    pub within: Option<Millis>,
}

impl Floor {
    /// Nobody is denied what the limit admits.
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

/// What a drift depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// What an exact limiter would admit.
    pub limit: u64,
    /// The most requests of one key that are under way at once.
    pub in_flight: u64,
    /// The locations (PoPs, regions, isolates) that serve them, those that ended meanwhile included.
    pub locations: u64,
}
