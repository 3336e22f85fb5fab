//! A balance in a policy: what it pays of a request, and what the quota that it covers does.

use alloc::vec::Vec;

use super::{PolicyState, QuotaState};
use crate::algorithm::{Balance, BalanceState, Lot, Step};
use crate::decision::Decision;
use crate::policy::Policy;
use crate::quota::Rule;
use crate::{Error, Millis, UnixMillis};

/// How a cost is divided between a balance and the quota that it covers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Split {
    /// The place of the balance.
    balance: usize,
    /// The place of the quota that it covers.
    covered: Option<usize>,
    /// What that quota takes.
    included: u64,
    /// What the balance pays.
    owed: u64,
}

impl Split {
    /// What the quota at `place` takes of a request of `cost`.
    pub(super) fn part(split: Option<Self>, place: usize, cost: u64) -> u64 {
        match split {
            Some(split) if place == split.balance => split.owed,
            Some(split) if Some(place) == split.covered => split.included,
            _ => cost,
        }
    }
}

impl Policy {
    /// The balance with its place and its state.
    fn balance<'a>(&self, state: &'a PolicyState) -> Option<(usize, &Balance, &'a BalanceState)> {
        let place = self.balance_place()?;
        match (self.quotas()[place].rule(), state.0.get(place)) {
            (Rule::Balance(rule), Some(QuotaState::Balance(state))) => Some((place, rule, state)),
            _ => None,
        }
    }

    fn balance_mut<'a>(&self, state: &'a mut PolicyState) -> Option<(&Balance, &'a mut BalanceState)> {
        let place = self.balance_place()?;
        match (self.quotas()[place].rule(), state.0.get_mut(place)) {
            (Rule::Balance(rule), Some(QuotaState::Balance(state))) => Some((rule, state)),
            _ => None,
        }
    }

    /// What the balance pays of a request. `None` for a policy without one.
    pub(super) fn split(&self, state: &PolicyState, now: UnixMillis, cost: u64) -> Option<Split> {
        let (balance, rule, _) = self.balance(state)?;
        let covered = if rule.covers() { balance.checked_sub(1) } else { None };
        let included = covered.map_or(0, |place| self.included(place, state, now).min(cost));
        Some(Split { balance, covered, included, owed: cost - included })
    }

    /// What the quota at `place` admits at once.
    fn included(&self, place: usize, state: &PolicyState, now: UnixMillis) -> u64 {
        let standing = self.quotas()[place].rule().standing(&state.0[place], now);
        standing.room.checked_div(standing.unit).unwrap_or_default()
    }

    /// The answer of the quota at `place`. A balance answers for the quota that it covers, too.
    pub(super) fn ask_part(
        &self,
        place: usize,
        state: &PolicyState,
        now: UnixMillis,
        cost: u64,
        split: Option<Split>,
    ) -> Step {
        match split {
            Some(split) if Some(place) == split.covered => Step::Admitted { delay: Millis::ZERO },
            Some(Split { balance, covered: Some(covered), owed, .. }) if place == balance => {
                self.ask_both(covered, state, now, cost, owed)
            }
            _ => self.quotas()[place].rule().ask(&state.0[place], now, cost),
        }
    }

    /// The answer of a quota and the balance that covers it. A debt of the balance denies a request of cost 0 only if the
    /// quota admits nothing, either.
    fn ask_both(&self, covered: usize, state: &PolicyState, now: UnixMillis, cost: u64, owed: u64) -> Step {
        let Some((_, rule, balance)) = self.balance(state) else { return Step::Never };
        if cost > self.quotas()[covered].rule().most() + rule.max() {
            return Step::Never;
        }
        let is_in_debt = cost == 0 && balance.debt > 0 && self.included(covered, state, now) == 0;
        if owed <= balance.live(now) && !is_in_debt {
            return Step::Admitted { delay: Millis::ZERO };
        }
        self.wait_for_both(covered, balance, state, now, cost.max(1))
    }

    /// When the quota has replenished so much that it and the balance admit `cost`, if nothing is granted. The balance pays less
    /// once a lot has expired.
    fn wait_for_both(
        &self,
        covered: usize,
        balance: &BalanceState,
        state: &PolicyState,
        now: UnixMillis,
        cost: u64,
    ) -> Step {
        let quota = self.quotas()[covered].rule();
        let mut live = balance.live(now);
        let mut from = now;
        let mut alive = balance.lots.iter().filter(|lot| lot.expires > now);
        loop {
            let lot = alive.next();
            let Some(wait) = quota.wait_for(&state.0[covered], now, cost - live.min(cost)) else {
                // It never admits so much, and after an expiry it would have to admit more.
                return Step::Busy;
            };
            let at = from.max(now + wait);
            match lot {
                Some(lot) if at >= lot.expires => {
                    live -= lot.units;
                    from = lot.expires;
                }
                _ => return Step::Denied { retry_after: at.since(now) },
            }
        }
    }

    /// Adds what the balance paid, and the quota that the response shows: the one that the balance covers as long as it admits
    /// anything, then the balance.
    pub(super) fn told(&self, decision: Decision, split: Split, binding: Option<usize>) -> Decision {
        let decision = decision.paid_by(split.balance, split.owed);
        let (Some(covered), None) = (split.covered, binding) else { return decision };
        let remaining = |place: usize| decision.quotas()[place].remaining().unwrap_or(u64::MAX);
        let both = remaining(covered).saturating_add(remaining(split.balance));
        let (shown, hidden) = if remaining(covered) > 0 { (covered, split.balance) } else { (split.balance, covered) };
        let places = (0..self.quotas().len()).filter(|place| *place != hidden);
        let fewest = places.min_by_key(|place| if *place == shown { both } else { remaining(*place) });
        decision.bound_by(fewest.unwrap_or(shown))
    }

    /// The lots that paid the balance's part of an admitted request, from the state before it. A settlement returns to them: see
    /// [`Policy::settle_paid`].
    ///
    /// ```
    /// use tidegate_core::{Charge, ChargeId, Millis, Policy, Quota, UnixMillis};
    /// # fn main() -> Result<(), tidegate_core::Error> {
    /// let policy = Policy::new("tokens", [Quota::balance(10_000)?])?;
    /// let (mut state, now, soon) = (policy.initial_state(), UnixMillis::new(0), UnixMillis::new(60_000));
    /// policy.grant(&mut state, 100, soon, now)?;
    /// policy.grant(&mut state, 900, UnixMillis::MAX, now)?;
    /// let before = state.clone();
    /// let decision = policy.decide(&mut state, now, 300);
    /// let paid = policy.paid(&before, &decision);
    /// assert_eq!(paid.iter().map(|lot| lot.units).collect::<Vec<_>>(), [100, 200]);
    /// // It cost 250 in the end. By then, the first lot has expired.
    /// let charge = Charge { id: ChargeId::NONE, at: now, cost: 300 };
    /// policy.settle_paid(&mut state, &charge, &paid, soon, 250);
    /// assert_eq!(policy.peek(&state, soon, 0).binding().remaining(), Some(750));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn paid(&self, before: &PolicyState, decision: &Decision) -> Vec<Lot> {
        match self.balance(before) {
            Some((_, _, balance)) => balance.payers(decision.decided_at(), decision.from_balance()),
            None => Vec::new(),
        }
    }

    /// Adds `units` to the policy's [balance](crate::algorithm::Balance), which count before `expires`, or without an end at
    /// [`UnixMillis::MAX`]. A debt is repaid first.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for a policy without a balance, units that would pass its most, a time that has
    /// passed, and more than [`Balance::MAX_LOTS`] lots. Nothing changes then.
    pub fn grant(
        &self,
        state: &mut PolicyState,
        units: u64,
        expires: UnixMillis,
        now: UnixMillis,
    ) -> Result<(), Error> {
        let (rule, balance) = self.balance_mut(state).ok_or_else(|| self.no_balance())?;
        rule.grant(balance, Lot { units, expires }, now).map_err(|refusal| refusal.error())?;
        self.move_back(state, now);
        Ok(())
    }

    /// Returns units of a charge: to the balance first, up to what it `paid`, and the rest to the quota that it covers.
    pub(super) fn give_back(
        &self,
        state: &mut PolicyState,
        charged_at: UnixMillis,
        paid: &[Lot],
        now: UnixMillis,
        units: u64,
    ) {
        let to_balance = paid.iter().map(|lot| lot.units).sum::<u64>().min(units);
        let covered = match self.balance(state) {
            Some((place, rule, _)) if rule.covers() => place.checked_sub(1),
            _ => None,
        };
        for (place, (quota, state)) in self.quotas().iter().zip(state.0.iter_mut()).enumerate() {
            let part = if Some(place) == covered { units - to_balance } else { units };
            quota.rule().refund(state, charged_at, now, part);
        }
        if let Some((rule, balance)) = self.balance_mut(state) {
            rule.give_back(balance, paid, now, to_balance);
        }
    }

    /// Charges units to all quotas, also beyond the limit. Where a balance covers, the debt is its own.
    pub(super) fn overdraw_all(&self, state: &mut PolicyState, now: UnixMillis, units: u64) {
        let split = self.split(state, now, units);
        for (place, (quota, state)) in self.quotas().iter().zip(state.0.iter_mut()).enumerate() {
            quota.rule().overdraw(state, now, Split::part(split, place, units));
        }
    }
}
