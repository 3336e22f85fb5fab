//! What a row has lent.

mod codec;
mod settle;

use alloc::format;
use alloc::vec::Vec;

use super::{Answer, LIFETIME_MAX, LOANS_MAX, Loan, Question, Returned, UNITS_MAX, WITHIN_MAX, can_lend};
use crate::algorithm::{Algorithm as _, Step};
use crate::{Decision, Error, ErrorKind, MAX_CLOCK_SKEW, Millis, Policy, PolicyState, QuotaState, Rule, UnixMillis};

/// The loans that the state of a row is charged with: those that have not ended, and those that may still be returned.
///
/// A store keeps it beside the state, and passes it through [`settle`](Self::settle) before each decision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lender {
    /// The number of the last loan.
    last: u64,
    /// How many borrowers there are, in sixteenths. It follows a higher number at once and a lower one slowly.
    borrowers: u64,
    /// Ordered by their ends.
    loans: Vec<Lent>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lent {
    number: u64,
    units: u64,
    until: UnixMillis,
}

/// How many loans have numbers of their own in a millisecond, so that a row that was removed uses none again
/// in a later one. In the same one it may: then a call that arrives after a reset may return another loan.
const NUMBERS_PER_MS: u64 = 16;

const SIXTEENTHS: u64 = 16;

/// The least life of a loan near the limit: a borrower far away needs some tenths of a second to hear of it.
const LIFE_MIN: Millis = Millis::from_secs(1);

impl Lender {
    /// Whether nothing was ever lent. Such a row needs no lender.
    #[must_use]
    pub const fn is_unused(&self) -> bool {
        self.last == 0
    }

    /// When the last loan ends; the epoch if there is none.
    #[must_use]
    pub fn last_end(&self) -> UnixMillis {
        self.loans.last().map_or(UnixMillis::new(0), |loan| loan.until)
    }

    /// Decides on a check, takes back the borrower's last loan, charges what it owes, and grants the next one. The state is [settled](Self::settle) at
    /// `now`. A policy that [cannot be lent](can_lend) gets a plain decision.
    #[must_use]
    pub fn decide(
        &mut self,
        policy: &Policy,
        state: &mut PolicyState,
        now: UnixMillis,
        cost: u64,
        question: &Question,
    ) -> Answer {
        if !can_lend(policy) {
            policy.overdraw(state, now, question.owed.min(UNITS_MAX));
            return policy.decide(state, now, cost).into();
        }
        let (decision, kept) = self.decide_after_return(policy, state, now, cost, question);
        let lent = if decision.is_allowed() { self.lend(policy, state, now, question, kept) } else { None };
        let granted = lent.or_else(|| kept.map(|kept| self.add(now, kept)));
        let granted = granted.map(|loan| Loan { number: loan.number, units: loan.units, lasts: loan.until.since(now) });
        self.answer(now, question, decision, granted)
    }

    /// What a lender elsewhere has answered, which had this state and these loans, and has granted `granted`. How much it lends is its
    /// own affair, so that two versions of Tidegate can share a store. Only what would break the limit is an error.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] for a loan that is not charged to what is left, that outlives a window, the lifetime of the question or
    /// [`LIFETIME_MAX`], that is larger than what is wanted, or whose number may have been used.
    pub fn accept(
        &mut self,
        policy: &Policy,
        state: &mut PolicyState,
        now: UnixMillis,
        cost: u64,
        question: &Question,
        granted: Option<Loan>,
    ) -> Result<Answer, Error> {
        let (decision, kept) = self.decide_after_return(policy, state, now, cost, question);
        let Some(Loan { number, units, lasts }) = granted else {
            return Ok(self.answer(now, question, decision, None));
        };
        let (kept, kept_until) = kept.map_or((0, now), |kept| (kept.units, kept.until));
        let new_until = if decision.is_allowed() { end(policy, state, now + lifetime(question)) } else { now };
        let (until, more) = (now + lasts, units.saturating_sub(kept));
        let is_safe = number > self.last
            && (1..=kept.max(question.wanted)).contains(&units)
            && until > now
            && until <= new_until.max(kept_until)
            && (more == 0 || decision.is_allowed() && policy.decide(state, now, more).is_allowed());
        if !is_safe {
            let what = format!(
                "loan {number}: the limit does not allow {units} units for {lasts}; what else writes to the store?"
            );
            return Err(Error::new(ErrorKind::Corrupt, what));
        }
        self.hold(Lent { number, units, until });
        Ok(self.answer(now, question, decision, granted))
    }

    /// Takes back the borrower's last loan, charges what it owes, and decides. Returns the part that the borrower keeps, too.
    fn decide_after_return(
        &mut self,
        policy: &Policy,
        state: &mut PolicyState,
        now: UnixMillis,
        cost: u64,
        question: &Question,
    ) -> (Decision, Option<Lent>) {
        let kept = question.back.and_then(|back| self.take_back(policy, state, now, back));
        policy.overdraw(state, now, question.owed.min(UNITS_MAX));
        let decision = policy.decide(state, now, cost);
        (self.corrected(policy, state, now, cost, decision), kept)
    }

    fn answer(&self, now: UnixMillis, question: &Question, decision: Decision, granted: Option<Loan>) -> Answer {
        let denies_for = decision.retry_after().map_or(Millis::ZERO, |wait| {
            // Until the first loan ends, which may have been returned by then.
            let first = self.loans.iter().find(|loan| loan.until > now).map_or(wait, |loan| loan.until.since(now));
            wait.min(first).min(question.lifetime)
        });
        Answer { decision, granted, denies_for }
    }

    /// The decision of a policy on a settled state, with the wait that loans make longer: a bucket does not drain below them.
    #[must_use]
    pub fn corrected(
        &self,
        policy: &Policy,
        state: &PolicyState,
        now: UnixMillis,
        cost: u64,
        decision: Decision,
    ) -> Decision {
        let Some(mut wait) = decision.retry_after() else { return decision };
        if self.loans.iter().all(|loan| loan.until <= now) {
            return decision;
        }
        // Each round ends a loan or is the last one.
        for _ in 0..=LOANS_MAX {
            let (then, mut state, mut loans) = (now + wait, state.clone(), self.clone());
            loans.settle(policy, &mut state, then);
            let Some(more) = policy.peek(&state, then, cost).retry_after() else { break };
            let next = loans.loans.iter().find(|loan| loan.until > then).map(|loan| loan.until.since(then));
            let pinned = loans.pins(policy, &state, then, cost);
            wait = wait + next.filter(|_| pinned).map_or(more, |next| more.max(next));
        }
        decision.denied_for(wait)
    }

    /// Whether a bucket denies the cost that does not drain, because its level is what is lent of it.
    fn pins(&self, policy: &Policy, state: &PolicyState, now: UnixMillis, cost: u64) -> bool {
        policy.quotas().iter().zip(state.parts()).any(|(quota, part)| match (quota.rule(), part) {
            (Rule::TokenBucket(bucket), QuotaState::Bucket(level)) => {
                level.level <= self.lent_after(level.at).saturating_mul(bucket.per().get())
                    && matches!(bucket.ask(level, now, cost), Step::Denied { .. })
            }
            _ => false,
        })
    }

    /// Takes back the unspent part of a loan, and returns the part that is kept, which has no number any more. If the number is
    /// used up, nothing happens.
    fn take_back(
        &mut self,
        policy: &Policy,
        state: &mut PolicyState,
        now: UnixMillis,
        Returned { loan, unspent, kept }: Returned,
    ) -> Option<Lent> {
        let place = self.loans.iter().position(|held| held.number == loan)?;
        let loan = self.loans.remove(place);
        let unspent = unspent.min(loan.units);
        // It ended within its window. What a bucket has drained since may have been this loan.
        let charged_at = UnixMillis::new(loan.until.get().saturating_sub(1));
        policy.refund(state, charged_at, now, unspent);
        let units = kept.min(loan.units - unspent);
        (units > 0 && loan.until > latest(policy, state).max(now)).then_some(Lent { units, ..loan })
    }

    /// Lends what the question asks for. What the borrower keeps becomes a part of it.
    fn lend(
        &mut self,
        policy: &Policy,
        state: &mut PolicyState,
        now: UnixMillis,
        question: &Question,
        kept: Option<Lent>,
    ) -> Option<Lent> {
        let others = self.loans.iter().filter(|loan| loan.until > now).count();
        if others >= LOANS_MAX {
            return None;
        }
        let here = SIXTEENTHS * (others as u64 + 1);
        self.borrowers = here.max(self.borrowers - self.borrowers.saturating_sub(here).div_ceil(2 * SIXTEENTHS));
        let longest = end(policy, state, now + lifetime(question)).since(now);
        let (still, left) = (kept.map_or(0, |kept| kept.units.min(UNITS_MAX)), left(policy, state, now).min(UNITS_MAX));
        let (units, life) = share(question, still, left, self.borrowers.div_ceil(SIXTEENTHS), longest);
        let until = now + life;
        if units == 0 || until <= now || !policy.decide(state, now, units).is_allowed() {
            return None;
        }
        let (more, until) = kept.map_or((0, until), |kept| (kept.units, until.max(kept.until)));
        Some(self.add(now, Lent { number: 0, units: units + more, until }))
    }

    /// Adds a loan under a new number.
    fn add(&mut self, now: UnixMillis, loan: Lent) -> Lent {
        let loan = Lent { number: (now.get() * NUMBERS_PER_MS).max(self.last + 1), ..loan };
        self.hold(loan);
        loan
    }

    /// Adds a loan whose number is new.
    fn hold(&mut self, loan: Lent) {
        if self.loans.len() >= LOANS_MAX {
            // The first one has ended. From now on it cannot be returned.
            self.loans.remove(0);
        }
        self.last = loan.number;
        let place = self.loans.partition_point(|held| held.until <= loan.until);
        self.loans.insert(place, loan);
    }

    fn lent_after(&self, then: UnixMillis) -> u64 {
        self.lent_between(then, UnixMillis::MAX)
    }

    /// What is lent by loans that end after `from`, at `to` at the latest.
    fn lent_between(&self, from: UnixMillis, to: UnixMillis) -> u64 {
        self.loans.iter().filter(|loan| from < loan.until && loan.until <= to).map(|loan| loan.units).sum()
    }
}

/// How many more units to lend, and for how long: what is wanted for the longest life, or a borrower's part of half of what is left for
/// twice the time that it takes to spend it.
fn share(question: &Question, kept: u64, left: u64, borrowers: u64, longest: Millis) -> (u64, Millis) {
    let (wanted, within) = (question.wanted.min(UNITS_MAX), question.within.min(WITHIN_MAX).get());
    let (more, most) = (wanted.saturating_sub(kept), left / (2 * borrowers));
    if more <= most {
        return (more, longest);
    }
    let spent_within = Millis::new(2 * (most + kept) * within / wanted);
    (most, LIFE_MIN.max(spent_within).min(longest))
}

/// The requests of cost 1 that fit.
fn left(policy: &Policy, state: &PolicyState, now: UnixMillis) -> u64 {
    let decision = policy.peek(state, now, 1);
    decision.quotas().iter().filter_map(|quota| quota.remaining()).min().unwrap_or(0)
}

/// The longest life of a loan that a question allows.
fn lifetime(question: &Question) -> Millis {
    question.lifetime.min(LIFETIME_MAX)
}

/// The end of the first window to end, or `latest` if that is earlier.
fn end(policy: &Policy, state: &PolicyState, latest: UnixMillis) -> UnixMillis {
    let ends = policy.quotas().iter().zip(state.parts()).map(|(quota, part)| match (quota.rule(), part) {
        (Rule::FixedWindow(rule), QuotaState::Window(window)) => window.start + rule.window(),
        (Rule::SlidingWindow(rule), QuotaState::Sliding(window)) => window.start + rule.window(),
        (_, QuotaState::Calendar(window)) => window.end,
        _ => latest,
    });
    ends.fold(latest, UnixMillis::min)
}

/// The latest instant of a state. Loans that ended before it are settled.
fn latest(policy: &Policy, state: &PolicyState) -> UnixMillis {
    let instants = policy.quotas().iter().zip(state.parts()).map(|(quota, part)| match (quota.rule(), part) {
        (_, QuotaState::Bucket(level)) => level.at,
        (_, QuotaState::Window(window)) => window.start,
        (_, QuotaState::Sliding(window)) => window.start,
        (Rule::CalendarWindow(rule), QuotaState::Calendar(window)) => rule.started(window),
        _ => UnixMillis::new(0),
    });
    instants.fold(UnixMillis::new(0), UnixMillis::max)
}

#[cfg(test)]
mod tests {
    use super::{Question, share};
    use crate::Millis;

    const MINUTE: Millis = Millis::from_secs(60);

    /// What one of so many borrowers is lent that wants 128 units in 20 seconds.
    fn lent(kept: u64, left: u64, borrowers: u64, longest: Millis) -> (u64, u64) {
        let question = Question { wanted: 128, within: Millis::from_secs(20), ..Question::default() };
        let (units, life) = share(&question, kept, left, borrowers, longest);
        (units, life.get())
    }

    #[test]
    fn far_from_the_limit_what_is_wanted_is_lent_for_the_longest_life() {
        assert_eq!(lent(0, 256, 1, MINUTE), (128, 60_000));
        assert_eq!(lent(0, 768, 3, Millis::new(700)), (128, 700));
        // What is kept is a part of it.
        assert_eq!(lent(28, 200, 1, MINUTE), (100, 60_000));
        assert_eq!(lent(500, 0, 1, MINUTE), (0, 60_000));
    }

    #[test]
    fn near_the_limit_loans_are_smaller_and_shorter() {
        // Half of what is left, for twice as long as it is spent in.
        assert_eq!(lent(0, 255, 1, MINUTE), (127, 39_687));
        assert_eq!(lent(0, 100, 1, MINUTE), (50, 15_625));
        assert_eq!(lent(0, 100, 2, MINUTE), (25, 7_812));
        assert_eq!(lent(10, 100, 1, MINUTE), (50, 18_750));
        assert_eq!(lent(0, 100, 1, Millis::new(9_000)), (50, 9_000));
        // A second at least, and the last units not at all.
        assert_eq!(lent(0, 2, 1, MINUTE), (1, 1_000));
        assert_eq!(lent(0, 1, 1, MINUTE), (0, 1_000));
    }

    #[test]
    fn no_number_overflows() {
        let all = Question { wanted: u64::MAX, within: Millis::new(u64::MAX), ..Question::default() };
        assert_eq!(share(&all, 0, 1 << 32, 1, MINUTE), (1 << 31, MINUTE));
        assert_eq!(share(&all, 1 << 31, 1 << 32, 1, MINUTE), (1 << 31, MINUTE));
    }
}
