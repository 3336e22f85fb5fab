//! Netlify Blobs as a store, through the site's own `@netlify/blobs` store: strong reads and conditional writes.

use std::fmt::Write as _;
use std::rc::Rc;

use tidegate_core::store::{Swap, Versioned, VersionedLimiter, VersionedValue};
use tidegate_core::{Accuracy, Capabilities, Dimensions, Drift, Error, ErrorKind, Millis};
use wasm_bindgen::prelude::*;

use crate::call::{Answer, Met, Wire};
use crate::options::Options;

/// If three isolates compete for a key, each wins one of three attempts, and one decision in 2^37 needs more attempts.
const ATTEMPTS: u32 = 64;

pub(crate) type Store = VersionedLimiter<Blobs>;

#[expect(clippy::unnecessary_wraps, reason = "the stores have one signature")]
pub(crate) fn open(options: &Options, wire: Rc<Wire>) -> Result<Store, JsValue> {
    Ok(VersionedLimiter::new(Blobs { wire, deadline: options.deadline() }).attempts(ATTEMPTS))
}

/// A store of blobs: one blob for each key of a policy. Blobs do not expire.
pub(crate) struct Blobs {
    wire: Rc<Wire>,
    deadline: Millis,
}

impl Blobs {
    /// Asks the host to use a blob: `["read", name]`, `["write", name, bytes, version or null]` or `["delete", name]`.
    async fn ask(&self, verb: &str, key: &str, rest: &str) -> Result<Answer, Error> {
        // The names of blobs are paths, and no name can also be a folder. Nothing else in a key needs an escape.
        let name = key.replace('/', "%2F");
        match self.wire.ask(format!(r#"["{verb}","{name}"{rest}]"#)).await {
            Met::Answer(answer) => Ok(answer),
            Met::Failed { name, message } => Err(failed(&name, message)),
            Met::Late => {
                let message = format!("blobs: no answer within {}; the request may have been charged", self.deadline);
                Err(Error::new(ErrorKind::Timeout, message))
            }
        }
    }

    async fn write(&self, key: &str, bytes: &[u8], version: Option<&str>) -> Result<Swap, Error> {
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
        match self.ask("write", key, &rest).await?.status {
            200 => Ok(Swap::Done),
            412 => Ok(Swap::Conflict),
            _ => Err(refused("a write does not report whether it was made; use a store of @netlify/blobs 10 or newer")),
        }
    }
}

impl Versioned for Blobs {
    /// The entity tag.
    type Version = String;

    fn capabilities(&self) -> Capabilities {
        // It never admits more than the limit. It admits less if a request's writes conflict too often or it reads an
        // old value.
        let accuracy = Accuracy::Approximate(Drift::WITHIN_LIMIT);
        Capabilities::EXACT
            .accuracy(accuracy)
            .algorithms(Capabilities::COUNTING)
            .dimensions(Dimensions::One)
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
        let version = version.ok_or_else(|| refused("a value came without an ETag, so it cannot be written safely"))?;
        Ok(Some(VersionedValue { bytes, version }))
    }

    async fn create(&self, key: &str, bytes: &[u8], _: Millis) -> Result<Swap, Error> {
        self.write(key, bytes, None).await
    }

    async fn update(&self, key: &str, bytes: &[u8], version: String, _: Millis) -> Result<Swap, Error> {
        self.write(key, bytes, Some(&version)).await
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

fn failed(name: &str, message: String) -> Error {
    let kind = match name {
        "BlobsConsistencyError" | "MissingBlobsEnvironmentError" => ErrorKind::Refused,
        _ => ErrorKind::Unavailable,
    };
    let said = "blobs: the store has failed; if it was writing, the request may have been charged";
    Error::new(kind, said).with_source(message)
}

fn refused(what: &str) -> Error {
    Error::new(ErrorKind::Refused, format!("blobs: {what}; nothing was charged"))
}
