//! What the benchmarks measured: read from their lines, with ratios, as a table, `bench.json` and `bench.html`.
//!
//! A benchmark writes one line of JSON for each measurement:
//!
//! ```json
//! {"group":"redis","name":"decisions a second","at":{"in_flight":64},"unit":"1/s","aim":{"ratio":1.5},
//!  "ours":[21.0,20.0,22.0,20.0,21.0],"peer":{"name":"rate-limiter-flexible 11.4.0","values":[12.0,12.5,12.0,12.4,12.2]}}
//! ```
//!
//! `ours` has a value for each round, and `peer.values` has the peer's of the same rounds. `at` places the measurement on
//! an axis: `keys`, `in_flight` or `quotas`. `aim` is what should be reached: a `ratio`, or a `value` of ours. `at`, `aim`
//! and `peer` may be missing.
//!
//! A ratio is ours divided by the peer's. It is computed for each round. [`Spread`] has the median of the rounds, and the
//! least and the greatest.

mod line;
mod page;
mod spread;
mod table;

use std::thread::available_parallelism;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

pub use line::{Aim, At, Problem, Unit};
pub use page::page;
pub use spread::Spread;
pub use table::table;

use crate::report::Tidegate;

/// The schema version of a [`BenchReport`].
pub const SCHEMA: &str = "tidegate/bench/v1";

/// The fewest rounds of a measurement of time.
pub const ROUNDS_MIN: usize = 5;

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
    /// Returns the first line that is wrong.
    pub fn read(lines: &str) -> Result<Self, Problem> {
        let mut measurements = line::measurements(lines)?;
        // Several benchmarks measure sizes, for example.
        let groups: Vec<String> = measurements.iter().map(|one| one.group.clone()).collect();
        measurements.sort_by_key(|one| groups.iter().position(|group| *group == one.group));
        Ok(Self {
            schema: SCHEMA.into(),
            tidegate: Tidegate::this(),
            machine: Machine::here(),
            made_at_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            quick: false,
            failed: Vec::new(),
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
