//! Spin's key-value store over SQLite, with the same behaviour and the same settings:
//!
//! - SQLite's defaults: a rollback journal, and every commit waits until the disk has it (`journal_mode = DELETE`,
//!   `synchronous = FULL`).
//! - All operations share one connection behind one lock, and each blocks its thread. Operations of other requests may
//!   run between two operations of a request.
//! - A swap compares with the value that was read last. If there was none, it overwrites.
//! - Incrementing a value that is not 8 bytes poisons the lock: every later operation fails until the host restarts.
//!
//! On demand, it performs writes and answers them with an error, as a store across a network may.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rusqlite::{Connection, OptionalExtension as _, params};
use tempfile::TempDir;
use tokio::task::block_in_place;

/// All stores of an app.
pub(crate) struct Database {
    connection: Mutex<Option<Connection>>,
    operations: AtomicU64,
    /// The microseconds of reads and of writes, with their waits for the lock.
    took_us: [AtomicU64; 2],
    /// How many of the next writes are made and not answered.
    to_lose: AtomicU64,
    /// How many were.
    lost: AtomicU64,
    /// Removed when the database is closed.
    _temporary: Option<TempDir>,
}

#[derive(Clone, Copy)]
enum Operation {
    Read,
    Write,
}

/// Why an operation failed.
pub(crate) enum Failure {
    /// The store returned an error.
    Told(String),
    /// The host's lock is poisoned. The request ends without an answer.
    Broken,
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Told(error.to_string())
    }
}

const WRITE: &str = "INSERT INTO spin_key_value (store, key, value) VALUES (?1, ?2, ?3) \
                     ON CONFLICT (store, key) DO UPDATE SET value = ?3";

impl Database {
    /// Opens the database in a folder, or in a temporary one.
    pub(crate) fn open(folder: Option<PathBuf>) -> Result<Self, String> {
        let temporary = || TempDir::with_prefix("tidegate-spin-").map_err(|error| format!("state: {error}"));
        let temporary = if folder.is_some() { None } else { Some(temporary()?) };
        let folder = folder.or_else(|| temporary.as_ref().map(|folder| folder.path().into())).unwrap_or_default();
        let open = || {
            let connection = Connection::open(folder.join("sqlite_key_value.db"))?;
            let columns = "store TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, PRIMARY KEY (store, key)";
            connection.execute(&format!("CREATE TABLE IF NOT EXISTS spin_key_value ({columns})"), [])?;
            Ok(connection)
        };
        let connection = open().map_err(|error: rusqlite::Error| format!("SQLite in {}: {error}", folder.display()))?;
        Ok(Self {
            connection: Mutex::new(Some(connection)),
            operations: AtomicU64::new(0),
            took_us: Default::default(),
            to_lose: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            _temporary: temporary,
        })
    }

    /// Returns the number of operations so far.
    pub(crate) fn operations(&self) -> u64 {
        self.operations.load(Ordering::Relaxed)
    }

    /// Returns the microseconds that all reads took, and all writes.
    pub(crate) fn took_us(&self) -> [u64; 2] {
        self.took_us.each_ref().map(|took| took.load(Ordering::Relaxed))
    }

    /// Makes the next `count` writes, and answers them with an error. Returns how many answers were lost so far.
    pub(crate) fn lose(&self, count: u64) -> u64 {
        self.to_lose.store(count, Ordering::Relaxed);
        self.lost()
    }

    /// Returns how many answers were lost so far.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    fn operate<T>(
        &self,
        what: Operation,
        work: impl FnOnce(&mut Connection) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.operations.fetch_add(1, Ordering::Relaxed);
        let began = Instant::now();
        let done = block_in_place(|| {
            let mut connection = self.connection.lock().map_err(|_| Failure::Broken)?;
            let done = work(connection.as_mut().ok_or(Failure::Broken)?);
            if matches!(done, Err(Failure::Broken)) {
                *connection = None;
            }
            done
        });
        let took = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.took_us[what as usize].fetch_add(took, Ordering::Relaxed);
        done
    }

    /// The answer to a write, unless it is to be lost.
    fn written<T>(&self, answer: T) -> Result<T, Failure> {
        let one_less = |left: u64| left.checked_sub(1);
        if self.to_lose.try_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_err() {
            return Ok(answer);
        }
        self.lost.fetch_add(1, Ordering::Relaxed);
        Err(Failure::Told("the connection ended before the answer".into()))
    }

    pub(crate) fn get(&self, store: &str, key: &str) -> Result<Option<Vec<u8>>, Failure> {
        self.operate(Operation::Read, |connection| read(connection, store, key))
    }

    pub(crate) fn set(&self, store: &str, key: &str, value: &[u8]) -> Result<(), Failure> {
        self.operate(Operation::Write, |connection| self.written(write(connection, store, key, value)?))
    }

    pub(crate) fn delete(&self, store: &str, key: &str) -> Result<(), Failure> {
        self.operate(Operation::Write, |connection| {
            let sql = "DELETE FROM spin_key_value WHERE store = ?1 AND key = ?2";
            connection.prepare_cached(sql)?.execute([store, key])?;
            Ok(())
        })
    }

    pub(crate) fn keys(&self, store: &str) -> Result<Vec<String>, Failure> {
        self.operate(Operation::Read, |connection| {
            let mut keys = connection.prepare_cached("SELECT key FROM spin_key_value WHERE store = ?1")?;
            let keys = keys.query_map([store], |row| row.get(0))?;
            Ok(keys.collect::<Result<_, _>>()?)
        })
    }

    pub(crate) fn increment(&self, store: &str, key: &str, delta: i64) -> Result<i64, Failure> {
        self.operate(Operation::Write, |connection| {
            let transaction = connection.transaction()?;
            let before = match read(&transaction, store, key)? {
                Some(value) => i64::from_le_bytes(value.try_into().map_err(|_| Failure::Broken)?),
                None => 0,
            };
            let sum = before.wrapping_add(delta);
            write(&transaction, store, key, &sum.to_le_bytes())?;
            transaction.commit()?;
            self.written(sum)
        })
    }

    /// Writes if the stored value is `old`, or if `old` is `None`. Returns whether it wrote.
    pub(crate) fn swap(&self, store: &str, key: &str, old: Option<&[u8]>, value: &[u8]) -> Result<bool, Failure> {
        self.operate(Operation::Write, |connection| {
            let Some(old) = old else { return self.written(write(connection, store, key, value).map(|()| true)?) };
            let sql = "UPDATE spin_key_value SET value = ?3 WHERE store = ?1 AND key = ?2 AND value = ?4";
            let has_written = connection.prepare_cached(sql)?.execute(params![store, key, value, old])? == 1;
            if has_written { self.written(true) } else { Ok(false) }
        })
    }
}

fn read(connection: &Connection, store: &str, key: &str) -> Result<Option<Vec<u8>>, Failure> {
    let sql = "SELECT value FROM spin_key_value WHERE store = ?1 AND key = ?2";
    Ok(connection.prepare_cached(sql)?.query_row([store, key], |row| row.get(0)).optional()?)
}

fn write(connection: &Connection, store: &str, key: &str, value: &[u8]) -> Result<(), Failure> {
    connection.prepare_cached(WRITE)?.execute(params![store, key, value])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told<T>(done: Result<T, Failure>) -> T {
        done.unwrap_or_else(|_| panic!("the store failed"))
    }

    #[test]
    fn sqlite_has_the_settings_that_spin_leaves_it_with() {
        let database = Database::open(None).unwrap();
        let connection = database.connection.lock().unwrap();
        let setting = |name: &str| {
            let sql = format!("PRAGMA {name}");
            connection.as_ref().unwrap().query_row(&sql, [], |row| row.get::<_, rusqlite::types::Value>(0)).unwrap()
        };
        assert_eq!(setting("journal_mode"), rusqlite::types::Value::Text("delete".into()));
        assert_eq!(setting("synchronous"), rusqlite::types::Value::Integer(2));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_swap_overwrites_if_there_was_no_value_and_compares_otherwise() {
        let database = Database::open(None).unwrap();
        assert!(told(database.swap("s", "k", None, b"1")));
        assert!(told(database.swap("s", "k", None, b"2")));
        assert!(!told(database.swap("s", "k", Some(b"1"), b"3")));
        assert!(told(database.swap("s", "k", Some(b"2"), b"")));
        assert_eq!(told(database.get("s", "k")), Some(Vec::new()));
        assert_eq!(told(database.get("another", "k")), None);
        told(database.delete("s", "k"));
        assert!(!told(database.swap("s", "k", Some(b""), b"4")));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_write_whose_answer_is_lost_is_made() {
        let database = Database::open(None).unwrap();
        assert_eq!(database.lose(3), 0);
        assert!(matches!(database.set("s", "k", b"1"), Err(Failure::Told(_))));
        assert!(matches!(database.swap("s", "k", Some(b"1"), b"2"), Err(Failure::Told(_))));
        // Nothing is written here, so no answer is lost.
        assert!(!told(database.swap("s", "k", Some(b"1"), b"3")));
        assert!(matches!(database.increment("s", "n", 2), Err(Failure::Told(_))));
        assert_eq!(told(database.get("s", "k")), Some(b"2".to_vec()));
        assert_eq!(told(database.increment("s", "n", 2)), 4);
        assert_eq!(database.lost(), 3);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn incrementing_a_value_that_is_not_a_counter_breaks_the_store() {
        let database = Database::open(None).unwrap();
        assert_eq!(told(database.increment("s", "n", 2)), 2);
        assert_eq!(told(database.increment("s", "n", -3)), -1);
        assert_eq!(told(database.get("s", "n")), Some(vec![0xff; 8]));
        told(database.set("s", "k", b"seven b"));
        assert!(matches!(database.increment("s", "k", 1), Err(Failure::Broken)));
        assert!(matches!(database.get("s", "n"), Err(Failure::Broken)));
    }
}
