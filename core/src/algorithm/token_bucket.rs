use crate::algorithm::{Algorithm, Inspect, MAX_UNITS, Standing, Step, checked};
use crate::{Error, MAX_CLOCK_SKEW, Millis, UnixMillis};

/// Token bucket: admits bursts of up to `capacity`, and refills `refill` tokens in each `per`, evenly.
///
/// The state is the *used* level in units of (milliseconds x tokens), so that no fraction is lost. At `now`,
///
/// `level = max(0, level - elapsed_ms * refill)`, and a cost fits if `level + cost * per_ms <= capacity * per_ms`.
///
/// **At most**: `capacity + floor(interval_ms * refill / per_ms)` in any interval.
///
/// **Debt**: drains like every charge, at `refill` in each `per`. So over-admission does not accumulate: all that is charged in
/// an interval, with what is overdrawn, is at most the maximum above plus the debt at the interval's end.
///
/// GCRA (the generic cell rate algorithm, ITU-T I.371) is equivalent: its theoretical arrival time is
/// `at + level / refill`, and its tolerance is the capacity. So is the leaky bucket *as a meter* (Turner 1986; <https://en.wikipedia.org/wiki/Generic_cell_rate_algorithm>).
///
/// ```
/// use tidegate_core::algorithm::{Algorithm, Step, TokenBucket};
/// use tidegate_core::{Millis, UnixMillis};
/// # fn main() -> Result<(), tidegate_core::Error> {
/// let bucket = TokenBucket::new(10, 3, Millis::from_secs(1))?;
/// let (mut state, now) = (Default::default(), UnixMillis::new(0));
/// bucket.step(&mut state, now, 10);
/// // A third of a second is 333 1/3 ms: the request is denied at 333 and admitted at 334.
/// assert_eq!(bucket.ask(&state, now, 1), Step::Denied { retry_after: Millis::new(334) });
/// // And three of them are exactly one second.
/// assert_eq!(bucket.ask(&state, now, 3), Step::Denied { retry_after: Millis::new(1_000) });
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TokenBucket {
    capacity: u64,
    refill: u64,
    per_ms: u64,
}

/// The state of a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BucketState {
    /// The used level, in milliseconds x tokens.
    pub level: u64,
    /// The instant of that level.
    pub at: UnixMillis,
}

impl TokenBucket {
    /// The longest debt: what [`Algorithm::overdraw`] charges beyond a year of the refill is forgiven. Windows forgive a debt earlier.
    pub const MAX_DEBT: Millis = Millis::from_secs(365 * 86_400);

    /// Creates a bucket of `capacity` tokens that refills `refill` tokens in each `per`.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for a zero, or a capacity x per above [`MAX_UNITS`](crate::algorithm::MAX_UNITS) when
    /// refill and per are divided by their greatest common divisor: a hundred billion in 30 days is 3,125 in 81 ms.
    pub fn new(capacity: u64, refill: u64, per: Millis) -> Result<Self, Error> {
        checked("refill", refill, "a millisecond", Millis::new(1))?;
        let whole = Self { capacity, refill, per_ms: per.get() };
        // Only if the numbers as they are written are too large: a stored level is in their units.
        if capacity.checked_mul(per.get()).is_none_or(|product| product > MAX_UNITS)
            && let Some(divisor) = divisor(refill, per.get())
            && checked("capacity", capacity, "per_ms", Millis::new(per.get() / divisor)).is_ok()
        {
            return Ok(Self { refill: refill / divisor, per_ms: per.get() / divisor, ..whole });
        }
        checked("capacity", capacity, "per_ms", per)?;
        Ok(whole)
    }

    /// The number of tokens in a full bucket.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The number of tokens refilled in each [`TokenBucket::per`]. Both may be divided by a common divisor.
    #[must_use]
    pub const fn refill(&self) -> u64 {
        self.refill
    }

    /// The time in which [`TokenBucket::refill`] tokens are refilled.
    #[must_use]
    pub const fn per(&self) -> Millis {
        Millis::new(self.per_ms)
    }

    /// The level at `now`, and how far the state is ahead of `now`.
    #[inline]
    fn level(&self, state: &BucketState, now: UnixMillis) -> (u64, Millis) {
        let drained = now.since(state.at).get().saturating_mul(self.refill);
        (state.level.saturating_sub(drained), state.at.since(now))
    }

    fn full(&self) -> u64 {
        self.capacity * self.per_ms
    }

    /// Whether a cost fits at a level.
    #[inline]
    fn ask_at(&self, (level, lag): (u64, Millis), cost: u64) -> Step {
        if cost > self.capacity {
            return Step::Never;
        }
        match (level + cost * self.per_ms).checked_sub(self.full()) {
            None | Some(0) => Step::Admitted { delay: Millis::ZERO },
            Some(excess) => Step::Denied { retry_after: lag + Millis::new(excess.div_ceil(self.refill)) },
        }
    }

    /// The step, and the level after it.
    #[inline]
    fn step_to(&self, state: &mut BucketState, now: UnixMillis, cost: u64) -> (Step, (u64, Millis)) {
        let (mut level, lag) = self.level(state, now);
        let step = self.ask_at((level, lag), cost);
        if let Step::Admitted { .. } = step {
            // What fits is not cut off.
            level += cost * self.per_ms;
            *state = BucketState { level, at: now.max(state.at) };
        }
        (step, (level, lag))
    }

    #[inline]
    fn standing_at(&self, (level, lag): (u64, Millis)) -> Standing {
        Standing {
            limit: self.capacity,
            room: self.full().saturating_sub(level),
            unit: self.per_ms,
            used: level,
            drain: self.refill,
            lag,
        }
    }
}

/// The greatest common divisor, if it is more than 1.
const fn divisor(mut one: u64, mut other: u64) -> Option<u64> {
    while other > 0 {
        (one, other) = (other, one % other);
    }
    if one > 1 { Some(one) } else { None }
}

impl Algorithm for TokenBucket {
    type State = BucketState;

    fn limit(&self) -> u64 {
        self.capacity
    }

    fn maximum(&self, first: UnixMillis, last: UnixMillis) -> u64 {
        let refilled = u128::from(last.since(first).get()) * u128::from(self.refill) / u128::from(self.per_ms);
        u64::try_from(refilled).unwrap_or(u64::MAX).saturating_add(self.capacity)
    }

    #[inline]
    fn ask(&self, state: &BucketState, now: UnixMillis, cost: u64) -> Step {
        self.ask_at(self.level(state, now), cost)
    }

    #[inline]
    fn charge(&self, state: &mut BucketState, now: UnixMillis, cost: u64) {
        let (level, _) = self.level(state, now);
        let charged = level.saturating_add(cost.saturating_mul(self.per_ms)).min(self.full());
        *state = BucketState { level: charged.max(level), at: now.max(state.at) };
    }

    fn refund(&self, state: &mut BucketState, charged_at: UnixMillis, now: UnixMillis, cost: u64) {
        let (level, lag) = self.level(state, now);
        let at = now + lag;
        // The level that drained since then may have been this charge. Only the rest is certain to be still in the
        // bucket.
        let drained = at.since(charged_at).get().saturating_mul(self.refill);
        let due = cost.saturating_mul(self.per_ms).saturating_sub(drained);
        *state = BucketState { level: level.saturating_sub(due), at };
    }

    fn overdraw(&self, state: &mut BucketState, now: UnixMillis, cost: u64) {
        let (level, _) = self.level(state, now);
        let most = MAX_UNITS.min(self.full().saturating_add(Self::MAX_DEBT.get().saturating_mul(self.refill)));
        let charged = level.saturating_add(cost.saturating_mul(self.per_ms)).min(most);
        *state = BucketState { level: charged.max(level), at: now.max(state.at) };
    }

    #[inline]
    fn move_back(&self, state: &mut BucketState, now: UnixMillis) {
        if state.at.since(now) > MAX_CLOCK_SKEW {
            state.at = now + MAX_CLOCK_SKEW;
        }
    }

    #[inline]
    fn step(&self, state: &mut BucketState, now: UnixMillis, cost: u64) -> Step {
        self.step_to(state, now, cost).0
    }
}

impl Inspect for TokenBucket {
    #[inline]
    fn standing(&self, state: &BucketState, now: UnixMillis) -> Standing {
        self.standing_at(self.level(state, now))
    }

    /// The level is computed once.
    #[inline]
    fn step_alone(&self, state: &mut BucketState, now: UnixMillis, cost: u64) -> (Step, Standing) {
        self.move_back(state, now);
        let (step, level) = self.step_to(state, now, cost);
        (step, self.standing_at(level))
    }
}
