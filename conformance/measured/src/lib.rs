//! How the benchmarks measure and record: in rounds that alternate with a peer's, one line of JSON for each measurement.
//!
//! The lines are appended to the file that the environment variable `TIDEGATE_BENCH` names. Without it, they go to
//! standard output. `tidegate bench-report` reads them, computes the ratios, and describes the fields.
//! `measured.mjs` records the same lines for the benchmarks in JavaScript.
//!
//! If `TIDEGATE_BENCH_QUICK` is set, all durations are a tenth ([`shortened`]). This tests a benchmark. It does not measure.

use std::env;
use std::fs::OpenOptions;
use std::hint::black_box;
use std::io::{self, Error, ErrorKind, Write as _};
use std::ops::Div;
use std::time::Instant;

use serde::Serialize;

/// The rounds of a measurement. The number is odd, so that the median is one of them.
pub const ROUNDS: usize = 7;

/// The parts of a round in [`ns_per_call`], of which the fastest counts.
const PARTS: u32 = 8;

/// The unit of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
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

/// What a measurement varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum At {
    /// The number of keys.
    Keys(u32),
    /// The number of requests in flight.
    InFlight(u32),
    /// The number of quotas of the policy.
    Quotas(u32),
}

/// What a measurement should reach: at most this, or at least this if more is better.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Aim {
    /// For the ratio of ours to the peer's.
    Ratio(f64),
    /// For ours, in the unit of the measurement.
    Value(f64),
}

/// A measurement before it is made.
#[derive(Clone, Debug, Serialize)]
pub struct Measurement<'a> {
    group: &'a str,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<At>,
    unit: Unit,
    #[serde(skip_serializing_if = "Option::is_none")]
    aim: Option<Aim>,
}

/// A measurement as it is recorded.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    what: &'a Measurement<'a>,
    ours: &'a [f64],
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<Peer<'a>>,
}

#[derive(Serialize)]
struct Peer<'a> {
    name: &'a str,
    values: &'a [f64],
}

impl<'a> Measurement<'a> {
    /// Measurements of a group are shown together. Group, name and place identify a measurement.
    #[must_use]
    pub const fn new(group: &'a str, name: &'a str, unit: Unit) -> Self {
        Self { group, name, at: None, unit, aim: None }
    }

    /// Places the measurement on an axis.
    #[must_use]
    pub const fn at(mut self, at: At) -> Self {
        self.at = Some(at);
        self
    }

    /// Says what the measurement should reach.
    #[must_use]
    pub const fn aim(mut self, aim: Aim) -> Self {
        self.aim = Some(aim);
        self
    }

    /// Measures in [`ROUNDS`] rounds after one that does not count.
    ///
    /// # Errors
    /// See [`Measurement::record`].
    pub fn alone(&self, mut ours: impl FnMut() -> f64) -> io::Result<()> {
        ours();
        self.record(&(0..ROUNDS).map(|_| ours()).collect::<Vec<_>>())
    }

    /// Measures beside a peer: in each round both, in changing order, so that other load affects both alike.
    ///
    /// # Errors
    /// See [`Measurement::record`].
    pub fn beside(&self, peer: &str, mut ours: impl FnMut() -> f64, mut theirs: impl FnMut() -> f64) -> io::Result<()> {
        ours();
        theirs();
        let (mut our, mut their) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            if round % 2 == 0 {
                our.push(ours());
            }
            their.push(theirs());
            if round % 2 == 1 {
                our.push(ours());
            }
        }
        self.record_beside(&our, peer, &their)
    }

    /// Records one value for each round.
    ///
    /// # Errors
    /// Fails if a value is not a number or negative, or if the file cannot be written.
    pub fn record(&self, ours: &[f64]) -> io::Result<()> {
        self.write(&self.line(ours, None)?)
    }

    /// Records one value for each round beside the peer's of the same rounds.
    ///
    /// # Errors
    /// See [`Measurement::record`].
    pub fn record_beside(&self, ours: &[f64], peer: &str, theirs: &[f64]) -> io::Result<()> {
        self.write(&self.line(ours, Some((peer, theirs)))?)
    }

    /// The line that is recorded, with the name and the values of the peer.
    ///
    /// # Errors
    /// Fails if a value is not a number or negative.
    pub fn line(&self, ours: &[f64], peer: Option<(&str, &[f64])>) -> io::Result<String> {
        let theirs = peer.map_or(&[][..], |(_, values)| values);
        if let Some(wrong) = ours.iter().chain(theirs).find(|value| !(value.is_finite() && **value >= 0.0)) {
            let message = format!("{}, {}: measured {wrong}", self.group, self.name);
            return Err(Error::new(ErrorKind::InvalidData, message));
        }
        let line = Line { what: self, ours, peer: peer.map(|(name, values)| Peer { name, values }) };
        Ok(serde_json::to_string(&line).map_err(Error::other)? + "\n")
    }

    fn write(&self, line: &str) -> io::Result<()> {
        let Some(file) = env::var_os("TIDEGATE_BENCH") else { return io::stdout().write_all(line.as_bytes()) };
        let at = self.at.map_or_else(String::new, |at| format!(", {at:?}"));
        eprintln!("measured {}: {}{at}", self.group, self.name);
        OpenOptions::new().create(true).append(true).open(file)?.write_all(line.as_bytes())
    }
}

/// A tenth of a duration or a count if `TIDEGATE_BENCH_QUICK` is set.
#[must_use]
pub fn shortened<T: Div<u32, Output = T>>(whole: T) -> T {
    if env::var_os("TIDEGATE_BENCH_QUICK").is_some() { whole / 10 } else { whole }
}

/// The time of a call, of the fastest part of a round. Other load on the machine only makes a part slower.
pub fn ns_per_call<T>(calls: u32, mut call: impl FnMut() -> T) -> f64 {
    let calls = shortened(calls).max(1);
    let part = |_| {
        let began = Instant::now();
        for _ in 0..calls {
            black_box(call());
        }
        began.elapsed().as_secs_f64() * 1e9 / f64::from(calls)
    };
    (0..PARTS).map(part).fold(f64::INFINITY, f64::min)
}

/// The median. Of an even number of values, the larger of both in the middle.
///
/// # Panics
/// Panics if there are no values.
#[must_use]
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_what_the_report_needs() {
        let what = Measurement::new("redis", "decisions", Unit::PerSecond).at(At::InFlight(64)).aim(Aim::Ratio(1.5));
        let line = what.line(&[2.0], Some(("other 1.0", &[1.5])));
        let expected = r#"{"group":"redis","name":"decisions","at":{"in_flight":64},"unit":"1/s","aim":{"ratio":1.5},"ours":[2.0],"peer":{"name":"other 1.0","values":[1.5]}}"#;
        assert_eq!(line.ok().as_deref().map(str::trim_end), Some(expected));
    }

    #[test]
    fn what_is_not_measured_is_an_error() {
        let what = Measurement::new("redis", "decisions", Unit::Ns);
        for wrong in [f64::NAN, f64::INFINITY, -1.0] {
            assert!(what.line(&[1.0, wrong], None).is_err());
            assert!(what.line(&[1.0], Some(("peer", &[wrong]))).is_err());
        }
    }

    #[test]
    fn both_are_measured_in_every_round_and_once_before() {
        let (mut ours, mut theirs) = (0, 0);
        let count = |count: &mut usize| {
            *count += 1;
            1.0
        };
        let what = Measurement::new("redis", "decisions", Unit::Ns);
        assert!(what.beside("peer", || count(&mut ours), || count(&mut theirs)).is_ok());
        assert_eq!((ours, theirs), (ROUNDS + 1, ROUNDS + 1));
    }

    #[test]
    fn the_median_is_the_one_in_the_middle() {
        assert!((median(vec![9.0, 1.0, 5.0]) - 5.0).abs() < f64::EPSILON);
    }
}
