use hashbrown::HashTable;

use crate::{MAX_CLOCK_SKEW, Millis, UnixMillis};

/// A 64-bit SipHash under a random secret. It stands for a policy and a key, or for these and an idempotency token.
pub(super) type Fingerprint = u64;

/// A table with at most this many rows is not swept, because a visit would cost more than the rows do.
const ROWS_MIN: usize = 16;

/// What a [`Table`] stores.
pub(super) trait Row {
    fn fingerprint(&self) -> Fingerprint;

    /// Whether the row has no effect at `now` any more.
    fn has_expired(&self, now: UnixMillis) -> bool;

    /// Makes the row expire at `latest` at the latest.
    fn expire_by(&mut self, latest: UnixMillis);
}

/// A hash table that removes expired rows and returns their memory, a few buckets per visit.
#[derive(Debug)]
pub(super) struct Table<T> {
    rows: HashTable<T>,
    /// The bucket that the next visit starts at; 0 between two passes.
    cursor: usize,
    /// The time at which the last pass began, in units of 1,024 ms.
    pass: u64,
    /// The longest time a row is kept after its last use.
    retention: Millis,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { rows: HashTable::new(), cursor: 0, pass: 0, retention: Millis::ZERO }
    }
}

impl<T: Row> Table<T> {
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn allocated_bytes(&self) -> usize {
        self.rows.allocation_size()
    }

    #[inline]
    pub(super) fn get(&self, fingerprint: Fingerprint) -> Option<&T> {
        self.rows.find(fingerprint, |row| row.fingerprint() == fingerprint)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, fingerprint: Fingerprint) -> Option<&mut T> {
        self.rows.find_mut(fingerprint, |row| row.fingerprint() == fingerprint)
    }

    /// Stores a row, replacing the one with its fingerprint.
    pub(super) fn insert(&mut self, row: T) {
        match self.get_mut(row.fingerprint()) {
            Some(found) => *found = row,
            None => {
                self.rows.insert_unique(row.fingerprint(), row, T::fingerprint);
            }
        }
    }

    pub(super) fn remove(&mut self, fingerprint: Fingerprint) {
        if let Ok(row) = self.rows.find_entry(fingerprint, |row| row.fingerprint() == fingerprint) {
            row.remove();
        }
    }

    /// Visits the next `buckets` if a pass over the table is in progress or due. A pass is due once a second. The
    /// caller is about to use a row that is kept for `retention`.
    #[inline]
    pub(super) fn tend(&mut self, now: UnixMillis, retention: Millis, buckets: usize) {
        self.retention = self.retention.max(retention);
        if self.cursor > 0 || (self.pass != now.get() >> 10 && self.rows.len() > ROWS_MIN) {
            self.visit(now, buckets);
        }
    }

    /// Inspects the next `buckets`, removes the rows there that have expired, and shrinks the table after the last bucket.
    #[inline(never)]
    fn visit(&mut self, now: UnixMillis, buckets: usize) {
        if self.cursor == 0 {
            self.pass = now.get() >> 10;
        }
        let latest = self.latest(now);
        let end = (self.cursor + buckets).min(self.rows.num_buckets());
        for index in self.cursor..end {
            let expired = self.rows.get_bucket_mut(index).is_some_and(|row| {
                row.expire_by(latest);
                row.has_expired(now)
            });
            if expired && let Ok(row) = self.rows.get_bucket_entry(index) {
                row.remove();
            }
        }
        self.cursor = end;
        if end == self.rows.num_buckets() {
            self.cursor = 0;
            let wanted = self.rows.len().max(ROWS_MIN) * 2;
            if self.rows.capacity() > wanted * 2 {
                self.rows.shrink_to(wanted, T::fingerprint);
            }
        }
    }

    /// Removes every row that has expired, and returns all memory that is not needed.
    pub(super) fn sweep(&mut self, now: UnixMillis) {
        let latest = self.latest(now);
        self.rows.retain(|row| {
            row.expire_by(latest);
            !row.has_expired(now)
        });
        self.rows.shrink_to_fit(T::fingerprint);
        self.cursor = 0;
    }

    /// The latest expiry that a call may have set if its clock was right.
    fn latest(&self, now: UnixMillis) -> UnixMillis {
        now + self.retention + MAX_CLOCK_SKEW
    }
}
