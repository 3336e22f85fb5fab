//! Brings a state with loans to an instant.

use super::{LIFETIME_MAX, Lender, MAX_CLOCK_SKEW};
use crate::algorithm::{BucketState, MAX_UNITS, SlidingState, TokenBucket, WindowState};
use crate::{Millis, Policy, PolicyState, QuotaState, Rule, UnixMillis};

impl Lender {
    /// Brings a state to `now`, and forgets the loans that do not matter any more then. Until a loan's end, a bucket did not drain
    /// below what was lent. Nor is a window used less than that, whose charges from before a reset were refunded.
    ///
    /// Ends that a wrong clock has set are moved to the latest that is possible at `now`. Returns whether there were any, so that
    /// they must be stored.
    pub fn settle(&mut self, policy: &Policy, state: &mut PolicyState, now: UnixMillis) -> bool {
        let moved = self.bound(now);
        self.bring(policy, state, now);
        moved
    }

    fn bring(&mut self, policy: &Policy, state: &mut PolicyState, now: UnixMillis) {
        if self.loans.is_empty() {
            return;
        }
        for (quota, part) in policy.quotas().iter().zip(state.0.iter_mut()) {
            match (quota.rule(), part) {
                (Rule::TokenBucket(bucket), QuotaState::Bucket(level)) => *level = self.drained(bucket, *level, now),
                (Rule::FixedWindow(rule), QuotaState::Window(WindowState { start, used })) => {
                    *used = (*used).max(self.lent_between(*start, *start + rule.window()));
                }
                (Rule::SlidingWindow(rule), QuotaState::Sliding(SlidingState { start, previous, current })) => {
                    *current = (*current).max(self.lent_between(*start, *start + rule.window()));
                    *previous = (*previous).max(self.lent_between(before(*start, rule.window()), *start));
                }
                (Rule::CalendarWindow(rule), QuotaState::Calendar(window)) => {
                    window.used = window.used.max(self.lent_between(rule.started(window), window.end));
                }
                _ => {}
            }
        }
        let parts = || policy.quotas().iter().zip(state.parts());
        self.loans.retain(|loan| {
            parts().any(|(quota, part)| {
                let window = quota.rule().window();
                let start = UnixMillis::new(now.get() - now.get() % window.get().max(1));
                match (quota.rule(), part) {
                    (_, QuotaState::Bucket(_)) => loan.until + window > now,
                    (_, QuotaState::Window(state)) => loan.until > start.max(state.start),
                    (_, QuotaState::Sliding(state)) => loan.until > before(start.max(state.start), window),
                    (Rule::CalendarWindow(rule), QuotaState::Calendar(state)) => {
                        loan.until > rule.start_of(now).max(rule.started(state))
                    }
                    _ => false,
                }
            })
        });
    }

    /// Without this, the loans that a wrong clock granted would hold a bucket's level for as long as that clock was ahead.
    fn bound(&mut self, now: UnixMillis) -> bool {
        let latest = now + LIFETIME_MAX + MAX_CLOCK_SKEW;
        let mut moved = false;
        for loan in self.loans.iter_mut().filter(|loan| loan.until > latest) {
            loan.until = latest;
            moved = true;
        }
        moved
    }

    /// A bucket at `now`, drained to what was lent or more at each instant.
    fn drained(&self, bucket: &TokenBucket, state: BucketState, now: UnixMillis) -> BucketState {
        let (settled, now) = (state.at, now.max(state.at));
        let (mut state, mut lent) = (state, self.lent_after(settled));
        for loan in self.loans.iter().filter(|loan| settled < loan.until && loan.until <= now) {
            state = drained_to(bucket, state, loan.until, lent);
            lent -= loan.units;
        }
        drained_to(bucket, state, now, lent)
    }

    /// The state after a reset: lent units may still be spent, so they stay charged. `None` if nothing is lent, so that the row can
    /// be removed. A reset carries no time, so a window's loans count as lent until the window ends.
    #[must_use]
    pub fn reset(mut self, policy: &Policy, state: &PolicyState) -> Option<(Self, PolicyState)> {
        let mut state = state.clone();
        self.bring(policy, &mut state, UnixMillis::new(0));
        for (quota, part) in policy.quotas().iter().zip(state.0.iter_mut()) {
            match (quota.rule(), part) {
                (Rule::TokenBucket(bucket), QuotaState::Bucket(level)) => {
                    let lent = self.lent_after(level.at).saturating_mul(bucket.per().get());
                    level.level = level.level.min(lent);
                }
                (Rule::FixedWindow(_), QuotaState::Window(window)) => {
                    window.used = window.used.min(self.lent_after(window.start));
                }
                (Rule::SlidingWindow(_), QuotaState::Sliding(window)) => {
                    window.current = window.current.min(self.lent_after(window.start));
                    window.previous = 0;
                }
                (Rule::CalendarWindow(rule), QuotaState::Calendar(window)) => {
                    window.used = window.used.min(self.lent_after(rule.started(window)));
                    window.carried = rule.carry_over();
                }
                _ => {}
            }
        }
        let since = super::latest(policy, &state);
        self.loans.retain(|loan| loan.until > since);
        (!self.loans.is_empty()).then_some((self, state))
    }
}

fn drained_to(bucket: &TokenBucket, state: BucketState, now: UnixMillis, lent: u64) -> BucketState {
    let drain = now.since(state.at).get().saturating_mul(bucket.refill());
    let least = lent.saturating_mul(bucket.per().get()).min(MAX_UNITS);
    BucketState { level: state.level.saturating_sub(drain).max(least), at: now.max(state.at) }
}

fn before(instant: UnixMillis, span: Millis) -> UnixMillis {
    UnixMillis::new(instant.get().saturating_sub(span.get()))
}
