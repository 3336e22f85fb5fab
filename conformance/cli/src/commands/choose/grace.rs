//! The grace of leases that keeps to an excess.

use serde::Serialize;
use tidegate_core::lending;
use tidegate_traffic::simulate::{Design, Setup, designs};

use super::candidates::candidates;
use super::platform::Platform;

/// What a borrower admits of a key before it has heard of the key, and what follows.
#[derive(Debug, Serialize)]
pub(super) struct Grace {
    pub(super) units: u64,
    /// How many isolates a client meets at most within its limit's longest window.
    borrowers: u64,
    /// The most that each quota admits.
    ceilings: Vec<u64>,
    #[serde(skip)]
    limits: Vec<u64>,
}

impl Grace {
    /// The largest grace with which borrowers admit at most `excess` more than a limit. `None` for an excess of 0.
    pub(super) fn within(excess: u64, setup: &Setup, platform: Platform) -> Result<Option<Self>, String> {
        if excess == 0 {
            return Ok(None);
        }
        let refused = |what: String, fix: &str| Err(format!("--excess: {what}; {fix}leave --excess out"));
        let Some(slice) = slice(platform) else {
            return refused(format!("no design of {platform} lends, so none has a grace"), "");
        };
        if let Err(error) = lending::supports(&setup.policy) {
            return refused(error.to_string(), "otherwise ");
        }
        let limits: Vec<u64> = setup.policy.quotas().iter().map(|quota| quota.rule().limit()).collect();
        let (borrowers, least) = (setup.borrowers(), limits.iter().copied().min().unwrap_or_default());
        let each = format!(
            "is less than one unit for each of {borrowers} isolates that a client meets (--places, --isolates, --isolate-seconds)"
        );
        if least < borrowers {
            return refused(format!("the limit of {least} {each}"), "raise the limit, or ");
        }
        let write = format!("write {borrowers} to {least}, or ");
        if excess < borrowers {
            return refused(format!("{excess} {each}"), &write);
        }
        if excess > least {
            return refused(format!("{excess} is more than the limit of {least}"), &write);
        }
        let units = (excess / borrowers).min(slice);
        let ceilings = limits.iter().map(|limit| limit + units * borrowers).collect();
        Ok(Some(Self { units, borrowers, ceilings, limits }))
    }

    /// What it may admit, and on whom that depends.
    pub(super) fn in_words(&self, setup: &Setup) -> String {
        let Self { units, borrowers, ceilings, limits } = self;
        let sums = limits.iter().zip(ceilings).map(|(limit, most)| format!("{limit} + {units} x {borrowers} = {most}"));
        let sums = sums.collect::<Vec<_>>().join(", and ");
        let seconds = setup.isolate_seconds;
        format!(
            "With a grace of {units}, at most limit + grace x borrowers are admitted: {sums}. The borrowers are\n\
             the isolates or processes that a client meets in a window: here {borrowers}, each of which lives for {seconds} s. A deployment \
             that\nreplaces all of them in a window doubles their number. core/docs/replicas.md says how to find it out."
        )
    }
}

/// Whether a platform has a design that lends.
pub(super) fn lends(platform: Platform) -> bool {
    slice(platform).is_some()
}

/// The most that a borrower holds in the designs of a platform. None admits more by grace.
fn slice(platform: Platform) -> Option<u64> {
    let is_here = |design: &Design| candidates(platform).any(|candidate| candidate.design == design.name);
    let slices = designs(0).into_iter().filter(|design| is_here(design) && design.is_default());
    slices.filter_map(|design| design.lease()).map(|lease| lease.slice).min()
}
