//! The configuration of the REST protocol.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use tidegate_core::{Error, Millis};

use crate::settings::{Clock, DEFAULT_DEADLINE, check_deadline, invalid};

/// The database's REST endpoint, and how to use it.
///
/// ```
/// use tidegate_redis::{Millis, Rest, RestConfig};
/// let config = RestConfig::new("https://eu1-quick-fox-1.upstash.io", "AXm3secret").deadline(Millis::new(100));
/// assert!(!format!("{config:?}").contains("secret"));
/// assert!(Rest::new(config).is_ok());
/// ```
#[derive(Clone)]
pub struct RestConfig {
    pub(crate) url: String,
    pub(crate) token: String,
    pub(crate) clock: Clock,
    pub(crate) deadline: Millis,
    pub(crate) min_ttl: Millis,
    key_locking: Option<bool>,
    allow_insecure_http: bool,
    /// Whether the transport is a client of Redis, which has the address and the credentials.
    is_client: bool,
}

impl RestConfig {
    /// The default [deadline](Self::deadline).
    pub const DEFAULT_DEADLINE: Millis = DEFAULT_DEADLINE;

    /// A database by its REST URL and token: `UPSTASH_REDIS_REST_URL` and `UPSTASH_REDIS_REST_TOKEN`. The token must
    /// have permission to write.
    pub fn new(url: impl Into<String>, token: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            token: token.into(),
            clock: Clock::Server,
            deadline: DEFAULT_DEADLINE,
            min_ttl: Millis::ZERO,
            key_locking: None,
            allow_insecure_http: false,
            is_client: false,
        }
    }

    /// A database behind a client of Redis, which has its own address and credentials. The [`Transport`](crate::Transport)
    /// passes each command to the client, and answers with status 200 and `{"result": …}`, or `{"error": …}` if Redis
    /// replies with an error.
    #[must_use]
    pub fn for_client() -> Self {
        Self { is_client: true, ..Self::new("", "") }
    }

    /// Sets the clock that decides. The default is the [server's](Clock::Server).
    #[must_use]
    pub const fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the longest time that a call may take, including connecting.
    #[must_use]
    pub const fn deadline(mut self, deadline: Millis) -> Self {
        self.deadline = deadline;
        self
    }

    /// Keeps every state for at least this long. This is for tests, whose virtual time stands still while the server's
    /// TTLs run. Leave it at zero otherwise.
    #[cfg(feature = "testing")]
    #[must_use]
    pub const fn min_ttl(mut self, min_ttl: Millis) -> Self {
        self.min_ttl = min_ttl;
        self
    }

    /// Sets whether a script locks only its own keys ([`LOCKING_SCRIPT`](crate::LOCKING_SCRIPT)) and not the whole database. By
    /// default it does on Upstash's own hosts (`*.upstash.io`). Other endpoints usually pass commands on to a stock Redis, which
    /// rejects the flag.
    #[must_use]
    pub const fn key_locking(mut self, yes: bool) -> Self {
        self.key_locking = Some(yes);
        self
    }

    /// Allows an `http://` URL to a host other than this machine. Default: false.
    ///
    /// Such a URL sends the token in clear text, so anyone on the path can read and use it. Allow it only on a network
    /// that you trust. `http://localhost` and loopback addresses need no permission.
    ///
    /// ```
    /// use tidegate_redis::{Rest, RestConfig};
    /// let config = RestConfig::new("http://srh.internal:8079", "secret");
    /// assert!(Rest::new(config.clone()).is_err());
    /// assert!(Rest::new(config.allow_insecure_http(true)).is_ok());
    /// ```
    #[must_use]
    pub const fn allow_insecure_http(mut self, yes: bool) -> Self {
        self.allow_insecure_http = yes;
        self
    }

    /// Whether the scripts lock only their own keys.
    pub(crate) fn locks_keys(&self) -> bool {
        self.key_locking.unwrap_or_else(|| is_upstash(&self.url))
    }

    /// What errors call the database.
    pub(crate) const fn name(&self) -> &'static str {
        if self.is_client { "redis" } else { "upstash" }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        check_deadline(self.deadline)?;
        if self.is_client {
            return Ok(());
        }
        check_url(&self.url)?;
        if !self.allow_insecure_http && is_insecure(&self.url) {
            return Err(invalid(
                "url: http:// would send the token in clear text; write https://, or allow it with allow_insecure_http",
            ));
        }
        check_token(&self.token)
    }
}

/// Omits the token, and any part of an invalid URL that could contain it.
impl fmt::Debug for RestConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RestConfig")
            .field("url", &check_url(&self.url).map_or("…", |()| self.url.as_str()))
            .field("clock", &self.clock)
            .field("deadline", &self.deadline)
            .field("min_ttl", &self.min_ttl)
            .field("key_locking", &self.key_locking)
            .field("allow_insecure_http", &self.allow_insecure_http)
            .finish()
    }
}

/// Checks a URL. The messages never repeat it, because it may hold a password anywhere.
fn check_url(url: &str) -> Result<(), Error> {
    const RIGHT: &str = "write https://<database>.upstash.io, which is the database's UPSTASH_REDIS_REST_URL";
    if url.is_empty() {
        return Err(invalid(format!("url: empty; {RIGHT}")));
    }
    if !url.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"'\\<>".contains(&byte)) {
        return Err(invalid(format!(
            "url: has a quote, a space, a line break or another character that no URL has; {RIGHT}"
        )));
    }
    let Some((scheme, rest)) = url.split_once("://") else {
        return Err(invalid(format!("url: without a scheme; {RIGHT}")));
    };
    match scheme {
        "https" | "http" => {}
        "redis" | "rediss" | "valkey" | "valkeys" => {
            return Err(invalid(format!(
                "url: a {scheme}:// URL is a Redis endpoint (Config), not a REST one; {RIGHT}"
            )));
        }
        _ => return Err(invalid(format!("url: not an https:// URL; {RIGHT}"))),
    }
    if rest.contains(['?', '#', '@']) {
        return Err(invalid(format!("url: must not hold a user, a password, a `?` or a `#`; {RIGHT}")));
    }
    if !is_authority(rest.split('/').next().unwrap_or_default()) {
        return Err(invalid(format!("url: no host, or none that can be, or a port that cannot; {RIGHT}")));
    }
    Ok(())
}

/// Whether this is a host name or address, with an optional port. Implementations of `fetch` differ in what they
/// accept.
fn is_authority(text: &str) -> bool {
    let (host, after) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, after)) => (address.parse::<Ipv6Addr>().is_ok(), after),
        None => {
            let (name, after) = text.split_at(text.find(':').unwrap_or(text.len()));
            let letters = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
            (!name.is_empty() && name.bytes().all(letters), after)
        }
    };
    host && (after.is_empty()
        || after.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok_and(|port| port > 0)))
}

fn check_token(token: &str) -> Result<(), Error> {
    const RIGHT: &str = "write the database's UPSTASH_REDIS_REST_TOKEN";
    let wrong = if token.is_empty() {
        "empty"
    } else if token.contains("://") {
        "this is a URL"
    } else if !token.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"'".contains(&byte)) {
        "has a quote, a space, a line break or another character that no token has"
    } else {
        return Ok(());
    };
    Err(invalid(format!("token: {wrong}; {RIGHT}")))
}

fn is_upstash(url: &str) -> bool {
    host(url).is_some_and(|host| host.to_ascii_lowercase().ends_with(".upstash.io"))
}

/// Whether requests to this URL leave the machine unencrypted.
fn is_insecure(url: &str) -> bool {
    let is_loopback = |host: &str| {
        host.eq_ignore_ascii_case("localhost")
            || host.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback())
            || host.parse::<Ipv6Addr>().is_ok_and(|address| address.to_canonical().is_loopback())
    };
    url.starts_with("http://") && !host(url).is_some_and(is_loopback)
}

/// The host of a URL that was checked, without a port and without brackets.
fn host(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    match rest.strip_prefix('[') {
        Some(address) => address.split(']').next(),
        None => rest.split(['/', ':']).next(),
    }
}

#[cfg(test)]
mod tests {
    use super::RestConfig;

    #[test]
    fn only_upstashs_own_databases_lock_keys_unless_told() {
        for (url, locks) in [
            ("https://eu1-quick-fox-1.upstash.io", true),
            ("https://EU1-QUICK-FOX-1.UPSTASH.IO:443/path", true),
            ("https://upstash.io.example.com", false),
            ("https://example.com/.upstash.io", false),
            ("http://[::1]:8079", false),
        ] {
            let config = RestConfig::new(url, "token");
            assert_eq!(config.locks_keys(), locks, "{url}");
            assert!(!config.clone().key_locking(false).locks_keys() && config.key_locking(true).locks_keys());
        }
    }

    #[test]
    fn errors_name_what_the_application_has() {
        assert_eq!([RestConfig::new("", "").name(), RestConfig::for_client().name()], ["upstash", "redis"]);
        // A client of Redis has its own address and credentials.
        assert!(RestConfig::for_client().check().is_ok() && RestConfig::new("", "").check().is_err());
    }
}
