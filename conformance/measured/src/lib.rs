//! How the benchmarks measure and record: in rounds that alternate with a peer's, one line of JSON for each measurement.
//!
//! ```json
//! {"group":"redis","name":"decisions a second","at":{"in_flight":64},"unit":"1/s","aim":{"ratio":1.5},
//!  "ours":[21.0,20.0,22.0,20.0,21.0],"peer":{"name":"rate-limiter-flexible 11.4.0","values":[12.0,12.5,12.0,12.4,12.2]}}
//! ```
//!
//! A [`Measurement`] appends its lines to the file that the environment variable `TIDEGATE_BENCH` names. Without it, they go to
//! standard output. [`Line::read_all`] reads them, for `tidegate-dev bench-report`. `measured.mjs` records the same lines for the
//! benchmarks in JavaScript.
//!
//! If `TIDEGATE_BENCH_QUICK` is set, all durations are a tenth ([`shortened`]). This tests a benchmark. It does not measure.

mod counted;
mod line;
mod unit;

pub use counted::counted;
pub use line::{Line, Peer};
pub use unit::{Aim, At, Unit};

use std::env;
use std::fs::OpenOptions;
use std::hint::black_box;
use std::io::{self, Write as _};
use std::ops::Div;
use std::time::Instant;

/// The rounds of a measurement. The number is odd, so that the median is one of them.
pub const ROUNDS: usize = 7;

/// The parts of a round in [`ns_per_call`], of which the fastest counts.
const PARTS: u32 = 8;

/// A measurement before it is made.
#[derive(Clone, Debug)]
pub struct Measurement<'a> {
    group: &'a str,
    name: &'a str,
    at: Option<At>,
    unit: Unit,
    aim: Option<Aim>,
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
        let peer = peer.map(|(name, values)| Peer { name: name.into(), values: values.to_vec() });
        let (group, name) = (self.group.into(), self.name.into());
        Line { group, name, at: self.at, unit: self.unit, aim: self.aim, ours: ours.to_vec(), peer }.write()
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
