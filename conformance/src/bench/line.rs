//! The lines that the benchmarks write.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Measurement, Peer, ROUNDS_MIN, Reached, Spread, Values};

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
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ns => "ns",
            Self::Us => "us",
            Self::Ms => "ms",
            Self::PerSecond => "1/s",
            Self::Bytes => "B",
            Self::Kib => "KiB",
            Self::Count => "count",
            Self::Percent => "%",
        }
    }

    /// Whether more is better.
    #[must_use]
    pub const fn more_is_better(self) -> bool {
        matches!(self, Self::PerSecond)
    }

    /// Sizes and counts are the same in every round, so one is enough.
    const fn rounds_min(self) -> usize {
        match self {
            Self::Bytes | Self::Kib | Self::Count => 1,
            Self::Ns | Self::Us | Self::Ms | Self::PerSecond | Self::Percent => ROUNDS_MIN,
        }
    }
}

/// The place of a measurement on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum At {
    /// The number of keys.
    Keys(u32),
    /// The number of requests in flight.
    InFlight(u32),
    /// The number of quotas of the policy.
    Quotas(u32),
}

impl At {
    /// The name of the axis, and the place.
    #[must_use]
    pub const fn parts(self) -> (&'static str, u32) {
        match self {
            Self::Keys(many) => ("keys", many),
            Self::InFlight(many) => ("in flight", many),
            Self::Quotas(many) => ("quotas", many),
        }
    }
}

/// What a measurement should reach.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Aim {
    /// For the ratio of ours to the peer's.
    Ratio(f64),
    /// For ours.
    Value(f64),
}

/// A line that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The number of the line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.line, self.message)
    }
}

impl std::error::Error for Problem {}

/// A line as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    group: String,
    name: String,
    at: Option<At>,
    unit: Unit,
    aim: Option<Aim>,
    ours: Vec<f64>,
    peer: Option<LinePeer>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinePeer {
    name: String,
    values: Vec<f64>,
}

/// Reads all lines.
pub(super) fn measurements(lines: &str) -> Result<Vec<Measurement>, Problem> {
    let mut read: Vec<Measurement> = Vec::new();
    for (place, text) in lines.lines().enumerate() {
        let number = place + 1;
        let problem = |message| Problem { line: number, message };
        let measurement = measurement(text).map_err(problem)?;
        // Each line is a measurement, so their places are the same.
        for (earlier, other) in read.iter().enumerate() {
            if let Some(wrong) = contradiction(&measurement, other) {
                return Err(problem(format!("{wrong} as in line {}", earlier + 1)));
            }
        }
        read.push(measurement);
    }
    if read.is_empty() {
        return Err(Problem { line: 1, message: "there is no measurement".into() });
    }
    Ok(read)
}

fn measurement(text: &str) -> Result<Measurement, String> {
    let mut json = serde_json::Deserializer::from_str(text);
    let line: Line = serde_path_to_error::deserialize(&mut json).map_err(|error| match error.path().to_string() {
        path if path == "." || path == "?" => in_words(error.inner()),
        path => format!("{path}: {}", in_words(error.inner())),
    })?;
    json.end().map_err(|error| in_words(&error))?;
    if line.group.is_empty() || line.name.is_empty() {
        return Err("group and name must not be empty".into());
    }
    if line.at.is_some_and(|at| at.parts().1 == 0) {
        return Err("at: a place on an axis is at least 1".into());
    }
    let theirs = line.peer.as_ref().map(|peer| &*peer.values);
    if let Some(negative) = line.ours.iter().chain(theirs.unwrap_or_default()).find(|value| **value < 0.0) {
        return Err(format!("{negative} is negative, which no measurement is"));
    }
    let (rounds, rounds_min) = (line.ours.len(), line.unit.rounds_min());
    if rounds < rounds_min {
        let (rounds, unit) = (counted(rounds), line.unit.name());
        return Err(format!("ours has {rounds}; a measurement in {unit} needs at least {rounds_min}"));
    }
    if let Some(theirs) = theirs.filter(|theirs| theirs.len() != rounds) {
        return Err(format!("ours has {}, and the peer {}", counted(rounds), counted(theirs.len())));
    }
    compared(line).ok_or_else(|| "aim: there is no ratio, so there is no aim for it".into())
}

/// An error without the number of the line, which would be that in this line.
fn in_words(error: &serde_json::Error) -> String {
    error.to_string().replace(" at line 1 column ", ", in column ")
}

/// Computes the spreads. `None` if the aim is a ratio, but there is none.
fn compared(line: Line) -> Option<Measurement> {
    let ratio = line.peer.as_ref().and_then(|peer| Spread::of_ratios(&line.ours, &peer.values));
    let values = |rounds: Vec<f64>| Some(Values { spread: Spread::of(&rounds)?, rounds });
    let ours = values(line.ours)?;
    let at_least = line.unit.more_is_better();
    let reached = |aim| {
        let (value, wanted) = match aim {
            Aim::Ratio(wanted) => (ratio?.median, wanted),
            Aim::Value(wanted) => (ours.spread.median, wanted),
        };
        Some(Reached { aim, at_least, reached: if at_least { value >= wanted } else { value <= wanted } })
    };
    let aim = match line.aim {
        Some(aim) => Some(reached(aim)?),
        None => None,
    };
    let peer = match line.peer {
        Some(peer) => Some(Peer { name: peer.name, values: values(peer.values)? }),
        None => None,
    };
    Some(Measurement { group: line.group, name: line.name, at: line.at, unit: line.unit, ours, peer, ratio, aim })
}

/// Why two measurements cannot be in one report.
fn contradiction(one: &Measurement, other: &Measurement) -> Option<&'static str> {
    if (&one.group, &one.name) != (&other.group, &other.name) {
        return None;
    }
    let axis = |one: &Measurement| one.at.map(|at| at.parts().0);
    if one.at == other.at {
        Some("the same group, name and place")
    } else if axis(one) != axis(other) {
        Some("the same group and name, but not the same axis")
    } else if one.unit != other.unit {
        Some("the same group and name, but not the same unit")
    } else if one.peer.as_ref().map(|peer| &peer.name) != other.peer.as_ref().map(|peer| &peer.name) {
        Some("the same group and name, but not the same peer")
    } else {
        None
    }
}

fn counted(rounds: usize) -> String {
    if rounds == 1 { "1 round".into() } else { format!("{rounds} rounds") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"group":"g","name":"n","at":{"keys":10},"unit":"ns","aim":{"ratio":1.0},"ours":[1,2,3,4,5],"peer":{"name":"p","values":[2,2,2,2,2]}}"#;

    fn problem(lines: &str) -> (usize, String) {
        measurements(lines).map_or_else(|problem| (problem.line, problem.message), |_| (0, "no problem".into()))
    }

    #[test]
    fn a_line_is_compared_round_by_round() {
        let read = &measurements(LINE).expect("a line")[0];
        assert_eq!(read.at, Some(At::Keys(10)));
        assert_eq!(read.ratio, Some(Spread { median: 1.5, min: 0.5, max: 2.5 }));
        assert_eq!(read.aim, Some(Reached { aim: Aim::Ratio(1.0), at_least: false, reached: false }));
    }

    #[test]
    fn of_rates_more_is_better() {
        let rate = LINE.replace("\"ns\"", "\"1/s\"");
        let read = measurements(&rate).expect("a line");
        assert_eq!(read[0].aim, Some(Reached { aim: Aim::Ratio(1.0), at_least: true, reached: true }));
        let value = LINE.replace(r#"{"ratio":1.0}"#, r#"{"value":3.0}"#);
        assert!(measurements(&value).expect("a line")[0].aim.expect("an aim").reached);
    }

    #[test]
    fn a_size_needs_one_round() {
        let size = r#"{"group":"size","name":"the package","unit":"KiB","ours":[70.9]}"#;
        assert_eq!(measurements(size).expect("a line")[0].ratio, None);
        assert_eq!(problem(&size.replace("KiB", "ms")).1, "ours has 1 round; a measurement in ms needs at least 5");
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (old, new, message) in [
            ("\"g\"", "\"\"", "group and name must not be empty"),
            (r#""name":"n","#, "", "missing field `name`"),
            ("\"ours\"", "\"our\"", "our: unknown field `our`, expected one of"),
            (
                "\"keys\"",
                "\"threads\"",
                "at: unknown variant `threads`, expected one of `keys`, `in_flight`, `quotas`, in column 39",
            ),
            (r#"{"keys":10}"#, r#"{"keys":0}"#, "at: a place on an axis is at least 1"),
            ("\"ns\"", "\"s\"", "unit: unknown variant `s`, expected one of `ns`"),
            ("[1,2,3,4,5]", "[1,2,3,4]", "ours has 4 rounds; a measurement in ns needs at least 5"),
            ("[1,2,3,4,5]", "[1,2,3,4,5,6]", "ours has 6 rounds, and the peer 5 rounds"),
            ("[1,2,3,4,5]", "[1,2,-3,4,5]", "-3 is negative, which no measurement is"),
            ("[2,2,2,2,2]", "[2,2,0,2,2]", "aim: there is no ratio, so there is no aim for it"),
            ("}}", "}", "EOF while parsing an object"),
        ] {
            let (line, said) = problem(&format!("{}\n{}", LINE.replace("\"n\"", "\"other\""), LINE.replace(old, new)));
            assert_eq!((line, said.contains(message)), (2, true), "{said}");
        }
        assert_eq!(problem(""), (1, "there is no measurement".into()));
    }

    #[test]
    fn lines_that_contradict_each_other_are_named() {
        let at = |keys: &str| LINE.replace("10", keys);
        for (second, message) in [
            (LINE.to_string(), "the same group, name and place as in line 1"),
            (at("20").replace("keys", "quotas"), "the same group and name, but not the same axis as in line 1"),
            (at("20").replace("\"ns\"", "\"us\""), "the same group and name, but not the same unit as in line 1"),
            (at("20").replace("\"p\"", "\"q\""), "the same group and name, but not the same peer as in line 1"),
        ] {
            assert_eq!(problem(&format!("{LINE}\n{second}")), (2, message.into()));
        }
        assert_eq!(problem(&format!("{LINE}\n{}", at("20"))).0, 0);
    }
}
