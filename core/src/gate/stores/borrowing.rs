//! The loans of a store's limits that have a lease.

use super::Asked;
use crate::lending::Terms;
use crate::store::{LendingLimiter, lending_capabilities};
use crate::{Capabilities, Check, Decision, Error, Keys, Limiter, Policy, Refund, Settle, UnixMillis};

/// Decides on checks that have a [lease](Check::lease) from loans, and asks the store about all others.
pub(super) struct Borrowing<'s> {
    store: Asked<'s>,
    /// A borrower for each of the terms.
    borrowers: Vec<(Terms, LendingLimiter<'s, Asked<'s>>)>,
}

impl<'s> Borrowing<'s> {
    pub(super) fn new(store: Asked<'s>, leases: &[Terms]) -> Result<Self, Error> {
        let borrower = |terms: &Terms| Ok((*terms, LendingLimiter::new(store.clone(), *terms)?));
        let borrowers = leases.iter().map(borrower).collect::<Result<_, Error>>()?;
        Ok(Self { store, borrowers })
    }

    /// Keeps questions for [`Borrowing::after`] from now on.
    pub(super) fn in_background(&self) {
        self.borrowers.iter().for_each(|(_, borrower)| borrower.in_background());
    }

    /// What is left to do after a response.
    pub(super) async fn after(&self, now: UnixMillis) {
        for (_, borrower) in &self.borrowers {
            borrower.after(now).await;
        }
    }

    fn borrower(&self, check: &Check<'_>) -> Option<&LendingLimiter<'s, Asked<'s>>> {
        let wanted = check.lease?;
        self.borrowers.iter().find(|(terms, _)| *terms == wanted).map(|(_, borrower)| borrower)
    }
}

impl Limiter for Borrowing<'_> {
    /// Those of the widest terms.
    fn capabilities(&self) -> Capabilities {
        let slice = self.borrowers.iter().map(|(terms, _)| terms.slice).max().unwrap_or_default();
        let lifetime = self.borrowers.iter().map(|(terms, _)| terms.lifetime).max().unwrap_or_default();
        lending_capabilities(self.store.capabilities(), slice, lifetime).borrows(true)
    }

    async fn check(&self, check: Check<'_>) -> Result<Decision, Error> {
        match self.borrower(&check) {
            Some(borrower) => borrower.check(check).await,
            None => self.store.check(check).await,
        }
    }

    async fn settle(&self, settle: Settle<'_>) -> Result<Decision, Error> {
        let settled = self.store.settle(settle).await;
        for (_, borrower) in &self.borrowers {
            borrower.forget_denial(settle.policy, settle.keys);
        }
        settled
    }

    async fn peek(&self, check: Check<'_>) -> Result<Decision, Error> {
        self.store.peek(check).await
    }

    async fn refund(&self, refund: Refund<'_>) -> Result<(), Error> {
        self.store.refund(refund).await
    }

    async fn reset(&self, policy: &Policy, keys: Keys<'_>) -> Result<(), Error> {
        self.store.reset(policy, keys).await
    }
}
