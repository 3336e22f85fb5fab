//! Netlify Blobs as a store: strong reads and conditional writes, by the site's own `@netlify/blobs` store object.

use js_sys::{ArrayBuffer, Function, Object, Promise, Reflect, Uint8Array};
use tollgate_core::store::{Found, Swap, Versioned, VersionedLimiter};
use tollgate_core::{Accuracy, Capabilities, Drift, Error, ErrorKind, Millis};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;

use crate::options::Options;

#[wasm_bindgen]
extern "C" {
    /// The options that only this store has.
    #[wasm_bindgen(extends = Options)]
    type Site;

    #[wasm_bindgen(method, getter)]
    fn blobs(this: &Site) -> BlobStore;

    #[wasm_bindgen(method, getter)]
    fn eventual(this: &Site) -> bool;

    /// What `getStore` of `@netlify/blobs` gives.
    type BlobStore;

    #[wasm_bindgen(method, catch, js_name = getWithMetadata)]
    fn get_with_metadata(this: &BlobStore, key: &str, options: &Object) -> Result<Promise, JsValue>;

    #[wasm_bindgen(method, catch)]
    fn set(this: &BlobStore, key: &str, bytes: &ArrayBuffer, options: &Object) -> Result<Promise, JsValue>;

    #[wasm_bindgen(method, catch)]
    fn delete(this: &BlobStore, key: &str) -> Result<Promise, JsValue>;

    #[wasm_bindgen(js_name = setTimeout)]
    fn set_timeout(then: &Function, ms: f64, with: &JsValue) -> JsValue;

    #[wasm_bindgen(js_name = clearTimeout)]
    fn clear_timeout(timer: &JsValue);
}

/// Where three isolates contend for a key, each wins one of three attempts: one decision in 2^37 runs out of these.
const ATTEMPTS: u32 = 64;

/// How long who lost to another waits at most, before it reads again.
const PAUSE_MS_MAX: f64 = 20.0;

pub(crate) type Store = VersionedLimiter<Blobs>;

pub(crate) fn open(options: &Options) -> Result<Store, JsValue> {
    let site: &Site = options.unchecked_ref();
    let reads = if site.eventual() { Reads::Eventual } else { Reads::Strong };
    let blobs = Blobs { store: site.blobs(), reads, deadline: options.deadline() };
    Ok(VersionedLimiter::new(blobs).attempts(ATTEMPTS))
}

/// How a site reads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reads {
    Strong,
    /// Up to a minute behind. A write on top of an old reading is refused, so nothing is admitted twice.
    Eventual,
}

/// A store of blobs, one for each key of a policy. Blobs do not expire: what is written stays until it is deleted.
pub(crate) struct Blobs {
    store: BlobStore,
    reads: Reads,
    deadline: Millis,
}

impl Blobs {
    /// Waits until a call has ended, or the deadline has.
    async fn ended(&self, call: Result<Promise, JsValue>) -> Result<JsValue, Error> {
        let call = call.map_err(|thrown| failed(&thrown))?;
        // Nothing that a store answers is this object.
        let (late, mut timer) = (JsValue::from(Object::new()), JsValue::UNDEFINED);
        let ms = f64::from(u32::try_from(self.deadline.get()).unwrap_or(u32::MAX));
        let deadline = Promise::new(&mut |resolve, _| timer = set_timeout(&resolve, ms, &late));
        let first = JsFuture::from(Promise::race(&[call, deadline].into_iter().collect::<js_sys::Array>())).await;
        clear_timeout(&timer);
        match first {
            Ok(value) if value == late => {
                let message = format!("blobs: no answer within {}; the request may have been charged", self.deadline);
                Err(Error::new(ErrorKind::Timeout, message))
            }
            Ok(value) => Ok(value),
            Err(thrown) => Err(failed(&thrown)),
        }
    }

    async fn write(&self, key: &str, bytes: &[u8], condition: &str, value: &JsValue) -> Result<Swap, Error> {
        let bytes = Uint8Array::from(bytes).buffer();
        let written = self.ended(self.store.set(&name(key), &bytes, &object(&[(condition, value)]))).await?;
        match get(&written, "modified").and_then(|modified| modified.as_bool()) {
            Some(true) => Ok(Swap::Done),
            Some(false) => {
                // Those who try again at the same pace lose to each other forever.
                let ms = js_sys::Math::random() * PAUSE_MS_MAX;
                let pause = Promise::new(&mut |resolve, _| drop(set_timeout(&resolve, ms, &JsValue::UNDEFINED)));
                let _ = JsFuture::from(pause).await;
                Ok(Swap::Lost)
            }
            None => {
                Err(refused("a write does not tell whether it was made; use a store of @netlify/blobs 10 or newer"))
            }
        }
    }
}

impl Versioned for Blobs {
    /// The entity tag.
    type Version = String;

    fn capabilities(&self) -> Capabilities {
        // Never more, sometimes less: who loses to others too often, or reads what is old, is not decided on.
        let accuracy = Accuracy::Soft(Drift::WITHIN_LIMIT);
        Capabilities { accuracy, idempotency: false, round_trips: 2, ..Capabilities::EXACT }
    }

    async fn read(&self, key: &str) -> Result<Option<Found<String>>, Error> {
        let consistency = if self.reads == Reads::Strong { "strong" } else { "eventual" };
        let options = object(&[("type", &"arrayBuffer".into()), ("consistency", &consistency.into())]);
        let found = self.ended(self.store.get_with_metadata(&name(key), &options)).await?;
        if found.is_null() || found.is_undefined() {
            return Ok(None);
        }
        let version = get(&found, "etag").and_then(|etag| etag.as_string()).filter(|etag| !etag.is_empty());
        // Without one, a write could only be blind.
        let version = version.ok_or_else(|| refused("a value came without an ETag, so it cannot be written safely"))?;
        let bytes = get(&found, "data").map(|data| Uint8Array::new(&data).to_vec());
        Ok(Some(Found { bytes: bytes.unwrap_or_default(), version }))
    }

    async fn create(&self, key: &str, bytes: &[u8], _: Millis) -> Result<Swap, Error> {
        self.write(key, bytes, "onlyIfNew", &JsValue::TRUE).await
    }

    async fn update(&self, key: &str, bytes: &[u8], version: String, _: Millis) -> Result<Swap, Error> {
        self.write(key, bytes, "onlyIfMatch", &version.into()).await
    }

    async fn delete(&self, key: &str) -> Result<(), Error> {
        self.ended(self.store.delete(&name(key))).await.map(drop)
    }
}

/// Blobs' names are paths, in which a name cannot be a folder too.
fn name(key: &str) -> String {
    key.replace('/', "%2F")
}

fn get(object: &JsValue, name: &str) -> Option<JsValue> {
    Reflect::get(object, &name.into()).ok()
}

fn object(fields: &[(&str, &JsValue)]) -> Object {
    let object = Object::new();
    for (name, value) in fields {
        let _ = Reflect::set(&object, &(*name).into(), value);
    }
    object
}

fn failed(thrown: &JsValue) -> Error {
    let said = |name| get(thrown, name).and_then(|said| said.as_string()).unwrap_or_default();
    let kind = match said("name").as_str() {
        "BlobsConsistencyError" | "MissingBlobsEnvironmentError" => ErrorKind::Refused,
        _ => ErrorKind::Unavailable,
    };
    let message = "blobs: the store has failed; if it was writing, the request may have been charged";
    Error::new(kind, message).with_source(said("message"))
}

fn refused(what: &str) -> Error {
    Error::new(ErrorKind::Refused, format!("blobs: {what}; nothing was charged"))
}
