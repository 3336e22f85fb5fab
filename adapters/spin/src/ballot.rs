//! Elects the row that holds a key's state, once, among all of the key's first requests.
//!
//! A swap overwrites if there was no value. So a row must exist before any request swaps it. But creating the row
//! overwrites, too, and a slow request may do so late. Therefore each of a key's first requests takes a number, writes an
//! empty row of its own under that number, and only then tries to elect that row, by a swap on the key's ballot. The
//! ballot is a counter. An increment creates it safely, so the swap always compares. One row is elected, for good, and is
//! written only by swaps that compare. A request that ends midway leaves an empty row behind, which nothing reads.
//!
//! The row with the first number is read first. It stays empty until it is elected, so a request that finds a state in it
//! need not read the ballot.

use tidegate_core::Error;
use tidegate_core::store::Swap;

use crate::bucket::Atomics;
use crate::counter::Counter;
use crate::error;

/// Separates a storage key from the rest of a row's name. No storage key contains it, so no two keys share a row.
pub(crate) const MARK: char = '!';

/// The most attempts in one election. Each concurrent request disturbs it once or twice.
const ATTEMPTS: u32 = 1_024;

/// The content of a row without a state: before its first write, and after a reset.
pub(crate) const EMPTY: &[u8] = &[];

/// A row, by the number of the request that wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row(u32);

impl Row {
    /// The row of the first request. It is elected unless that request was slow or ended midway.
    pub(crate) const FIRST: Self = Self(1);

    pub(crate) fn name(self, key: &str) -> String {
        format!("{key}{MARK}{}", self.0)
    }
}

/// A ballot: in the lower half how many requests took a number, in the upper half which row was elected.
#[derive(Clone, Copy)]
struct Ballot(u64);

impl Ballot {
    fn of(name: &str, value: &[u8]) -> Result<Self, Error> {
        match Counter::read(value) {
            Some(Counter::Binary(count)) => Ok(Self(count.cast_unsigned())),
            Some(Counter::Decimal(_)) => Err(error::wrong_store(name)),
            None => Err(error::no_counter(name, value)),
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
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

/// Returns the elected row, if there is one.
pub(crate) async fn elected(bucket: &impl Atomics, key: &str) -> Result<Option<Row>, Error> {
    let name = name(key);
    match bucket.get(&name).await? {
        Some(value) => Ok(Ballot::of(&name, &value)?.elected()),
        None => Ok(None),
    }
}

/// Returns the elected row. If there is none yet, this holds the election.
pub(crate) async fn elect(bucket: &impl Atomics, key: &str) -> Result<Row, Error> {
    // This also keeps a value that is not a counter from being incremented, which would break the host's store.
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
