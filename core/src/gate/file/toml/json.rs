//! A file in TOML as JSON, with the place of each value, for hosts that read no TOML.

use std::fmt::Write as _;

use super::read;
use crate::gate::json::{Node, Value, Wrong};

/// Reads a file in TOML. Returns JSON: a node, or `{"at":0,"what":"…"}` if the text is wrong.
///
/// A node is `[at, kind, value]`. The value of kind 0 is a number, a flag or a date, as a string; that of kind 1 is a text; that of
/// kind 2 is a list of nodes; and that of kind 3 is a table, which is a list of pairs of a name and a node. `at` is the place in the
/// text, in units of UTF-16, as JavaScript counts.
#[must_use]
pub fn toml_to_json(text: &str) -> String {
    let mut writer = Writer { out: String::new(), places: Places::of(text) };
    match read(text) {
        Ok(root) => writer.node(&root),
        Err(wrong) => writer.wrong(&wrong),
    }
    writer.out
}

struct Writer<'a> {
    out: String,
    places: Places<'a>,
}

impl Writer<'_> {
    fn wrong(&mut self, wrong: &Wrong) {
        let _ = write!(self.out, r#"{{"at":{},"what":"#, self.places.in_utf16(wrong.at));
        self.text(&wrong.what);
        self.out.push('}');
    }

    fn node(&mut self, node: &Node) {
        let _ = write!(self.out, "[{},", self.places.in_utf16(node.at));
        match &node.value {
            Value::Bare(text) => {
                self.out.push_str("0,");
                self.text(text);
            }
            Value::Text(text) => {
                self.out.push_str("1,");
                self.text(text);
            }
            Value::List(list) => {
                self.out.push_str("2,");
                self.list(list, Self::node);
            }
            Value::Table(table) => {
                self.out.push_str("3,");
                self.list(table, |writer, (name, node)| {
                    writer.out.push('[');
                    writer.text(name);
                    writer.out.push(',');
                    writer.node(node);
                    writer.out.push(']');
                });
            }
        }
        self.out.push(']');
    }

    fn list<T>(&mut self, list: &[T], write: fn(&mut Self, &T)) {
        self.out.push('[');
        for (place, one) in list.iter().enumerate() {
            if place > 0 {
                self.out.push(',');
            }
            write(self, one);
        }
        self.out.push(']');
    }

    fn text(&mut self, text: &str) {
        self.out.push('"');
        for character in text.chars() {
            match character {
                '"' | '\\' => {
                    self.out.push('\\');
                    self.out.push(character);
                }
                _ if character < ' ' => _ = write!(self.out, "\\u{:04x}", u32::from(character)),
                _ => self.out.push(character),
            }
        }
        self.out.push('"');
    }
}

/// Turns places in bytes into places in units of UTF-16.
struct Places<'a> {
    text: &'a str,
    /// The start of each character that is not ASCII, and how many units fewer than bytes there are up to its end.
    fewer: Vec<(usize, usize)>,
}

impl<'a> Places<'a> {
    fn of(text: &'a str) -> Self {
        let mut sum = 0;
        let wide = text.char_indices().filter(|(_, character)| !character.is_ascii());
        let fewer = wide.map(|(start, character)| {
            sum += character.len_utf8() - character.len_utf16();
            (start, sum)
        });
        Self { text, fewer: fewer.collect() }
    }

    /// The same place. It is the start of the text if it is not one between characters: see `Source::at`.
    fn in_utf16(&self, at: usize) -> usize {
        if !self.text.is_char_boundary(at) {
            return 0;
        }
        let before = self.fewer.partition_point(|(start, _)| *start < at);
        at - self.fewer[..before].last().map_or(0, |(_, fewer)| *fewer)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{read, toml_to_json};
    use crate::gate::json::{Node, Value};

    /// The JSON that a node is to become.
    fn expected(text: &str, node: &Node) -> serde_json::Value {
        let value: serde_json::Value = match &node.value {
            Value::Bare(text) => serde_json::json!([0, text]),
            Value::Text(text) => serde_json::json!([1, text]),
            Value::List(list) => {
                let nodes: Vec<_> = list.iter().map(|node| expected(text, node)).collect();
                serde_json::json!([2, nodes])
            }
            Value::Table(table) => {
                let pairs: Vec<_> = table.iter().map(|(name, node)| (name, expected(text, node))).collect();
                serde_json::json!([3, pairs])
            }
        };
        serde_json::json!([utf16(text, node.at), value[0], value[1]])
    }

    fn utf16(text: &str, at: usize) -> usize {
        text.get(..at).unwrap_or_default().encode_utf16().count()
    }

    fn is_written_as_it_is_read(text: &str) {
        let expected = match read(text) {
            Ok(node) => expected(text, &node),
            Err(wrong) => serde_json::json!({ "at": utf16(text, wrong.at), "what": wrong.what }),
        };
        assert_eq!(serde_json::from_str(&toml_to_json(text)).ok(), Some(expected), "{text}");
    }

    #[test]
    fn a_file_has_the_places_that_javascript_counts() {
        assert_eq!(
            toml_to_json("a = 'é😀'\n\"é\" = [0x10, true]"),
            r#"[0,3,[["a",[4,1,"é😀"]],["é",[16,2,[[17,0,"16"],[23,0,"true"]]]]]]"#
        );
        assert_eq!(toml_to_json("# é😀\na = 1\na = 2"), r#"{"at":12,"what":"duplicate key"}"#);
        assert_eq!(toml_to_json(r#"a = "\u0001\"\\\n""#), r#"[0,3,[["a",[4,1,"\u0001\"\\\u000a"]]]]"#);
    }

    #[test]
    fn values_of_each_kind_are_written() {
        for text in [
            "",
            "\u{feff}a = 1",
            "a = 1_000\nb = -0.5e3\nc = inf\nd = nan\ne = 0o17\nf = 99999999999999999999",
            "a = 2026-01-01T00:00:00Z\nb = 07:32:00",
            "a.b.c = {d = [1, [\"x\"], {}]}\n[e]\n[[f]]\ng = '''\n é'''\n[[f]]",
            "a = ",
            "a = \"\\q\"",
            "é = 1",
            "a = 'é",
            "[a]\n[a]",
        ] {
            is_written_as_it_is_read(text);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_written_as_it_is_read(text in r#"([abé😀]( ?= ?|\.)?|[\[\]{}",'\\#\n]|[0-9]|"[aé😀\\n]{0,2}"){0,24}"#) {
            is_written_as_it_is_read(&text);
        }

        #[test]
        fn any_value_is_written_as_it_is_read(names in prop::collection::vec(("[aé😀]{1,3}", ".*"), 0..4)) {
            let lines = names.iter().map(|(name, text)| format!("\"{name}\" = {}\n", serde_json::json!(text)));
            is_written_as_it_is_read(&lines.collect::<String>());
        }
    }
}
