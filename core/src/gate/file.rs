//! The rules file: its fields, and the positions of its errors.

mod lease;
#[cfg(feature = "toml")]
mod toml;

use std::num::NonZero;

pub(super) use self::lease::lease;
use super::matcher::{Host, Path, Pattern};
use super::path::{SEGMENTS_MAX, rule_path, segments};
use crate::Error;
use crate::document::{FileText, Item, Node, Source};
use crate::quoted_text::Quoted;

/// What to do with a request if the store fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnFailure {
    /// Admit it without counting it.
    Open,
    /// Refuse it with a 503.
    #[default]
    Closed,
}

/// A file that was read.
pub(super) struct File<'a> {
    text: FileText<'a>,
    root: Node,
}

impl<'a> File<'a> {
    pub(super) fn read(file: FileText<'a>) -> Result<Self, Error> {
        let FileText { name, text } = file;
        let read = match name.rsplit_once('.') {
            #[cfg(feature = "toml")]
            Some((_, "toml")) => toml::read(text),
            #[cfg(not(feature = "toml"))]
            Some((_, "toml")) => {
                let message = "this build reads no TOML; enable the feature `toml` of your platform's crate (or of tidegate-core), or write JSON";
                return Err(Error::invalid(format!("{name}: {message}")));
            }
            Some((_, "json")) => Node::of_json(text, true),
            _ => return Err(Error::invalid(format!("{name}: end the file's name with .toml or .json"))),
        };
        let root = read.map_err(|wrong| Error::invalid(file.at(wrong.at, format_args!("{}", wrong.what))))?;
        Ok(File { text: file, root })
    }

    pub(super) const fn root(&self) -> Item<'_> {
        Item::of(Source::File(self.text), &self.root)
    }
}

/// What a rule does if the store fails.
pub(super) fn on_failure(item: &Item<'_>) -> Result<OnFailure, Error> {
    match item.text()? {
        "open" => Ok(OnFailure::Open),
        "closed" => Ok(OnFailure::Closed),
        other => Err(item.wrong(other, format_args!("is unknown; write \"open\" or \"closed\""))),
    }
}

/// What a rule matches.
pub(super) fn pattern(rule: &Item<'_>, ignores_case: bool) -> Result<Pattern, Error> {
    let mut pattern = Pattern::default();
    if let Some(item) = rule.field("host") {
        pattern.host = parsed(&item, host)?;
    }
    if let Some(item) = rule.field("path") {
        let ([normal, written], is_prefix) = parsed(&item, path)?;
        pattern.path = Path::new([&normal, &written], is_prefix, ignores_case);
    }
    if let Some(methods) = rule.field("methods") {
        pattern.methods = methods.each(&mut |item| parsed(item, method))?.into();
    }
    if let Some(headers) = rule.field("headers") {
        pattern.headers = headers.each(&mut field_name)?.into();
    }
    if let Some(score) = rule.number_in("bot_score_below", 1, u8::MAX.into())? {
        pattern.score_below = u8::try_from(score).ok().and_then(NonZero::new);
    }
    Ok(pattern)
}

/// The name of a header field, in lower case.
pub(super) fn field_name(item: &Item<'_>) -> Result<Box<str>, Error> {
    parsed(item, |text| match is_token(text) {
        true => Ok(text.to_ascii_lowercase().into()),
        false => Err("cannot be the name of a header field; write one such as x-api-key"),
    })
}

fn parsed<T>(item: &Item<'_>, parse: fn(&str) -> Result<T, &'static str>) -> Result<T, Error> {
    let text = item.text()?;
    parse(text).map_err(|fix| item.invalid(format_args!("{}: {fix}", Quoted(text))))
}

/// Whether a text is a token as in RFC 9110, section 5.6.2.
fn is_token(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.len() <= 64 && text.bytes().all(fits)
}

fn method(text: &str) -> Result<Box<str>, &'static str> {
    match is_token(text) && !text.bytes().any(|byte| byte.is_ascii_lowercase()) {
        true => Ok(text.into()),
        false => Err("is not a method; write one in upper case, such as POST"),
    }
}

fn host(text: &str) -> Result<Host, &'static str> {
    let (domain, below) = text.strip_prefix("*.").map_or((text, false), |domain| (domain, true));
    let address = domain.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let fits = match address {
        Some(inside) => inside.bytes().all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.')),
        None => domain.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_')),
    };
    if domain.is_empty() || domain.starts_with('.') || domain.ends_with('.') || !fits {
        return Err("is not a host; write one without a port, such as api.example.com or *.example.com");
    }
    let domain = domain.to_ascii_lowercase().into();
    Ok(if below { Host::Below(domain) } else { Host::Exact(domain) })
}

/// The forms of a path, as [`rule_path`] has them, and whether it ends with a star.
fn path(text: &str) -> Result<([String; 2], bool), &'static str> {
    if !text.starts_with('/') {
        return Err("is not a path; begin it with a slash, as in /api/*");
    }
    if text.contains(['?', '#']) {
        return Err("has a query or a fragment; rules match the path only");
    }
    let (text, is_prefix) = text.strip_suffix("/*").map_or((text, false), |text| (text, true));
    if text.contains('*') {
        return Err("has a star inside; write it only at the end, as in /api/*, and {name} for one segment");
    }
    let both = rule_path(text)?;
    if segments(&both[0]).nth(SEGMENTS_MAX).is_some() {
        return Err("has more than 32 segments; write a shorter one that ends with /*");
    }
    Ok((both, is_prefix))
}
