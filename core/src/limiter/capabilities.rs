//! The features of a limiter, as data.

use alloc::format;

use super::Accuracy;
use crate::{Check, Error, ErrorKind, Policy, Quota, Rule};

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
    /// The supported algorithms, by [`Rule::name`](crate::Rule::name), but for the balance, which needs [`grant`](Self#structfield.grant). `penalty`
    /// includes `block`.
    pub algorithms: &'static [&'static str],
    /// The most quotas a policy may have.
    pub max_quotas: usize,
    /// Which policies with several [dimensions](Policy#dimensions) are supported.
    pub dimensions: Dimensions,
    /// Whether a request may have a cost other than 1.
    pub costs: bool,
    /// Whether denials can be charged; see [`Policy::charge_denied`].
    pub charge_denied: bool,
    /// Whether [`LimiterExt::peek`](crate::LimiterExt::peek) works.
    pub peek: bool,
    /// Whether [`LimiterExt::refund`](crate::LimiterExt::refund) works.
    pub refund: bool,
    /// Whether [`LimiterExt::reset`](crate::LimiterExt::reset) works.
    pub reset: bool,
    /// Whether [`LimiterExt::block`](crate::LimiterExt::block) works.
    pub block: bool,
    /// Whether a policy may have a [balance](crate::algorithm::Balance), and [`LimiterExt::grant`](crate::LimiterExt::grant) works.
    pub grant: bool,
    /// Whether [`Check::idempotent`] and [`LimiterExt::settle`](crate::LimiterExt::settle) work.
    pub idempotency: bool,
    /// Whether [`LimiterExt::lend`](crate::LimiterExt::lend) works.
    pub lends: bool,
    /// Whether checks that have a [lease](Check::lease), and no others, are decided from loans.
    pub borrows: bool,
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
    /// The algorithms that count requests: all but the concurrency limit, the penalty and the balance.
    pub const COUNTING: &'static [&'static str] =
        &["fixed_window", "sliding_window", "sliding_log", "token_bucket", "leaky_bucket", "calendar_window"];

    /// Every feature but loans and balances, exactly, in one round trip: the most that an [`Atomic`](crate::store::Atomic) store supports by
    /// its two required operations. One that [lends](crate::lending) says so with [`Capabilities::lends`], and one that grants with
    /// [`Capabilities::grant`].
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
            "calendar_window",
        ],
        max_quotas: Policy::MAX_QUOTAS,
        dimensions: Dimensions::Any,
        costs: true,
        charge_denied: true,
        peek: true,
        refund: true,
        reset: true,
        block: true,
        grant: false,
        idempotency: true,
        lends: false,
        borrows: false,
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
        block: bool,
        grant: bool,
        idempotency: bool,
        lends: bool,
        borrows: bool,
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
        check.verify()
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
        let algorithm = |quota: &Quota| match quota.rule() {
            Rule::Penalty(_) => "penalty",
            rule => rule.name(),
        };
        self.require(self.grant || !policy.has_balance(), BALANCES)?;
        let is_known =
            |quota: &Quota| matches!(quota.rule(), Rule::Balance(_)) || self.algorithms.contains(&algorithm(quota));
        if let Some(quota) = quotas.iter().find(|quota| !is_known(quota)) {
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
                self.require(policy.has_place(), "several dimensions without a group; write group_by")
            }
            Dimensions::One => Err(unsupported("several dimensions in one policy")),
        }
    }

    pub(crate) fn require(&self, able: bool, what: &str) -> Result<(), Error> {
        if able { Ok(()) } else { Err(unsupported(what)) }
    }
}

/// What a store without balances is told not to support.
pub(super) const BALANCES: &str = "balances; count in one that does, such as Redis";

/// What a store that cannot lend is told not to support.
pub(crate) const LOANS: &str = "loans; count in one that lends, such as Redis or Durable Objects";

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

pub(super) fn unsupported(what: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("this store does not support {what}"))
}
