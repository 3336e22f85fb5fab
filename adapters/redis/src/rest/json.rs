//! The JSON that the protocol needs: a command is an array of strings, an answer an object with a string, a number, or some strings.
//!
//! On WebAssembly, the whole module is loaded before the first request is served, and a JSON library would be a fifth of it.

/// The database's answer to one of Tidegate's commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Text(String),
    Integer,
    Texts(Vec<String>),
    /// An error that the database returned.
    Error(String),
}

impl Reply {
    /// Whether the database does not have the script.
    pub(crate) fn is_no_script(&self) -> bool {
        matches!(self, Self::Error(text) if text.starts_with("NOSCRIPT"))
    }
}

/// Encodes the words of a command as JSON.
pub(crate) fn command(words: impl FnOnce(&mut dyn FnMut(&str))) -> String {
    let mut out = String::with_capacity(512);
    words(&mut |word| {
        out.push(if out.is_empty() { '[' } else { ',' });
        push_string(&mut out, word);
    });
    out.push(']');
    out
}

fn push_string(out: &mut String, word: &str) {
    out.push('"');
    let mut rest = word;
    while let Some(at) = rest.bytes().position(|byte| matches!(byte, ..b' ' | b'"' | b'\\')) {
        out.push_str(&rest[..at]);
        let escaped = rest.as_bytes()[at];
        match escaped {
            b'\n' => out.push_str("\\n"),
            b'"' | b'\\' => out.extend(['\\', char::from(escaped)]),
            control => {
                let digit = |value: u8| char::from_digit(value.into(), 16).unwrap_or('0');
                out.push_str("\\u00");
                out.extend([digit(control >> 4), digit(control & 15)]);
            }
        }
        rest = &rest[at + 1..];
    }
    out.push_str(rest);
    out.push('"');
}

/// Parses `{"result": …}` or `{"error": …}`, and rejects everything else.
pub(crate) fn reply(body: &str) -> Option<Reply> {
    let mut rest = Parser(body);
    rest.token("{")?;
    let mut found = None;
    loop {
        let name = rest.string()?;
        rest.token(":")?;
        let value = rest.value()?;
        found = match (name.as_str(), value) {
            ("error", Reply::Text(text)) => Some(Reply::Error(text)),
            ("result", value) => found.or(Some(value)),
            _ => found,
        };
        if rest.token("}").is_some() {
            break;
        }
        rest.token(",")?;
    }
    rest.0.trim_ascii().is_empty().then_some(found).flatten()
}

/// The text that is not parsed yet.
struct Parser<'a>(&'a str);

impl Parser<'_> {
    fn token(&mut self, token: &str) -> Option<()> {
        self.0 = self.0.trim_ascii_start().strip_prefix(token)?;
        Some(())
    }

    fn value(&mut self) -> Option<Reply> {
        self.0 = self.0.trim_ascii_start();
        if self.0.starts_with('"') {
            return self.string().map(Reply::Text);
        }
        if self.token("[").is_some() {
            return self.texts().map(Reply::Texts);
        }
        let digits = self.0.strip_prefix('-').unwrap_or(self.0);
        let after = digits.trim_start_matches(|digit: char| digit.is_ascii_digit());
        let is_whole = after.len() < digits.len() && !after.starts_with(['.', 'e', 'E']);
        self.0 = after;
        is_whole.then_some(Reply::Integer)
    }

    /// Parses strings up to a closing bracket.
    fn texts(&mut self) -> Option<Vec<String>> {
        let mut texts = Vec::new();
        while self.token("]").is_none() {
            if !texts.is_empty() {
                self.token(",")?;
            }
            texts.push(self.string()?);
        }
        Some(texts)
    }

    fn string(&mut self) -> Option<String> {
        self.token("\"")?;
        let mut text = String::new();
        loop {
            let end = self.0.find(['"', '\\'])?;
            text.push_str(&self.0[..end]);
            let is_end = self.0[end..].starts_with('"');
            self.0 = &self.0[end + 1..];
            if is_end {
                return Some(text);
            }
            text.push(self.escaped()?);
        }
    }

    /// Parses an escape after its backslash.
    fn escaped(&mut self) -> Option<char> {
        let mut rest = self.0.chars();
        let character = match rest.next()? {
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'b' => '\u{8}',
            'f' => '\u{c}',
            same @ ('"' | '\\' | '/') => same,
            'u' => return self.code_point(),
            _ => return None,
        };
        self.0 = rest.as_str();
        Some(character)
    }

    /// Parses `uXXXX`, or a surrogate pair of them. A lone surrogate is replaced.
    fn code_point(&mut self) -> Option<char> {
        let first = self.code_unit()?;
        if !(0xd800..0xdc00).contains(&first) {
            return Some(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        let after_first = self.0;
        if self.0.starts_with("\\u") {
            self.0 = &self.0[1..];
            let second = self.code_unit()?;
            if (0xdc00..0xe000).contains(&second) {
                return char::from_u32(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00));
            }
            self.0 = after_first;
        }
        Some(char::REPLACEMENT_CHARACTER)
    }

    fn code_unit(&mut self) -> Option<u32> {
        let digits = self.0.get(1..5).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
        self.0 = &self.0[5..];
        u32::from_str_radix(digits, 16).ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::{Reply, command, reply};

    proptest! {
        #[test]
        fn parses_the_json_of_a_library(text in ".*", number: i64) {
            let answer = |name: &str, value: Value| reply(&json!({ name: value }).to_string());
            prop_assert_eq!(answer("result", text.clone().into()), Some(Reply::Text(text.clone())));
            prop_assert_eq!(answer("error", text.clone().into()), Some(Reply::Error(text.clone())));
            prop_assert_eq!(answer("result", number.into()), Some(Reply::Integer));
            let texts = vec![text.clone(), String::new(), text.clone()];
            prop_assert_eq!(answer("result", texts.clone().into()), Some(Reply::Texts(texts)));
            let escaped: String = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
            prop_assert_eq!(reply(&format!("{{\"result\":\"{escaped}\"}}")), Some(Reply::Text(text)));
        }

        #[test]
        fn a_library_parses_its_json(words in prop::collection::vec("(?s).*", 1..9)) {
            let written = command(|give| words.iter().for_each(|word| give(word)));
            prop_assert_eq!(serde_json::from_str::<Vec<String>>(&written).ok(), Some(words));
        }

        #[test]
        fn no_input_panics(body in r#"([{}\[\]":,\\u0-9a-f.é -]|result|error)*"#) {
            let _ = reply(&body);
            let _ = reply(&format!("{{\"result\":\"{body}"));
        }
    }

    #[test]
    fn every_escape_is_read() {
        let text = reply(r#"{"result":"\"\\\/\n\r\t\b\f\u0041"}"#);
        assert_eq!(text, Some(Reply::Text("\"\\/\n\r\t\u{8}\u{c}A".to_owned())));
        assert_eq!(reply(r#"{"result":"\x"}"#), None);
    }

    #[test]
    fn anything_else_is_not_a_reply() {
        for body in [
            "",
            "{",
            "{}",
            "[]",
            "null",
            "\"a\"",
            "{\"result\":}",
            "{\"result\":null}",
            "{\"result\":1.5}",
            "{\"result\":1e3}",
            "{\"result\":-}",
            "{\"result\":[\"a\",1]}",
            "{\"result\":[\"a\",]}",
            "{\"result\":[,]}",
            "{\"result\":[\"a\" \"b\"]}",
            "{\"result\":[[]]}",
            "{\"result\":[\"a\"}",
            "{\"error\":[\"a\"]}",
            "{\"result\":\"a}",
            "{\"result\":\"a\"",
            "{\"result\":\"a\"}}",
            "{\"result\":\"a\",}",
            "{\"result\" \"a\"}",
            "{result:\"a\"}",
            "{\"other\":\"a\"}",
            "{\"result\":\"\\x\"}",
            "{\"result\":\"\\u12g4\"}",
            "{\"result\":\"\\u+123\"}",
            "{\"error\":1}",
            "<html>",
            "{\"result\":\"a\"} {}",
        ] {
            assert_eq!(reply(body), None, "{body}");
        }
        assert_eq!(reply(" { \"result\" : \"\\ud83d!\" } \n"), Some(Reply::Text("\u{fffd}!".into())));
        assert_eq!(reply("{\"result\": [ ] }"), Some(Reply::Texts(Vec::new())));
        assert_eq!(reply("{\"result\":\"a\",\"error\":\"ERR b\"}"), Some(Reply::Error("ERR b".into())));
    }
}
