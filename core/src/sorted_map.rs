//! A map that is sorted by its keys' hashes.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

/// A map from text to values, for WebAssembly adapters. A `BTreeMap` would take 4.3 KiB more of a Worker with one limit, and 5.6 of one with
/// all of Cloudflare's stores, gzipped.
///
/// A lookup is a binary search among the keys' hashes, which are side by side in memory, and then one comparison of keys. A new key
/// moves a hash and a pointer for each key after it. So the map suits some ten thousand keys. Keys of one hash are sorted, so a choice
/// of keys makes a lookup a binary search among them, and nothing worse.
///
/// ```
/// use tidegate_core::internal::SortedMap;
/// let mut counts = SortedMap::new();
/// counts.insert("ip:192.0.2.2", 1);
/// counts.insert("ip:192.0.2.1", 2);
/// assert_eq!(counts.insert("ip:192.0.2.2", 3), Some(1));
/// assert_eq!((counts.get("ip:192.0.2.2"), counts.len()), (Some(&3), 2));
/// assert_eq!(counts.remove("ip:192.0.2.1"), Some(2));
/// assert_eq!(counts.get("ip:192.0.2.1"), None);
/// ```
#[derive(Clone, Debug)]
pub struct SortedMap<T>(Vec<(u64, Box<(String, T)>)>);

impl<T> SortedMap<T> {
    /// An empty map.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// The number of keys.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the map is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value of a key.
    #[must_use]
    #[inline]
    pub fn get(&self, key: &str) -> Option<&T> {
        // To compare a few takes less time than to hash the key.
        if self.len() <= FEW {
            return self.iter().find(|(known, _)| *known == key).map(|(_, value)| value);
        }
        self.place(key).ok().map(|place| &self.0[place].1.1)
    }

    /// The value of a key, mutable.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut T> {
        self.place(key).ok().map(|place| &mut self.0[place].1.1)
    }

    /// The value of a key, which is the default at first.
    #[cfg(feature = "gate")]
    pub fn get_or_default(&mut self, key: &str) -> &mut T
    where
        T: Default,
    {
        let place = self.place(key).unwrap_or_else(|place| {
            self.0.insert(place, (hash(key), Box::new((key.to_owned(), T::default()))));
            place
        });
        &mut self.0[place].1.1
    }

    /// Stores a value and returns the one that it replaces.
    pub fn insert(&mut self, key: &str, value: T) -> Option<T> {
        match self.place(key) {
            Ok(place) => Some(core::mem::replace(&mut self.0[place].1.1, value)),
            Err(place) => {
                self.0.insert(place, (hash(key), Box::new((key.to_owned(), value))));
                None
            }
        }
    }

    /// Removes a key and returns its value.
    pub fn remove(&mut self, key: &str) -> Option<T> {
        self.place(key).ok().map(|place| self.0.remove(place).1.1)
    }

    /// Removes each key for whose value `keep` is false.
    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        self.0.retain(|(_, held)| keep(&held.1));
    }

    /// The keys and their values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.0.iter().map(|(_, held)| (held.0.as_str(), &held.1))
    }

    /// The index of a key, or where to insert it.
    fn place(&self, key: &str) -> Result<usize, usize> {
        let sought = hash(key);
        self.0.binary_search_by(|(hash, held)| hash.cmp(&sought).then_with(|| held.0.as_str().cmp(key)))
    }
}

/// Fewer in tests, so that longer maps are tried, too.
const FEW: usize = if cfg!(test) { 1 } else { 4 };

/// FNV-1a. In tests few hashes differ, so that keys are compared, too.
fn hash(key: &str) -> u64 {
    let hash =
        key.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    if cfg!(test) { hash % 4 } else { hash }
}

impl<T> Default for SortedMap<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;
    use alloc::string::String;
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::SortedMap;

    proptest! {
        #[test]
        fn it_agrees_with_a_btree_map(steps in prop::collection::vec((0..4u8, "[a-c]{0,2}", 0..9u32), 0..60)) {
            let (mut map, mut model) = (SortedMap::new(), BTreeMap::<String, u32>::new());
            for (step, key, value) in steps {
                match step {
                    0 => prop_assert_eq!(map.insert(&key, value), model.insert(key, value)),
                    1 => prop_assert_eq!(map.remove(&key), model.remove(&key)),
                    2 => prop_assert_eq!(map.get_mut(&key).map(|held| core::mem::replace(held, value)),
                        model.get_mut(&key).map(|held| core::mem::replace(held, value))),
                    _ => {
                        map.retain(|held| *held != value);
                        model.retain(|_, held| *held != value);
                    }
                }
                prop_assert_eq!((map.len(), map.is_empty()), (model.len(), model.is_empty()));
                let held: Vec<_> = model.keys().map(|key| map.get(key)).collect();
                prop_assert_eq!(held, model.values().map(Some).collect::<Vec<_>>());
            }
        }
    }
}
