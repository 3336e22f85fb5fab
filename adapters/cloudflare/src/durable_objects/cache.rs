//! The rows that an object keeps in memory.

use std::mem;

use tidegate_core::internal::SortedMap;

use crate::durable_objects::rows::Row;

/// Recently used rows, in bounded memory.
///
/// A row enters the young generation when it is used. When the young generation is full it becomes the old one, and the
/// previous old one is dropped. A dropped row is still in storage, so dropping it costs one read. The work per use does
/// not depend on how many rows the storage has.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    young: SortedMap<Row>,
    old: SortedMap<Row>,
    /// The size of the young rows.
    young_bytes: usize,
}

/// The size at which a generation is full: some 5,000 rows of one token bucket each.
const GENERATION_BYTES: usize = 1 << 20;

/// What the allocator and the map add to the bytes of a key and its row, roughly.
const ROW_OVERHEAD_BYTES: usize = 128;

impl Cache {
    pub(crate) fn get(&mut self, key: &str) -> Option<&Row> {
        if self.young.get(key).is_none() {
            let row = self.old.remove(key)?;
            self.insert(key, row);
        }
        self.young.get(key)
    }

    pub(crate) fn insert(&mut self, key: &str, row: Row) {
        if self.young_bytes >= GENERATION_BYTES {
            self.old = mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        self.young_bytes += size(key, &row);
        if let Some(replaced) = self.young.insert(key, row) {
            self.young_bytes -= size(key, &replaced);
        }
    }

    pub(crate) fn remove(&mut self, key: &str) {
        if let Some(row) = self.young.remove(key) {
            self.young_bytes -= size(key, &row);
        }
        self.old.remove(key);
    }
}

fn size(key: &str, row: &Row) -> usize {
    key.len() + row.value.len() + row.leased.len() + ROW_OVERHEAD_BYTES
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;
    use tidegate_core::UnixMillis;

    use super::{Cache, GENERATION_BYTES, size};
    use crate::durable_objects::rows::Row;

    fn row(bytes: usize) -> Row {
        Row { value: vec![0; bytes], leased: Vec::new(), expires: UnixMillis::new(0) }
    }

    #[test]
    fn a_million_keys_stay_within_the_bound() {
        let mut cache = Cache::default();
        let largest = |cache: &Cache| cache.young.len().max(cache.old.len());
        let mut rows = 0;
        for number in 0..1_000_000 {
            cache.insert(&format!("tg1:api:tb1000:user:{number}"), row(17));
            rows = rows.max(largest(&cache));
            assert!(cache.young_bytes < GENERATION_BYTES + 1_000);
        }
        assert!((4_000..8_000).contains(&rows), "{rows}");
        for number in 0..1_000 {
            cache.insert(&format!("tg1:large:{number}"), row(100_000));
            assert!(cache.young_bytes < GENERATION_BYTES + 101_000);
        }
        assert!(largest(&cache) <= 11);
    }

    #[test]
    fn a_row_in_use_is_not_dropped() {
        let mut cache = Cache::default();
        cache.insert("hot", row(1));
        for number in 0..100_000 {
            cache.insert(&number.to_string(), row(17));
            assert_eq!(cache.get("hot"), Some(&row(1)), "{number}");
        }
        assert_eq!(cache.get("0"), None);
    }

    proptest! {
        #[test]
        fn it_never_returns_an_earlier_row(
            steps in prop::collection::vec((0..3u8, 0..12u8, 0..300_000usize), 0..200),
        ) {
            let (mut cache, mut newest) = (Cache::default(), HashMap::<String, Row>::new());
            for (step, key, bytes) in steps {
                let key = key.to_string();
                match step {
                    0 => {
                        cache.insert(&key, row(bytes));
                        newest.insert(key.clone(), row(bytes));
                    }
                    1 => {
                        cache.remove(&key);
                        newest.remove(&key);
                    }
                    _ => {}
                }
                if let Some(found) = cache.get(&key) {
                    prop_assert_eq!(Some(found), newest.get(&key));
                }
                let young = newest.iter().filter(|(key, _)| cache.young.get(key).is_some());
                prop_assert_eq!(young.map(|(key, row)| size(key, row)).sum::<usize>(), cache.young_bytes);
            }
        }
    }
}
