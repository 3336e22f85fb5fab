//! The time types: a span and an instant, both in whole milliseconds.

use core::fmt;
use core::ops::Add;

/// A span of time in whole milliseconds.
///
/// ```
/// use tidegate_core::Millis;
/// assert_eq!(Millis::from_secs(60).get(), 60_000);
/// assert_eq!(Millis::new(1_001).as_secs_ceil(), 2);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(u64);

impl Millis {
    /// A span of zero.
    pub const ZERO: Self = Self(0);

    /// A span of `ms` milliseconds.
    #[must_use]
    pub const fn new(ms: u64) -> Self {
        Self(ms)
    }

    /// A span of `secs` seconds. Saturates.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000))
    }

    /// The number of milliseconds.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Whole seconds, rounded up, as in `Retry-After`.
    #[must_use]
    pub const fn as_secs_ceil(self) -> u64 {
        self.0.div_ceil(1_000)
    }
}

impl Add for Millis {
    type Output = Self;

    /// Saturates.
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}

/// How far the clocks of two hosts may differ before one of them counts as wrong: one minute.
///
/// A state may lie ahead of a request's clock, because the request comes from a host whose clock is behind. Within this
/// bound the request waits for its clock to catch up, so that no clock admits more. A state that lies further
/// ahead was written by a wrong clock, and the next decision moves it back to this bound. So a wrong clock locks a key,
/// or keeps its state, for at most one minute longer than the policy itself does.
///
/// The bound is the same for all hosts and stores, because a key has one state, which they all must interpret the same
/// way.
///
/// ```
/// use tidegate_core::{MAX_CLOCK_SKEW, Millis, Policy, Quota, UnixMillis};
/// # fn main() -> Result<(), tidegate_core::Error> {
/// let window = Millis::from_secs(10);
/// let policy = Policy::new("api", [Quota::fixed_window(1, window)?])?;
/// let (mut state, now) = (policy.initial_state(), UnixMillis::new(1_800_000_000_000));
/// // A host whose clock is a year ahead uses up the limit.
/// assert!(policy.decide(&mut state, now + Millis::from_secs(365 * 86_400), 1).is_allowed());
/// let wait = policy.decide(&mut state, now, 1).retry_after().unwrap();
/// assert!(wait <= MAX_CLOCK_SKEW + window);
/// assert!(policy.decide(&mut state, now + wait, 1).is_allowed());
/// # Ok(())
/// # }
/// ```
pub const MAX_CLOCK_SKEW: Millis = Millis::from_secs(60);

/// An instant: milliseconds since the Unix epoch.
///
/// An instant is at most [`UnixMillis::MAX`], so that sums in a store's script are exact integers in a double. Later
/// instants saturate.
///
/// ```
/// use tidegate_core::{Millis, UnixMillis};
/// let start = UnixMillis::new(1_800_000_000_000);
/// let later = start + Millis::new(250);
/// assert_eq!(later.since(start), Millis::new(250));
/// assert_eq!(start.since(later), Millis::ZERO);
/// assert_eq!(UnixMillis::new(u64::MAX), UnixMillis::MAX);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixMillis(u64);

impl UnixMillis {
    /// The time of the system's clock. 1970 if it is before that.
    ///
    /// ```
    /// use tidegate_core::UnixMillis;
    /// assert!(UnixMillis::now() > UnixMillis::new(1_700_000_000_000));
    /// ```
    ///
    /// Not on `wasm32-unknown-unknown`, which has no clock of its own.
    #[cfg(all(feature = "std", not(all(target_arch = "wasm32", target_os = "unknown"))))]
    #[must_use]
    pub fn now() -> Self {
        let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
    }

    /// The last instant: 2^48 - 1 ms, in the year 10889.
    ///
    /// ```
    /// assert_eq!(tidegate_core::UnixMillis::MAX.get(), 281_474_976_710_655);
    /// ```
    pub const MAX: Self = Self((1 << 48) - 1);

    /// The instant `ms` milliseconds after the epoch, or [`UnixMillis::MAX`] if that is earlier.
    #[must_use]
    pub const fn new(ms: u64) -> Self {
        if ms > Self::MAX.0 { Self::MAX } else { Self(ms) }
    }

    /// Milliseconds since the epoch.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to this instant, or zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }

    /// Whole seconds since the epoch, rounded up, as in `X-RateLimit-Reset`.
    #[must_use]
    pub const fn as_secs_ceil(self) -> u64 {
        self.0.div_ceil(1_000)
    }
}

impl Add<Millis> for UnixMillis {
    type Output = Self;

    /// Saturates at [`UnixMillis::MAX`].
    #[inline]
    fn add(self, span: Millis) -> Self {
        Self(self.0 + span.0.min(Self::MAX.0 - self.0))
    }
}

impl fmt::Display for UnixMillis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms since the epoch", self.0)
    }
}
