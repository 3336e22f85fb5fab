//! The loans of a store's limits that have a lease.

use super::Store;
use crate::lending::Lease;
use crate::store::{LendingLimiter, ToTell, lending_capabilities};
use crate::{Capabilities, Check, Error, Limiter, Operation, Reply, UnixMillis};

/// Decides on checks that have a [lease](Check::lease) from loans, and asks the store about all others.
pub(super) struct Borrowing<'s> {
    store: Store<'s>,
    /// A borrower for each lease.
    borrowers: Vec<(Lease, LendingLimiter<'s, Store<'s>>)>,
    #[cfg(feature = "metrics")]
    told: std::sync::OnceLock<metrics::Gauge>,
}

impl<'s> Borrowing<'s> {
    pub(super) fn new(store: Store<'s>, leases: &[Lease]) -> Result<Self, Error> {
        let borrower = |lease: &Lease| Ok((*lease, LendingLimiter::new(store.clone(), *lease)?));
        let borrowers = leases.iter().map(borrower).collect::<Result<_, Error>>()?;
        Ok(Self {
            store,
            borrowers,
            #[cfg(feature = "metrics")]
            told: std::sync::OnceLock::new(),
        })
    }

    /// Keeps questions for [`Borrowing::after`] from now on. `name` is that of the store.
    #[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "it is the label of a metric"))]
    pub(super) fn in_background(&self, name: &str) {
        self.borrowers.iter().for_each(|(_, borrower)| borrower.in_background());
        #[cfg(feature = "metrics")]
        if self.grace() > 0 {
            self.told.get_or_init(|| {
                let gauge = metrics::gauge!("tidegate_lease_grace", "store" => name.to_owned());
                gauge.increment(as_f64(self.grace()));
                gauge
            });
        }
    }

    /// The largest grace of its leases.
    fn grace(&self) -> u64 {
        self.borrowers.iter().map(|(lease, _)| lease.grace).max().unwrap_or_default()
    }

    /// What there is to tell the store.
    pub(super) fn has_to_tell(&self, now: UnixMillis) -> ToTell {
        self.borrowers.iter().map(|(_, borrower)| borrower.has_to_tell(now)).max().unwrap_or(ToTell::Nothing)
    }

    /// Tells it.
    pub(super) async fn tell(&self, now: UnixMillis) {
        for (_, borrower) in &self.borrowers {
            borrower.tell(now).await;
        }
    }

    fn borrower(&self, check: &Check<'_>) -> Option<&LendingLimiter<'s, Store<'s>>> {
        let wanted = check.lease?;
        self.borrowers.iter().find(|(lease, _)| *lease == wanted).map(|(_, borrower)| borrower)
    }
}

impl Limiter for Borrowing<'_> {
    /// Those of the widest lease.
    fn capabilities(&self) -> Capabilities {
        let leases = || self.borrowers.iter().map(|(lease, _)| lease);
        let lifetime = leases().map(|lease| lease.lifetime).max().unwrap_or_default();
        let widest = Lease::new(leases().map(|lease| lease.slice).max().unwrap_or_default(), lifetime);
        lending_capabilities(self.store.capabilities(), &Lease { grace: self.grace(), ..widest }).borrows(true)
    }

    async fn apply(&self, operation: Operation<'_>) -> Result<Reply, Error> {
        let borrower = match &operation {
            Operation::Check(check) => self.borrower(check),
            Operation::Lend(..) | Operation::Refund(_) => return Err(operation.unsupported()),
            _ => None,
        };
        if let Some(borrower) = borrower {
            return borrower.apply(operation).await;
        }
        let reply = self.store.apply(operation).await;
        if let Operation::Settle(_) | Operation::Reset { .. } = operation {
            for (_, borrower) in &self.borrowers {
                borrower.forget_denial(operation.policy(), operation.keys());
            }
        }
        reply
    }
}

/// A borrower that is gone admits nothing.
#[cfg(feature = "metrics")]
impl Drop for Borrowing<'_> {
    fn drop(&mut self) {
        if let Some(gauge) = self.told.get() {
            gauge.decrement(as_f64(self.grace()));
        }
    }
}

#[cfg(feature = "metrics")]
#[expect(clippy::cast_precision_loss, reason = "a grace is at most 2^51")]
const fn as_f64(units: u64) -> f64 {
    units as f64
}
