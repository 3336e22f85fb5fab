//! A lender as bytes: the last number and the borrowers, and for each loan its number, units and end, of 8 bytes each,
//! little-endian. Nothing if nothing was ever lent.

use alloc::format;
use alloc::vec::Vec;

use super::{LOANS_MAX, Lender, Lent, SIXTEENTHS};
use crate::algorithm::MAX_UNITS;
use crate::{Error, ErrorKind, UnixMillis};

/// Numbers are exact integers in a double.
const NUMBER_MAX: u64 = 1 << 53;

impl Lender {
    /// The last number and the borrowers, then for each loan its number, units and end. Empty if nothing was ever lent.
    #[must_use]
    pub fn numbers(&self) -> Vec<u64> {
        if self.is_unused() {
            return Vec::new();
        }
        let loans = self.loans.iter().flat_map(|loan| [loan.number, loan.units, loan.until.get()]);
        [self.last, self.borrowers].into_iter().chain(loans).collect()
    }

    /// A lender of its [numbers](Lender::numbers).
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] for other numbers.
    pub fn from_numbers(numbers: &[u64]) -> Result<Self, Error> {
        if numbers.is_empty() {
            return Ok(Self::default());
        }
        read(numbers).ok_or_else(|| {
            let what = format!("stored loans: {} numbers are not those of loans; delete the key", numbers.len());
            Error::new(ErrorKind::Corrupt, what)
        })
    }

    /// Encodes the lender, for stores of bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        self.numbers().into_iter().flat_map(u64::to_le_bytes).collect()
    }

    /// Decodes what [`Lender::encode`] wrote.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] for other bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let (numbers, rest) = bytes.as_chunks();
        if !rest.is_empty() {
            let what = format!("stored loans: {} bytes are not those of loans; delete the key", bytes.len());
            return Err(Error::new(ErrorKind::Corrupt, what));
        }
        Self::from_numbers(&numbers.iter().map(|number| u64::from_le_bytes(*number)).collect::<Vec<_>>())
    }
}

fn read(numbers: &[u64]) -> Option<Lender> {
    let ([last, borrowers], rest) = numbers.split_first_chunk().map(|(head, rest)| (*head, rest))?;
    let (loans, []) = rest.as_chunks() else { return None };
    let loans = loans.iter().map(|[number, units, until]| {
        let fits = (1..=last).contains(number) && *until <= UnixMillis::MAX.get();
        fits.then_some(Lent { number: *number, units: *units, until: UnixMillis::new(*until) })
    });
    let loans = loans.collect::<Option<Vec<_>>>()?;
    let sum = loans.iter().try_fold(0u64, |sum, loan| sum.checked_add(loan.units))?;
    let few = loans.len() <= LOANS_MAX && borrowers <= SIXTEENTHS * (LOANS_MAX as u64 + 1);
    let fits = (1..=NUMBER_MAX).contains(&last) && few && sum <= MAX_UNITS;
    (fits && loans.is_sorted_by_key(|loan| loan.until)).then_some(Lender { last, borrowers, loans })
}
