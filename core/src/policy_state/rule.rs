//! A rule with its state: the algorithm that both belong to.

use alloc::vec::Vec;

use super::QuotaState;
use crate::algorithm::{
    Algorithm as _, BalanceState, BucketState, CalendarState, Inspect, PenaltyState, SlidingState, Standing, Step,
    WindowState,
};
use crate::decision::QuotaStatus;
use crate::limiter::ChargeId;
use crate::quota::{Quota, Rule};
use crate::{Millis, UnixMillis};

/// Calls a method of a rule's algorithm with the rule's state.
///
/// A state of another kind than the rule's gives `$none`. [`Policy::verify`] rejects such states beforehand.
macro_rules! dispatch {
    ($rule:expr, $state:expr, |$algorithm:ident, $inner:ident| $call:expr, $none:expr) => {
        match ($rule, $state) {
            (Rule::TokenBucket($algorithm), QuotaState::Bucket($inner)) => $call,
            (Rule::LeakyBucket($algorithm), QuotaState::Bucket($inner)) => $call,
            (Rule::FixedWindow($algorithm), QuotaState::Window($inner)) => $call,
            (Rule::SlidingWindow($algorithm), QuotaState::Sliding($inner)) => $call,
            (Rule::SlidingLog($algorithm), QuotaState::Log($inner)) => $call,
            (Rule::Concurrency($algorithm), QuotaState::Slots($inner)) => $call,
            (Rule::Penalty($algorithm), QuotaState::Penalty($inner)) => $call,
            (Rule::CalendarWindow($algorithm), QuotaState::Calendar($inner)) => $call,
            (Rule::Balance($algorithm), QuotaState::Balance($inner)) => $call,
            _ => $none,
        }
    };
}

impl Rule {
    pub(super) fn initial_state(&self) -> QuotaState {
        match self {
            Self::FixedWindow(_) => QuotaState::Window(WindowState::default()),
            Self::SlidingWindow(_) => QuotaState::Sliding(SlidingState::default()),
            Self::SlidingLog(_) => QuotaState::Log(Vec::new()),
            Self::TokenBucket(_) | Self::LeakyBucket(_) => QuotaState::Bucket(BucketState::default()),
            Self::Concurrency(_) => QuotaState::Slots(Vec::new()),
            Self::Penalty(_) => QuotaState::Penalty(PenaltyState::default()),
            Self::CalendarWindow(_) => QuotaState::Calendar(CalendarState::default()),
            Self::Balance(_) => QuotaState::Balance(BalanceState::default()),
        }
    }

    #[inline]
    pub(super) fn ask(&self, state: &QuotaState, now: UnixMillis, cost: u64) -> Step {
        dispatch!(self, state, |rule, inner| rule.ask(inner, now, cost), Step::Never)
    }

    /// The answer after [`Rule::move_back`].
    fn ask_moved_back(&self, state: &mut QuotaState, now: UnixMillis, cost: u64) -> Step {
        dispatch!(
            self,
            state,
            |rule, inner| {
                rule.move_back(inner, now);
                rule.ask(inner, now, cost)
            },
            Step::Never
        )
    }

    /// Charges a quota that needs nothing else for it, and says what is left.
    fn charge_alone(&self, state: &mut QuotaState, now: UnixMillis, cost: u64, left: &mut QuotaStatus) {
        if let Self::Penalty(_) = self {
            *left = self.status(state, now);
            return;
        }
        dispatch!(
            self,
            state,
            |rule, inner| {
                rule.charge(inner, now, cost);
                *left = rule.standing(inner, now).into();
            },
            ()
        );
    }

    /// The time until this many units fit, if nothing else is charged, also units that a window has only because it carried some over.
    /// `None` if they never do.
    pub(super) fn wait_for(&self, state: &QuotaState, now: UnixMillis, units: u64) -> Option<Millis> {
        if let (Self::CalendarWindow(rule), QuotaState::Calendar(state)) = (self, state) {
            return rule.wait_for(state, now, units);
        }
        match self.ask(state, now, units) {
            Step::Admitted { .. } => Some(Millis::ZERO),
            Step::Denied { retry_after } => Some(retry_after),
            Step::Busy | Step::Never => None,
        }
    }

    #[inline]
    pub(super) fn charge(&self, state: &mut QuotaState, now: UnixMillis, cost: u64, id: ChargeId) {
        if let (Self::Concurrency(rule), QuotaState::Slots(state)) = (self, &mut *state) {
            return rule.take(state, id, now, cost);
        }
        dispatch!(self, state, |rule, inner| rule.charge(inner, now, cost), ());
    }

    pub(super) fn refund(&self, state: &mut QuotaState, charged_at: UnixMillis, now: UnixMillis, cost: u64) {
        dispatch!(self, state, |rule, inner| rule.refund(inner, charged_at, now, cost), ());
    }

    pub(super) fn overdraw(&self, state: &mut QuotaState, now: UnixMillis, cost: u64) {
        dispatch!(self, state, |rule, inner| rule.overdraw(inner, now, cost), ());
    }

    pub(super) fn move_back(&self, state: &mut QuotaState, now: UnixMillis) {
        dispatch!(self, state, |rule, inner| rule.move_back(inner, now), ());
    }

    #[inline]
    pub(crate) fn step_alone(&self, state: &mut QuotaState, now: UnixMillis, cost: u64) -> (Step, Standing) {
        dispatch!(self, state, |rule, inner| rule.step_alone(inner, now, cost), (Step::Never, self.nothing_left()))
    }

    #[inline]
    pub(crate) fn standing(&self, state: &QuotaState, now: UnixMillis) -> Standing {
        dispatch!(self, state, |rule, inner| rule.standing(inner, now), self.nothing_left())
    }

    pub(crate) fn status(&self, state: &QuotaState, now: UnixMillis) -> QuotaStatus {
        match (self, state) {
            (Self::Penalty(rule), QuotaState::Penalty(state)) => match rule.ask(state, now, 1) {
                Step::Denied { retry_after } => QuotaStatus::blocked(retry_after),
                _ => QuotaStatus::unknown(1),
            },
            (Self::Balance(_), _) => QuotaStatus::from(self.standing(state, now)).paying(0),
            // A slot may be given back at any time.
            (Self::Concurrency(_), _) => Standing { drain: 0, ..self.standing(state, now) }.into(),
            _ => self.standing(state, now).into(),
        }
    }

    fn nothing_left(&self) -> Standing {
        Standing { limit: self.limit(), room: 0, unit: 1, used: 0, drain: 1, lag: Millis::ZERO }
    }
}

/// How long to delay a request that all quotas admit. `None` if one does not.
pub(crate) fn admits_all(quotas: &[Quota], states: &mut [QuotaState], now: UnixMillis, cost: u64) -> Option<Millis> {
    let mut longest = Millis::ZERO;
    for (quota, state) in quotas.iter().zip(states) {
        let Step::Admitted { delay } = quota.rule().ask_moved_back(state, now, cost) else { return None };
        longest = longest.max(delay);
    }
    Some(longest)
}

/// Charges all quotas, and says what is left of each.
pub(crate) fn charge_all(
    quotas: &[Quota],
    states: &mut [QuotaState],
    now: UnixMillis,
    cost: u64,
    left: &mut [QuotaStatus],
) {
    for ((quota, state), left) in quotas.iter().zip(states).zip(left) {
        quota.rule().charge_alone(state, now, cost, left);
    }
}
