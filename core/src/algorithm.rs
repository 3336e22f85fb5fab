//! The algorithms. Each is a pure function of its state, an instant and a cost.

mod balance;
mod calendar_window;
mod concurrency;
mod fixed_window;
mod sliding_log;
mod sliding_window;
mod token_bucket;

mod leaky_bucket;
mod penalty;

use alloc::format;

pub use balance::{Balance, BalanceState, GrantRefusal, Lot};
pub use calendar_window::{CalendarState, CalendarWindow};
pub use concurrency::Concurrency;
pub use fixed_window::{FixedWindow, WindowState};
pub use leaky_bucket::LeakyBucket;
pub use penalty::{Penalty, PenaltyState};
pub use sliding_log::{LogEntry, SlidingLog};
pub use sliding_window::{SlidingState, SlidingWindow};
pub use token_bucket::{BucketState, TokenBucket};

use crate::{Error, Millis, UnixMillis};

/// The largest number that a quota computes with: the limit of a window, and the product of capacity and period of a bucket.
///
/// It is 2^51, so that a sum of four such numbers is an exact integer in the doubles of Lua and JavaScript (below 2^53).
///
/// ```
/// use tidegate_core::algorithm::{MAX_UNITS, SlidingWindow, TokenBucket};
/// use tidegate_core::Millis;
/// assert!(SlidingWindow::new(MAX_UNITS, Millis::new(1_000)).is_ok());
/// assert!(TokenBucket::new(MAX_UNITS / 1_000, 1, Millis::new(1_000)).is_ok());
/// assert!(TokenBucket::new(MAX_UNITS / 1_000 + 1, 1, Millis::new(1_000)).is_err());
/// ```
pub const MAX_UNITS: u64 = 1 << 51;

/// An algorithm's answer to one request.
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
    /// The request fits.
    Admitted {
        /// How long to delay the request before forwarding it. Zero unless the algorithm shapes traffic.
        delay: Millis,
    },
    /// The request does not fit now.
    Denied {
        /// If nothing else arrives, the request is denied until this time has passed, and admitted exactly then.
        retry_after: Millis,
    },
    /// The request does not fit until another one ends, and nobody knows when that is.
    Busy,
    /// The request costs more than the quota can ever admit.
    Never,
}

/// A rate-limiting algorithm: integer arithmetic on a small state.
///
/// An algorithm treats an instant before its state as the instant of the state. So a clock that steps back admits nothing
/// more. Waits are relative to the caller's clock. [`Policy::decide`](crate::Policy::decide) bounds how far
/// a state may lie ahead; see [`MAX_CLOCK_SKEW`](crate::MAX_CLOCK_SKEW).
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
    /// The state between requests. Its default is an unused quota.
    type State: Clone + Default + PartialEq + core::fmt::Debug;

    /// The largest number of units that can be admitted at once.
    fn limit(&self) -> u64;

    /// The largest number of units that can be admitted from `first` to `last`, both inclusive, after any history. Each
    /// algorithm documents the formula under **At most**.
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

    /// Whether `cost` fits at `now`. This does not change the state.
    fn ask(&self, state: &Self::State, now: UnixMillis, cost: u64) -> Step;

    /// Charges `cost` at `now`, up to the limit.
    fn charge(&self, state: &mut Self::State, now: UnixMillis, cost: u64);

    /// Returns `cost` that was charged at `charged_at`, less what time has replenished since. The state never falls below
    /// unused.
    fn refund(&self, state: &mut Self::State, charged_at: UnixMillis, now: UnixMillis, cost: u64);

    /// Charges `cost` at `now`, also beyond the limit. What lies beyond it is a debt: everything is denied until time has
    /// repaid it. Each algorithm documents how long that takes under **Debt**.
    fn overdraw(&self, state: &mut Self::State, now: UnixMillis, cost: u64);

    /// Moves a state that lies more than [`MAX_CLOCK_SKEW`](crate::MAX_CLOCK_SKEW) after `now` back to there, and keeps what
    /// was used.
    fn move_back(&self, state: &mut Self::State, now: UnixMillis);

    /// Charges the request if it fits.
    fn step(&self, state: &mut Self::State, now: UnixMillis, cost: u64) -> Step {
        let step = self.ask(state, now, cost);
        if matches!(step, Step::Admitted { .. }) {
            self.charge(state, now, cost);
        }
        step
    }
}

/// An algorithm whose usage a decision reports.
pub(crate) trait Inspect: Algorithm {
    /// The remaining room of the quota at `now`.
    fn standing(&self, state: &Self::State, now: UnixMillis) -> Standing;

    /// The step of the only rule of a policy, and what is left. Most policies have one rule, and this path is optimized for them.
    #[inline]
    fn step_alone(&self, state: &mut Self::State, now: UnixMillis, cost: u64) -> (Step, Standing) {
        self.move_back(state, now);
        let step = self.step(state, now, cost);
        (step, self.standing(state, now))
    }
}

/// The remaining room and the usage of a quota, in whole units, before rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Standing {
    /// The largest number of units that can be admitted at once.
    pub(crate) limit: u64,
    /// The room left. A request of cost 1 takes [`Standing::unit`] of it.
    pub(crate) room: u64,
    /// The room that a request of cost 1 takes.
    pub(crate) unit: u64,
    /// The room that time has to replenish until the quota is unused.
    pub(crate) used: u64,
    /// The room that time replenishes in each millisecond. 0 if time alone replenishes nothing.
    pub(crate) drain: u64,
    /// How far the state is ahead of the caller's clock. Time replenishes nothing until the clock has caught up.
    pub(crate) lag: Millis,
}

impl Standing {
    /// The time until the quota is unused, rounded up to the millisecond.
    #[must_use]
    pub(crate) fn reset_after(&self) -> Millis {
        if self.used == 0 { Millis::ZERO } else { self.lag + Millis::new(self.used.div_ceil(self.drain)) }
    }
}

/// Checks that `amount` x `span` is at most [`MAX_UNITS`]. The names are those of the policy's fields.
fn checked(amount_name: &str, amount: u64, span_name: &str, span: Millis) -> Result<(), Error> {
    checked_span(span_name, span)?;
    let most = MAX_UNITS / span.get();
    if amount > most && amount <= MAX_UNITS {
        let (longest, each) = (MAX_UNITS / amount, amount.div_ceil(most));
        return Err(Error::invalid(format!(
            "{amount_name}: {amount} is out of range; write a whole number from 1 to {most}, or a {span_name} of at most \
             {longest}, or count in units of {each}"
        )));
    }
    checked_amount(amount_name, amount, most)
}

/// Checks that each is at most [`MAX_UNITS`], for a quota that does not compute their product.
fn checked_alone(amount_name: &str, amount: u64, span_name: &str, span: Millis) -> Result<(), Error> {
    checked_span(span_name, span)?;
    checked_amount(amount_name, amount, MAX_UNITS)
}

fn checked_span(name: &str, span: Millis) -> Result<(), Error> {
    let span = span.get();
    if span == 0 || span > MAX_UNITS {
        return Err(Error::invalid(format!(
            "{name}: {span} is out of range; write a whole number of milliseconds from 1 to {MAX_UNITS}"
        )));
    }
    Ok(())
}

fn checked_amount(name: &str, amount: u64, most: u64) -> Result<(), Error> {
    if amount == 0 || amount > most {
        return Err(Error::invalid(format!("{name}: {amount} is out of range; write a whole number from 1 to {most}")));
    }
    Ok(())
}
