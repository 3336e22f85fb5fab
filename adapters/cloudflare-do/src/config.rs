//! Choices that a caller makes once.

use std::num::NonZero;

use tidegate_core::Millis;
use tidegate_core::internal::sha256;

/// Where the counts live, and how long to wait for them.
///
/// ```
/// use std::num::NonZero;
/// use tidegate_cloudflare_do::{Config, Placement};
/// use tidegate_core::Millis;
/// let config = Config::default()
///     .placement(Placement::Shards(const { NonZero::new(64).unwrap() }))
///     .location_hint("weur")
///     .deadline(Millis::new(500));
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) placement: Placement,
    pub(crate) clock: Clock,
    pub(crate) location_hint: Option<String>,
    pub(crate) deadline: Millis,
    pub(crate) min_ttl: Millis,
}

/// Which object counts a key. A key always lives in exactly one, so every placement is exact.
///
/// Changing the placement moves the keys: their counts start anew, and the old rows remove themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// An object for each policy and key: any number of keys, each with an object's whole throughput.
    #[default]
    PerKey,
    /// So many objects, each with the keys whose hash falls to it: fewer cold starts and alarms where there are many
    /// keys of little traffic. All keys of one shard share one object's throughput.
    Shards(NonZero<u32>),
}

/// Whose time decisions go by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// The [`now`](tidegate_core::Check::now) of each check.
    #[default]
    Caller,
    /// The object's own: one clock for a key, whichever machines its requests reach.
    Object,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            placement: Placement::PerKey,
            clock: Clock::Caller,
            location_hint: None,
            deadline: Millis::from_secs(2),
            min_ttl: Millis::ZERO,
        }
    }
}

impl Config {
    /// Which object counts a key. [`Placement::PerKey`] unless set.
    #[must_use]
    pub const fn placement(mut self, placement: Placement) -> Self {
        self.placement = placement;
        self
    }

    /// Whose time decisions go by. [`Clock::Caller`] unless set.
    #[must_use]
    pub const fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Where objects should be made, such as `weur` or `enam`
    /// (<https://developers.cloudflare.com/durable-objects/reference/data-location/#provide-a-location-hint>). Counts
    /// only at an object's first request ever; near that request unless set.
    #[must_use]
    pub fn location_hint(mut self, hint: impl Into<String>) -> Self {
        self.location_hint = Some(hint.into());
        self
    }

    /// How long a call may take in all. Two seconds unless set.
    #[must_use]
    pub const fn deadline(mut self, deadline: Millis) -> Self {
        self.deadline = deadline;
        self
    }

    /// Keeps every row at least this long. For test rigs whose virtual time stands still while the object's clock, by
    /// which rows are removed, does not.
    #[must_use]
    pub const fn min_ttl(mut self, min_ttl: Millis) -> Self {
        self.min_ttl = min_ttl;
        self
    }
}

impl Placement {
    /// The name of the object that counts `key`. It contains the number of shards, so that two placements share
    /// nothing.
    pub(crate) fn object(self, key: &str) -> String {
        match self {
            Self::PerKey => key.to_owned(),
            Self::Shards(count) => {
                let hash = sha256(key.as_bytes());
                let hash = u64::from_le_bytes(std::array::from_fn(|place| hash[place]));
                format!("tg1:shard:{}of{count}", hash % u64::from(count.get()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::num::NonZero;

    use super::Placement;

    #[test]
    fn a_key_has_one_object_and_shards_have_as_many_keys() {
        let four = Placement::Shards(const { NonZero::new(4).unwrap() });
        let mut keys = HashMap::<String, u32>::new();
        for number in 0..4_000 {
            let key = format!("tg1:api:tb1000:user:{number}");
            assert_eq!(Placement::PerKey.object(&key), key);
            assert_eq!(four.object(&key), four.object(&key));
            *keys.entry(four.object(&key)).or_default() += 1;
        }
        assert_eq!(keys.len(), 4);
        assert!(keys.values().all(|&count| (800..1_200).contains(&count)), "{keys:?}");
    }
}
