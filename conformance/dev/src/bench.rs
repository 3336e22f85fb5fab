//! What the benchmarks measured: read from their lines, with ratios, as a table, `bench.json` and `bench.html`.
//!
//! `tidegate-measured` describes the lines, and reads them. `at` places a measurement on an axis, and `aim` is what should be
//! reached.
//!
//! A ratio is ours divided by the peer's. It is computed for each round. [`Spread`] has the median of the rounds, and the
//! least and the greatest.

mod growth;
mod page;
mod spread;
mod table;

use std::thread::available_parallelism;

use serde::{Deserialize, Serialize};
use tidegate_core::UnixMillis;
use tidegate_measured::{Aim, At, Line, Unit};
use tidegate_traffic::Tidegate;

pub use growth::Growth;
pub use page::page;
pub use spread::Spread;
pub use table::table;

/// The schema version of a [`BenchReport`].
pub const SCHEMA: &str = "tidegate/bench/v1";

/// All measurements of a run of the benchmarks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BenchReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// The build of Tidegate that ran.
    pub tidegate: Tidegate,
    /// The machine that made the report.
    pub machine: Machine,
    /// When the report was made, in seconds since the epoch.
    pub made_at_s: u64,
    /// Whether the durations were shortened, so that the values mean nothing.
    pub quick: bool,
    /// The benchmarks that failed. Some of their measurements are missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<String>,
    /// The measurements by group, and otherwise in the order in which they were made.
    pub measurements: Vec<Measurement>,
    /// How the measurements of several places on an axis grow.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub growth: Vec<Growth>,
}

/// A machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name, or `unknown`.
    pub processor: String,
    /// The number of threads that run at the same time.
    pub cores: usize,
    /// The operating system and the architecture, as Rust names them.
    pub platform: String,
}

/// A measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// What it belongs to.
    pub group: String,
    /// What was measured.
    pub name: String,
    /// The place on an axis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<At>,
    /// The unit of the values.
    pub unit: Unit,
    /// Tidegate's values.
    pub ours: Values,
    /// The peer's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<Peer>,
    /// Ours divided by the peer's, in each round. Missing if a value of the peer is zero.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<Spread>,
    /// What should be reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aim: Option<Reached>,
}

/// The values of the rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Values {
    /// One value for each round.
    pub rounds: Vec<f64>,
    /// Their median, least and greatest.
    #[serde(flatten)]
    pub spread: Spread,
}

/// What Tidegate is compared with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Peer {
    /// Its name, and its version if it has one.
    pub name: String,
    /// Its values.
    #[serde(flatten)]
    pub values: Values,
}

/// An aim, and whether the median reaches it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reached {
    /// The aim.
    #[serde(flatten)]
    pub aim: Aim,
    /// Whether at least this is wanted. Otherwise, it is at most this.
    pub at_least: bool,
    /// Whether it is reached.
    pub reached: bool,
}

impl BenchReport {
    /// Reads the lines of a run.
    ///
    /// # Errors
    /// See [`Line::read_all`].
    pub fn read(lines: &str) -> Result<Self, String> {
        let lines = Line::read_all(lines)?;
        let mut measurements: Vec<_> = lines.into_iter().map(Measurement::of).collect();
        // Several benchmarks measure sizes, for example.
        let groups: Vec<String> = measurements.iter().map(|one| one.group.clone()).collect();
        measurements.sort_by_key(|one| groups.iter().position(|group| *group == one.group));
        Ok(Self {
            schema: SCHEMA.into(),
            tidegate: Tidegate::this(),
            machine: Machine::here(),
            made_at_s: UnixMillis::now().get() / 1_000,
            quick: false,
            failed: Vec::new(),
            growth: Growth::of_all(&measurements),
            measurements,
        })
    }

    /// How many aims are reached, and how many there are.
    #[must_use]
    pub fn aims(&self) -> (usize, usize) {
        let aims = || self.measurements.iter().filter_map(|one| one.aim);
        (aims().filter(|aim| aim.reached).count(), aims().count())
    }
}

impl Measurement {
    /// What a line says, with the spreads.
    fn of(line: Line) -> Self {
        let ratio = line.ratios().map(|ratios| Spread::of(&ratios));
        let Line { group, name, at, unit, aim, ours, peer } = line;
        let ours = Values::of(ours);
        let at_least = unit.more_is_better();
        let reached = |aim| {
            let (value, wanted) = match aim {
                Aim::Ratio(wanted) => (ratio?.median, wanted),
                Aim::Value(wanted) => (ours.spread.median, wanted),
            };
            Some(Reached { aim, at_least, reached: if at_least { value >= wanted } else { value <= wanted } })
        };
        let aim = aim.and_then(reached);
        let peer = peer.map(|peer| Peer { name: peer.name, values: Values::of(peer.values) });
        Self { group, name, at, unit, ours, peer, ratio, aim }
    }
}

impl Values {
    fn of(rounds: Vec<f64>) -> Self {
        Self { spread: Spread::of(&rounds), rounds }
    }
}

impl Machine {
    /// This machine.
    fn here() -> Self {
        let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let name = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        Self {
            processor: name.map_or("unknown", |(_, name)| name.trim()).into(),
            cores: available_parallelism().map_or(1, usize::from),
            platform: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"group":"g","name":"n","at":{"keys":10},"unit":"ns","aim":{"ratio":1.0},"ours":[1,2,3,4,5],"peer":{"name":"p","values":[2,2,2,2,2]}}"#;

    fn only(line: &str) -> Measurement {
        BenchReport::read(line).expect("a line").measurements.remove(0)
    }

    #[test]
    fn a_line_is_compared_round_by_round() {
        let read = only(LINE);
        assert_eq!(read.ratio, Some(Spread { median: 1.5, min: 0.5, max: 2.5 }));
        assert_eq!(read.aim, Some(Reached { aim: Aim::Ratio(1.0), at_least: false, reached: false }));
    }

    #[test]
    fn the_ratio_is_the_median_of_the_rounds_not_of_the_values() {
        // The machine was slow in some rounds, for both. The ratio of the medians would be 2.
        let slow = LINE.replace("1,2,3,4,5", "10,10,40,40,40").replace("2,2,2,2,2", "20,20,80,20,20");
        assert_eq!(only(&slow).ratio, Some(Spread { median: 0.5, min: 0.5, max: 2.0 }));
    }

    #[test]
    fn of_rates_more_is_better() {
        let rate = LINE.replace("\"ns\"", "\"1/s\"");
        assert_eq!(only(&rate).aim, Some(Reached { aim: Aim::Ratio(1.0), at_least: true, reached: true }));
        let value = LINE.replace(r#"{"ratio":1.0}"#, r#"{"value":3.0}"#);
        assert!(only(&value).aim.expect("an aim").reached);
    }
}
