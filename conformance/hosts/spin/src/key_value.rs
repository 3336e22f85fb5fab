//! Spin's key-value store over SQLite, with its ways:
//!
//! - All operations go through one connection behind one lock, each in a call that blocks its thread: between two operations
//!   of a request others come.
//! - A swap compares the value that was read last. Where none was there, or none was read, it overwrites.
//! - An increment of a value that is not 8 bytes poisons the lock: from then on every operation fails, until the host is started
//!   anew.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _, params};
use tokio::task::block_in_place;

/// All stores of an app.
pub(crate) struct Database {
    connection: Mutex<Option<Connection>>,
    operations: AtomicU64,
    pause: Duration,
}

/// Why an operation has no result.
pub(crate) enum Failure {
    /// The store says why.
    Told(String),
    /// The host's own end of it is broken: the request ends without an answer.
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
    /// A database that ends with this process. On the disk, as Spin's.
    pub(crate) fn temporary(pause: Duration) -> Result<Self, String> {
        let open = || {
            let connection = Connection::open("")?;
            let columns = "store TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, PRIMARY KEY (store, key)";
            connection.execute(&format!("CREATE TABLE spin_key_value ({columns})"), [])?;
            Ok(connection)
        };
        let connection = open().map_err(|error: rusqlite::Error| format!("SQLite: {error}"))?;
        Ok(Self { connection: Mutex::new(Some(connection)), operations: AtomicU64::new(0), pause })
    }

    /// Operations so far.
    pub(crate) fn operations(&self) -> u64 {
        self.operations.load(Ordering::Relaxed)
    }

    /// What goes before each operation: as if the store were a network away, so that requests which come together really meet.
    pub(crate) async fn pause(&self) {
        if !self.pause.is_zero() {
            tokio::time::sleep(self.pause).await;
        }
    }

    fn operate<T>(&self, work: impl FnOnce(&mut Connection) -> Result<T, Failure>) -> Result<T, Failure> {
        self.operations.fetch_add(1, Ordering::Relaxed);
        block_in_place(|| {
            let mut connection = self.connection.lock().map_err(|_| Failure::Broken)?;
            let done = work(connection.as_mut().ok_or(Failure::Broken)?);
            if matches!(done, Err(Failure::Broken)) {
                *connection = None;
            }
            done
        })
    }

    pub(crate) fn get(&self, store: &str, key: &str) -> Result<Option<Vec<u8>>, Failure> {
        self.operate(|connection| read(connection, store, key))
    }

    pub(crate) fn set(&self, store: &str, key: &str, value: &[u8]) -> Result<(), Failure> {
        self.operate(|connection| write(connection, store, key, value))
    }

    pub(crate) fn delete(&self, store: &str, key: &str) -> Result<(), Failure> {
        self.operate(|connection| {
            let sql = "DELETE FROM spin_key_value WHERE store = ?1 AND key = ?2";
            connection.prepare_cached(sql)?.execute([store, key])?;
            Ok(())
        })
    }

    pub(crate) fn keys(&self, store: &str) -> Result<Vec<String>, Failure> {
        self.operate(|connection| {
            let mut keys = connection.prepare_cached("SELECT key FROM spin_key_value WHERE store = ?1")?;
            let keys = keys.query_map([store], |row| row.get(0))?;
            Ok(keys.collect::<Result<_, _>>()?)
        })
    }

    pub(crate) fn increment(&self, store: &str, key: &str, delta: i64) -> Result<i64, Failure> {
        self.operate(|connection| {
            let transaction = connection.transaction()?;
            let before = match read(&transaction, store, key)? {
                Some(value) => i64::from_le_bytes(value.try_into().map_err(|_| Failure::Broken)?),
                None => 0,
            };
            let sum = before.wrapping_add(delta);
            write(&transaction, store, key, &sum.to_le_bytes())?;
            transaction.commit()?;
            Ok(sum)
        })
    }

    /// Whether the value was the one that is expected, if a value is.
    pub(crate) fn swap(&self, store: &str, key: &str, old: Option<&[u8]>, value: &[u8]) -> Result<bool, Failure> {
        self.operate(|connection| {
            let Some(old) = old else { return write(connection, store, key, value).map(|()| true) };
            let sql = "UPDATE spin_key_value SET value = ?3 WHERE store = ?1 AND key = ?2 AND value = ?4";
            Ok(connection.prepare_cached(sql)?.execute(params![store, key, value, old])? == 1)
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

    #[tokio::test(flavor = "multi_thread")]
    async fn a_swap_from_nothing_overwrites_and_one_from_something_compares() {
        let database = Database::temporary(Duration::ZERO).unwrap();
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
    async fn an_increment_of_what_is_no_counter_ends_the_store() {
        let database = Database::temporary(Duration::ZERO).unwrap();
        assert_eq!(told(database.increment("s", "n", 2)), 2);
        assert_eq!(told(database.increment("s", "n", -3)), -1);
        assert_eq!(told(database.get("s", "n")), Some(vec![0xff; 8]));
        told(database.set("s", "k", b"seven b"));
        assert!(matches!(database.increment("s", "k", 1), Err(Failure::Broken)));
        assert!(matches!(database.get("s", "n"), Err(Failure::Broken)));
    }
}
