//! The lines that the benchmarks write.

use std::io::{Error, ErrorKind};

use serde::{Deserialize, Serialize};

use crate::unit::{Aim, At, Unit};

/// A measurement as it is recorded: one line of JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// What it belongs to.
    pub group: String,
    /// What was measured.
    pub name: String,
    /// The place on an axis.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<At>,
    /// The unit of the values.
    pub unit: Unit,
    /// What should be reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aim: Option<Aim>,
    /// A value of Tidegate for each round.
    pub ours: Vec<f64>,
    /// What Tidegate is compared with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<Peer>,
}

/// The values of a peer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peer {
    /// Its name, and its version if it has one.
    pub name: String,
    /// The values of the same rounds.
    pub values: Vec<f64>,
}

impl Line {
    /// Reads all lines of a run of the benchmarks.
    ///
    /// # Errors
    /// Returns the number of the first line that is wrong, alone or beside an earlier one, and what is wrong with it.
    pub fn read_all(text: &str) -> Result<Vec<Self>, String> {
        let mut read: Vec<Self> = Vec::new();
        for (place, text) in text.lines().enumerate() {
            let number = place + 1;
            let problem = |message: String| format!("{number}: {message}");
            let line = Self::read(text).map_err(problem)?;
            for (earlier, other) in read.iter().enumerate() {
                if let Some(wrong) = line.contradiction(other) {
                    return Err(problem(format!("{wrong} as in line {}", earlier + 1)));
                }
            }
            read.push(line);
        }
        if read.is_empty() {
            return Err("1: there is no measurement".into());
        }
        Ok(read)
    }

    fn read(text: &str) -> Result<Self, String> {
        let mut json = serde_json::Deserializer::from_str(text);
        let line: Self =
            serde_path_to_error::deserialize(&mut json).map_err(|error| match error.path().to_string() {
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
        if let Some(negative) = line.values().find(|value| *value < 0.0) {
            return Err(format!("{negative} is negative, which no measurement is"));
        }
        let (rounds, rounds_min) = (line.ours.len(), line.unit.rounds_min());
        if rounds < rounds_min {
            let (rounds, unit) = (counted(rounds), line.unit.name());
            return Err(format!("ours has {rounds}; a measurement in {unit} needs at least {rounds_min}"));
        }
        if let Some(peer) = line.peer.as_ref().filter(|peer| peer.values.len() != rounds) {
            return Err(format!("ours has {}, and the peer {}", counted(rounds), counted(peer.values.len())));
        }
        if matches!(line.aim, Some(Aim::Ratio(_))) && line.ratios().is_none() {
            return Err("aim: there is no ratio, so there is no aim for it".into());
        }
        Ok(line)
    }

    /// The line as it is written.
    pub(crate) fn write(&self) -> std::io::Result<String> {
        if let Some(wrong) = self.values().find(|value| !(value.is_finite() && *value >= 0.0)) {
            let message = format!("{}, {}: measured {wrong}", self.group, self.name);
            return Err(Error::new(ErrorKind::InvalidData, message));
        }
        Ok(serde_json::to_string(self).map_err(Error::other)? + "\n")
    }

    /// Ours divided by the peer's, in each round. `None` if there is no peer, or one of its values is zero.
    #[must_use]
    pub fn ratios(&self) -> Option<Vec<f64>> {
        let theirs = &self.peer.as_ref()?.values;
        let ratios = || self.ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect();
        (!theirs.contains(&0.0)).then(ratios)
    }

    /// Ours and the peer's.
    fn values(&self) -> impl Iterator<Item = f64> + '_ {
        self.ours.iter().chain(self.peer.iter().flat_map(|peer| &peer.values)).copied()
    }

    /// Why two lines cannot be in one report.
    fn contradiction(&self, other: &Self) -> Option<&'static str> {
        if (&self.group, &self.name) != (&other.group, &other.name) {
            return None;
        }
        let axis = |one: &Self| one.at.map(|at| at.parts().0);
        if self.at == other.at {
            Some("the same group, name and place")
        } else if axis(self) != axis(other) {
            Some("the same group and name, but not the same axis")
        } else if self.unit != other.unit {
            Some("the same group and name, but not the same unit")
        } else if self.peer.as_ref().map(|peer| &peer.name) != other.peer.as_ref().map(|peer| &peer.name) {
            Some("the same group and name, but not the same peer")
        } else {
            None
        }
    }
}

/// An error without the number of the line, which would be that in this line.
fn in_words(error: &serde_json::Error) -> String {
    error.to_string().replace(" at line 1 column ", ", in column ")
}

fn counted(rounds: usize) -> String {
    if rounds == 1 { "1 round".into() } else { format!("{rounds} rounds") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"group":"g","name":"n","at":{"keys":10},"unit":"ns","aim":{"ratio":1.0},"ours":[1,2,3,4,5],"peer":{"name":"p","values":[2,2,2,2,2]}}"#;

    fn problem(lines: &str) -> String {
        Line::read_all(lines).err().unwrap_or_default()
    }

    #[test]
    fn a_ratio_is_computed_in_each_round() {
        let read = &Line::read_all(LINE).expect("a line")[0];
        assert_eq!(read.at, Some(At::Keys(10)));
        assert_eq!(read.ratios(), Some(vec![0.5, 1.0, 1.5, 2.0, 2.5]));
    }

    #[test]
    fn a_size_needs_one_round() {
        let size = r#"{"group":"size","name":"the package","unit":"KiB","ours":[70.9]}"#;
        assert_eq!(Line::read_all(size).expect("a line")[0].ratios(), None);
        assert_eq!(problem(&size.replace("KiB", "ms")), "1: ours has 1 round; a measurement in ms needs at least 5");
    }

    #[test]
    fn what_is_read_is_written_in_the_same_way() {
        let line = &Line::read_all(LINE).expect("a line")[0];
        let written = line.write().expect("a line");
        assert_eq!(Line::read_all(&written).as_deref(), Ok(std::slice::from_ref(line)), "{written}");
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
                "at: unknown variant `threads`, expected one of `keys`, `in_flight`, `quotas`, `rules`, `dimensions`, `borrowers`, in column 39",
            ),
            (r#"{"keys":10}"#, r#"{"keys":0}"#, "at: a place on an axis is at least 1"),
            ("\"ns\"", "\"s\"", "unit: unknown variant `s`, expected one of `ns`"),
            ("[1,2,3,4,5]", "[1,2,3,4]", "ours has 4 rounds; a measurement in ns needs at least 5"),
            ("[1,2,3,4,5]", "[1,2,3,4,5,6]", "ours has 6 rounds, and the peer 5 rounds"),
            ("[1,2,3,4,5]", "[1,2,-3,4,5]", "-3 is negative, which no measurement is"),
            ("[2,2,2,2,2]", "[2,2,0,2,2]", "aim: there is no ratio, so there is no aim for it"),
            ("}}", "}", "EOF while parsing an object"),
        ] {
            let said = problem(&format!("{}\n{}", LINE.replace("\"n\"", "\"other\""), LINE.replace(old, new)));
            assert!(said.starts_with("2: ") && said.contains(message), "{said}");
        }
        assert_eq!(problem(""), "1: there is no measurement");
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
            assert_eq!(problem(&format!("{LINE}\n{second}")), format!("2: {message}"));
        }
        assert_eq!(problem(&format!("{LINE}\n{}", at("20"))), "");
    }
}
