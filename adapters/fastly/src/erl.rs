//! Edge Rate Limiting: one call of the platform's limiter for each decision.

use std::fmt;
use std::time::Duration;

use tidegate_core::store::{Native, NativeLimiter};
use tidegate_core::{Capabilities, Check, Error, MaybeSend, MaybeSync, Millis, Quota};

use crate::error;

/// A limiter by Edge Rate Limiting.
pub type ErlLimiter<R> = NativeLimiter<Erl<R>>;

/// What Edge Rate Limiting can do.
pub const CAPABILITIES: Capabilities = Capabilities { algorithms: &["sliding_window"], ..Capabilities::NATIVE };

/// The one question the platform answers: in an app `fastly::erl::ERL`, in a test whatever stands in for it.
pub trait Rates: MaybeSend + MaybeSync {
    /// Counts a request of `entry`. Whether it is to be blocked: for the entry came to more than `per_second` requests
    /// a second on average over `window`, which puts it into the penalty box for `penalty`, or for it is in there
    /// already.
    ///
    /// # Errors
    /// Whatever keeps the platform from answering.
    fn check_rate(&self, entry: &str, per_second: u32, window: Window, penalty: Duration) -> Result<bool, Error>;
}

/// What the platform averages over.
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
/// The platform does not count a window's requests; it estimates an average rate. `limit` in `window` is told to it as
/// `limit / window` requests a second, and whoever passes that stays in the penalty box, denied, for `penalty`: each
/// denied request that still passes the rate starts the penalty anew. So a client that keeps hammering stays out.
///
/// # Errors
/// [`Unsupported`](tidegate_core::ErrorKind::Unsupported) for a policy that is not the one it was made with;
/// [`Unavailable`](tidegate_core::ErrorKind::Unavailable) where the platform does not answer.
#[derive(Clone)]
pub struct Erl<R> {
    rates: R,
    per_second: u32,
    window: Window,
    penalty: Duration,
    quota: Quota,
}

impl<R: Rates> Erl<R> {
    /// The least rate the platform is meant for, in requests a second.
    pub const PER_SECOND_MIN: u64 = 10;

    /// The greatest rate it takes.
    pub const PER_SECOND_MAX: u64 = 70_000_000;

    /// The shortest penalty. The platform rounds what is left of one up to whole minutes, so it may last a minute more.
    pub const PENALTY_MIN: Millis = Millis::from_secs(60);

    /// The longest penalty.
    pub const PENALTY_MAX: Millis = Millis::from_secs(3_600);

    /// A store that admits `limit` requests in `window` and denies who passes that for `penalty`.
    ///
    /// # Errors
    /// [`Invalid`](tidegate_core::ErrorKind::Invalid), with what to write instead, for a window other than 1, 10 and 60
    /// s, a limit that is no whole number of requests a second from [`PER_SECOND_MIN`](Self::PER_SECOND_MIN) to
    /// [`PER_SECOND_MAX`](Self::PER_SECOND_MAX), and a penalty other than whole minutes up to an hour.
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
            // In range, as was seen above.
            per_second: u32::try_from(per_second).unwrap_or(u32::MAX),
            window: averaged,
            penalty: Duration::from_millis(penalty.get()),
            quota: Quota::sliding_window(limit, window)?,
        })
    }

    /// The one quota that a policy to check must have.
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

    /// One call, under the core's storage key, so that policies of one shape and different names do not share counts.
    async fn limit(&self, check: Check<'_>) -> Result<bool, Error> {
        if !matches!(check.policy.quotas(), [quota] if quota.rule() == self.quota.rule()) {
            return Err(error::another_policy(&self.quota));
        }
        let entry = check.key.storage_key(check.policy);
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

    /// Its length.
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
