//! The configuration of connections that this crate opens itself.

use std::fmt;

use tidegate_core::{Error, ErrorKind, Millis};
use tokio_postgres::config::{Host, SslMode};

/// The database, and how to use it.
///
/// ```
/// use tidegate_postgres::{Config, Millis, Postgres};
/// # fn main() -> Result<(), tidegate_core::Error> {
/// let config = Config::new("postgresql://app:secret@127.0.0.1:5432/app")?.deadline(Millis::new(50)).connections(8);
/// assert!(!format!("{config:?}").contains("secret"));
/// assert!(Postgres::new(config).is_ok());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Config {
    pub(crate) database: tokio_postgres::Config,
    pub(crate) deadline: Millis,
    pub(crate) durable: bool,
    pub(crate) prepared: bool,
    pub(crate) min_ttl: Millis,
    connections: usize,
}

impl Config {
    /// The default [deadline](Self::deadline): long enough for an intercontinental round trip, and no longer than a request
    /// can wait for its limiter.
    pub const DEFAULT_DEADLINE: Millis = Millis::new(250);

    /// The default number of [connections](Self::connections).
    pub const DEFAULT_CONNECTIONS: usize = 4;

    /// Configures a database: `postgresql://[user:password@]host[:port][/database]`, or `host=… user=…`.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for what is neither. The message does not repeat it, because it may have a password anywhere.
    pub fn new(url: impl AsRef<str>) -> Result<Self, Error> {
        const RIGHT: &str = "write postgresql://[user:password@]host[:port][/database], and ?sslmode=require for TLS";
        // Its source quotes parts of the URL.
        let parsed = url.as_ref().parse::<tokio_postgres::Config>().map_err(|_| {
            invalid(format!("url: not one of a PostgreSQL database, or with a setting that is not known; {RIGHT}"))
        })?;
        if parsed.get_hosts().is_empty() && parsed.get_hostaddrs().is_empty() {
            return Err(invalid(format!("url: no host; {RIGHT}")));
        }
        Ok(Self::from(parsed))
    }

    /// Sets the longest time that a call may take. To open a connection takes as long again at most, and so does a wait for the call of
    /// others: of the same key, or of all [connections](Self::connections).
    #[must_use]
    pub const fn deadline(mut self, deadline: Millis) -> Self {
        self.deadline = deadline;
        self
    }

    /// Sets the largest number of connections, from 1 to 64. Each takes several calls at once, and a further one is opened when all have
    /// one. The database has as many backends for this process.
    #[must_use]
    pub const fn connections(mut self, connections: usize) -> Self {
        self.connections = connections;
        self
    }

    /// Waits with each decision until the database has its commit on disk, or what else its `synchronous_commit` asks for. Without this, a
    /// decision does not wait for the disk: if the database itself crashes, it may forget the decisions of the last moments, three
    /// times `wal_writer_delay` at most, which is 200 ms by default. A crash of this process loses nothing in either case.
    #[must_use]
    pub const fn durable(mut self, durable: bool) -> Self {
        self.durable = durable;
        self
    }

    /// Whether statements are prepared once for each connection, which is the default. Without, the database parses and plans each one.
    ///
    /// A prepared statement may keep its plan from when the table was small, which would scan all of it. So the connections are opened with
    /// `enable_seqscan = off`. Behind a pooler such as PgBouncer, which refuses or drops that setting, nothing is prepared: it may give each
    /// transaction another connection. Write `false` for a pooler that passes the setting on, and yet does so.
    #[must_use]
    pub const fn prepared(mut self, prepared: bool) -> Self {
        self.prepared = prepared;
        self
    }

    /// Keeps every state for at least this long. This is for test rigs, whose virtual time stands still while the database's
    /// clock runs. Leave it at zero otherwise.
    #[cfg(feature = "testing")]
    #[must_use]
    pub const fn min_ttl(mut self, min_ttl: Millis) -> Self {
        self.min_ttl = min_ttl;
        self
    }

    pub(crate) fn connections_checked(&self) -> Result<usize, Error> {
        match self.connections {
            connections @ 1..=64 => Ok(connections),
            other => Err(invalid(format!("connections: {other} is out of range; write 1 to 64"))),
        }
    }

    /// The database, for connections whose statements scan no table.
    pub(crate) fn scanless(&self) -> tokio_postgres::Config {
        let mut database = self.database.clone();
        let options = format!("{} -c enable_seqscan=off", database.get_options().unwrap_or_default());
        database.options(options.trim());
        database
    }

    pub(crate) fn wants_tls(&self) -> bool {
        self.database.get_ssl_mode() == SslMode::Require
    }
}

/// A configuration that is made otherwise, such as of parts.
impl From<tokio_postgres::Config> for Config {
    fn from(database: tokio_postgres::Config) -> Self {
        Self {
            database,
            deadline: Self::DEFAULT_DEADLINE,
            durable: false,
            prepared: true,
            min_ttl: Millis::ZERO,
            connections: Self::DEFAULT_CONNECTIONS,
        }
    }
}

/// Leaves out the credentials.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = |host: &Host| match host {
            Host::Tcp(name) => name.clone(),
            #[cfg(unix)]
            Host::Unix(path) => path.display().to_string(),
        };
        f.debug_struct("Config")
            .field("hosts", &self.database.get_hosts().iter().map(host).collect::<Vec<_>>())
            .field("ports", &self.database.get_ports())
            .field("database", &self.database.get_dbname())
            .field("deadline", &self.deadline)
            .field("durable", &self.durable)
            .field("prepared", &self.prepared)
            .field("connections", &self.connections)
            .finish_non_exhaustive()
    }
}

pub(crate) fn check_deadline(deadline: Millis) -> Result<(), Error> {
    if deadline == Millis::ZERO {
        return Err(invalid("deadline: 0 ms leaves no time for an answer; write at least 1 ms"));
    }
    if deadline > Millis::from_secs(3_600) {
        return Err(invalid("deadline: longer than any request waits; write at most 3600000 ms"));
    }
    Ok(())
}

pub(crate) fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Invalid, message)
}
