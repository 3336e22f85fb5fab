use std::mem;
use std::vec;
use std::vec::Vec;

use hashbrown::HashTable;

use crate::{MAX_CLOCK_SKEW, Millis, UnixMillis};

/// A 64-bit SipHash under a random secret. It stands for a policy and a key, or for these and an idempotency token.
pub(super) type Fingerprint = u64;

/// A table with at most this many rows is not swept, because a visit would cost more than the rows do.
const ROWS_MIN: usize = 16;

/// The rows that a segment has on average before the table gets another one. A segment has at most about twice as many, so
/// that it moves at most some thousand rows when it grows, shrinks or splits.
const SEGMENT: usize = 800;

/// The most segments of a table: a fingerprint has 16 bits for them.
const SEGMENTS_MAX: usize = 1 << 16;

/// The most segments that are removed at once. Those of a table that is nearly empty have less than a quarter of their rows.
const MERGES_MAX: usize = 16;

/// How many rows are drawn, of which one makes room for another.
const DRAWN: usize = 8;

/// How many buckets are looked at for them. Most have a row if a table is full.
const DRAWS: u64 = 64;

/// No time, in units of 1,024 ms.
const NEVER: u64 = u64::MAX;

/// What a [`Table`] stores.
pub(super) trait Row {
    fn fingerprint(&self) -> Fingerprint;

    /// Whether the row has no effect at `now` any more.
    fn has_expired(&self, now: UnixMillis) -> bool;

    /// Makes the row expire at `latest` at the latest.
    fn expire_by(&mut self, latest: UnixMillis);
}

/// A hash table that removes expired rows and returns their memory, a few buckets per visit.
///
/// It grows by linear hashing: it is a list of small hash tables, and when they have too many rows, the next one in turn is
/// split in two. So no call moves more than one segment's rows, however many the table has.
///
/// What each use of a row reads comes first, on one cache line.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Table<T> {
    segments: Vec<HashTable<T>>,
    /// The bits of a fingerprint that select one of the segments, or of as many as the next power of two.
    mask: usize,
    /// The time at which there is nothing to visit, in units of 1,024 ms. [`NEVER`] during a pass.
    idle: u64,
    /// The longest time a row is kept after its last use.
    retention: Millis,
    /// Of all segments.
    len: usize,
    /// The segment and its bucket that the next visit starts at; zeros between two passes.
    cursor: (usize, usize),
    /// The time at which the last pass began, in the same units as [`Self::idle`].
    pass: u64,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            segments: vec![HashTable::new()],
            mask: 0,
            len: 0,
            cursor: (0, 0),
            pass: 0,
            idle: NEVER,
            retention: Millis::ZERO,
        }
    }
}

impl<T: Row> Table<T> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn allocated_bytes(&self) -> usize {
        let segments = self.segments.capacity() * mem::size_of::<HashTable<T>>();
        segments + self.segments.iter().map(HashTable::allocation_size).sum::<usize>()
    }

    #[inline]
    pub(super) fn get(&self, fingerprint: Fingerprint) -> Option<&T> {
        self.segments[self.place(fingerprint)].find(fingerprint, |row| row.fingerprint() == fingerprint)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, fingerprint: Fingerprint) -> Option<&mut T> {
        let place = self.place(fingerprint);
        self.segments[place].find_mut(fingerprint, |row| row.fingerprint() == fingerprint)
    }

    /// Some rows that are drawn by a seed, each row about as likely as any other. At least one, unless the table is empty.
    #[allow(clippy::cast_possible_truncation, reason = "a part of the bits is as good a draw")]
    pub(super) fn drawn(&self, seed: u64) -> impl Iterator<Item = &T> {
        // The first row after a free bucket would be drawn more often: those beside others would stay.
        let drawn = (1..=DRAWS).filter_map(move |nth| {
            // SplitMix64: <https://doi.org/10.1145/2714064.2660195>.
            let mut draw = seed.wrapping_add(nth.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            draw = (draw ^ (draw >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            draw = (draw ^ (draw >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            draw ^= draw >> 31;
            let rows = &self.segments[draw as usize % self.segments.len()];
            let buckets = rows.num_buckets().max(1);
            rows.get_bucket((draw >> 32) as usize % buckets)
        });
        // Of few rows, the buckets that are looked at may have none.
        let few = self.segments.first().filter(|_| self.len < DRAWN);
        drawn.take(DRAWN).chain(few.into_iter().flatten())
    }

    /// Stores a row, replacing the one with its fingerprint.
    pub(super) fn insert(&mut self, row: T) {
        if let Some(found) = self.get_mut(row.fingerprint()) {
            *found = row;
            return;
        }
        self.put(row);
        self.len += 1;
        if self.len > self.segments.len() * SEGMENT && self.segments.len() < SEGMENTS_MAX {
            self.split();
        }
    }

    pub(super) fn remove(&mut self, fingerprint: Fingerprint) {
        let place = self.place(fingerprint);
        if let Ok(row) = self.segments[place].find_entry(fingerprint, |row| row.fingerprint() == fingerprint) {
            row.remove();
            self.len -= 1;
        }
    }

    /// The segment of a fingerprint. The segments' hash tables use the bits at both ends of it, and the choice of a shard those
    /// from the 32nd.
    #[allow(clippy::cast_possible_truncation, reason = "a segment has at most 16 bits")]
    #[inline]
    fn place(&self, fingerprint: Fingerprint) -> usize {
        let bits = usize::from((fingerprint >> 16) as u16);
        // A segment that does not exist yet has its rows in the one that will be split.
        let place = bits & self.mask;
        if place < self.segments.len() { place } else { place & (self.mask >> 1) }
    }

    fn put(&mut self, row: T) {
        let place = self.place(row.fingerprint());
        self.segments[place].insert_unique(row.fingerprint(), row, T::fingerprint);
    }

    /// Adds a segment, and moves the rows there that belong to it.
    #[cold]
    fn split(&mut self) {
        let added = self.segments.len();
        let old = mem::take(&mut self.segments[parent(added)]);
        self.segments[parent(added)] = HashTable::with_capacity(old.len() / 2);
        self.segments.push(HashTable::with_capacity(old.len() / 2));
        self.mask = mask(self.segments.len());
        old.into_iter().for_each(|row| self.put(row));
    }

    /// Removes the last segments while the others have room for their rows, at most some. Only between two passes: a pass would
    /// miss rows that move to a segment before it.
    fn merge(&mut self) {
        for _ in 0..MERGES_MAX {
            let last = self.segments.len() - 1;
            if last == 0 || self.len > last * SEGMENT / 4 {
                break;
            }
            let rows = self.segments.pop().unwrap_or_default();
            self.mask = mask(last);
            self.segments[parent(last)].reserve(rows.len(), T::fingerprint);
            rows.into_iter().for_each(|row| self.put(row));
        }
        if self.segments.len() < self.segments.capacity() / 4 {
            self.segments.shrink_to(self.segments.len() * 2);
        }
    }

    /// Visits the next `buckets` if a pass over the table is in progress or due. A pass is due once a second. The
    /// caller is about to use a row that is kept for `retention`.
    #[inline]
    pub(super) fn tend(&mut self, now: UnixMillis, retention: Millis, buckets: usize) {
        if self.retention < retention {
            self.retention = retention;
        }
        if self.idle != now.get() >> 10 {
            self.visit_if_due(now, buckets);
        }
    }

    #[inline(never)]
    fn visit_if_due(&mut self, now: UnixMillis, buckets: usize) {
        let time = now.get() >> 10;
        if self.cursor != (0, 0) || (self.pass != time && self.len > ROWS_MIN) {
            self.visit(now, buckets);
        } else {
            self.idle = time;
        }
    }

    /// Inspects the next `buckets`, and removes the rows there that have expired. After the last bucket of a segment, it shrinks
    /// the segment.
    #[inline(never)]
    pub(super) fn visit(&mut self, now: UnixMillis, buckets: usize) {
        if self.cursor == (0, 0) {
            (self.pass, self.idle) = (now.get() >> 10, NEVER);
        }
        let (latest, mut left) = (self.latest(now), buckets);
        while left > 0 {
            let (place, start) = self.cursor;
            let Some(rows) = self.segments.get_mut(place) else { break };
            let count = rows.num_buckets();
            let end = (start + left).min(count);
            for index in start..end {
                let expired = rows.get_bucket_mut(index).is_some_and(|row| {
                    row.expire_by(latest);
                    row.has_expired(now)
                });
                if expired && let Ok(row) = rows.get_bucket_entry(index) {
                    row.remove();
                    self.len -= 1;
                }
            }
            self.cursor.1 = end;
            if end < count {
                return;
            }
            left -= end.saturating_sub(start).clamp(1, left);
            shrink(rows);
            self.cursor = (place + 1, 0);
        }
        if self.cursor.0 >= self.segments.len() {
            self.cursor = (0, 0);
            self.merge();
        }
    }

    /// Removes every row of a segment that has expired, and returns all memory that is not needed. `false` if there is no such
    /// segment.
    pub(super) fn sweep(&mut self, segment: usize, now: UnixMillis) -> bool {
        let latest = self.latest(now);
        let Some(rows) = self.segments.get_mut(segment) else {
            self.merge();
            return false;
        };
        let before = rows.len();
        rows.retain(|row| {
            row.expire_by(latest);
            !row.has_expired(now)
        });
        self.len -= before - rows.len();
        rows.shrink_to_fit(T::fingerprint);
        true
    }

    /// The latest expiry that a call may have set if its clock was right.
    fn latest(&self, now: UnixMillis) -> UnixMillis {
        now + self.retention + MAX_CLOCK_SKEW
    }
}

/// The segment that is split to get segment `added`.
const fn parent(added: usize) -> usize {
    added ^ (1 << added.ilog2())
}

const fn mask(segments: usize) -> usize {
    segments.next_power_of_two() - 1
}

/// Returns memory of a hash table that is less than a quarter full.
fn shrink<T: Row>(rows: &mut HashTable<T>) {
    let wanted = if rows.is_empty() { 0 } else { rows.len().max(ROWS_MIN) * 2 };
    if rows.capacity() > wanted * 2 {
        rows.shrink_to(wanted, T::fingerprint);
    }
}
