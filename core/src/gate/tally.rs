//! Counters of events in bounded memory.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Event, EventSink, Outcome};

/// Counts outcomes, and finds the keys that are denied most, in bounded memory.
///
/// The top keys are found by the Space-Saving algorithm (Metwally, Agrawal, El Abbadi: Efficient Computation of Frequent and
/// Top-k Elements in Data Streams, 2005). A key that is denied more than `denied / capacity` times is always among them. Its
/// count may be too high by [`TopKey::error`], and is never too low.
///
/// Clones share their counts, so keep one to read them.
///
/// ```
/// use tidegate_core::gate::{Events, Tally};
/// let tally = Tally::new(100);
/// let events = Events::new(tally.clone());
/// assert_eq!(tally.read().denied, 0);
/// ```
#[derive(Clone, Debug)]
pub struct Tally(Arc<Mutex<Counts>>);

#[derive(Debug)]
struct Counts {
    totals: Tallied,
    capacity: usize,
    /// The count of each key, and by how much it may be too high.
    keys: HashMap<u64, (u64, u64)>,
    /// The same, smallest count first.
    order: BTreeSet<(u64, u64)>,
}

/// What a [`Tally`] has counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tallied {
    /// Requests that a limit admitted.
    pub allowed: u64,
    /// Of these, the requests after which less than a tenth of the limit remained.
    pub near_limit: u64,
    /// Requests that a limit denied.
    pub denied: u64,
    /// Requests of senders on the list `deny`.
    pub listed: u64,
    /// Requests that have to pass a challenge.
    pub challenged: u64,
    /// Requests that were refused because of an invalid token.
    pub invalid_tokens: u64,
    /// Requests that the limiter did not decide on.
    pub failed: u64,
    /// The keys that were denied most, most first.
    pub top: Vec<TopKey>,
}

/// A key that was denied often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopKey {
    /// [`Event::key`].
    pub key: u64,
    /// How often it was denied, at most.
    pub count: u64,
    /// By how much `count` may be too high.
    pub error: u64,
}

impl Tally {
    /// A tally that remembers at most `capacity` keys, and at least one.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let (totals, keys, order) = (Tallied::default(), HashMap::new(), BTreeSet::new());
        Self(Arc::new(Mutex::new(Counts { totals, capacity: capacity.max(1), keys, order })))
    }

    /// What was counted so far.
    #[must_use]
    pub fn read(&self) -> Tallied {
        let counts = self.counts();
        let top = |(count, key): &(u64, u64)| {
            let (_, error) = counts.keys[key];
            TopKey { key: *key, count: *count, error }
        };
        Tallied { top: counts.order.iter().rev().map(top).collect(), ..counts.totals.clone() }
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventSink for Tally {
    fn event(&self, event: &Event<'_>) {
        let (mut counts, weight) = (self.counts(), u64::from(event.weight));
        match event.outcome {
            Outcome::Allowed => {
                counts.totals.allowed += weight;
                let is_near = |(limit, remaining): (u64, u64)| remaining.saturating_mul(10) < limit;
                if event.limit.zip(event.remaining).is_some_and(is_near) {
                    counts.totals.near_limit += weight;
                }
            }
            Outcome::Denied | Outcome::NeverAdmissible => {
                counts.totals.denied += weight;
                if let Some(key) = event.key {
                    counts.denied(key);
                }
            }
            Outcome::Listed => counts.totals.listed += weight,
            Outcome::Challenged => counts.totals.challenged += weight,
            Outcome::InvalidToken => counts.totals.invalid_tokens += weight,
            Outcome::FailedOpen | Outcome::FailedClosed => counts.totals.failed += weight,
        }
    }
}

impl Counts {
    fn denied(&mut self, key: u64) {
        let (count, error) = match self.keys.get(&key) {
            Some((count, error)) => {
                self.order.remove(&(*count, key));
                (*count, *error)
            }
            None if self.keys.len() < self.capacity => (0, 0),
            // The new key takes the place and the count of the smallest.
            None => match self.order.pop_first() {
                Some((count, smallest)) => {
                    self.keys.remove(&smallest);
                    (count, count)
                }
                None => (0, 0),
            },
        };
        self.keys.insert(key, (count + 1, error));
        self.order.insert((count + 1, key));
    }
}

#[cfg(test)]
mod tests {
    use super::Tally;

    #[test]
    fn the_most_denied_keys_are_found_among_any_number_in_bounded_memory() {
        let tally = Tally::new(200);
        {
            let mut counts = tally.counts();
            for n in 0..1_000_000_u64 {
                // Every 50th denial is of one of three keys, the others are of new ones.
                counts.denied(if n % 50 == 0 { n / 50 % 3 } else { n + 1_000 });
            }
            assert_eq!((counts.keys.len(), counts.order.len()), (200, 200));
        }
        let top = tally.read().top;
        let mut first: Vec<u64> = top[..3].iter().map(|top| top.key).collect();
        first.sort_unstable();
        assert_eq!(first, [0, 1, 2]);
        // Each was denied 6,666 or 6,667 times, which is more than a 200th of all.
        assert!(top[..3].iter().all(|top| top.count >= 6_666 && top.count - top.error <= 6_667), "{:?}", &top[..3]);
    }
}
