//! The parts of a request that a gate reads.

use std::borrow::Cow;
use std::net::IpAddr;

use crate::{Key, MaybeSync, UnixMillis};

/// The header fields of a request, by name.
///
/// Implemented by lists of names and values. A platform's adapter implements it for the platform's own type.
pub trait Headers: MaybeSync {
    /// Calls `read` with each value of a field, in the order received. `name` is in lower case. A value that joins repeated
    /// fields with commas is accepted too.
    fn values(&self, name: &str, read: &mut dyn FnMut(&[u8]));
}

impl<N: AsRef<str> + MaybeSync, V: AsRef<[u8]> + MaybeSync> Headers for &[(N, V)] {
    fn values(&self, name: &str, read: &mut dyn FnMut(&[u8])) {
        // Most fields come in lower case, and whether texts are the same is found in fewer steps.
        let is = |field: &str| field.len() == name.len() && (field == name || field.eq_ignore_ascii_case(name));
        for (_, value) in self.iter().filter(|(field, _)| is(field.as_ref())) {
            read(value.as_ref());
        }
    }
}

impl<N: AsRef<str> + MaybeSync, V: AsRef<[u8]> + MaybeSync, const COUNT: usize> Headers for [(N, V); COUNT] {
    fn values(&self, name: &str, read: &mut dyn FnMut(&[u8])) {
        self.as_slice().values(name, read);
    }
}

impl<N: AsRef<str> + MaybeSync, V: AsRef<[u8]> + MaybeSync> Headers for Vec<(N, V)> {
    fn values(&self, name: &str, read: &mut dyn FnMut(&[u8])) {
        self.as_slice().values(name, read);
    }
}

/// A request for a [`Gate`](super::Gate) to decide on. A platform's adapter makes it. An application adds what only it knows.
///
/// ```
/// use tidegate_core::gate::Request;
/// use tidegate_core::UnixMillis;
/// let headers = [("host", "www.example.com"), ("cf-connecting-ip", "192.0.2.1")];
/// let request = Request::new("POST", "/login", &headers, UnixMillis::new(1_800_000_000_000)).subject("alice");
/// assert_eq!(request.host(), "www.example.com");
/// ```
#[derive(Clone)]
pub struct Request<'a> {
    method: &'a str,
    path: &'a str,
    host: Option<Cow<'a, str>>,
    headers: &'a dyn Headers,
    now: UnixMillis,
    pub(super) clock: Option<&'a (dyn Fn() -> UnixMillis + Sync)>,
    pub(super) peer: Option<IpAddr>,
    pub(super) key: Option<&'a Key>,
    pub(super) subject: Option<&'a str>,
    pub(super) api_key: Option<&'a str>,
    pub(super) tier: Option<&'a str>,
    pub(super) bot_score: Option<u8>,
    pub(super) ja4: Option<&'a str>,
    pub(super) keys: &'a [(&'a str, &'a Key)],
    pub(super) limits: &'a [(&'a str, u64)],
    pub(super) cost: Option<u64>,
    pub(super) token: Option<&'a str>,
}

impl<'a> Request<'a> {
    /// A request with a method, a path and header fields, at an instant of the caller's clock. A query after the path is
    /// ignored.
    #[must_use]
    #[inline]
    pub fn new(method: &'a str, path: &'a str, headers: &'a dyn Headers, now: UnixMillis) -> Self {
        Self {
            method,
            path,
            host: None,
            headers,
            now,
            clock: None,
            peer: None,
            key: None,
            subject: None,
            api_key: None,
            tier: None,
            bot_score: None,
            ja4: None,
            keys: &[],
            limits: &[],
            cost: None,
            token: None,
        }
    }

    /// Sets the host, if it is not in the field `host`, as with HTTP/2 or an absolute URL.
    #[must_use]
    #[inline]
    pub fn with_host(mut self, host: &'a str) -> Self {
        self.host = Some(host_name(host));
        self
    }

    /// Sets the clock that is read right before each store is asked, as one that was asked before may have taken its time. Without it,
    /// all decide at the time of the request.
    #[must_use]
    #[inline]
    pub fn clock(mut self, clock: &'a (dyn Fn() -> UnixMillis + Sync)) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Sets the address of the connection; see [`ClientIpSource::find`](crate::ClientIpSource::find).
    #[must_use]
    #[inline]
    pub fn peer(mut self, peer: Option<IpAddr>) -> Self {
        self.peer = peer;
        self
    }

    /// Sets the sender's key, which is counted in place of its other identities. Lists are compared with those, too.
    #[must_use]
    #[inline]
    pub fn key(mut self, key: &'a Key) -> Self {
        self.key = Some(key);
        self
    }

    /// Sets an API key that the application has found valid. An empty text counts as absent.
    #[must_use]
    #[inline]
    pub fn api_key(mut self, secret: &'a str) -> Self {
        self.api_key = Some(secret).filter(|secret| !secret.is_empty());
        self
    }

    /// Sets the subject of a token that the application has verified. An empty text counts as absent.
    #[must_use]
    #[inline]
    pub fn subject(mut self, subject: &'a str) -> Self {
        self.subject = Some(subject).filter(|subject| !subject.is_empty());
        self
    }

    /// Sets the sender's tier, such as a plan. It precedes the tier of a token or an API key. If the request names a
    /// [key](Self::key), a [subject](Self::subject) or an [API key](Self::api_key), it is the tier of that identity alone.
    #[must_use]
    #[inline]
    pub fn tier(mut self, tier: &'a str) -> Self {
        self.tier = Some(tier);
        self
    }

    /// Sets how likely a human sent the request, by the platform's or the application's judgement: the lower, the less. Rules
    /// with `bot_score_below` match lower scores only, and no request without a score. For a request that has passed a
    /// challenge, set the highest, 255.
    #[must_use]
    #[inline]
    pub const fn bot_score(mut self, score: u8) -> Self {
        self.bot_score = Some(score);
        self
    }

    /// Sets the fingerprint of the client's TLS handshake, [JA4](https://github.com/FoxIO-LLC/ja4), as the platform reports it, for limits
    /// that count by `ja4`. Never take it from a field that the client can send. An empty text counts as absent.
    #[must_use]
    #[inline]
    pub fn ja4(mut self, fingerprint: &'a str) -> Self {
        self.ja4 = Some(fingerprint).filter(|fingerprint| !fingerprint.is_empty());
        self
    }

    /// Sets the keys of dimensions that only the application knows, by their names.
    #[must_use]
    #[inline]
    pub fn keys(mut self, keys: &'a [(&'a str, &'a Key)]) -> Self {
        self.keys = keys;
        self
    }

    /// Sets the sender's limits that only the application knows, such as those of a plan, by the names in `limit_from`. A quota whose name
    /// is missing has the limit of the rules file.
    ///
    /// ```
    /// use tidegate_core::gate::{Gate, Request, Rules, Verdict};
    /// use tidegate_core::{ClientIpSource, MemoryLimiter, Platform, UnixMillis};
    /// # fn main() -> Result<(), tidegate_core::Error> {
    /// # pollster::block_on(async {
    /// let rules = Rules::parse("rules.json", r#"{
    ///     "limits": { "api": { "quotas": [{
    ///         "algorithm": "fixed_window", "limit": 60, "window_ms": 60000,
    ///         "limit_from": { "application": "rpm", "max": 1000 }
    ///     }] } },
    ///     "rules": [{ "limits": ["api"] }]
    /// }"#)?;
    /// let gate = Gate::new(rules, MemoryLimiter::new(), ClientIpSource::new(Platform::Direct))?;
    /// let headers: [(&str, &str); 0] = [];
    /// let request = Request::new("GET", "/", &headers, UnixMillis::new(0)).subject("alice");
    /// let Verdict::Pass(pass) = gate.check(&request.clone().limits(&[("rpm", 500)])).await else { panic!() };
    /// assert_eq!(pass.fields().get("x-ratelimit-remaining"), Some("499"));
    /// // Another number keeps what was used.
    /// let Verdict::Pass(pass) = gate.check(&request).await else { panic!() };
    /// assert_eq!(pass.fields().get("x-ratelimit-remaining"), Some("58"));
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    #[must_use]
    #[inline]
    pub fn limits(mut self, limits: &'a [(&'a str, u64)]) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the cost. The default is that of the rule.
    #[must_use]
    #[inline]
    pub fn cost(mut self, cost: u64) -> Self {
        self.cost = Some(cost);
        self
    }

    /// Sets the token under which the request is charged; see [`Check::idempotent`](crate::Check::idempotent). A charge with a
    /// token can be settled. A policy with a concurrency limit needs one.
    #[must_use]
    #[inline]
    pub fn token(mut self, token: &'a str) -> Self {
        self.token = Some(token);
        self
    }

    /// The method.
    #[must_use]
    pub const fn method(&self) -> &'a str {
        self.method
    }

    /// The path.
    #[must_use]
    pub const fn path(&self) -> &'a str {
        self.path
    }

    /// The host in lower case, without a port. Empty if there is none.
    #[must_use]
    pub fn host(&self) -> Cow<'_, str> {
        if let Some(host) = &self.host {
            return Cow::Borrowed(host);
        }
        let mut found = String::new();
        self.headers.values("host", &mut |value| {
            if let Ok(value) = str::from_utf8(value) {
                found = host_name(value).into_owned();
            }
        });
        Cow::Owned(found)
    }

    /// The hosts for which a server may take the request, each once: that of its URL, and the first and the last of its fields. One is
    /// empty if there is none.
    pub(super) fn hosts(&self) -> Vec<Cow<'_, str>> {
        let mut found: Vec<Cow<'_, str>> = self.host.iter().map(|host| Cow::Borrowed(&**host)).collect();
        let mut fields: Vec<String> = Vec::new();
        self.headers.values("host", &mut |value| {
            for host in str::from_utf8(value).unwrap_or_default().split(',') {
                // Those between the first and the last are of no server's choice.
                fields.truncate(1);
                fields.push(host_name(host.trim_ascii()).into_owned());
            }
        });
        for host in fields {
            if !found.contains(&Cow::Borrowed(&*host)) {
                found.push(host.into());
            }
        }
        if found.is_empty() {
            found.push(Cow::Borrowed(""));
        }
        found
    }

    /// The instant.
    #[must_use]
    pub const fn now(&self) -> UnixMillis {
        self.now
    }

    /// The header fields.
    #[must_use]
    pub const fn headers(&self) -> &'a dyn Headers {
        self.headers
    }

    /// Whether the application has identified the sender.
    #[inline]
    pub(super) const fn has_identity(&self) -> bool {
        self.key.is_some() || self.subject.is_some() || self.api_key.is_some()
    }

    pub(super) fn has_header(&self, name: &str) -> bool {
        let mut found = false;
        self.headers.values(name, &mut |_| found = true);
        found
    }
}

/// A host without its port and the dot of the root, in lower case.
fn host_name(host: &str) -> Cow<'_, str> {
    let host = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    };
    let host = host.strip_suffix('.').unwrap_or(host);
    if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(host.to_ascii_lowercase())
    } else {
        Cow::Borrowed(host)
    }
}
