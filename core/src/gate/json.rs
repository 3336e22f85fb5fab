//! JSON, with the place of each value, which messages have. `serde_json` tells no places, and would take 10.0 KiB more of a Worker that
//! reads a rules file, gzipped.

use crate::document::{Node, Value};
use crate::quoted_text::Quoted;
use crate::sorted_map::SortedMap;

/// What is wrong with a text, and where.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Wrong {
    pub(super) at: usize,
    pub(super) what: String,
}

/// How many lists and tables may be in one another.
const DEPTH_MAX: usize = 127;

impl Node {
    /// Reads a text. If names are not `unique`, the last value of a name counts.
    pub(super) fn of_json(text: &str, unique: bool) -> Result<Self, Wrong> {
        let mut parser = Parser { text, at: 0, depth: 0, unique };
        let node = parser.value()?;
        match parser.next() {
            None => Ok(node),
            Some(_) => parser.wrong("trailing characters"),
        }
    }

    /// A number as it is written.
    pub(super) fn as_number(&self) -> Option<&str> {
        let Value::Bare(text) = &self.value else { return None };
        is_number(text).then_some(text)
    }
}

/// Whether a text is a number of JSON (RFC 8259, section 6).
fn is_number(text: &str) -> bool {
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let text = text.strip_prefix('-').unwrap_or(text);
    let (decimal, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = decimal.split_once('.').unwrap_or((decimal, "0"));
    is_digits(whole)
        && (whole.len() == 1 || !whole.starts_with('0'))
        && is_digits(fraction)
        && is_digits(exponent.strip_prefix(['+', '-']).unwrap_or(exponent))
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    unique: bool,
}

impl Parser<'_> {
    fn wrong<T>(&self, what: &str) -> Result<T, Wrong> {
        let what = if self.at < self.text.len() { what } else { "EOF while parsing" };
        Err(Wrong { at: self.at, what: what.to_string() })
    }

    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Passes the bytes that fit, and returns them. All that are asked for are ASCII, or all that are not.
    fn run(&mut self, fits: fn(u8) -> bool) -> &str {
        let start = self.at;
        while self.byte().is_some_and(fits) {
            self.at += 1;
        }
        self.text.get(start..self.at).unwrap_or_default()
    }

    /// The next byte that is not a space.
    fn next(&mut self) -> Option<u8> {
        self.run(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
        self.byte()
    }

    fn value(&mut self) -> Result<Node, Wrong> {
        let first = self.next();
        let at = self.at;
        let value = match first {
            Some(b'"') => Value::Text(self.string()?),
            Some(b'[') => {
                let mut list = Vec::new();
                self.entries(b']', "expected `,` or `]`", &mut |parser| {
                    list.push(parser.value()?);
                    Ok(())
                })?;
                Value::List(list)
            }
            Some(b'{') => Value::Table(self.table()?),
            _ => {
                let text = self.run(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'));
                if !is_number(text) && !matches!(text, "true" | "false" | "null") {
                    self.at = at;
                    return self.wrong("expected a value");
                }
                Value::Bare(text.to_string())
            }
        };
        Ok(Node { at, value })
    }

    fn table(&mut self) -> Result<Vec<(String, Node)>, Wrong> {
        let mut table: Vec<(String, Node)> = Vec::new();
        let mut names = SortedMap::new();
        self.entries(b'}', "expected `,` or `}`", &mut |parser| {
            if parser.next() != Some(b'"') {
                return parser.wrong("expected a name in quotes");
            }
            let at = parser.at;
            let name = parser.string()?;
            if parser.unique && names.insert(&name, ()).is_some() {
                return Err(Wrong { at, what: format!("{} is written twice; write it once", Quoted(&name)) });
            }
            if parser.next() != Some(b':') {
                return parser.wrong("expected `:`");
            }
            parser.at += 1;
            table.push((name, parser.value()?));
            Ok(())
        })?;
        Ok(table)
    }

    /// Reads what is between two brackets, with commas in between.
    fn entries(
        &mut self,
        end: u8,
        expected: &str,
        read: &mut dyn FnMut(&mut Self) -> Result<(), Wrong>,
    ) -> Result<(), Wrong> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return self.wrong("too many lists and tables in one another");
        }
        self.at += 1;
        if self.next() != Some(end) {
            read(self)?;
            while self.next() != Some(end) {
                if self.byte() != Some(b',') {
                    return self.wrong(expected);
                }
                self.at += 1;
                read(self)?;
            }
        }
        self.at += 1;
        self.depth -= 1;
        Ok(())
    }

    fn string(&mut self) -> Result<String, Wrong> {
        let mut found = String::new();
        loop {
            // A quote, or the last character of an escape.
            self.at += 1;
            found.push_str(self.run(|byte| byte >= b' ' && byte != b'"' && byte != b'\\'));
            match self.byte() {
                Some(b'"') => break,
                Some(b'\\') => match self.escaped() {
                    Some(character) => found.push(character),
                    None => return self.wrong("invalid escape"),
                },
                _ => return self.wrong("control character in a text; write an escape"),
            }
        }
        self.at += 1;
        Ok(found)
    }

    /// The character that is escaped here. Stays at the last byte of the escape.
    fn escaped(&mut self) -> Option<char> {
        self.at += 1;
        Some(match self.byte()? {
            byte @ (b'"' | b'\\' | b'/') => char::from(byte),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let first = self.four_digits()?;
                if !(0xD800..0xDC00).contains(&first) {
                    return char::from_u32(first);
                }
                let rest = self.text.as_bytes().get(self.at + 1..)?;
                rest.starts_with(b"\\u").then_some(())?;
                self.at += 2;
                let second = self.four_digits()?.checked_sub(0xDC00).filter(|low| *low < 0x400)?;
                return char::from_u32(0x10000 + ((first - 0xD800) << 10) + second);
            }
            _ => return None,
        })
    }

    /// Four hexadecimal digits after this byte.
    fn four_digits(&mut self) -> Option<u32> {
        let mut number = 0;
        for _ in 0..4 {
            self.at += 1;
            number = number << 4 | char::from(self.byte()?).to_digit(16)?;
        }
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Node, Value};

    /// The same as the parser of `serde_json` has it.
    fn same(node: &Node, other: &serde_json::Value) -> bool {
        match (&node.value, other) {
            (Value::Bare(text), serde_json::Value::Number(number)) => {
                // The library rounds the last digit of some.
                let is_near = |(read, library): (f64, f64)| (read - library).abs() <= library.abs() * 1e-14;
                node.as_number().is_some() && text.parse().ok().zip(number.as_f64()).is_some_and(is_near)
            }
            (Value::Bare(text), serde_json::Value::Bool(flag)) => text == if *flag { "true" } else { "false" },
            (Value::Bare(text), serde_json::Value::Null) => text == "null",
            (Value::Text(text), other) => other.as_str() == Some(text),
            (Value::List(list), serde_json::Value::Array(others)) => {
                list.len() == others.len() && list.iter().zip(others).all(|(node, other)| same(node, other))
            }
            (Value::Table(table), serde_json::Value::Object(others)) => {
                let counts =
                    |(name, other): (&String, &serde_json::Value)| node.get(name).is_some_and(|node| same(node, other));
                table.iter().all(|(name, _)| others.contains_key(name)) && others.iter().all(counts)
            }
            _ => false,
        }
    }

    fn reads_as_the_library_does(text: &str) {
        let (read, library) = (Node::of_json(text, false), serde_json::from_str::<serde_json::Value>(text));
        match (read, library) {
            (Ok(node), Ok(value)) => assert!(same(&node, &value), "{text}"),
            (read, library) => assert_eq!(read.is_ok(), library.is_ok(), "{text}\n{read:?}\n{library:?}"),
        }
    }

    #[test]
    fn texts_are_read_as_the_library_reads_them() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        for text in [
            "",
            " ",
            "{",
            "[",
            "\"",
            "[1,]",
            "{\"a\":1,}",
            "{,}",
            "[,]",
            "{\"a\"}",
            "{\"a\":}",
            "{a:1}",
            "[1 2]",
            "nul",
            "nulll",
            "true",
            " [ false , null ] ",
            "1.",
            ".5",
            "01",
            "-",
            "-0",
            "-01",
            "+1",
            "1e",
            "1e+",
            "1E-2",
            "1.5e3",
            "1.e3",
            "0x1",
            "NaN",
            "Infinity",
            "1 1",
            "[] x",
            r#""\u00e9""#,
            r#""\ud83d\ude00""#,
            r#""\ud83d""#,
            r#""\ud83d\n""#,
            r#""\ud83dx""#,
            r#""\ud83d\ud83d""#,
            r#""\ude00""#,
            r#""\u12""#,
            r#""\u+123""#,
            r#""\x""#,
            "\"\u{1}\"",
            "\"\u{7f}é😀\"",
            "\"\n\"",
            r#""\"\\\/\b\f\n\r\t""#,
            r#"{"a":1,"a":[2],"b":{"a":"x"}}"#,
            "\u{feff}1",
            "[\u{a0}]",
            "é",
            "[\"a\", é]",
            &nested(127),
            &nested(128),
        ] {
            reads_as_the_library_does(text);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_as_the_library_reads_it(text in r#"[\[\]{}:,"\\ue+.0-9a-dDtrnfl\x00 é-]{0,24}"#) {
            reads_as_the_library_does(&text);
        }

        #[test]
        fn any_value_is_read_as_the_library_reads_it(value in prop::collection::vec((".*", any::<f64>(), any::<i64>(), any::<bool>()), 0..4)) {
            reads_as_the_library_does(&serde_json::json!(value).to_string());
        }
    }

    #[test]
    fn a_mistake_has_its_place() {
        let wrong =
            |text: &str| Node::of_json(text, true).err().map_or((0, String::new()), |wrong| (wrong.at, wrong.what));
        assert_eq!(wrong("{"), (1, "EOF while parsing".into()));
        assert_eq!(wrong(r#"{"a": 1, "a": 2}"#), (9, r#""a" is written twice; write it once"#.into()));
        assert_eq!(wrong("[1, truth]"), (4, "expected a value".into()));
        assert_eq!(wrong("[1 2]"), (3, "expected `,` or `]`".into()));
        assert_eq!(wrong(r#"["\q"]"#), (3, "invalid escape".into()));
    }
}
