//! The store: the statement of each operation, and the meaning of its answer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::store::{RememberingLimiter, Swap, Swapped, Versioned, VersionedLimiter, VersionedValue};
use tidegate_core::{Capabilities, Dimensions, Error, ErrorKind, Millis};
use tidegate_remote::{Deadline, Progress};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::config::{Config, check_deadline};
use crate::connection::Own;
use crate::connections::Connections;
use crate::error;
use crate::statement::{COUNT, CREATE_TABLE, DURABLE, QUICK, Statement, Statements};
use crate::sweep::{Sweep, drawn};
use crate::writes::{self, Sends, Waiting, Write, Writes, Written};

/// A limiter on PostgreSQL: exact at any concurrency, in one round trip.
pub type PostgresLimiter<C = Own> = RememberingLimiter<Postgres<C>>;

/// The longest life of a row. The database's clock ends in the year 294276.
const TTL_MAX: i64 = 10_000 * 366 * 86_400_000;

/// After how many lost swaps a decision pauses before the next one, and for how long at most.
const LOST_AT_ONCE: u32 = 3;
const PAUSE_MS_MAX: u64 = 20;

/// A PostgreSQL database as a store.
///
/// Share it by reference or in an `Arc`. It connects on the first call, and again after a connection was lost. Call it within a tokio
/// runtime that has I/O and time enabled.
///
/// ```no_run
/// use tidegate_postgres::{Config, Key, LimiterExt, Policy, Postgres};
/// # async fn run(policy: &Policy, key: &Key) -> Result<(), tidegate_core::Error> {
/// let postgres = Postgres::new(Config::new("postgresql://app:secret@127.0.0.1/app")?)?;
/// postgres.create_table().await?;
/// let limiter = postgres.limiter();
/// limiter.reset(policy, key.into()).await?;
/// # Ok(())
/// # }
/// ```
pub struct Postgres<C = Own> {
    shared: Arc<Shared<C>>,
    min_ttl: Millis,
}

struct Shared<C> {
    connections: C,
    statements: &'static Statements,
    deadline: Millis,
    progress: Progress,
    sweep: Sweep,
    writes: Writes,
}

impl Postgres {
    /// Creates a store in the configured database. This sends nothing.
    ///
    /// # Errors
    /// [`Invalid`](tidegate_core::ErrorKind::Invalid) for a configuration that cannot work.
    pub fn new(config: Config) -> Result<Self, Error> {
        check_deadline(config.deadline)?;
        let (durable, deadline, min_ttl) = (config.durable, config.deadline, config.min_ttl);
        let at_once = config.connections_checked()?;
        Ok(Self { min_ttl, ..Self::with(Own::new(config)?, durable, deadline, at_once) })
    }
}

impl<C: Connections> Postgres<C> {
    /// Creates a store on connections of the application's, such as a pool. `durable` is as [`Config::durable`], and `deadline` as
    /// [`Config::deadline`].
    ///
    /// # Errors
    /// [`Invalid`](tidegate_core::ErrorKind::Invalid) for a deadline that cannot work.
    pub fn over(connections: C, durable: bool, deadline: Millis) -> Result<Self, Error> {
        check_deadline(deadline)?;
        Ok(Self::with(connections, durable, deadline, Config::DEFAULT_CONNECTIONS))
    }

    fn with(connections: C, durable: bool, deadline: Millis, at_once: usize) -> Self {
        let statements = if durable { &DURABLE } else { &QUICK };
        let (progress, sweep, writes) = (Progress::default(), Sweep::new(), Writes::new(at_once));
        let shared = Arc::new(Shared { connections, statements, deadline, progress, sweep, writes });
        Self { shared, min_ttl: Millis::ZERO }
    }

    /// Wraps this store in a limiter, which remembers what it last saw of the keys that were used last.
    #[must_use]
    pub fn limiter(self) -> PostgresLimiter<C> {
        VersionedLimiter::new(self).attempts(64).remembering(PostgresLimiter::<C>::DEFAULT_KEYS)
    }

    /// Creates the [table](CREATE_TABLE), unless it exists.
    ///
    /// # Errors
    /// Any error that keeps the database from doing so, such as a missing privilege.
    pub async fn create_table(&self) -> Result<(), Error> {
        let create = Statement { sql: CREATE_TABLE, place: COUNT, types: &[] };
        match self.shared.ask(create, &[]).await {
            // Another process creates it at this moment.
            Err(error) if error::is_duplicate(&error) => self.shared.ask(create, &[]).await.map(drop),
            created => created.map(drop),
        }
    }

    /// Checks that the database answers, and has the table, for example at start-up. Connects if necessary.
    ///
    /// # Errors
    /// Any error that keeps the database from answering. Without the table, the message has the statement to run.
    pub async fn ping(&self) -> Result<(), Error> {
        let Statements { read, swap, .. } = self.shared.statements;
        self.shared.ask(*read, &[&""]).await?;
        // It finds nothing to write over.
        let nothing: &[u8] = &[];
        self.shared.ask(*swap, &[&"", &nothing, &nothing, &0_i64]).await.map(drop)
    }

    /// Removes rows that have expired from some pages of the table, and goes on at the next ones the next time. A limiter does this by itself, once for
    /// 512 writes.
    ///
    /// # Errors
    /// Any error that keeps the database from doing so.
    pub async fn sweep(&self) -> Result<(), Error> {
        self.shared.sweep().await
    }

    /// Counts a write, and begins to sweep if it is time.
    fn wrote(&self) {
        if self.shared.sweep.is_due() {
            let shared = Arc::clone(&self.shared);
            tokio::spawn(async move {
                if let Err(error) = shared.sweep().await {
                    tracing::debug!(target: "tidegate", error = %error.kind(), "postgres: rows that have expired were not removed");
                }
                shared.sweep.is_over();
            });
        }
    }

    async fn swapped(
        &self,
        key: &str,
        bytes: &[u8],
        old: Option<&[u8]>,
        ttl: Millis,
    ) -> Result<Swapped<Vec<u8>>, Error> {
        let ttl = i64::try_from(ttl.max(self.min_ttl).get()).unwrap_or(TTL_MAX).min(TTL_MAX);
        let write = Write { name: key.to_owned(), new: bytes.to_owned(), old: old.map(<[u8]>::to_owned), ttl };
        let written = match writes::enter(&self.shared, write) {
            Ok((_turn, write)) => self.shared.write(&write).await?,
            Err(told) => self.shared.told(told).await?,
        };
        Ok(match written {
            Written::Done => {
                self.wrote();
                Swapped::Done(Some(bytes.into()))
            }
            Written::Lost(present) => Swapped::Lost(present.map(value)),
            Written::Unknown => Swapped::Conflict,
        })
    }
}

impl<C: Connections> Shared<C> {
    /// Runs a statement, and returns the first row.
    async fn ask(&self, statement: Statement, parameters: &[&(dyn ToSql + Sync)]) -> Result<Option<Row>, Error> {
        let connection = self.connections.get(self.deadline).await?;
        let (start, deadline) = (self.progress.start(), Deadline::after(self.deadline));
        match deadline.until(self.connections.query(&connection, statement, parameters)).await {
            Ok(Ok(rows)) => {
                self.progress.answered();
                Ok(rows.into_iter().next())
            }
            Ok(Err(failed)) => {
                if failed.code().is_some() {
                    self.progress.answered();
                }
                Err(error::from_postgres(failed))
            }
            Err(missed) => {
                self.connections.distrust(&connection);
                Err(self.progress.failed(start, missed.error(error::timeout(self.deadline))))
            }
        }
    }

    /// Makes one write.
    async fn write(&self, Write { name, new, old, ttl }: &Write) -> Result<Written, Error> {
        let Statements { swap, create, .. } = self.statements;
        let row = match old {
            Some(old) => self.ask(*swap, &[name, new, old, ttl]).await?,
            None => self.ask(*create, &[name, new, ttl]).await?,
        };
        let row = row.ok_or_else(error::nonsense)?;
        let (done, present): (bool, Option<Vec<u8>>) = (column(&row, 0)?, column(&row, 1)?);
        Ok(match (done, present) {
            (true, _) => Written::Done,
            // A row that is created at this moment is in no view of the statement.
            (false, None) if old.is_none() => Written::Unknown,
            (false, present) => Written::Lost(present),
        })
    }

    /// Makes several writes.
    async fn write_all(&self, writes: &[&Write]) -> Result<Vec<Written>, Error> {
        let names: Vec<_> = writes.iter().map(|write| &write.name).collect();
        let new: Vec<_> = writes.iter().map(|write| &write.new).collect();
        let old: Vec<_> = writes.iter().map(|write| &write.old).collect();
        let ttls: Vec<_> = writes.iter().map(|write| write.ttl).collect();
        let row = self.ask(self.statements.write, &[&names, &new, &old, &ttls]).await?.ok_or_else(error::nonsense)?;
        let (done, lost): (Option<&str>, Option<&str>) = (column(&row, 0)?, column(&row, 1)?);
        writes::written(writes, done.unwrap_or_default(), lost.unwrap_or_default()).ok_or_else(error::nonsense)
    }

    /// What has become of a write that waits for others. They end by their deadline, and its own begins then.
    async fn told(&self, told: writes::Told) -> Result<Written, Error> {
        let (start, longest) = (self.progress.start(), Millis::new(2 * self.deadline.get()));
        match Deadline::after(longest).until(told).await {
            Ok(told) => told.unwrap_or_else(|_| Err(error::ended())),
            Err(missed) => Err(self.progress.failed(start, missed.error(error::timeout(longest)))),
        }
    }

    async fn sweep(&self) -> Result<(), Error> {
        let Statements { pages, sweep, .. } = self.statements;
        let row = self.ask(*pages, &[]).await?.ok_or_else(error::nonsense)?;
        let pages: i64 = column(&row, 0)?;
        let (first, end) = self.sweep.pages(u64::try_from(pages).unwrap_or_default());
        let (first, end) = (format!("({first},0)"), format!("({end},0)"));
        self.ask(*sweep, &[&first, &end]).await.map(drop)
    }
}

impl<C: Connections> Sends for Shared<C> {
    fn writes(&self) -> &Writes {
        &self.writes
    }

    async fn send(self: Arc<Self>, together: Vec<Waiting>) {
        if let [(write, _)] = &together[..] {
            let written = self.write(write).await;
            tell(together, [written]);
            return;
        }
        let writes: Vec<_> = together.iter().map(|(write, _)| write).collect();
        match self.write_all(&writes).await {
            Ok(written) => tell(together, written.into_iter().map(Ok)),
            // It may be the fault of one of them. Nothing was written.
            Err(error) if matches!(error.kind(), ErrorKind::Refused | ErrorKind::Corrupt) => {
                for (write, tell) in together {
                    let _gone = tell.send(self.write(&write).await);
                }
            }
            Err(error) => {
                let error = Arc::new(error);
                tell(together, std::iter::repeat_with(|| Err(error::shared(&error))));
            }
        }
    }
}

impl<C: Connections> Versioned for Postgres<C> {
    /// The value itself: a decision depends on nothing else.
    type Version = Vec<u8>;

    fn capabilities(&self) -> Capabilities {
        Capabilities::EXACT.dimensions(Dimensions::One).idempotency(false)
    }

    async fn read(&self, key: &str) -> Result<Option<VersionedValue<Vec<u8>>>, Error> {
        let row = self.shared.ask(self.shared.statements.read, &[&key]).await?;
        row.map(|row| column(&row, 0).map(value)).transpose()
    }

    async fn create(&self, key: &str, bytes: &[u8], ttl: Millis) -> Result<Swap, Error> {
        self.swapped(key, bytes, None, ttl).await.map(swap)
    }

    async fn update(&self, key: &str, bytes: &[u8], version: Vec<u8>, ttl: Millis) -> Result<Swap, Error> {
        self.swapped(key, bytes, Some(&version), ttl).await.map(swap)
    }

    async fn swap(
        &self,
        key: &str,
        bytes: &[u8],
        version: Option<Vec<u8>>,
        ttl: Millis,
    ) -> Result<Swapped<Vec<u8>>, Error> {
        self.swapped(key, bytes, version.as_deref(), ttl).await
    }

    async fn pause(&self, lost: u32) {
        if lost > LOST_AT_ONCE {
            let most = PAUSE_MS_MAX.min(1 << (lost - LOST_AT_ONCE).min(8));
            tokio::time::sleep(Duration::from_micros(drawn() % (most * 1_000))).await;
        }
    }

    async fn delete(&self, key: &str) -> Result<(), Error> {
        self.shared.ask(self.shared.statements.delete, &[&key]).await.map(drop)
    }
}

impl<C: fmt::Debug> fmt::Debug for Postgres<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { connections, deadline, .. } = &*self.shared;
        f.debug_struct("Postgres").field("connections", connections).field("deadline", deadline).finish_non_exhaustive()
    }
}

/// Tells those that wait. Some may have gone.
fn tell(together: Vec<Waiting>, written: impl IntoIterator<Item = Result<Written, Error>>) {
    for ((_, tell), written) in together.into_iter().zip(written) {
        let _gone = tell.send(written);
    }
}

fn value(bytes: Vec<u8>) -> VersionedValue<Vec<u8>> {
    VersionedValue { version: bytes.clone(), bytes }
}

fn swap(swapped: Swapped<Vec<u8>>) -> Swap {
    match swapped {
        Swapped::Done(_) => Swap::Done,
        Swapped::Lost(_) | Swapped::Conflict => Swap::Conflict,
    }
}

fn column<'a, T: tokio_postgres::types::FromSql<'a>>(row: &'a Row, place: usize) -> Result<T, Error> {
    row.try_get(place).map_err(|failed| error::nonsense().with_source(failed))
}
