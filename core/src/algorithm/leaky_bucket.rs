use crate::algorithm::{Algorithm, BucketState, Inspect, Standing, Step, TokenBucket};
use crate::{Error, Millis, UnixMillis};

/// Leaky bucket as a shaper: a queue of up to `capacity` requests that forwards `refill` of them in each `per`, evenly spaced.
///
/// It counts like a [`TokenBucket`]. It also returns how long to delay each admitted request, so that a burst is forwarded
/// evenly: `delay = ceil(level / refill)` milliseconds, with the level before this request.
///
/// **At most**: admits `capacity + floor(interval_ms * refill / per_ms)` in any interval, and forwards
/// `floor(interval_ms * refill / per_ms) + 1` requests of cost 1. (Turner 1986; <https://en.wikipedia.org/wiki/Leaky_bucket>, "as a queue".)
///
/// **Debt**: drains as that of a [`TokenBucket`].
///
/// ```
/// use tidegate_core::algorithm::{Algorithm, LeakyBucket, Step};
/// use tidegate_core::{Millis, UnixMillis};
/// # fn main() -> Result<(), tidegate_core::Error> {
/// let shaper = LeakyBucket::new(3, 10, Millis::from_secs(1))?;
/// let (mut state, now) = (Default::default(), UnixMillis::new(0));
/// let mut arrive = || shaper.step(&mut state, now, 1);
/// assert_eq!(arrive(), Step::Admitted { delay: Millis::new(0) });
/// assert_eq!(arrive(), Step::Admitted { delay: Millis::new(100) });
/// assert_eq!(arrive(), Step::Admitted { delay: Millis::new(200) });
/// assert_eq!(arrive(), Step::Denied { retry_after: Millis::new(100) });
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeakyBucket(TokenBucket);

impl LeakyBucket {
    /// Queues up to `capacity` requests and forwards `refill` of them in each `per`.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for a zero, or a capacity x per above [`MAX_UNITS`](crate::algorithm::MAX_UNITS).
    pub fn new(capacity: u64, refill: u64, per: Millis) -> Result<Self, Error> {
        TokenBucket::new(capacity, refill, per).map(Self)
    }

    /// The bucket that counts the queued requests.
    #[must_use]
    pub const fn bucket(&self) -> &TokenBucket {
        &self.0
    }
}

impl Algorithm for LeakyBucket {
    type State = BucketState;

    fn limit(&self) -> u64 {
        self.0.limit()
    }

    fn maximum(&self, first: UnixMillis, last: UnixMillis) -> u64 {
        self.0.maximum(first, last)
    }

    fn ask(&self, state: &BucketState, now: UnixMillis, cost: u64) -> Step {
        match self.0.ask(state, now, cost) {
            Step::Admitted { .. } => Step::Admitted { delay: self.standing(state, now).reset_after() },
            other => other,
        }
    }

    fn charge(&self, state: &mut BucketState, now: UnixMillis, cost: u64) {
        self.0.charge(state, now, cost);
    }

    fn refund(&self, state: &mut BucketState, charged_at: UnixMillis, now: UnixMillis, cost: u64) {
        self.0.refund(state, charged_at, now, cost);
    }

    fn overdraw(&self, state: &mut BucketState, now: UnixMillis, cost: u64) {
        self.0.overdraw(state, now, cost);
    }

    fn move_back(&self, state: &mut BucketState, now: UnixMillis) {
        self.0.move_back(state, now);
    }
}

impl Inspect for LeakyBucket {
    fn standing(&self, state: &BucketState, now: UnixMillis) -> Standing {
        self.0.standing(state, now)
    }
}
