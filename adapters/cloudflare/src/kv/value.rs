//! Which of a key's values an isolate writes.

use tidegate_core::{Millis, UnixMillis};

use crate::kv::draws::Draws;
use crate::kv::record::Id;

/// How long an isolate writes the same value: twice the time that a write takes to be visible everywhere.
const STAY: Millis = Millis::from_secs(120);

/// One of the four values over which a key's counts are spread.
///
/// A location sees its own writes at once, and other locations' writes a minute later. If a key had one value, isolates that
/// write it more than once a minute would each see only their own writes. Therefore each isolate writes one of four values, and
/// changes to another one every two minutes. Two isolates that share a value see each other's counts after one of them has
/// changed. Four values also accept four writes per second. Each value contains all entries that its writer knows, so an isolate
/// need not read every value to learn of every other isolate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value(u64);

impl Value {
    pub(crate) const COUNT: usize = 4;

    /// The value with this number, which counts on from the last one to the first.
    #[must_use]
    pub const fn numbered(number: u64) -> Self {
        Self(number % Self::COUNT as u64)
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// The value that the account `id` writes at `now`.
    pub(crate) fn of(id: Id, now: UnixMillis) -> Self {
        Self::numbered(Draws(id.0 ^ (now.get() / STAY.get())).next())
    }

    pub(crate) fn next(self) -> Self {
        Self::numbered(self.0 + 1)
    }

    /// The name under which the value is stored. No key contains `#`.
    pub fn name(self, key: &str) -> String {
        format!("{key}#{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_isolates_share_a_value_about_a_quarter_of_the_time() {
        let shared = (0..100).filter(|stay| {
            let now = UnixMillis::new(1_800_000_000_000 + stay * STAY.get());
            Value::of(Id(1), now) == Value::of(Id(2), now)
        });
        assert!((10..40).contains(&shared.count()));
        assert_eq!(Value(3).next().name("tg1:api:fw1000:k"), "tg1:api:fw1000:k#0");
    }
}
