//! The [`Rows`] of an object on Cloudflare.

use std::fmt;

use tidegate_core::{Error, ErrorKind, UnixMillis};
use wasm_bindgen::prelude::*;

use crate::durable_objects::rows::{Page, Row, Rows};

#[wasm_bindgen]
extern "C" {
    /// An `ObjectRows` of rows.js.
    pub type HostRows;

    #[wasm_bindgen(method, catch)]
    fn load(this: &HostRows, key: &str) -> Result<JsValue, Thrown>;
    #[wasm_bindgen(method, catch)]
    fn save(this: &HostRows, keys_and_rows: &str) -> Result<(), Thrown>;
    #[wasm_bindgen(method, catch)]
    fn remove(this: &HostRows, key: &str) -> Result<(), Thrown>;
    #[wasm_bindgen(method, catch)]
    fn sweep(this: &HostRows, clock_ms: f64, after: Option<&str>) -> Result<String, Thrown>;
    #[wasm_bindgen(method, catch, js_name = setAlarm)]
    fn set_alarm(this: &HostRows, at_ms: f64) -> Result<(), Thrown>;

    /// What a storage throws: an error of JavaScript.
    type Thrown;
    #[wasm_bindgen(method, getter)]
    fn message(this: &Thrown) -> Option<String>;
}

/// The rows of an object in its SQLite storage.
pub struct ObjectStorage(HostRows);

impl ObjectStorage {
    /// The rows that rows.js reads and writes. The object's class must be declared with SQLite storage.
    #[must_use]
    pub const fn new(rows: HostRows) -> Self {
        Self(rows)
    }
}

impl Rows for ObjectStorage {
    fn load(&self, key: &str) -> Result<Option<Row>, Error> {
        let value = self.0.load(key).map_err(refused)?;
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
        self.0.save(&text).map_err(refused)
    }

    fn remove(&mut self, key: &str) -> Result<(), Error> {
        self.0.remove(key).map_err(refused)
    }

    fn sweep(&mut self, clock: UnixMillis, after: Option<&str>) -> Result<Page, Error> {
        let page = self.0.sweep(as_f64(clock), after).map_err(refused)?;
        Page::from_text(&page).ok_or_else(|| corrupt("a sweep"))
    }

    fn set_alarm(&mut self, at: UnixMillis) -> Result<(), Error> {
        self.0.set_alarm(as_f64(at)).map_err(refused)
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

fn refused(thrown: Thrown) -> Error {
    let why = thrown.message().unwrap_or_default();
    let message = format!("durable object: its storage failed: {why}; nothing was charged");
    Error::new(ErrorKind::Refused, message)
}

fn corrupt(key: &str) -> Error {
    let message = format!("durable object: Tidegate did not write the row of {key}; remove it");
    Error::new(ErrorKind::Corrupt, message)
}
