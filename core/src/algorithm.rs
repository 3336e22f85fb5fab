//! The algorithms, one a file: each a pure function of its state, an instant and a cost.

mod fixed_window;
mod sliding_log;
mod sliding_window;
mod token_bucket;

mod leaky_bucket;

use alloc::format;

pub use fixed_window::{FixedWindow, WindowState};
pub use leaky_bucket::LeakyBucket;
pub use sliding_log::{LogEntry, LogState, SlidingLog};
pub use sliding_window::{SlidingState, SlidingWindow};
pub use token_bucket::{BucketState, TokenBucket};

use crate::{Error, Millis, UnixMillis};

/// The largest product a quota may form: limit x window, or capacity x period.
///
/// 2^51, so that a sum of four such products is still a whole number in the doubles that Lua and JavaScript compute
/// with (below 2^53).
///
/// ```
/// use tidegate_core::algorithm::{FixedWindow, MAX_UNITS};
/// use tidegate_core::Millis;
/// assert!(FixedWindow::new(MAX_UNITS / 1_000, Millis::new(1_000)).is_ok());
/// assert!(FixedWindow::new(MAX_UNITS / 1_000 + 1, Millis::new(1_000)).is_err());
/// ```
pub const MAX_UNITS: u64 = 1 << 51;

/// What an algorithm says of one request.
///
/// ```
/// use tidegate_core::algorithm::{Algorithm, SlidingLog, Step};
/// use tidegate_core::{Millis, UnixMillis};
/// # fn main() -> Result<(), tidegate_core::Error> {
/// let log = SlidingLog::new(3, Millis::from_secs(1))?;
/// assert_eq!(log.ask(&Default::default(), UnixMillis::new(0), 3), Step::Admitted { delay: Millis::ZERO });
/// assert_eq!(log.ask(&Default::default(), UnixMillis::new(0), 4), Step::Never);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// It fits.
    Admitted {
        /// How long to hold it before forwarding: zero but for a shaper.
        delay: Millis,
    },
    /// It does not fit now.
    Denied {
        /// Denied at every instant before this has passed, admitted exactly then, if nothing else arrives.
        retry_after: Millis,
    },
    /// It costs more than the quota can ever hold.
    Never,
}

/// A rate limiting algorithm: integer arithmetic on a small state.
///
/// All of them treat an instant earlier than their state as the state's own instant: a clock that steps back gives
/// nothing away, and waits are counted from the caller's clock.
///
/// ```
/// use tidegate_core::algorithm::{Algorithm, FixedWindow, Step};
/// use tidegate_core::{Millis, UnixMillis};
/// # fn main() -> Result<(), tidegate_core::Error> {
/// let window = FixedWindow::new(1, Millis::new(1_000))?;
/// let (mut state, now) = (Default::default(), UnixMillis::new(250));
/// assert_eq!(window.step(&mut state, now, 1), Step::Admitted { delay: Millis::ZERO });
/// assert_eq!(window.step(&mut state, now, 1), Step::Denied { retry_after: Millis::new(750) });
/// # Ok(())
/// # }
/// ```
pub trait Algorithm {
    /// What is kept between requests; its default is a quota of which nothing is used.
    type State: Clone + Default + PartialEq + core::fmt::Debug;

    /// The most that is admitted at once.
    fn limit(&self) -> u64;

    /// The most units that are admitted from `first` to `last`, both included, whatever came before: what each
    /// algorithm's documentation says under **At most**.
    ///
    /// ```
    /// use tidegate_core::algorithm::{Algorithm, SlidingLog, TokenBucket};
    /// use tidegate_core::{Millis, UnixMillis};
    /// # fn main() -> Result<(), tidegate_core::Error> {
    /// let (first, last) = (UnixMillis::new(0), UnixMillis::new(59_999));
    /// let bucket = TokenBucket::new(10, 1, Millis::from_secs(1))?;
    /// assert_eq!(bucket.maximum(first, last), 10 + 59);
    /// let log = SlidingLog::new(10, Millis::from_secs(60))?;
    /// assert_eq!(log.maximum(first, last), 10);
    /// assert_eq!(log.maximum(first, last + Millis::new(1)), 20);
    /// # Ok(())
    /// # }
    /// ```
    fn maximum(&self, first: UnixMillis, last: UnixMillis) -> u64;

    /// Whether `cost` fits at `now`. Changes nothing.
    fn ask(&self, state: &Self::State, now: UnixMillis, cost: u64) -> Step;

    /// Counts `cost` at `now`, up to the limit.
    fn charge(&self, state: &mut Self::State, now: UnixMillis, cost: u64);

    /// Gives back `cost` that was charged at `charged_at`: what time has not given back yet, and never below unused.
    fn refund(&self, state: &mut Self::State, charged_at: UnixMillis, now: UnixMillis, cost: u64);

    /// How the quota stands at `now`.
    fn standing(&self, state: &Self::State, now: UnixMillis) -> Standing;

    /// Asks, and charges what fits.
    fn step(&self, state: &mut Self::State, now: UnixMillis, cost: u64) -> Step {
        let step = self.ask(state, now, cost);
        if matches!(step, Step::Admitted { .. }) {
            self.charge(state, now, cost);
        }
        step
    }
}

/// How a quota stands, before anything is rounded: the room left and what is used, each as a whole number of units.
///
/// ```
/// use tidegate_core::algorithm::{Algorithm, TokenBucket};
/// use tidegate_core::{Millis, UnixMillis};
/// # fn main() -> Result<(), tidegate_core::Error> {
/// let bucket = TokenBucket::new(10, 3, Millis::from_secs(1))?;
/// let mut state = Default::default();
/// bucket.charge(&mut state, UnixMillis::new(0), 1);
/// // A fifth of a second later 0.6 of it is there again: 9.6 tokens.
/// let standing = bucket.standing(&state, UnixMillis::new(200));
/// assert_eq!((standing.room, standing.unit), (9_600, 1_000));
/// assert_eq!(standing.remaining(), 9);
/// assert_eq!(standing.reset_after(), Millis::new(134));
/// # Ok(())
/// # }
/// ```
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Standing {
    /// The most that is admitted at once.
    pub limit: u64,
    /// What is left, in units of which a request of cost 1 takes [`Standing::unit`].
    pub room: u64,
    /// The units that a request of cost 1 takes.
    pub unit: u64,
    /// What time has to give back until the quota is unused.
    pub used: u64,
    /// What time gives back each millisecond.
    pub drain: u64,
    /// How far the caller's clock lies before the state's: time gives nothing back until then.
    pub lag: Millis,
}

impl Standing {
    /// How many more requests of cost 1 fit now.
    #[must_use]
    pub const fn remaining(&self) -> u64 {
        self.room / self.unit
    }

    /// How long until the quota is wholly unused, rounded up to the millisecond.
    #[must_use]
    pub fn reset_after(&self) -> Millis {
        if self.used == 0 { Millis::ZERO } else { self.lag + Millis::new(self.used.div_ceil(self.drain)) }
    }
}

/// Checks that `amount` x `span` stays within [`MAX_UNITS`]; the names are those of the policy's fields.
fn checked(amount_name: &str, amount: u64, span_name: &str, span: Millis) -> Result<(), Error> {
    if span.get() == 0 || span.get() > MAX_UNITS {
        return Err(Error::invalid(format!(
            "{span_name}: {} is out of range; write a whole number of milliseconds from 1 to {MAX_UNITS}",
            span.get()
        )));
    }
    let most = MAX_UNITS / span.get();
    if amount == 0 || amount > most {
        return Err(Error::invalid(format!(
            "{amount_name}: {amount} is out of range; write a whole number from 1 to {most}"
        )));
    }
    Ok(())
}
