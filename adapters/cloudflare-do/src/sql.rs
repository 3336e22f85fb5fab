//! An object's rows in its SQLite storage.

use std::fmt;

use tollgate_core::{Error, ErrorKind, UnixMillis};
use worker::js_sys::{Array, ArrayBuffer, Date, Object, Uint8Array};
use worker::wasm_bindgen::prelude::wasm_bindgen;
use worker::wasm_bindgen::{self, JsCast as _, JsValue};
use worker::{SqlStorage, Storage};

use crate::rows::{Row, Rows};

#[wasm_bindgen(module = "/src/cloudflare.js")]
extern "C" {
    #[wasm_bindgen(catch)]
    fn run(sql: &JsValue, query: &str, bindings: &Array) -> Result<Option<Array>, JsValue>;
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
        run(sql.as_ref(), TABLE, &Array::new())?;
        Ok(Self { sql, storage })
    }

    /// Runs a query: the last row that it answers, if any.
    fn run(&self, query: &str, bindings: &[JsValue]) -> Result<Option<Array>, Error> {
        let list = Array::new();
        for binding in bindings {
            list.push(binding);
        }
        run(self.sql.as_ref(), query, &list).map_err(refused)
    }
}

impl Rows for Sql {
    fn load(&self, key: &str) -> Result<Option<Row>, Error> {
        let Some(row) = self.run(LOAD, &[key.into()])? else { return Ok(None) };
        let blob = |place| row.get(place).dyn_ref::<ArrayBuffer>().map(|blob| Uint8Array::new(blob).to_vec());
        match (blob(0), blob(1), instant(&row.get(2))) {
            (Some(value), Some(leased), Some(expires)) => Ok(Some(Row { value, leased, expires })),
            _ => Err(corrupt(key)),
        }
    }

    fn save(&mut self, rows: &[(&str, &Row)]) -> Result<(), Error> {
        if let [(key, row)] = rows {
            let saved = save(self.sql.as_ref(), key, &row.value, &row.leased, as_f64(row.expires));
            return saved.map_err(refused);
        }
        // A state and a token's answer: one statement, so that both are written or neither.
        let mut bindings = Vec::new();
        for (key, row) in rows {
            let blob = |bytes: &[u8]| JsValue::from(Uint8Array::from(bytes));
            bindings.extend([(*key).into(), blob(&row.value), blob(&row.leased), number(row.expires)]);
        }
        self.run(SAVE_TWO, &bindings).map(drop)
    }

    fn remove(&mut self, key: &str) -> Result<(), Error> {
        self.run(REMOVE, &[key.into()]).map(drop)
    }

    fn sweep(&mut self, clock: UnixMillis) -> Result<(), Error> {
        self.run(SWEEP, &[number(clock)]).map(drop)
    }

    fn next_expiry(&self) -> Result<Option<UnixMillis>, Error> {
        let row = self.run(NEXT_EXPIRY, &[])?;
        Ok(row.and_then(|row| instant(&row.get(0))))
    }

    /// Sets it within the step: the alarm and the rows are written together, and nothing waits for either.
    fn set_alarm(&mut self, at: UnixMillis) -> Result<(), Error> {
        let at = Date::new(&number(at));
        let set = self.storage.as_raw().set_alarm(at, Object::new());
        set.map(drop).map_err(refused)
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

fn number(instant: UnixMillis) -> JsValue {
    JsValue::from_f64(as_f64(instant))
}

pub(crate) fn instant(column: &JsValue) -> Option<UnixMillis> {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number after the epoch")]
    column.as_f64().filter(|ms| *ms >= 0.0).map(|ms| UnixMillis::new(ms as u64))
}

fn refused(error: JsValue) -> Error {
    let error = worker::Error::from(error);
    let message = format!("durable object: its storage answered {error}; nothing was charged");
    Error::new(ErrorKind::Refused, message)
}

fn corrupt(key: &str) -> Error {
    let message = format!("durable object: the row of {key} is none that Tollgate wrote; remove it");
    Error::new(ErrorKind::Corrupt, message)
}
