//! The only two time types: a span and an instant, both whole milliseconds.

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
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// A span of `ms` milliseconds.
    #[must_use]
    pub const fn new(ms: u64) -> Self {
        Self(ms)
    }

    /// A span of `secs` seconds; saturates.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000))
    }

    /// The number of milliseconds.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Whole seconds, rounded up: what `Retry-After` takes.
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

/// An instant: milliseconds since the Unix epoch.
///
/// Never later than [`UnixMillis::MAX`], so that every sum a store's script makes with it stays an exact integer
/// in a double. Later instants saturate to it.
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
    /// The last instant: 2^48 - 1 ms, in the year 10889.
    pub const MAX: Self = Self((1 << 48) - 1);

    /// The instant `ms` milliseconds after the epoch, or [`UnixMillis::MAX`] where that is earlier.
    #[must_use]
    pub const fn new(ms: u64) -> Self {
        if ms > Self::MAX.0 { Self::MAX } else { Self(ms) }
    }

    /// Milliseconds since the epoch.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to this instant; zero where `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }

    /// Whole seconds since the epoch, rounded up: what `X-RateLimit-Reset` takes.
    #[must_use]
    pub const fn as_secs_ceil(self) -> u64 {
        self.0.div_ceil(1_000)
    }
}

impl Add<Millis> for UnixMillis {
    type Output = Self;

    /// Saturates at [`UnixMillis::MAX`].
    fn add(self, span: Millis) -> Self {
        Self(self.0 + span.0.min(Self::MAX.0 - self.0))
    }
}

impl fmt::Display for UnixMillis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms since the epoch", self.0)
    }
}
