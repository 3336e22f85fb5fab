//! The rules file: its fields, and the positions of its errors.

mod position;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};

pub(super) use self::position::Step;
use self::position::locate;
use super::matcher::{Host, Path};
use super::path::{encoded, normal, segments};
use crate::{Error, Quota};

/// The most segments of a rule's path.
const SEGMENTS_MAX: usize = 32;

#[derive(serde::Deserialize)]
#[serde(rename = "rules file", deny_unknown_fields)]
pub(super) struct File {
    #[serde(default, rename = "$schema")]
    _schema: Option<String>,
    #[serde(default)]
    pub(super) api_keys: ApiKeys,
    #[serde(default)]
    pub(super) lists: Lists,
    #[serde(default, deserialize_with = "unique")]
    pub(super) limits: BTreeMap<String, Limit>,
    #[serde(default)]
    pub(super) rules: Vec<Rule>,
}

/// Where API keys are, and which are valid.
#[derive(Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ApiKeys {
    pub(super) header: Option<Name>,
    /// The tier of each key, by [`Key::api_key`](crate::Key::api_key) without `key:`.
    #[serde(default, deserialize_with = "unique")]
    pub(super) tiers: BTreeMap<String, String>,
}

#[derive(Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Lists {
    #[serde(default)]
    pub(super) allow: Vec<String>,
    #[serde(default)]
    pub(super) deny: Vec<String>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Limit {
    pub(super) quotas: Vec<Quota>,
    #[serde(default)]
    pub(super) charge_denied: bool,
    pub(super) group_by: Option<String>,
    #[serde(default, deserialize_with = "unique")]
    pub(super) tiers: BTreeMap<String, Tier>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tier {
    pub(super) quotas: Option<Vec<Quota>>,
    #[serde(default)]
    pub(super) unlimited: bool,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rule {
    pub(super) name: Option<String>,
    #[serde(default)]
    pub(super) host: Host,
    #[serde(default)]
    pub(super) path: Path,
    #[serde(default)]
    pub(super) methods: Vec<Method>,
    #[serde(default)]
    pub(super) headers: Vec<Name>,
    #[serde(default)]
    pub(super) limits: Vec<String>,
    pub(super) cost: Option<u64>,
    pub(super) store: Option<String>,
    #[serde(default)]
    pub(super) on_failure: OnFailure,
}

/// What to do with a request if the store fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// Admit it without counting it.
    Open,
    /// Refuse it with a 503.
    #[default]
    Closed,
}

/// A rules file's name and text.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) name: &'a str,
    pub(super) text: &'a str,
}

impl Source<'_> {
    pub(super) fn read(&self) -> Result<File, Error> {
        let read = match self.name.rsplit_once('.') {
            #[cfg(feature = "toml")]
            Some((_, "toml")) => toml::from_str(self.text).map_err(|error| position::of_toml(self.text, &error)),
            #[cfg(not(feature = "toml"))]
            Some((_, "toml")) => {
                let message = "this build reads no TOML; enable the feature `toml` of tidegate-core, or write JSON";
                return Err(Error::invalid(format!("{}: {message}", self.name)));
            }
            Some((_, "json")) => serde_json::from_str(self.text).map_err(|error| position::of_json(&error)),
            _ => return Err(Error::invalid(format!("{}: end the file's name with .toml or .json", self.name))),
        };
        read.map_err(|(line, column, what)| Error::invalid(format!("{}:{line}:{column}: {what}", self.name)))
    }

    /// A message about the value at `path`, with its position.
    pub(super) fn at(&self, path: &[Step<'_>], what: fmt::Arguments<'_>) -> String {
        let (line, column) = locate(self, path);
        format!("{}:{line}:{column}: {what}", self.name)
    }

    pub(super) fn invalid(&self, path: &[Step<'_>], what: fmt::Arguments<'_>) -> Error {
        Error::invalid(self.at(path, what))
    }
}

/// The name of a header field, in lower case.
pub(super) struct Name(pub(super) Box<str>);

/// A method, in upper case.
pub(super) struct Method(pub(super) Box<str>);

/// Whether a text is a token as in RFC 9110, section 5.6.2.
fn is_token(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.len() <= 64 && text.bytes().all(fits)
}

/// Implements `Deserialize` for what a text is parsed to.
macro_rules! from_text {
    ($($kind:ty: $parse:expr;)+) => {$(
        impl<'de> Deserialize<'de> for $kind {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                $parse(&text).map_err(|fix: &str| de::Error::custom(format!("{text:?}: {fix}")))
            }
        }
    )+};
}

from_text! {
    Name: |text: &str| match is_token(text) {
        true => Ok(Self(text.to_ascii_lowercase().into())),
        false => Err("cannot be the name of a header field; write one such as x-api-key"),
    };
    Method: |text: &str| match is_token(text) && !text.bytes().any(|byte| byte.is_ascii_lowercase()) {
        true => Ok(Self(text.into())),
        false => Err("is not a method; write one in upper case, such as POST"),
    };
    Host: host;
    Path: path;
}

fn host(text: &str) -> Result<Host, &'static str> {
    let (domain, below) = text.strip_prefix("*.").map_or((text, false), |domain| (domain, true));
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'[' | b']' | b':');
    if domain.is_empty() || domain.starts_with('.') || domain.ends_with('.') || !domain.bytes().all(fits) {
        return Err("is not a host; write one without a port, such as api.example.com or *.example.com");
    }
    let domain = domain.to_ascii_lowercase().into();
    Ok(if below { Host::Below(domain) } else { Host::Exact(domain) })
}

fn path(text: &str) -> Result<Path, &'static str> {
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
    let text = encoded(text);
    let text = normal(&text);
    let mut parts = Vec::new();
    for segment in segments(&text) {
        let name = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
        if name.is_none() && segment.contains(['{', '}']) {
            return Err("has a brace inside a segment; write {name} for a whole segment");
        }
        parts.push(if name.is_some() { None } else { Some(segment.into()) });
    }
    if parts.len() > SEGMENTS_MAX {
        return Err("has more than 32 segments; write a shorter one that ends with /*");
    }
    Ok(Path { segments: parts.into(), is_prefix })
}

/// A map without repeated keys. JSON allows them, and its parser would keep the last.
fn unique<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<BTreeMap<String, T>, D::Error> {
    struct Unique<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Unique<T> {
        type Value = BTreeMap<String, T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a table")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut found = BTreeMap::new();
            while let Some((name, value)) = map.next_entry::<String, T>()? {
                match found.entry(name) {
                    Entry::Vacant(place) => _ = place.insert(value),
                    Entry::Occupied(place) => {
                        return Err(de::Error::custom(format!("{:?} is written twice; write it once", place.key())));
                    }
                }
            }
            Ok(found)
        }
    }

    deserializer.deserialize_map(Unique(PhantomData))
}
