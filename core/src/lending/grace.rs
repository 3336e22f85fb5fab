//! What a borrower admits before it has heard of a key.

use super::Answer;
use crate::{Millis, QuotaStatus, UnixMillis};

/// What a borrower has admitted of a key without a loan, and whether it may admit more.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Grace {
    /// Admitted, and not known to be charged.
    pub(super) owed: u64,
    /// The part of it that the question under way tells.
    pub(super) told: u64,
    /// Whether an answer was lost. Until the next one, only questions that nobody waits for tell what is owed: one that the store does
    /// not understand must not fail a check.
    pub(super) is_lost: bool,
    sight: Sight,
    /// When the key is unused, if it gets no grace and nothing else arrives.
    pub(super) until: UnixMillis,
}

/// How the borrower has last seen the key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sight {
    /// Not at all, or with at least half of each limit left.
    #[default]
    Good,
    /// With less left. It gets no grace until it is seen well below its limit.
    Near,
    /// At its limit, after a grace. It gets none until it is unused.
    Overdrawn,
}

impl Grace {
    /// Admits a cost, if what is owed is then at most the grace.
    pub(super) fn admits(&mut self, cost: u64, grace: u64, now: UnixMillis) -> bool {
        let admits = cost > 0 && self.would_admit(cost, grace, now);
        if admits {
            self.owed += cost;
        }
        admits
    }

    /// Whether it admits a cost that is not 0.
    pub(super) fn would_admit(&self, cost: u64, grace: u64, now: UnixMillis) -> bool {
        // At the end of time, nothing would end it.
        let has_time = now < UnixMillis::MAX;
        self.owed.saturating_add(cost) <= grace && !self.is_lost && has_time && self.sight(now) == Sight::Good
    }

    fn sight(&self, now: UnixMillis) -> Sight {
        if now < self.until { self.sight } else { Sight::Good }
    }

    /// What a question tells that is asked along with a check of this cost.
    pub(super) fn tell(&mut self, cost: u64) -> u64 {
        self.told = if self.is_lost && cost > 0 { 0 } else { self.owed };
        self.told
    }

    /// Takes the answer to a question that was asked at `from` and is answered at `to` at the latest, or `None` if there is none.
    pub(super) fn answered(&mut self, answer: Option<&Answer>, from: UnixMillis, to: UnixMillis) {
        let told = core::mem::take(&mut self.told);
        let Some(Answer { decision, .. }) = answer else {
            self.is_lost |= told > 0;
            return;
        };
        self.owed -= told;
        self.is_lost &= self.owed > 0;
        let quotas = decision.quotas();
        let is_left = |quota: &QuotaStatus| quota.remaining().is_some_and(|left| left > 0);
        let is_half_left =
            |quota: &QuotaStatus| quota.remaining().is_some_and(|left| left >= quota.limit().saturating_sub(left));
        let sight = match self.sight(from) {
            Sight::Overdrawn => Sight::Overdrawn,
            _ if told > 0 && !(decision.is_allowed() && quotas.iter().all(is_left)) => Sight::Overdrawn,
            _ if quotas.iter().all(is_half_left) => Sight::Good,
            _ => Sight::Near,
        };
        let unused = quotas.iter().filter_map(|quota| quota.reset_after()).max().unwrap_or(Millis::ZERO);
        (self.sight, self.until) = (sight, if sight == Sight::Good { UnixMillis::new(0) } else { to + unused });
    }

    /// The key has another policy now, by which it has not been seen.
    pub(super) fn change(&mut self, now: UnixMillis, until: UnixMillis) {
        if self.sight(now) == Sight::Good {
            (self.sight, self.until) = (Sight::Near, until);
        }
    }
}
