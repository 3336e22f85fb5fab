//! An object's rows in its SQLite storage.

use std::fmt;

use tollgate_core::{Error, ErrorKind, UnixMillis};
use worker::js_sys::{Date, Object};
use worker::wasm_bindgen::prelude::wasm_bindgen;
use worker::wasm_bindgen::{self, JsValue};
use worker::{SqlCursor, SqlStorage, SqlStorageValue, Storage};

use crate::rows::{Row, Rows};

#[wasm_bindgen(module = "/src/cloudflare.js")]
extern "C" {
    #[wasm_bindgen(catch)]
    fn save(sql: &JsValue, key: &str, value: &[u8], leased: &[u8], expires_ms: f64) -> Result<(), JsValue>;
}

/// The rows of an object in its SQLite storage: one table, without an index, so that a write is one row.
pub struct Sql {
    sql: SqlStorage,
    storage: Storage,
}

/// `WITHOUT ROWID` makes the primary key the table itself; a table with row ids would write its index as well.
const TABLE: &str = "CREATE TABLE IF NOT EXISTS tollgate (\
    key TEXT PRIMARY KEY, value BLOB NOT NULL, leased BLOB NOT NULL, expires_ms INTEGER NOT NULL) WITHOUT ROWID";
const LOAD: &str = "SELECT value, leased, expires_ms FROM tollgate WHERE key = ?";
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

    fn run(&self, query: &str, bindings: Vec<SqlStorageValue>) -> Result<SqlCursor, Error> {
        self.sql.exec(query, bindings).map_err(|error| refused(&error))
    }

    /// The one row that a query answers, if any.
    fn find(&self, query: &str, bindings: Vec<SqlStorageValue>) -> Result<Option<Vec<SqlStorageValue>>, Error> {
        // To the end: a cursor that is left half way keeps its query open.
        self.run(query, bindings)?.raw().last().transpose().map_err(|error| refused(&error))
    }
}

impl Rows for Sql {
    fn load(&self, key: &str) -> Result<Option<Row>, Error> {
        let Some(row) = self.find(LOAD, vec![key.into()])? else { return Ok(None) };
        let Ok([SqlStorageValue::Blob(value), SqlStorageValue::Blob(leased), SqlStorageValue::Integer(expires)]) =
            <[SqlStorageValue; 3]>::try_from(row)
        else {
            return Err(corrupt(key));
        };
        let expires = UnixMillis::new(u64::try_from(expires).map_err(|_| corrupt(key))?);
        Ok(Some(Row { value, leased, expires }))
    }

    fn save(&mut self, rows: &[(&str, &Row)]) -> Result<(), Error> {
        if let [(key, row)] = rows {
            let saved = save(self.sql.as_ref(), key, &row.value, &row.leased, as_f64(row.expires));
            return saved.map_err(|error| refused(&error.into()));
        }
        // A state and a token's answer: one statement, so that both are written or neither.
        let mut bindings = Vec::with_capacity(4 * rows.len());
        for (key, row) in rows {
            bindings.push((*key).into());
            bindings.push(row.value.clone().into());
            bindings.push(row.leased.clone().into());
            bindings.push(number(row.expires));
        }
        self.run(SAVE_TWO, bindings).map(drop)
    }

    fn remove(&mut self, key: &str) -> Result<(), Error> {
        self.run(REMOVE, vec![key.into()]).map(drop)
    }

    fn sweep(&mut self, clock: UnixMillis) -> Result<(), Error> {
        self.run(SWEEP, vec![number(clock)]).map(drop)
    }

    fn next_expiry(&self) -> Result<Option<UnixMillis>, Error> {
        let row = self.find(NEXT_EXPIRY, Vec::new())?;
        Ok(match row.as_deref().and_then(<[_]>::first) {
            Some(SqlStorageValue::Integer(ms)) => u64::try_from(*ms).ok().map(UnixMillis::new),
            _ => None,
        })
    }

    /// Sets it within the step: the alarm and the rows are written together, and nothing waits for either.
    fn set_alarm(&mut self, at: UnixMillis) -> Result<(), Error> {
        let at = Date::new(&JsValue::from_f64(as_f64(at)));
        let set = self.storage.as_raw().set_alarm(at, Object::new());
        set.map(drop).map_err(|error| refused(&error.into()))
    }
}

impl fmt::Debug for Sql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sql").finish_non_exhaustive()
    }
}

#[allow(clippy::cast_precision_loss, reason = "instants are below 2^48")]
fn as_f64(instant: UnixMillis) -> f64 {
    instant.get() as f64
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
