//! Lines and columns in a rules file.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::Source;

/// One step from a table or a list to a value in it.
#[derive(Clone, Copy, Debug)]
pub(in crate::gate) enum Step<'a> {
    Key(&'a str),
    Place(usize),
}

/// The line and the column of a value, from 1.
///
/// It reads the text once more and fails at the value. The parsers report where that is.
pub(super) fn locate(source: &Source<'_>, path: &[Step<'_>]) -> (usize, usize) {
    #[cfg(feature = "toml")]
    if source.name.ends_with(".toml") {
        let read = toml::Deserializer::parse(source.text).and_then(|reader| At(path).deserialize(reader));
        return read.err().map_or((1, 1), |error| {
            let (line, column, _) = of_toml(source.text, &error);
            (line, column)
        });
    }
    let mut reader = serde_json::Deserializer::from_str(source.text);
    let read = At(path).deserialize(&mut reader);
    // The column is the number of characters before.
    read.err().map_or((1, 1), |error| (error.line(), error.column() + 1))
}

/// The position and the message of a parser's error.
#[cfg(feature = "toml")]
pub(super) fn of_toml(text: &str, error: &toml::de::Error) -> (usize, usize, String) {
    let start = error.span().map_or(0, |span| span.start);
    let before = text.get(..start).unwrap_or_default();
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    let column = before[line_start..].chars().count() + 1;
    (before.matches('\n').count() + 1, column, error.message().to_string())
}

/// The position and the message of a parser's error.
pub(super) fn of_json(error: &serde_json::Error) -> (usize, usize, String) {
    let position = format!(" at line {} column {}", error.line(), error.column());
    let what = error.to_string();
    (error.line(), error.column(), what.strip_suffix(&position).unwrap_or(&what).to_string())
}

/// Goes to the value at a path and fails there.
struct At<'a>(&'a [Step<'a>]);

impl<'de> DeserializeSeed<'de> for At<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match self.0 {
            // Stops before the value, which has any type.
            [] => deserializer.deserialize_option(self),
            [Step::Key(_), ..] => deserializer.deserialize_map(self),
            [Step::Place(_), ..] => deserializer.deserialize_seq(self),
        }
    }
}

impl<'de> Visitor<'de> for At<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table or a list")
    }

    fn visit_none<E: Error>(self) -> Result<(), E> {
        Err(E::custom("here"))
    }

    fn visit_some<D: Deserializer<'de>>(self, _: D) -> Result<(), D::Error> {
        Err(D::Error::custom("here"))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let [Step::Key(wanted), rest @ ..] = self.0 else { return Ok(()) };
        while let Some(name) = map.next_key::<String>()? {
            if name == *wanted {
                map.next_value_seed(At(rest))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let [Step::Place(wanted), rest @ ..] = self.0 else { return Ok(()) };
        for _ in 0..*wanted {
            list.next_element::<IgnoredAny>()?;
        }
        list.next_element_seed(At(rest)).map(|_| ())
    }
}
