//! A lender as bytes: the last number and the borrowers, and for each loan its number, units and end, of 8 bytes each,
//! little-endian. Nothing if nothing was ever lent.

use alloc::format;
use alloc::vec::Vec;

use super::{LOANS_MAX, Lender, Loan, SIXTEENTHS};
use crate::algorithm::MAX_UNITS;
use crate::{Error, ErrorKind, UnixMillis};

/// Numbers are exact integers in a double.
const NUMBER_MAX: u64 = 1 << 53;

impl Lender {
    /// Encodes the lender, for stores of bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        if self.is_unused() {
            return Vec::new();
        }
        let loans = self.loans.iter().flat_map(|loan| [loan.number, loan.units, loan.until.get()]);
        [self.last, self.borrowers].into_iter().chain(loans).flat_map(u64::to_le_bytes).collect()
    }

    /// Decodes what [`Lender::encode`] wrote.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] for other bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        read(bytes).ok_or_else(|| {
            let what = format!("stored loans: {} bytes are not those of loans; delete the key", bytes.len());
            Error::new(ErrorKind::Corrupt, what)
        })
    }
}

fn read(bytes: &[u8]) -> Option<Lender> {
    let mut rest = bytes;
    let mut next = || {
        let (taken, left) = rest.split_first_chunk()?;
        rest = left;
        Some(u64::from_le_bytes(*taken))
    };
    let (last, borrowers) = (next()?, next()?);
    let mut lender = Lender { last, borrowers, loans: Vec::new() };
    while let Some(number) = next() {
        let (units, until) = (next()?, next()?);
        lender.loans.push(Loan { number, units, until: UnixMillis::new(until) });
        let fits = (1..=last).contains(&number) && until <= UnixMillis::MAX.get();
        if !fits || lender.loans.len() > LOANS_MAX {
            return None;
        }
    }
    let sum = lender.loans.iter().try_fold(0u64, |sum, loan| sum.checked_add(loan.units))?;
    let few = borrowers <= SIXTEENTHS * (LOANS_MAX as u64 + 1);
    let fits = (1..=NUMBER_MAX).contains(&last) && few && sum <= MAX_UNITS && rest.is_empty();
    (fits && lender.loans.is_sorted_by_key(|loan| loan.until)).then_some(lender)
}
