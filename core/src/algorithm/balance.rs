use alloc::format;
use alloc::vec::Vec;

use crate::algorithm::{Algorithm, Inspect, MAX_UNITS, Standing, Step};
use crate::{Error, Millis, UnixMillis};

/// Balance: admits what was granted, until it is spent. Time replenishes nothing.
///
/// [`Policy::grant`](crate::Policy::grant) adds units, which may expire. A request takes the units that expire first. A cost fits
/// if it is at most what is left. A denial is [`Step::Busy`]: it has no wait, because nobody knows when a grant comes.
///
/// A balance that [covers](Balance::covers_excess) pays what the quota before it does not admit: such a request takes what is left
/// of that quota first, and the rest from the balance. It is all or nothing, as ever.
///
/// The state is the debt and the units that are left, by their expiry. A store keeps it until the last of them expires, and
/// without an end if they do not expire or there is a debt. It is the one state that time alone does not remove.
///
/// **At most**: what was granted.
///
/// **Debt**: time does not repay it. The next grant does, and only the rest of it is added. A balance in debt pays nothing.
///
/// ```
/// use tidegate_core::{Millis, Policy, Quota, UnixMillis};
/// # fn main() -> Result<(), tidegate_core::Error> {
/// let day = Millis::from_secs(86_400);
/// let policy = Policy::new("api", [Quota::fixed_window(100, day)?, Quota::balance(10_000)?.covers_excess()?])?;
/// let (mut state, now) = (policy.initial_state(), UnixMillis::new(0));
/// policy.grant(&mut state, 500, UnixMillis::MAX, now)?;
/// let decision = policy.decide(&mut state, now, 130);
/// assert!(decision.is_allowed());
/// assert_eq!(decision.from_balance(), 30);
/// assert_eq!(decision.quotas()[1].remaining(), Some(470));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Balance {
    max: u64,
    covers: bool,
}

/// Units of a [`Balance`] that expire together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lot {
    /// How many there are.
    pub units: u64,
    /// They count before this instant. [`UnixMillis::MAX`] if they do not expire.
    pub expires: UnixMillis,
}

/// The state of a balance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct BalanceState {
    /// What was charged beyond what was granted. If it is not zero, there are no lots.
    pub debt: u64,
    /// What is left, in order of expiry. No two lots expire together, and none is empty.
    pub lots: Vec<Lot>,
}

/// Why a balance takes no grant.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GrantRefusal {
    /// The balance would pass its most. It has room for this many units.
    PassesMax(u64),
    /// It has [`Balance::MAX_LOTS`] lots, and the grant would be one more.
    TooManyLots,
    /// The units have expired.
    HasExpired,
}

impl GrantRefusal {
    /// The error of a grant that is not made for this reason.
    #[must_use]
    #[cold]
    pub fn error(self) -> Error {
        Error::invalid(match self {
            Self::PassesMax(room) => {
                format!("units: the balance would pass its max; write at most {room}, or raise the max of the balance")
            }
            Self::TooManyLots => format!(
                "expires: the balance has {} lots, which is the most; grant units that expire together with another lot, such as at \
                 the end of a month",
                Balance::MAX_LOTS
            ),
            Self::HasExpired => "expires: the time has passed; write a later one".into(),
        })
    }
}

impl BalanceState {
    /// What is left at `now`.
    #[must_use]
    pub fn live(&self, now: UnixMillis) -> u64 {
        self.lots.iter().filter(|lot| lot.expires > now).map(|lot| lot.units).sum()
    }

    /// The lots that `units` are taken from at `now`: those that expire first. Fewer if there are not so many.
    pub(crate) fn payers(&self, now: UnixMillis, units: u64) -> Vec<Lot> {
        let (mut left, mut payers) = (units, Vec::new());
        for lot in self.lots.iter().filter(|lot| lot.expires > now) {
            let taken = lot.units.min(left);
            if taken == 0 {
                break;
            }
            payers.push(Lot { units: taken, ..*lot });
            left -= taken;
        }
        payers
    }

    /// Takes `units` from the lots that expire first. Returns what they have not.
    ///
    /// Lots that have expired stay until a grant, so that a wrong clock does not remove them.
    fn take(&mut self, now: UnixMillis, units: u64) -> u64 {
        let mut left = units;
        for lot in self.lots.iter_mut().filter(|lot| lot.expires > now) {
            let taken = lot.units.min(left);
            lot.units -= taken;
            left -= taken;
        }
        self.lots.retain(|lot| lot.units > 0);
        left
    }

    /// Adds units. If there are as many lots as there may be, they join the one that expires next before them, or the first one.
    fn add(&mut self, lot: Lot) {
        let total: u64 = self.lots.iter().map(|lot| lot.units).sum();
        let units = lot.units.min(MAX_UNITS.saturating_sub(total));
        if units == 0 {
            return;
        }
        match self.lots.binary_search_by_key(&lot.expires, |lot| lot.expires) {
            Ok(place) => self.lots[place].units += units,
            Err(place) if self.lots.len() < Balance::MAX_LOTS => self.lots.insert(place, Lot { units, ..lot }),
            Err(place) => self.lots[place.saturating_sub(1)].units += units,
        }
    }

    /// Repays the debt with what is left. There are no lots during a debt, so these were just added.
    fn repay(&mut self, now: UnixMillis) {
        if self.debt > 0 {
            self.debt = self.take(now, self.debt);
        }
    }
}

impl Balance {
    /// The largest number of lots: grants of different expiry of which something is left.
    pub const MAX_LOTS: usize = 64;

    /// Holds up to `max` units.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for a zero, or a number above [`MAX_UNITS`].
    pub fn new(max: u64) -> Result<Self, Error> {
        super::checked_amount("max", max, MAX_UNITS)?;
        Ok(Self { max, covers: false })
    }

    /// Sets whether the balance pays only what the quota before it does not admit. Otherwise, it pays for every request.
    #[must_use]
    pub const fn covers_excess(mut self, yes: bool) -> Self {
        self.covers = yes;
        self
    }

    /// The most units it can hold. A grant that would pass it is an error.
    #[must_use]
    pub const fn max(&self) -> u64 {
        self.max
    }

    /// Whether it pays only what the quota before it does not admit.
    #[must_use]
    pub const fn covers(&self) -> bool {
        self.covers
    }

    /// Adds `lot`, after the debt is repaid. Lots that have expired are removed.
    pub(crate) fn grant(&self, state: &mut BalanceState, lot: Lot, now: UnixMillis) -> Result<(), GrantRefusal> {
        if lot.expires <= now {
            return Err(GrantRefusal::HasExpired);
        }
        let live = state.live(now);
        let room = self.max.saturating_sub(live) + state.debt;
        if lot.units > room {
            return Err(GrantRefusal::PassesMax(room));
        }
        let others = state.lots.iter().filter(|other| other.expires > now && other.expires != lot.expires).count();
        if others >= Self::MAX_LOTS {
            return Err(GrantRefusal::TooManyLots);
        }
        state.lots.retain(|lot| lot.expires > now);
        state.add(lot);
        state.repay(now);
        Ok(())
    }

    /// Gives units back to the lots that paid them, the last payer first. What has expired since is lost. A debt is repaid first.
    pub(crate) fn give_back(&self, state: &mut BalanceState, paid: &[Lot], now: UnixMillis, units: u64) {
        let mut left = units;
        for lot in paid.iter().rev() {
            let returned = lot.units.min(left);
            left -= returned;
            if lot.expires > now {
                state.add(Lot { units: returned, ..*lot });
            }
        }
        state.repay(now);
    }
}

impl Algorithm for Balance {
    type State = BalanceState;

    fn limit(&self) -> u64 {
        self.max
    }

    fn maximum(&self, _: UnixMillis, _: UnixMillis) -> u64 {
        u64::MAX
    }

    fn ask(&self, state: &BalanceState, now: UnixMillis, cost: u64) -> Step {
        if cost > self.max {
            return Step::Never;
        }
        let is_in_debt = state.debt > 0;
        if is_in_debt || cost > state.live(now) { Step::Busy } else { Step::Admitted { delay: Millis::ZERO } }
    }

    /// Takes the units that expire first.
    fn charge(&self, state: &mut BalanceState, now: UnixMillis, cost: u64) {
        state.take(now, cost);
    }

    /// Does nothing: only a settlement knows which lots paid. See [`Policy::settle_paid`](crate::Policy::settle_paid).
    fn refund(&self, _: &mut BalanceState, _: UnixMillis, _: UnixMillis, _: u64) {}

    fn overdraw(&self, state: &mut BalanceState, now: UnixMillis, cost: u64) {
        let owed = state.take(now, cost);
        if owed > 0 {
            state.lots.clear();
            state.debt = state.debt.saturating_add(owed).min(MAX_UNITS);
        }
    }

    /// Does nothing: the state has no instant of a request.
    fn move_back(&self, _: &mut BalanceState, _: UnixMillis) {}
}

impl Inspect for Balance {
    /// `used` is the time until the state has no effect any more.
    fn standing(&self, state: &BalanceState, now: UnixMillis) -> Standing {
        let last = state.lots.last().map_or(UnixMillis::default(), |lot| lot.expires);
        let until = if state.debt > 0 { UnixMillis::MAX } else { last };
        Standing {
            limit: self.max,
            room: state.live(now),
            unit: 1,
            used: until.since(now).get(),
            drain: 1,
            lag: Millis::ZERO,
        }
    }
}
