//! The [`Rows`] of an object on Cloudflare.

use std::fmt;

use tidegate_core::{Error, ErrorKind, UnixMillis};
use worker::Storage;
use worker::js_sys::{Date, Object};
use worker::wasm_bindgen::prelude::wasm_bindgen;
use worker::wasm_bindgen::{self, JsCast as _, JsValue};

use crate::rows::{Page, Row, Rows};

#[wasm_bindgen(module = "/src/cloudflare.js")]
extern "C" {
    #[wasm_bindgen(catch)]
    fn save(storage: &JsValue, kv: &SyncKv, keys_and_rows: &str) -> Result<(), JsValue>;
    #[wasm_bindgen(catch)]
    fn sweep(kv: &SyncKv, clock_ms: f64, after: Option<&str>) -> Result<String, JsValue>;

    type Sqlite;
    #[wasm_bindgen(method, getter)]
    fn kv(this: &Sqlite) -> SyncKv;

    /// <https://developers.cloudflare.com/durable-objects/api/sqlite-storage-api/#synchronous-kv-api>. All its methods
    /// throw if the class is not declared with SQLite storage.
    type SyncKv;
    #[wasm_bindgen(method, catch)]
    fn get(this: &SyncKv, key: &str) -> Result<JsValue, JsValue>;
    #[wasm_bindgen(method, catch)]
    fn delete(this: &SyncKv, key: &str) -> Result<(), JsValue>;
}

/// The rows of an object in its SQLite storage. They are in the platform's own key-value table, so that a write is one
/// row, and the first write creates no table.
pub struct ObjectStorage {
    kv: SyncKv,
    storage: Storage,
}

impl ObjectStorage {
    /// The rows in `storage`. The object's class must be declared with SQLite storage.
    #[must_use]
    pub fn new(storage: Storage) -> Self {
        Self { kv: storage.as_raw().unchecked_ref::<Sqlite>().kv(), storage }
    }
}

impl Rows for ObjectStorage {
    fn load(&self, key: &str) -> Result<Option<Row>, Error> {
        let value = self.kv.get(key).map_err(refused)?;
        if value.is_undefined() {
            return Ok(None);
        }
        let row = value.as_string().and_then(|text| Row::from_text(&text));
        row.map(Some).ok_or_else(|| corrupt(key))
    }

    fn save(&mut self, rows: &[(&str, Row)]) -> Result<(), Error> {
        let mut text = String::new();
        for (key, row) in rows {
            for line in [key, "\n", &row.to_text(), "\n"] {
                text.push_str(line);
            }
        }
        save(self.storage.as_raw(), &self.kv, &text).map_err(refused)
    }

    fn remove(&mut self, key: &str) -> Result<(), Error> {
        self.kv.delete(key).map_err(refused)
    }

    fn sweep(&mut self, clock: UnixMillis, after: Option<&str>) -> Result<Page, Error> {
        let page = sweep(&self.kv, as_f64(clock), after).map_err(refused)?;
        Page::from_text(&page).ok_or_else(|| corrupt("a sweep"))
    }

    /// Sets the alarm without waiting for it. The platform writes it together with the step's rows.
    fn set_alarm(&mut self, at: UnixMillis) -> Result<(), Error> {
        let at = Date::new(&JsValue::from_f64(as_f64(at)));
        let set = self.storage.as_raw().set_alarm(at, Object::new());
        set.map(drop).map_err(refused)
    }
}

impl fmt::Debug for ObjectStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectStorage").finish_non_exhaustive()
    }
}

#[allow(clippy::cast_precision_loss, reason = "instants are below 2^48")]
fn as_f64(instant: UnixMillis) -> f64 {
    instant.get() as f64
}

/// The instant of a JavaScript time.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number after the epoch")]
pub(crate) fn from_f64(ms: f64) -> UnixMillis {
    UnixMillis::new(ms as u64)
}

fn refused(error: JsValue) -> Error {
    let error = worker::Error::from(error);
    let message = format!("durable object: its storage failed: {error}; nothing was charged");
    Error::new(ErrorKind::Refused, message)
}

fn corrupt(key: &str) -> Error {
    let message = format!("durable object: Tidegate did not write the row of {key}; remove it");
    Error::new(ErrorKind::Corrupt, message)
}
