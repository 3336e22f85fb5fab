//! Checks adapters from outside this repository, as their authors would.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use futures_util::FutureExt as _;
use rusqlite::{Connection, OptionalExtension as _, params};
use tidegate_conformance::judge::Verdict;
use tidegate_conformance::report::Status;
use tidegate_conformance::{Rows, Suite};
use tidegate_core::store::{Swap, Versioned, VersionedLimiter, VersionedValue};
use tidegate_core::{Accuracy, Capabilities, Dimensions, Error, ErrorKind, Limiter, MemoryLimiter, Millis, limiter_fn};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Enough attempts for all concurrent writers of a burst.
const ATTEMPTS: u32 = 1_024;

/// A store in SQLite that compares and swaps the bytes of a row. Each write removes some rows whose time is over.
struct Sqlite {
    rows: Mutex<Connection>,
    /// How far the store's clock is ahead, in milliseconds: a test does not wait.
    ahead_ms: AtomicI64,
    keeps_all: bool,
}

impl Sqlite {
    fn open(file: &Path) -> Result<Self> {
        let connection = Connection::open(file)?;
        connection.busy_timeout(std::time::Duration::from_secs(10))?;
        connection.execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF;
            CREATE TABLE IF NOT EXISTS tidegate (key TEXT PRIMARY KEY, value BLOB, until_ms INTEGER);
            CREATE INDEX IF NOT EXISTS expiry ON tidegate (until_ms)",
        )?;
        Ok(Self { rows: Mutex::new(connection), ahead_ms: AtomicI64::new(0), keeps_all: false })
    }

    /// When a row that is written now may be removed.
    fn until_ms(&self, ttl: Millis) -> i64 {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let now = i64::try_from(since_1970).unwrap_or(i64::MAX) + self.ahead_ms.load(Ordering::Relaxed);
        now.saturating_add(i64::try_from(ttl.get()).unwrap_or(i64::MAX))
    }

    /// Removes a few rows, so that no write takes long.
    fn tidy(&self) -> std::result::Result<(), Error> {
        let some = "DELETE FROM tidegate WHERE key IN (SELECT key FROM tidegate WHERE until_ms <= ?1 LIMIT 16)";
        match self.keeps_all {
            true => Ok(()),
            false => self.with(|rows| rows.execute(some, params![self.until_ms(Millis::ZERO)])).map(drop),
        }
    }

    fn with<T>(&self, run: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> std::result::Result<T, Error> {
        let connection = self.rows.lock().map_err(|error| Error::new(ErrorKind::Unavailable, error.to_string()))?;
        run(&connection).map_err(|error| Error::new(ErrorKind::Unavailable, error.to_string()))
    }
}

impl Versioned for Sqlite {
    type Version = Vec<u8>;

    fn capabilities(&self) -> Capabilities {
        Capabilities::EXACT.dimensions(Dimensions::One).idempotency(false).round_trips(2)
    }

    async fn read(&self, key: &str) -> std::result::Result<Option<VersionedValue<Vec<u8>>>, Error> {
        let find = |row: &rusqlite::Row<'_>| row.get::<_, Vec<u8>>(0);
        let bytes = self
            .with(|rows| rows.query_row("SELECT value FROM tidegate WHERE key = ?1", params![key], find).optional())?;
        Ok(bytes.map(|bytes| VersionedValue { version: bytes.clone(), bytes }))
    }

    async fn create(&self, key: &str, bytes: &[u8], ttl: Millis) -> std::result::Result<Swap, Error> {
        self.tidy()?;
        let insert = "INSERT INTO tidegate (key, value, until_ms) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING";
        Ok(swap(self.with(|rows| rows.execute(insert, params![key, bytes, self.until_ms(ttl)]))?))
    }

    async fn update(&self, key: &str, bytes: &[u8], version: Vec<u8>, ttl: Millis) -> std::result::Result<Swap, Error> {
        self.tidy()?;
        let update = "UPDATE tidegate SET value = ?2, until_ms = ?4 WHERE key = ?1 AND value = ?3";
        Ok(swap(self.with(|rows| rows.execute(update, params![key, bytes, version, self.until_ms(ttl)]))?))
    }

    async fn delete(&self, key: &str) -> std::result::Result<(), Error> {
        self.with(|rows| rows.execute("DELETE FROM tidegate WHERE key = ?1", params![key])).map(drop)
    }
}

fn swap(rows: usize) -> Swap {
    if rows == 1 { Swap::Done } else { Swap::Conflict }
}

/// The same store, but its updates overwrite concurrent writes.
struct Overwriting(Sqlite);

impl Versioned for Overwriting {
    type Version = ();

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    async fn read(&self, key: &str) -> std::result::Result<Option<VersionedValue<()>>, Error> {
        let found = self.0.read(key).await?;
        // Let other requests read the same value before this one writes.
        tokio::task::yield_now().await;
        Ok(found.map(|found| VersionedValue { bytes: found.bytes, version: () }))
    }

    async fn create(&self, key: &str, bytes: &[u8], _: Millis) -> std::result::Result<Swap, Error> {
        self.update(key, bytes, (), Millis::new(0)).await
    }

    async fn update(&self, key: &str, bytes: &[u8], (): (), _: Millis) -> std::result::Result<Swap, Error> {
        let put = "INSERT OR REPLACE INTO tidegate (key, value) VALUES (?1, ?2)";
        Ok(swap(self.0.with(|rows| rows.execute(put, params![key, bytes]))?))
    }

    async fn delete(&self, key: &str) -> std::result::Result<(), Error> {
        self.0.delete(key).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_sqlite_adapter_passes() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("counts.sqlite");
    let limiter =
        || Ok::<_, Box<dyn std::error::Error>>(VersionedLimiter::new(Sqlite::open(&file)?).attempts(ATTEMPTS));
    let report = Suite::shipped()?.check("sqlite", [limiter()?, limiter()?, limiter()?]).await?;
    report.assert_passed();
    let passed = report.fixtures.iter().filter(|one| one.verdict == Verdict::Pass).count();
    println!("{passed} of {} fixtures pass in {} ms", report.fixtures.len(), report.elapsed_ms);
    assert!(passed > 200, "{passed} of {} passed", report.fixtures.len());
    Ok(())
}

impl Rows for Sqlite {
    async fn count(&self) -> std::result::Result<u64, String> {
        let count = |row: &rusqlite::Row<'_>| row.get::<_, u64>(0);
        let counted = self.with(|rows| rows.query_row("SELECT count(*) FROM tidegate", [], count));
        counted.map_err(|error| error.to_string())
    }

    async fn pass(&self, span: Millis) -> std::result::Result<(), String> {
        let span = i64::try_from(span.get()).map_err(|error| error.to_string())?;
        self.ahead_ms.fetch_add(span, Ordering::Relaxed);
        Ok(())
    }
}

/// Rows that nobody can count.
struct Nothing;

impl Rows for Nothing {
    async fn count(&self) -> std::result::Result<u64, String> {
        Ok(0)
    }

    async fn pass(&self, _: Millis) -> std::result::Result<(), String> {
        Ok(())
    }
}

#[tokio::test]
async fn a_store_that_keeps_all_rows_fails() -> Result<()> {
    for (keeps_all, file) in [(false, "removes.sqlite"), (true, "keeps.sqlite")] {
        let folder = tempfile::tempdir()?;
        let mut store = Sqlite::open(&folder.path().join(file))?;
        store.keeps_all = keeps_all;
        let limiter = VersionedLimiter::new(store);
        let checked = Suite::check_expiry(&limiter, limiter.store()).await;
        assert_eq!(checked.is_err(), keeps_all, "{checked:?}");
        if let Err(error) = checked {
            assert!(error.starts_with("257 of 256 rows are left of keys that have been unused for"), "{error}");
        }
    }
    // A count that does not see the rows is no pass.
    let error = Suite::check_expiry(&MemoryLimiter::new(), &Nothing).await.err().ok_or("a pass")?;
    assert!(error.starts_with("256 keys have 0 rows"), "{error}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_adapter_that_loses_updates_fails() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let limiter = VersionedLimiter::new(Overwriting(Sqlite::open(&folder.path().join("counts.sqlite"))?));
    let report = Suite::shipped()?.filter("token-bucket/*").check("overwriting", [limiter]).await?;
    assert_eq!(report.status, Status::Fail);
    let failed = std::panic::catch_unwind(|| report.assert_passed());
    assert!(failed.is_err(), "a failed report must panic");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limiter_that_supports_more_than_it_declares_fails() -> Result<()> {
    // Declares that it does not support refunds, but does.
    let memory = MemoryLimiter::new();
    let modest = limiter_fn(memory.capabilities().refund(false), move |operation| {
        memory.apply(operation).now_or_never().expect("the memory waits for nothing")
    });
    let report = Suite::shipped()?.filter("refund*").check("modest", [modest]).await?;
    assert_eq!(report.status, Status::Fail, "{report:?}");
    assert!(matches!(MemoryLimiter::new().capabilities().accuracy, Accuracy::Exact));
    Ok(())
}
