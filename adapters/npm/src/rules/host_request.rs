//! A request as the host passes it.

use std::net::IpAddr;
use std::rc::Rc;

use tidegate_core::gate::{Grantee, Headers, Request};
use tidegate_core::{Error, Key, UnixMillis};

use super::wire::unexpected;

/// A request, and what the application knows of it.
#[derive(Default)]
pub(super) struct HostRequest {
    pub(super) method: String,
    pub(super) url: String,
    pub(super) fields: Fields,
    pub(super) now: u64,
    pub(super) peer: Option<String>,
    pub(super) subject: Option<String>,
    pub(super) api_key: Option<String>,
    pub(super) key: Option<Key>,
    pub(super) tier: Option<String>,
    pub(super) token: Option<String>,
    pub(super) bot_score: Option<u8>,
    pub(super) ja4: Option<String>,
    pub(super) cost: Option<u64>,
    /// Whether the cost is an estimate.
    pub(super) is_estimate: bool,
    /// Whether all requests without an address are a mistake of the application, and not of a client.
    pub(super) needs_peer: bool,
    pub(super) keys: Vec<(String, Key)>,
    pub(super) limits: Vec<(String, u64)>,
}

/// The header fields that the rules read.
pub(super) struct Fields {
    names: Rc<[Box<str>]>,
    values: Vec<Option<Vec<u8>>>,
}

impl Default for Fields {
    fn default() -> Self {
        Self { names: Rc::from([]), values: Vec::new() }
    }
}

impl Fields {
    /// The values of these fields, each after a line end. A field that is absent is a NUL. The host has joined repeated fields with
    /// commas, and each character is a byte.
    pub(super) fn new(names: &Rc<[Box<str>]>, text: &str) -> Self {
        let bytes = |value: &str| -> Vec<u8> {
            value.chars().map(|character| u8::try_from(character).unwrap_or(b'?')).collect()
        };
        let value = |value: &str| (value != "\0").then(|| bytes(value));
        Self { names: Rc::clone(names), values: text.split('\n').map(value).collect() }
    }
}

impl Headers for Fields {
    fn values(&self, name: &str, read: &mut dyn FnMut(&[u8])) {
        let of_name = self.names.iter().zip(&self.values).filter(|(field, _)| ***field == *name);
        of_name.filter_map(|(_, value)| value.as_deref()).for_each(read);
    }
}

impl HostRequest {
    /// Calls `run` with the application's keys by their names, which a request borrows.
    pub(super) fn keys(&self) -> Vec<(&str, &Key)> {
        self.keys.iter().map(|(name, key)| (name.as_str(), key)).collect()
    }

    /// The application's limits by their names, as the keys.
    pub(super) fn limits(&self) -> Vec<(&str, u64)> {
        self.limits.iter().map(|(name, number)| (name.as_str(), *number)).collect()
    }

    /// Whom a grant is for.
    pub(super) fn grantee(&self) -> Result<Grantee<'_>, Error> {
        let address = |text: &String| text.parse().ok().map(Grantee::Address);
        let subject = self.subject.as_deref().map(Grantee::Subject);
        let identity = subject.or_else(|| self.api_key.as_deref().map(Grantee::ApiKey));
        let known = identity.or_else(|| self.key.as_ref().map(Grantee::Key));
        known.or_else(|| self.peer.as_ref().and_then(address)).ok_or_else(unexpected)
    }

    /// The request.
    pub(super) fn request<'a>(&'a self, keys: &'a [(&'a str, &'a Key)], limits: &'a [(&'a str, u64)]) -> Request<'a> {
        let (host, path) = parts(&self.url);
        let now = UnixMillis::new(self.now);
        let mut request = Request::new(&self.method, path, &self.fields, now).keys(keys).limits(limits);
        let mut has_host = false;
        self.fields.values("host", &mut |_| has_host = true);
        if !has_host {
            request = request.with_host(host);
        }
        // Anything but one address counts as missing: a list may contain what the client wrote.
        request = request.peer(self.peer.as_ref().and_then(|peer| peer.parse::<IpAddr>().ok()));
        if let Some(subject) = &self.subject {
            request = request.subject(subject);
        }
        if let Some(secret) = &self.api_key {
            request = request.api_key(secret);
        }
        if let Some(key) = &self.key {
            request = request.key(key);
        }
        if let Some(tier) = &self.tier {
            request = request.tier(tier);
        }
        if let Some(token) = &self.token {
            request = request.token(token);
        }
        if let Some(score) = self.bot_score {
            request = request.bot_score(score);
        }
        if let Some(fingerprint) = &self.ja4 {
            request = request.ja4(fingerprint);
        }
        if let Some(cost) = self.cost {
            request = request.cost(cost);
        }
        request
    }
}

/// The host and the path of a URL. The path has its query, which the gate ignores.
fn parts(url: &str) -> (&str, &str) {
    // Searching for a text takes ten times as much code as for a character.
    let rest = url.split_once(':').and_then(|(_, rest)| rest.strip_prefix("//")).unwrap_or(url);
    let end = rest.bytes().position(|byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(rest.len());
    let (host, path) = rest.split_at_checked(end).unwrap_or((rest, ""));
    (host, if path.is_empty() { "/" } else { path })
}
