//! Edge Rate Limiting: a decision is one call of the platform's limiter.

use std::fmt;
use std::time::Duration;

use tidegate_core::store::{Native, NativeLimiter};
use tidegate_core::{Capabilities, Check, Error, MaybeSend, MaybeSync, Millis, Quota};

use crate::error;

/// A limiter on Edge Rate Limiting.
pub type ErlLimiter<R> = NativeLimiter<Erl<R>>;

/// The capabilities of Edge Rate Limiting.
pub const CAPABILITIES: Capabilities = Capabilities::NATIVE.algorithms(&["sliding_window"]);

/// The platform's call that a limiter needs. An app uses `fastly::erl::ERL`, a test a stand-in.
pub trait Rates: MaybeSend + MaybeSync {
    /// Counts a request of `entry`, and returns whether to block it. The platform blocks an entry that exceeds `per_second`
    /// requests per second on average over `window`, and puts it into the penalty box for `penalty`. It also blocks an
    /// entry that is in the box already.
    ///
    /// # Errors
    /// Whatever keeps the platform from answering.
    fn check_rate(&self, entry: &str, per_second: u32, window: Window, penalty: Duration) -> Result<bool, Error>;
}

/// The window that the platform averages over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// One second.
    OneSecond,
    /// Ten seconds.
    TenSeconds,
    /// Sixty seconds.
    SixtySeconds,
}

/// Edge Rate Limiting, as a [`Native`] store with one policy: a sliding window.
///
/// The platform does not count the requests in a window; it estimates an average rate. `limit` in `window` becomes
/// `limit / window` requests per second. A client that exceeds the rate is denied for `penalty`, and each denied request
/// that still exceeds it restarts the penalty. So a client that keeps sending stays out.
///
/// # Errors
/// - [`Unsupported`](tidegate_core::ErrorKind::Unsupported): the policy is not the one that the store was built with.
/// - [`Unavailable`](tidegate_core::ErrorKind::Unavailable): the platform did not answer.
#[derive(Clone)]
pub struct Erl<R> {
    rates: R,
    per_second: u32,
    window: Window,
    penalty: Duration,
    quota: Quota,
}

impl<R: Rates> Erl<R> {
    /// The lowest rate that the platform is meant for, in requests per second.
    pub const PER_SECOND_MIN: u64 = 10;

    /// The highest rate that the platform accepts, in requests per second.
    pub const PER_SECOND_MAX: u64 = 70_000_000;

    /// The shortest penalty. The platform rounds the rest of a penalty up to whole minutes, so it may last a minute longer.
    pub const PENALTY_MIN: Millis = Millis::from_secs(60);

    /// The longest penalty.
    pub const PENALTY_MAX: Millis = Millis::from_secs(3_600);

    /// A store that admits `limit` requests in `window`, and denies a client that exceeds this for `penalty`.
    ///
    /// # Errors
    /// [`Invalid`](tidegate_core::ErrorKind::Invalid), with a message that says what to write instead, if
    /// - `window` is not 1, 10 or 60 s,
    /// - `limit` is not a whole number of requests per second from [`PER_SECOND_MIN`](Self::PER_SECOND_MIN) to
    ///   [`PER_SECOND_MAX`](Self::PER_SECOND_MAX),
    /// - `penalty` is not a whole number of minutes up to an hour.
    pub fn new(rates: R, limit: u64, window: Millis, penalty: Millis) -> Result<Self, Error> {
        let averaged = Window::of(window).ok_or_else(|| error::window(window))?;
        let seconds = averaged.seconds();
        let per_second = limit / seconds;
        if !limit.is_multiple_of(seconds) || !(Self::PER_SECOND_MIN..=Self::PER_SECOND_MAX).contains(&per_second) {
            return Err(error::limit(limit, seconds, Self::PER_SECOND_MIN, Self::PER_SECOND_MAX));
        }
        if !(Self::PENALTY_MIN..=Self::PENALTY_MAX).contains(&penalty) || !penalty.get().is_multiple_of(60_000) {
            return Err(error::penalty(penalty));
        }
        Ok(Self {
            rates,
            // In range, as checked above.
            per_second: u32::try_from(per_second).unwrap_or(u32::MAX),
            window: averaged,
            penalty: Duration::from_millis(penalty.get()),
            quota: Quota::sliding_window(limit, window)?,
        })
    }

    /// The quota that a policy must have to be checked here.
    #[must_use]
    pub const fn quota(&self) -> &Quota {
        &self.quota
    }

    /// A limiter over this store.
    #[must_use]
    pub const fn limiter(self) -> ErlLimiter<R> {
        NativeLimiter::new(self)
    }
}

impl<R: Rates> Native for Erl<R> {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    /// Makes one call, under the core's storage key, so that policies with different names do not share counts.
    async fn limit(&self, check: Check<'_>) -> Result<bool, Error> {
        if !matches!(check.policy.quotas(), [quota] if quota.rule() == self.quota.rule()) {
            return Err(error::another_policy(&self.quota));
        }
        let entry = check.keys.single(check.policy)?.storage_key(check.policy);
        let blocked = self.rates.check_rate(&entry, self.per_second, self.window, self.penalty)?;
        Ok(!blocked)
    }
}

impl Window {
    fn of(window: Millis) -> Option<Self> {
        [Self::OneSecond, Self::TenSeconds, Self::SixtySeconds]
            .into_iter()
            .find(|known| Millis::from_secs(known.seconds()) == window)
    }

    /// The window's length.
    #[must_use]
    pub const fn seconds(self) -> u64 {
        match self {
            Self::OneSecond => 1,
            Self::TenSeconds => 10,
            Self::SixtySeconds => 60,
        }
    }
}

impl<R> fmt::Debug for Erl<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Erl")
            .field("per_second", &self.per_second)
            .field("window", &self.window)
            .field("penalty", &self.penalty)
            .finish_non_exhaustive()
    }
}
