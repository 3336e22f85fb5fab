//! The configuration of a store.

use std::borrow::Cow;
use std::num::NonZero;

use tidegate_core::Millis;
use tidegate_core::internal::sha256;

/// Where the counts live, whose clock decides, and how long to wait.
///
/// ```
/// use std::num::NonZero;
/// use tidegate_cloudflare::Millis;
/// use tidegate_cloudflare::durable_objects::{Config, Placement};
/// let config = Config::default()
///     .placement(Placement::Shards(const { NonZero::new(64).unwrap() }))
///     .location_hint("weur")
///     .deadline(Millis::new(500));
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) placement: Placement,
    pub(crate) clock: Clock,
    pub(crate) jurisdiction: Option<Jurisdiction>,
    pub(crate) location_hint: Option<String>,
    pub(crate) deadline: Millis,
    pub(crate) min_ttl: Millis,
}

/// Which object counts a key. Under either placement a key lives in exactly one object, so both are exact. All keys of a
/// [group](tidegate_core::Policy::group_by) are in the object of the group's key.
///
/// A change of the placement moves the keys. Their counts start anew, and the old rows expire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// One object for each policy and key, or group. Each has an object's whole throughput.
    #[default]
    PerKey,
    /// A fixed number of objects. The hash of a key selects its object, and all keys of an object share its
    /// throughput. For many keys with little traffic each: fewer objects start cold, and fewer alarms are set.
    Shards(NonZero<u32>),
}

/// Where objects run and store
/// (<https://developers.cloudflare.com/durable-objects/reference/data-location/#restrict-durable-objects-to-a-jurisdiction>).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Jurisdiction {
    /// In the European Union.
    Eu,
    /// In the United States.
    Us,
    /// In data centers that FedRAMP has authorized at the moderate impact level.
    FedRamp,
    /// In data centers that FedRAMP has authorized at the high impact level.
    FedRampHigh,
}

impl Jurisdiction {
    /// The platform's name for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Eu => "eu",
            Self::Us => "us",
            Self::FedRamp => "fedramp",
            Self::FedRampHigh => "fedramp-high",
        }
    }
}

/// Whose clock decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// The object's. A Worker whose clock is wrong cannot lock a key, and all requests for a key go by one clock.
    #[default]
    Object,
    /// The caller's: [`Check::now`](tidegate_core::Check::now). For tests that run on virtual time. A state that a caller
    /// writes with a clock that is ahead denies other callers until their clocks have caught up.
    Caller,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            placement: Placement::default(),
            clock: Clock::default(),
            jurisdiction: None,
            location_hint: None,
            deadline: Millis::from_secs(2),
            min_ttl: Millis::ZERO,
        }
    }
}

impl Config {
    /// Which object counts a key. Default: [`Placement::PerKey`].
    #[must_use]
    pub const fn placement(mut self, placement: Placement) -> Self {
        self.placement = placement;
        self
    }

    /// Whose clock decides. Default: [`Clock::Object`].
    #[must_use]
    pub const fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Where objects run and store, by law. Default: anywhere.
    ///
    /// A change moves the keys: their counts start anew, and the old rows expire. `wrangler dev` knows no jurisdictions. There, objects
    /// are in none, and the log says so.
    #[must_use]
    pub const fn jurisdiction(mut self, jurisdiction: Jurisdiction) -> Self {
        self.jurisdiction = Some(jurisdiction);
        self
    }

    /// Where to create objects, such as `weur` or `enam`
    /// (<https://developers.cloudflare.com/durable-objects/reference/data-location/#provide-a-location-hint>). The
    /// platform reads it only at an object's first request ever. Default: near that request.
    #[must_use]
    pub fn location_hint(mut self, hint: impl Into<String>) -> Self {
        self.location_hint = Some(hint.into());
        self
    }

    /// How long a call may take. Default: two seconds.
    #[must_use]
    pub const fn deadline(mut self, deadline: Millis) -> Self {
        self.deadline = deadline;
        self
    }

    /// The least time that a row is kept. For tests with [`Clock::Caller`]: rows expire by the object's clock, which goes
    /// on while virtual time stands still. Default: zero.
    #[cfg(feature = "testing")]
    #[must_use]
    pub const fn min_ttl(mut self, min_ttl: Millis) -> Self {
        self.min_ttl = min_ttl;
        self
    }
}

impl Placement {
    /// The name of the object that counts the key or group with this storage key. A shard's name contains the number of
    /// shards, so that two placements never share an object.
    pub(crate) fn object(self, key: &str) -> Cow<'_, str> {
        match self {
            Self::PerKey => key.into(),
            Self::Shards(count) => {
                let hash = sha256(key.as_bytes());
                let hash = u64::from_le_bytes(std::array::from_fn(|place| hash[place]));
                format!("tg1:shard:{}of{count}", hash % u64::from(count.get())).into()
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
    fn a_key_has_one_object_and_shards_share_the_keys_evenly() {
        let four = Placement::Shards(const { NonZero::new(4).unwrap() });
        let mut keys = HashMap::<String, u32>::new();
        for number in 0..4_000 {
            let key = format!("tg1:api:tb1000:user:{number}");
            assert_eq!(Placement::PerKey.object(&key), key);
            assert_eq!(four.object(&key), four.object(&key));
            *keys.entry(four.object(&key).into_owned()).or_default() += 1;
        }
        assert_eq!(keys.len(), 4);
        assert!(keys.values().all(|&count| (800..1_200).contains(&count)), "{keys:?}");
    }
}
