//! The configuration of the Redis protocol.

use std::fmt;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};
use tidegate_core::{Error, Millis};

use crate::settings::{Clock, DEFAULT_DEADLINE, check_deadline, invalid};

/// The server, and how to use it.
///
/// ```
/// use tidegate_redis::{Clock, Config, Millis, Redis};
/// let config = Config::new("redis://default:secret@127.0.0.1:6379/0").clock(Clock::Caller).deadline(Millis::new(50));
/// assert!(!format!("{config:?}").contains("secret"));
/// assert!(Redis::new(config).is_ok());
/// ```
#[derive(Clone)]
pub struct Config {
    pub(crate) urls: Vec<String>,
    pub(crate) cluster: bool,
    pub(crate) clock: Clock,
    pub(crate) deadline: Millis,
    pub(crate) min_ttl: Millis,
    connections: usize,
}

impl Config {
    /// The default [deadline](Self::deadline): long enough for an intercontinental round trip, and no longer than a request
    /// can wait for its limiter.
    pub const DEFAULT_DEADLINE: Millis = DEFAULT_DEADLINE;

    /// The default number of [connections](Self::connections). With two, server and client work at the same time, which
    /// increases the throughput by half (`cargo bench -p tidegate-redis`). More connections add little.
    pub const DEFAULT_CONNECTIONS: usize = 2;

    /// Configures one server: `redis://[user:password@]host[:port][/db]`, or `rediss://` for TLS (feature `tls-rustls`).
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            urls: vec![url.into()],
            cluster: false,
            clock: Clock::Server,
            deadline: Self::DEFAULT_DEADLINE,
            min_ttl: Millis::ZERO,
            connections: Self::DEFAULT_CONNECTIONS,
        }
    }

    /// Configures a cluster, which is discovered through any of these nodes. All nodes need the same user and password.
    #[cfg(feature = "cluster")]
    pub fn cluster(urls: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { urls: urls.into_iter().map(Into::into).collect(), cluster: true, ..Self::new("") }
    }

    /// Sets the clock that decides: the [server's](Clock::Server) by default.
    #[must_use]
    pub const fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the longest time that a call may take. To open a connection takes as long again at most.
    #[must_use]
    pub const fn deadline(mut self, deadline: Millis) -> Self {
        self.deadline = deadline;
        self
    }

    /// Sets the largest number of connections, from 1 to 64. The second is opened in the background when a call finds the
    /// first in use. If that fails, calls use the first. This has no effect on a cluster, whose client holds one connection
    /// to each node.
    #[must_use]
    pub const fn connections(mut self, connections: usize) -> Self {
        self.connections = connections;
        self
    }

    /// Keeps every state for at least this long. This is for test rigs, whose virtual time stands still while the server's
    /// TTLs run. Leave it at zero otherwise.
    #[cfg(feature = "testing")]
    #[must_use]
    pub const fn min_ttl(mut self, min_ttl: Millis) -> Self {
        self.min_ttl = min_ttl;
        self
    }

    pub(crate) fn connections_checked(&self) -> Result<usize, Error> {
        match self.connections {
            1..=64 if self.cluster => Ok(1),
            connections @ 1..=64 => Ok(connections),
            other => Err(invalid(format!("connections: {other} is out of range; write 1 to 64"))),
        }
    }

    /// Checks and returns the servers.
    pub(crate) fn connection_infos(&self) -> Result<Vec<ConnectionInfo>, Error> {
        check_deadline(self.deadline)?;
        if self.urls.is_empty() {
            return Err(invalid("url: a cluster is found through its nodes; write the URL of at least one"));
        }
        self.urls.iter().map(|url| connection_info(url)).collect()
    }
}

/// Leaves out the credentials of the URLs.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses: Vec<String> = self
            .connection_infos()
            .map(|infos| infos.iter().map(|info| info.addr().to_string()).collect())
            .unwrap_or_default();
        f.debug_struct("Config")
            .field("addresses", &addresses)
            .field("cluster", &self.cluster)
            .field("clock", &self.clock)
            .field("deadline", &self.deadline)
            .field("min_ttl", &self.min_ttl)
            .finish()
    }
}

/// Checks a URL. The messages never repeat it, because it may hold a password anywhere.
fn connection_info(url: &str) -> Result<ConnectionInfo, Error> {
    const RIGHT: &str = "write redis://[user:password@]host[:port][/db], or rediss:// for TLS";
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    if matches!(scheme, "http" | "https") {
        return Err(invalid(format!(
            "url: an {scheme}:// URL is a REST endpoint (RestConfig), not a Redis one; {RIGHT}"
        )));
    }
    if matches!(scheme, "rediss" | "valkeys") && !cfg!(feature = "tls-rustls") {
        return Err(invalid("url: TLS needs the feature `tls-rustls` of tidegate-redis; enable it"));
    }
    let info = url.into_connection_info().map_err(|_| invalid(format!("url: not a Redis URL; {RIGHT}")))?;
    match info.addr() {
        ConnectionAddr::TcpTls { insecure: true, .. } => Err(invalid(
            "url: #insecure would trust whoever answers; leave it out, and trust a certificate of your own by SSL_CERT_FILE",
        )),
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. }
            if host.is_empty() || *port == 0 =>
        {
            Err(invalid(format!("url: no host or no port; {RIGHT}")))
        }
        _ => Ok(info),
    }
}
