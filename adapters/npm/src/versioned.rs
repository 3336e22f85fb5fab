//! A store with conditional writes: Netlify Blobs, or Deno KV. The host reads and writes.

use std::fmt::Write as _;
use std::rc::Rc;

use tidegate_core::store::{Swap, Versioned, VersionedLimiter, VersionedValue};
use tidegate_core::{Accuracy, Capabilities, Dimensions, Drift, Error, ErrorKind, Millis};
use wasm_bindgen::prelude::*;

use crate::options::{Options, whole};
use crate::wire::{Answer, Met, Wire};

/// If three isolates compete for a key, each wins one of three attempts, and one decision in 2^37 needs more attempts.
const ATTEMPTS: u32 = 64;

#[wasm_bindgen]
extern "C" {
    /// The options of a limiter on such a store.
    #[wasm_bindgen(extends = Options)]
    type Database;

    /// What errors call the store.
    #[wasm_bindgen(method, getter, js_name = storeName)]
    fn store_name(this: &Database) -> String;

    /// Whether every read returns the last write.
    #[wasm_bindgen(method, getter, js_name = readsLastWrite)]
    fn reads_last_write(this: &Database) -> bool;

    #[wasm_bindgen(method, getter, js_name = minTtlMs)]
    fn min_ttl_ms(this: &Database) -> f64;
}

pub(crate) type Store = VersionedLimiter<Values>;

#[expect(clippy::unnecessary_wraps, reason = "the stores have one signature")]
pub(crate) fn open(options: &Options, wire: Rc<Wire>) -> Result<Store, JsValue> {
    let database: &Database = options.unchecked_ref();
    let values = Values {
        wire,
        deadline: options.deadline(),
        name: database.store_name(),
        is_exact: database.reads_last_write(),
        min_ttl: Millis::new(whole(database.min_ttl_ms())),
    };
    Ok(VersionedLimiter::new(values).attempts(ATTEMPTS))
}

/// One value for each key of a policy.
pub(crate) struct Values {
    wire: Rc<Wire>,
    deadline: Millis,
    name: String,
    is_exact: bool,
    min_ttl: Millis,
}

impl Values {
    /// Asks the host to use a value: `["read", name]`, `["write", name, bytes, version or null, TTL in milliseconds]` or
    /// `["delete", name]`.
    async fn ask(&self, verb: &str, key: &str, rest: &str) -> Result<Answer, Error> {
        // The names of Netlify's blobs are paths, and no name can also be a folder. Nothing else in a key needs an escape.
        let name = key.replace('/', "%2F");
        match self.wire.ask(format!(r#"["{verb}","{name}"{rest}]"#)).await {
            Met::Answer(answer) => Ok(answer),
            Met::Failed { name, message } => Err(self.failed(&name, message)),
            Met::Late => {
                let (name, deadline) = (&self.name, self.deadline);
                let message = format!("{name}: no answer within {deadline}; the request may have been charged");
                Err(Error::new(ErrorKind::Timeout, message))
            }
        }
    }

    async fn write(&self, key: &str, bytes: &[u8], version: Option<&str>, ttl: Millis) -> Result<Swap, Error> {
        let mut rest = String::from(",[");
        for (place, byte) in bytes.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            let _ = write!(rest, "{comma}{byte}");
        }
        rest.push_str("],");
        match version {
            Some(version) => text(&mut rest, version),
            None => rest.push_str("null"),
        }
        let _ = write!(rest, ",{}", ttl.max(self.min_ttl).get());
        match self.ask("write", key, &rest).await?.status {
            200 => Ok(Swap::Done),
            412 => Ok(Swap::Conflict),
            _ => {
                Err(self
                    .refused("a write does not report whether it was made; use a store of @netlify/blobs 10 or newer"))
            }
        }
    }

    fn failed(&self, thrown: &str, message: String) -> Error {
        let kind = match thrown {
            "BlobsConsistencyError" | "MissingBlobsEnvironmentError" => ErrorKind::Refused,
            _ => ErrorKind::Unavailable,
        };
        let said = "the store has failed; if it was writing, the request may have been charged";
        Error::new(kind, format!("{}: {said}", self.name)).with_source(message)
    }

    fn refused(&self, what: &str) -> Error {
        Error::new(ErrorKind::Refused, format!("{}: {what}; nothing was charged", self.name))
    }
}

impl Versioned for Values {
    /// An entity tag, or a version stamp.
    type Version = String;

    fn capabilities(&self) -> Capabilities {
        // A request whose writes conflict too often is an error. A request that reads an old value is denied too long.
        let accuracy = if self.is_exact { Accuracy::Exact } else { Accuracy::Approximate(Drift::WITHIN_LIMIT) };
        Capabilities::EXACT
            .accuracy(accuracy)
            .algorithms(Capabilities::COUNTING)
            .dimensions(Dimensions::One)
            .block(false)
            .idempotency(false)
            .round_trips(2)
    }

    async fn read(&self, key: &str) -> Result<Option<VersionedValue<String>>, Error> {
        let Answer { status, version, bytes } = self.ask("read", key, "").await?;
        if status == 404 {
            return Ok(None);
        }
        // Without a version, a write would overwrite whatever is there.
        let version = version.filter(|etag| !etag.is_empty());
        let version =
            version.ok_or_else(|| self.refused("a value came without an ETag, so it cannot be written safely"))?;
        Ok(Some(VersionedValue { bytes, version }))
    }

    async fn create(&self, key: &str, bytes: &[u8], ttl: Millis) -> Result<Swap, Error> {
        self.write(key, bytes, None, ttl).await
    }

    async fn update(&self, key: &str, bytes: &[u8], version: String, ttl: Millis) -> Result<Swap, Error> {
        self.write(key, bytes, Some(&version), ttl).await
    }

    async fn delete(&self, key: &str) -> Result<(), Error> {
        self.ask("delete", key, "").await.map(drop)
    }
}

/// Appends a JSON string. An entity tag contains quotes and nothing else that JSON escapes.
fn text(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        if matches!(character, '"' | '\\') {
            out.push('\\');
        }
        out.push(character);
    }
    out.push('"');
}
