//! What a limiter last saw under its keys.

use alloc::string::String;
use core::mem;
use std::collections::HashMap;

use crate::store::VersionedValue;

/// What is known of a key's value.
#[derive(Debug)]
pub(super) enum Seen<V> {
    /// Nothing.
    Unknown,
    /// There is one that nobody has told us.
    Untold,
    /// There was none.
    Nothing,
    /// It was this one.
    Value(VersionedValue<V>),
}

impl<V> Seen<V> {
    pub(super) fn of(found: Option<VersionedValue<V>>) -> Self {
        found.map_or(Self::Nothing, Self::Value)
    }

    pub(super) fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Value(value) => Some(&value.bytes),
            Self::Unknown | Self::Untold | Self::Nothing => None,
        }
    }
}

/// What was seen of the keys that were used last.
///
/// There are two generations. A key that is used moves to the younger one. When that has half of the keys, the older one is forgotten.
#[derive(Debug)]
pub(super) struct Remembered<V> {
    half: usize,
    younger: HashMap<String, Seen<V>>,
    older: HashMap<String, Seen<V>>,
}

impl<V> Remembered<V> {
    /// Of at most so many keys.
    pub(super) fn new(keys: usize) -> Self {
        Self { half: keys / 2, younger: HashMap::new(), older: HashMap::new() }
    }

    pub(super) fn take(&mut self, name: &str) -> Option<Seen<V>> {
        self.younger.remove(name).or_else(|| self.older.remove(name))
    }

    pub(super) fn put(&mut self, name: String, seen: Seen<V>) {
        if self.half == 0 {
            return;
        }
        if self.younger.len() >= self.half {
            self.older = mem::take(&mut self.younger);
        }
        self.older.remove(&name);
        self.younger.insert(name, seen);
    }
}
