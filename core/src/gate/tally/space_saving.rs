//! The most frequent keys of a stream, in bounded memory.

use std::collections::{BTreeSet, HashMap};

use super::TopKey;

/// The Space-Saving algorithm (Metwally, Agrawal, El Abbadi: Efficient Computation of Frequent and Top-k Elements in Data Streams, 2005).
///
/// Of `n` units in all, a key with more than `n / capacity` is always remembered. Its count is never too low, and too high by its error at
/// most, which is at most `n / capacity`.
#[derive(Debug)]
pub(super) struct SpaceSaving {
    capacity: usize,
    /// The count of each key, and by how much it may be too high.
    keys: HashMap<u64, (u64, u64)>,
    /// The same, smallest count first.
    order: BTreeSet<(u64, u64)>,
}

impl SpaceSaving {
    /// Remembers at most `capacity` keys, and at least one.
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), keys: HashMap::new(), order: BTreeSet::new() }
    }

    pub(super) fn add(&mut self, key: u64, weight: u64) {
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
        let count = count.saturating_add(weight);
        self.keys.insert(key, (count, error));
        self.order.insert((count, key));
    }

    /// The keys, most first.
    pub(super) fn top(&self) -> Vec<TopKey> {
        let top = |(count, key): &(u64, u64)| {
            let (_, error) = self.keys[key];
            TopKey { key: *key, count: *count, error }
        };
        self.order.iter().rev().map(top).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::SpaceSaving;

    #[test]
    fn the_most_frequent_keys_are_found_among_any_number_in_bounded_memory() {
        let mut found = SpaceSaving::new(200);
        for n in 0..1_000_000_u64 {
            // Every 50th is one of three keys, the others are new ones.
            found.add(if n % 50 == 0 { n / 50 % 3 } else { n + 1_000 }, 1);
        }
        assert_eq!((found.keys.len(), found.order.len()), (200, 200));
        let top = found.top();
        let mut first: Vec<u64> = top[..3].iter().map(|top| top.key).collect();
        first.sort_unstable();
        assert_eq!(first, [0, 1, 2]);
        // Each came 6,666 or 6,667 times, which is more than a 200th of all.
        assert!(top[..3].iter().all(|top| top.count >= 6_666 && top.count - top.error <= 6_667), "{:?}", &top[..3]);
    }

    proptest! {
        #[test]
        fn each_count_lies_within_its_error_and_every_frequent_key_is_found(
            capacity in 1..12_usize,
            stream in prop::collection::vec((prop_oneof![0..4_u64, 0..1_000_u64], prop_oneof![Just(1), 1..60_u64]), 0..400),
        ) {
            let (mut found, mut truth) = (SpaceSaving::new(capacity), HashMap::<u64, u64>::new());
            for (key, weight) in &stream {
                found.add(*key, *weight);
                *truth.entry(*key).or_default() += weight;
            }
            let (all, most, top) = (truth.values().sum::<u64>(), capacity as u64, found.top());
            prop_assert!(top.len() <= capacity);
            for one in &top {
                prop_assert!(one.count - one.error <= truth[&one.key] && truth[&one.key] <= one.count, "{:?}", one);
                prop_assert!(one.error * most <= all);
            }
            for (key, _) in truth.iter().filter(|(_, count)| *count * most > all) {
                prop_assert!(top.iter().any(|one| one.key == *key), "{}", key);
            }
        }
    }
}
