//! What a borrower and a lender tell each other; see [`lending`](crate::lending).

use alloc::format;
use core::fmt;

use crate::{Decision, Error, ErrorKind, Millis};

/// The longest life of a loan.
pub const LIFETIME_MAX: Millis = Millis::from_secs(60);

/// The upper bounds of loans, and how a borrower asks for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The most units that a borrower holds of a key.
    pub slice: u64,
    /// The longest life of a loan, and of a denial. A loan lives for [`LIFETIME_MAX`] at most.
    pub lifetime: Millis,
    /// When a question without an answer is given up.
    pub deadline: Millis,
    /// Whether the host asks questions that nobody waits for. If so, no request of a steady client waits.
    pub in_background: bool,
    /// The most units of a key that a borrower admits before it has heard of the key, if the host asks questions
    /// [in the background](Self::in_background). 0 by default: the first request of a key waits for the store.
    pub grace: u64,
}

impl Lease {
    /// Loans of at most `slice` units and `lifetime`, with a deadline of two seconds, none in the background, and no grace.
    #[must_use]
    pub const fn new(slice: u64, lifetime: Millis) -> Self {
        Self { slice, lifetime, deadline: Millis::from_secs(2), in_background: false, grace: 0 }
    }

    /// Whether anything can be lent by it.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if the lifetime is zero or longer than [`LIFETIME_MAX`], or the slice is zero.
    pub fn verify(&self) -> Result<(), Error> {
        if self.lifetime == Millis::ZERO || self.lifetime > LIFETIME_MAX {
            let what = format!("lifetime: {} is out of range; write 1 ms to {LIFETIME_MAX}", self.lifetime);
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        if self.slice == 0 {
            return Err(Error::new(ErrorKind::Invalid, "slice: 0 lends nothing; write at least 1"));
        }
        Ok(())
    }
}

/// Such as `at most 50 units, for at most 60000 ms`.
impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {} units, for at most {}", self.slice, self.lifetime)?;
        if self.grace == 0 {
            return Ok(());
        }
        write!(
            f,
            ", and {} units before the first answer; each process or isolate may exceed the limit by so many",
            self.grace
        )
    }
}

/// What a borrower asks along with a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Question {
    /// The most units that the borrower wants to hold, with those that it keeps.
    pub wanted: u64,
    /// The time in which it expects to spend them.
    pub within: Millis,
    /// What it has admitted without a loan, of its [grace](Lease::grace). It is charged first, also beyond the limit.
    pub owed: u64,
    /// The longest life of a loan or a denial.
    pub lifetime: Millis,
    /// What becomes of the borrower's last loan.
    pub back: Option<Returned>,
}

/// What becomes of a loan. The part that is neither given back nor kept was spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Returned {
    /// The number of the loan.
    pub loan: u64,
    /// Given back: the borrower will not spend it.
    pub unspent: u64,
    /// Kept: the borrower still spends it, and it becomes part of the next loan.
    pub kept: u64,
}

/// A part of a quota that the borrower may spend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loan {
    /// The number of the loan, for its return.
    pub number: u64,
    /// The units, with those that the borrower kept.
    pub units: u64,
    /// How long they may be spent from the instant at which the borrower asked.
    pub lasts: Millis,
}

/// The lender's answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The decision on the check.
    pub decision: Decision,
    /// The next loan. `None` also ends what the borrower kept of the last one.
    pub granted: Option<Loan>,
    /// How long the borrower may repeat a denial. Zero if the check was not denied.
    pub denies_for: Millis,
}

/// Loans of at most 50 units and [`LIFETIME_MAX`].
impl Default for Lease {
    fn default() -> Self {
        Self::new(50, LIFETIME_MAX)
    }
}

/// The decision of a plain call, without a loan.
impl From<Decision> for Answer {
    fn from(decision: Decision) -> Self {
        Self { decision, granted: None, denies_for: Millis::ZERO }
    }
}
