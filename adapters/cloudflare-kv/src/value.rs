//! Which value of a key an isolate writes.

use tidegate_core::{Millis, UnixMillis};

use crate::draws::Draws;

/// How long an isolate writes the same value: as long as a write may take to be seen everywhere, twice.
const STAY: Millis = Millis::from_secs(120);

/// One of the few values that a key's counts are spread over.
///
/// A location sees its own write at once and others' a minute later. Were there one value, isolates that write it more
/// often than that would each see only their own. So each writes one of four, and another one every two minutes: whoever
/// shared it with somebody else sees what that one wrote once it has left. And four take four writes a second.
/// Every value has all the entries that its writer knew, so it is enough to read one of each isolate's friends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Value(u64);

impl Value {
    pub(crate) const COUNT: usize = 4;

    /// The one that the account `id` writes at `now`.
    pub(crate) fn of(id: u64, now: UnixMillis) -> Self {
        Self(Draws(id ^ (now.get() / STAY.get())).next() % Self::COUNT as u64)
    }

    pub(crate) fn next(self) -> Self {
        Self((self.0 + 1) % Self::COUNT as u64)
    }

    /// The name it is stored under. No key has a `#`.
    pub(crate) fn name(self, key: &str) -> String {
        format!("{key}#{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_isolates_do_not_share_a_value_for_long() {
        let shared = (0..100).filter(|stay| {
            let now = UnixMillis::new(1_800_000_000_000 + stay * STAY.get());
            Value::of(1, now) == Value::of(2, now)
        });
        assert!((10..40).contains(&shared.count()));
        assert_eq!(Value(3).next().name("tg1:api:fw1000:k"), "tg1:api:fw1000:k#0");
    }
}
