//! Which row holds a key's state: decided once, by all that come first together.
//!
//! A swap from nothing overwrites, so a row must be there before anyone swaps. But whoever puts it there overwrites, too, and may
//! do so late. So each of the first requests claims a number, puts down an empty row of its own under that number, and
//! only then asks to have it elected, by a swap of the key's ballot. The ballot is a counter, which an increment
//! creates soundly, so that swap is sound. One row is elected, for good; nobody writes to it but by swaps from what is
//! there. One that fails midway leaves an empty row behind that nobody reads.
//!
//! The first claim's row is looked at first. It is empty until it is elected, so whoever finds a state in it need not look
//! at the ballot.

use tidegate_core::Error;
use tidegate_core::store::Swap;

use crate::bucket::Atomics;
use crate::error;

/// What goes between a storage key and what tells its rows apart. No storage key has it, so no two share a row.
pub(crate) const MARK: char = '!';

/// Others that may disturb one election. Each does so once or twice, so it takes as many at once.
const ATTEMPTS: u32 = 1_024;

/// What an elected row holds before it holds a state, and after a reset.
pub(crate) const EMPTY: &[u8] = &[];

/// A row, by the number of its claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row(u32);

impl Row {
    /// The first claim's, which is the elected one unless the first failed midway, or was slow.
    pub(crate) const FIRST: Self = Self(1);

    pub(crate) fn name(self, key: &str) -> String {
        format!("{key}{MARK}{}", self.0)
    }
}

/// A ballot: how many claims there were, and above them which was elected.
#[derive(Clone, Copy)]
struct Ballot(u64);

impl Ballot {
    fn of(name: &str, value: &[u8]) -> Result<Self, Error> {
        let value = value.try_into().map_err(|_| error::no_counter(name, value))?;
        Ok(Self(u64::from_le_bytes(value)))
    }

    #[expect(clippy::cast_possible_truncation, reason = "the lower half is meant")]
    fn claims(self) -> u32 {
        self.0 as u32
    }

    fn elected(self) -> Option<Row> {
        let number = (self.0 >> 32) as u32;
        (number != 0).then_some(Row(number))
    }

    fn electing(self, row: Row) -> [u8; 8] {
        (u64::from(row.0) << 32 | u64::from(self.claims())).to_le_bytes()
    }
}

pub(crate) fn name(key: &str) -> String {
    format!("{key}{MARK}")
}

/// The row that was elected, if any was.
pub(crate) async fn elected(bucket: &impl Atomics, key: &str) -> Result<Option<Row>, Error> {
    let name = name(key);
    match bucket.get(&name).await? {
        Some(value) => Ok(Ballot::of(&name, &value)?.elected()),
        None => Ok(None),
    }
}

/// The row that is elected; where none is yet, by an election.
pub(crate) async fn elect(bucket: &impl Atomics, key: &str) -> Result<Row, Error> {
    // This is also what keeps a foreign value from being incremented, which would end the host's store.
    if let Some(row) = elected(bucket, key).await? {
        return Ok(row);
    }
    let name = name(key);
    let ballot = Ballot(bucket.increment(&name, 1).await?.cast_unsigned());
    if let Some(row) = ballot.elected() {
        return Ok(row);
    }
    let own = Row(ballot.claims());
    bucket.set(&own.name(key), EMPTY).await?;
    for _ in 0..ATTEMPTS {
        let (cas, value) = bucket.compare(&name).await?;
        let ballot = Ballot::of(&name, &value.unwrap_or_default())?;
        if let Some(row) = ballot.elected() {
            bucket.delete(&own.name(key)).await?;
            return Ok(row);
        }
        if bucket.swap(cas, &ballot.electing(own)).await? == Swap::Done {
            return Ok(own);
        }
    }
    Err(error::disturbed(&name, ATTEMPTS))
}
