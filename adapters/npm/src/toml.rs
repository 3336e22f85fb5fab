//! TOML, which the gate's TypeScript reads through WebAssembly.

use std::fmt::Write as _;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Reads a file in TOML. Returns JSON: a node, or `{"at":0,"what":"…"}` if the text is wrong.
///
/// A node is `[at, kind, value]`. The value of kind 0 is a number, a flag or a date, as a string; that of kind 1 is a text; that of
/// kind 2 is a list of nodes; and that of kind 3 is a table, which is a list of pairs of a name and a node. `at` is the place in the
/// text, in units of UTF-16, as JavaScript counts.
#[must_use]
pub(crate) fn to_json(text: &str) -> String {
    let mut writer = Writer { out: String::new(), places: Places::of(text) };
    match DeTable::parse(text) {
        Ok(root) => {
            writer.out.push_str("[0,");
            writer.table(root.get_ref());
            writer.out.push(']');
        }
        Err(error) => writer.wrong(error.span().map_or(0, |span| span.start), error.message()),
    }
    writer.out
}

struct Writer<'a> {
    out: String,
    places: Places<'a>,
}

impl Writer<'_> {
    fn wrong(&mut self, at: usize, what: &str) {
        let _ = write!(self.out, r#"{{"at":{},"what":"#, self.places.in_utf16(at));
        self.text(what);
        self.out.push('}');
    }

    fn node(&mut self, node: &Spanned<DeValue<'_>>) {
        let _ = write!(self.out, "[{},", self.places.in_utf16(node.span().start));
        match node.get_ref() {
            DeValue::String(text) => {
                self.out.push_str("1,");
                self.text(text);
            }
            DeValue::Integer(number) => {
                let decimal = i64::from_str_radix(number.as_str(), number.radix());
                self.bare(&decimal.map_or_else(|_| number.to_string(), |number| number.to_string()));
            }
            DeValue::Float(number) => self.bare(&number.to_string()),
            DeValue::Boolean(flag) => self.bare(&flag.to_string()),
            DeValue::Datetime(date) => self.bare(&date.to_string()),
            DeValue::Array(list) => {
                self.out.push_str("2,");
                self.list(list.iter(), Self::node);
            }
            DeValue::Table(table) => self.table(table),
        }
        self.out.push(']');
    }

    /// A number, a flag or a date.
    fn bare(&mut self, text: &str) {
        self.out.push_str("0,");
        self.text(text);
    }

    fn table(&mut self, table: &DeTable<'_>) {
        self.out.push_str("3,");
        self.list(table.iter(), |writer, (name, node)| {
            writer.out.push('[');
            writer.text(name.get_ref());
            writer.out.push(',');
            writer.node(node);
            writer.out.push(']');
        });
    }

    fn list<T>(&mut self, values: impl Iterator<Item = T>, write: fn(&mut Self, T)) {
        self.out.push('[');
        for (place, one) in values.enumerate() {
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
