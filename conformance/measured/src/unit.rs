//! What a measurement is in, where it is on its axis, and what it should reach.

use serde::{Deserialize, Serialize};

/// The fewest rounds of a measurement of time.
const ROUNDS_MIN: usize = 5;

/// The unit of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// Nanoseconds.
    #[serde(rename = "ns")]
    Ns,
    /// Microseconds.
    #[serde(rename = "us")]
    Us,
    /// Milliseconds.
    #[serde(rename = "ms")]
    Ms,
    /// How often in a second. The only unit of which more is better.
    #[serde(rename = "1/s")]
    PerSecond,
    /// Bytes.
    #[serde(rename = "B")]
    Bytes,
    /// 1,024 bytes.
    #[serde(rename = "KiB")]
    Kib,
    /// A number of something that the name of the measurement says.
    #[serde(rename = "count")]
    Count,
    /// A share of a hundred.
    #[serde(rename = "%")]
    Percent,
}

impl Unit {
    /// The unit as a line has it.
    #[must_use]
    pub fn name(self) -> String {
        serde_json::to_string(&self).unwrap_or_default().replace('"', "")
    }

    /// Whether more is better.
    #[must_use]
    pub const fn more_is_better(self) -> bool {
        matches!(self, Self::PerSecond)
    }

    /// Sizes and counts are the same in every round, so one is enough.
    pub(crate) const fn rounds_min(self) -> usize {
        match self {
            Self::Bytes | Self::Kib | Self::Count => 1,
            Self::Ns | Self::Us | Self::Ms | Self::PerSecond | Self::Percent => ROUNDS_MIN,
        }
    }
}

/// What a measurement varies: its place on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum At {
    /// The number of keys.
    Keys(u32),
    /// The number of requests in flight.
    InFlight(u32),
    /// The number of quotas of the policy.
    Quotas(u32),
    /// The number of rules of a file.
    Rules(u32),
    /// The number of dimensions of the policy.
    Dimensions(u32),
    /// The number of borrowers of a key.
    Borrowers(u32),
}

impl At {
    /// The name of the axis, and the place.
    #[must_use]
    pub const fn parts(self) -> (&'static str, u32) {
        match self {
            Self::Keys(many) => ("keys", many),
            Self::InFlight(many) => ("in flight", many),
            Self::Quotas(many) => ("quotas", many),
            Self::Rules(many) => ("rules", many),
            Self::Dimensions(many) => ("dimensions", many),
            Self::Borrowers(many) => ("borrowers", many),
        }
    }
}

/// What a measurement should reach: at most this, or at least this if more is better.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Aim {
    /// For the ratio of ours to the peer's.
    Ratio(f64),
    /// For ours, in the unit of the measurement.
    Value(f64),
}
