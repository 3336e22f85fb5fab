//! An object's rows in its SQLite storage.

use std::fmt;

use tollgate_core::{Error, ErrorKind, UnixMillis};
use worker::js_sys::{Date, Object};
use worker::wasm_bindgen::JsValue;
use worker::{SqlStorage, SqlStorageValue, Storage};

use crate::rows::{Row, Rows};

/// The rows of an object in its SQLite storage: one table, without an index, so that a write is one row.
pub struct Sql {
    sql: SqlStorage,
    storage: Storage,
}

/// `WITHOUT ROWID` makes the primary key the table itself; a table with row ids would write its index as well.
const TABLE: &str = "CREATE TABLE IF NOT EXISTS tollgate (\
    key TEXT PRIMARY KEY, value BLOB NOT NULL, leased BLOB NOT NULL, expires_ms INTEGER NOT NULL) WITHOUT ROWID";
const LOAD: &str = "SELECT value, leased, expires_ms FROM tollgate WHERE key = ?";
const SAVE_ONE: &str = "INSERT OR REPLACE INTO tollgate VALUES (?, ?, ?, ?)";
const SAVE_TWO: &str = "INSERT OR REPLACE INTO tollgate VALUES (?, ?, ?, ?), (?, ?, ?, ?)";
const REMOVE: &str = "DELETE FROM tollgate WHERE key = ?";
const SWEEP: &str = "DELETE FROM tollgate WHERE expires_ms <= ?";
const NEXT_EXPIRY: &str = "SELECT MIN(expires_ms) FROM tollgate";

impl Sql {
    /// The rows in `storage`. Makes the table at an object's first time in memory.
    ///
    /// # Errors
    /// A storage that is not SQLite's: the class belongs in `new_sqlite_classes`.
    pub fn new(storage: Storage) -> worker::Result<Self> {
        let sql = storage.sql();
        sql.exec(TABLE, None)?;
        Ok(Self { sql, storage })
    }

    fn run(&self, query: &str, bindings: Vec<SqlStorageValue>) -> Result<Vec<Vec<SqlStorageValue>>, Error> {
        let cursor = self.sql.exec(query, bindings).map_err(|error| refused(&error))?;
        cursor.raw().map(|row| row.map_err(|error| refused(&error))).collect()
    }
}

impl Rows for Sql {
    fn load(&self, key: &str) -> Result<Option<Row>, Error> {
        let mut rows = self.run(LOAD, vec![key.into()])?;
        let Some(row) = rows.pop() else { return Ok(None) };
        let Ok([SqlStorageValue::Blob(value), SqlStorageValue::Blob(leased), SqlStorageValue::Integer(expires)]) =
            <[SqlStorageValue; 3]>::try_from(row)
        else {
            return Err(corrupt(key));
        };
        let expires = UnixMillis::new(u64::try_from(expires).map_err(|_| corrupt(key))?);
        Ok(Some(Row { value, leased, expires }))
    }

    fn save(&mut self, rows: &[(&str, &Row)]) -> Result<(), Error> {
        let query = match rows.len() {
            0 => return Ok(()),
            1 => SAVE_ONE,
            // A state and a token's answer: one statement, so that both are written or neither.
            _ => SAVE_TWO,
        };
        let mut bindings = Vec::with_capacity(4 * rows.len());
        for (key, row) in rows {
            bindings.push((*key).into());
            bindings.push(row.value.clone().into());
            bindings.push(row.leased.clone().into());
            bindings.push(number(row.expires));
        }
        self.run(query, bindings).map(drop)
    }

    fn remove(&mut self, key: &str) -> Result<(), Error> {
        self.run(REMOVE, vec![key.into()]).map(drop)
    }

    fn sweep(&mut self, clock: UnixMillis) -> Result<(), Error> {
        self.run(SWEEP, vec![number(clock)]).map(drop)
    }

    fn next_expiry(&self) -> Result<Option<UnixMillis>, Error> {
        let rows = self.run(NEXT_EXPIRY, Vec::new())?;
        Ok(match rows.first().and_then(|row| row.first()) {
            Some(SqlStorageValue::Integer(ms)) => u64::try_from(*ms).ok().map(UnixMillis::new),
            _ => None,
        })
    }

    /// Sets it within the step: the alarm and the rows are written together, and nothing waits for either.
    fn set_alarm(&mut self, at: UnixMillis) -> Result<(), Error> {
        #[allow(clippy::cast_precision_loss, reason = "instants are below 2^48")]
        let at = Date::new(&JsValue::from_f64(at.get() as f64));
        let set = self.storage.as_raw().set_alarm(at, Object::new());
        set.map(drop).map_err(|error| refused(&error.into()))
    }
}

impl fmt::Debug for Sql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sql").finish_non_exhaustive()
    }
}

fn number(instant: UnixMillis) -> SqlStorageValue {
    #[allow(clippy::cast_possible_wrap, reason = "instants are below 2^48")]
    SqlStorageValue::Integer(instant.get() as i64)
}

fn refused(error: &worker::Error) -> Error {
    let message = format!("durable object: its storage answered {error}; nothing was charged");
    Error::new(ErrorKind::Refused, message)
}

fn corrupt(key: &str) -> Error {
    let message = format!("durable object: the row of {key} is none that Tollgate wrote; remove it");
    Error::new(ErrorKind::Corrupt, message)
}
