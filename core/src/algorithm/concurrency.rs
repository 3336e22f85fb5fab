use alloc::format;
use alloc::vec::Vec;

use crate::algorithm::{Algorithm, Inspect, MAX_UNITS, Standing, Step, checked};
use crate::{Charge, ChargeId, Error, MAX_CLOCK_SKEW, Millis, UnixMillis};

/// Concurrency limit: at most `limit` requests are in flight at once.
///
/// A request takes a slot when it is admitted, whatever it costs, and gives it back when it is
/// [settled](crate::LimiterExt::settle). A slot that is not given back, because its holder died, is free after `lifetime`. So
/// `lifetime` should be longer than the longest request: a request that takes longer no longer counts.
///
/// A slot belongs to one [charge](ChargeId). Giving back a slot that has expired frees no other request's slot.
///
/// A denial is [`Step::Busy`]. It has no wait, because nobody knows when a request ends. The state grows with the limit, by 24
/// bytes for each slot, so the limit may be at most [`Concurrency::MAX_LIMIT`].
///
/// **At most**: any number of requests in an interval, but no more than `limit` at any instant, counting each until it is
/// settled or `lifetime` has passed.
///
/// ```
/// use tidegate_core::algorithm::{Algorithm, Concurrency, Step};
/// use tidegate_core::{ChargeId, Millis, UnixMillis};
/// # fn main() -> Result<(), tidegate_core::Error> {
/// let two = Concurrency::new(2, Millis::from_secs(30))?;
/// let (mut state, now) = (Default::default(), UnixMillis::new(0));
/// two.take(&mut state, ChargeId::of("request-1"), now, 1);
/// two.take(&mut state, ChargeId::of("request-2"), now, 1);
/// assert_eq!(two.ask(&state, now, 1), Step::Busy);
/// assert!(two.release(&mut state, ChargeId::of("request-1"), now).is_some());
/// assert_eq!(two.ask(&state, now, 1), Step::Admitted { delay: Millis::ZERO });
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Concurrency {
    limit: u64,
    lifetime_ms: u64,
    returns_cost: bool,
}

impl Concurrency {
    /// The largest limit: the state is as long as the limit.
    pub const MAX_LIMIT: u64 = 1_000;

    /// Admits `limit` requests at once. A slot that is not given back is free after `lifetime`.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for a zero, a limit above [`Concurrency::MAX_LIMIT`], or a limit x lifetime above
    /// [`MAX_UNITS`](crate::algorithm::MAX_UNITS).
    pub fn new(limit: u64, lifetime: Millis) -> Result<Self, Error> {
        checked("limit", limit, "lifetime_ms", lifetime)?;
        if limit > Self::MAX_LIMIT {
            return Err(Error::invalid(format!(
                "limit: {limit} is out of range for a concurrency limit, which remembers every holder; write at most {}",
                Self::MAX_LIMIT
            )));
        }
        Ok(Self { limit, lifetime_ms: lifetime.get(), returns_cost: false })
    }

    /// Sets whether the cost of a request whose slot expires is returned to the policy's other quotas. Otherwise, it stays
    /// charged. Only for a policy of one dimension, because a slot does not remember the other keys.
    #[must_use]
    pub const fn returns_cost(mut self, yes: bool) -> Self {
        self.returns_cost = yes;
        self
    }

    /// How long a slot is held at most.
    #[must_use]
    pub const fn lifetime(&self) -> Millis {
        Millis::new(self.lifetime_ms)
    }

    /// Whether the cost of a request whose slot expires is returned.
    #[must_use]
    pub const fn returns(&self) -> bool {
        self.returns_cost
    }

    /// Takes a slot for a request of `cost`. A request of cost 0 takes none.
    pub fn take(&self, state: &mut Vec<Charge>, id: ChargeId, now: UnixMillis, cost: u64) {
        if cost == 0 {
            return;
        }
        let at = Self::instant(state, now);
        self.expire(state, now);
        // Without another quota, any cost is admitted.
        state.push(Charge { id, at, cost: cost.min(MAX_UNITS) });
    }

    /// Gives back the slot of a charge, and returns it. `None` if it has expired.
    pub fn release(&self, state: &mut Vec<Charge>, id: ChargeId, now: UnixMillis) -> Option<Charge> {
        let expired = self.expired(state, now).len();
        let place = state.iter().skip(expired).position(|slot| slot.id == id)?;
        Some(state.remove(expired + place))
    }

    /// The slots whose lifetime is over.
    pub(crate) fn expired<'a>(&self, state: &'a [Charge], now: UnixMillis) -> &'a [Charge] {
        let instant = Self::instant(state, now);
        let live = state.partition_point(|slot| instant.since(slot.at) >= self.lifetime());
        &state[..live]
    }

    pub(crate) fn expire(&self, state: &mut Vec<Charge>, now: UnixMillis) {
        state.drain(..self.expired(state, now).len());
    }

    /// The instant that decides: never before the newest slot was taken.
    fn instant(state: &[Charge], now: UnixMillis) -> UnixMillis {
        state.last().map_or(now, |newest| newest.at.max(now))
    }

    fn used(&self, state: &[Charge], now: UnixMillis) -> u64 {
        (state.len() - self.expired(state, now).len()) as u64
    }
}

impl Algorithm for Concurrency {
    type State = Vec<Charge>;

    fn limit(&self) -> u64 {
        self.limit
    }

    fn maximum(&self, _: UnixMillis, _: UnixMillis) -> u64 {
        u64::MAX
    }

    fn ask(&self, state: &Vec<Charge>, now: UnixMillis, cost: u64) -> Step {
        if self.used(state, now) + cost.min(1) <= self.limit {
            Step::Admitted { delay: Millis::ZERO }
        } else {
            Step::Busy
        }
    }

    /// Takes a slot that nobody can give back.
    fn charge(&self, state: &mut Vec<Charge>, now: UnixMillis, cost: u64) {
        self.take(state, ChargeId::NONE, now, cost);
    }

    /// Does nothing: a refund does not say whose slot to give back.
    fn refund(&self, _: &mut Vec<Charge>, _: UnixMillis, _: UnixMillis, _: u64) {}

    /// Does nothing: a request holds one slot, whatever it costs.
    fn overdraw(&self, _: &mut Vec<Charge>, _: UnixMillis, _: u64) {}

    fn move_back(&self, state: &mut Vec<Charge>, now: UnixMillis) {
        let latest = now + MAX_CLOCK_SKEW;
        for slot in state.iter_mut().rev().take_while(|slot| slot.at > latest) {
            slot.at = latest;
        }
    }
}

impl Inspect for Concurrency {
    fn standing(&self, state: &Vec<Charge>, now: UnixMillis) -> Standing {
        let newest = state.last().map_or(UnixMillis::default(), |newest| newest.at + self.lifetime());
        Standing {
            limit: self.limit,
            room: self.limit.saturating_sub(self.used(state, now)),
            unit: 1,
            used: newest.since(now).get(),
            drain: 1,
            lag: Millis::ZERO,
        }
    }
}
