//! The namespace, as crate `worker` sees it.

use tidegate_core::store::BestEffort;
use tidegate_core::{Error, Millis, UnixMillis};
use worker::Env;
use worker::js_sys::{Math, Promise, Reflect, Uint8Array};
use worker::wasm_bindgen::prelude::wasm_bindgen;
use worker::wasm_bindgen::{self, JsValue};
use worker::wasm_bindgen_futures::JsFuture;

use crate::config::Config;
use crate::error;
use crate::isolate::{Isolate, LINGER_MAX};
use crate::store::KvLimiter;

// Not `worker::KvStore`, which brings along serde, JSON, and the text of floating-point numbers.
#[wasm_bindgen(module = "/src/workers_kv.js")]
extern "C" {
    #[wasm_bindgen(catch)]
    fn get(namespace: &JsValue, key: &str, cache_ttl_s: Option<f64>) -> Result<Promise, JsValue>;
    #[wasm_bindgen(catch)]
    fn put(namespace: &JsValue, key: &str, bytes: &[u8], ttl_s: f64) -> Result<Promise, JsValue>;
    #[wasm_bindgen(catch)]
    fn remove(namespace: &JsValue, key: &str) -> Result<Promise, JsValue>;
    fn wait(ms: f64) -> Promise;
}

/// A namespace of Workers KV.
#[derive(Clone, Debug)]
pub struct WorkersKv {
    namespace: JsValue,
    cache_ttl: Option<Millis>,
}

impl WorkersKv {
    /// The namespace bound as `name`.
    ///
    /// # Errors
    /// [`Invalid`](tidegate_core::ErrorKind::Invalid) where there is no such binding.
    pub fn from_env(env: &Env, name: &str) -> Result<Self, Error> {
        let property = |of: &JsValue, name: &str| Reflect::get(of, &JsValue::from_str(name)).unwrap_or_default();
        let namespace = property(env.as_ref(), name);
        if !property(&namespace, "getWithMetadata").is_function() {
            return Err(error::missing(name, "there is no such namespace"));
        }
        Ok(Self { namespace, cache_ttl: None })
    }

    /// How long a location may answer reads from its cache: the platform's 60 s unless said otherwise, and 30 s at least.
    #[must_use]
    pub const fn cache_ttl(mut self, ttl: Millis) -> Self {
        self.cache_ttl = Some(ttl);
        self
    }
}

impl BestEffort for WorkersKv {
    fn capabilities(&self) -> tidegate_core::Capabilities {
        crate::CAPABILITIES
    }

    async fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Error> {
        let asked = get(&self.namespace, key, self.cache_ttl.map(seconds));
        let found = done("get", asked).await?;
        Ok((!found.is_null()).then(|| Uint8Array::new(&found).to_vec()))
    }

    async fn put(&self, key: &str, bytes: &[u8], ttl: Millis) -> Result<(), Error> {
        let asked = put(&self.namespace, key, bytes, seconds(ttl.max(Config::TTL_MIN)));
        done("put", asked).await.map(drop)
    }

    async fn delete(&self, key: &str) -> Result<(), Error> {
        done("delete", remove(&self.namespace, key)).await.map(drop)
    }
}

async fn done(what: &str, asked: Result<Promise, JsValue>) -> Result<JsValue, Error> {
    let answer = match asked {
        Ok(promise) => JsFuture::from(promise).await,
        Err(error) => Err(error),
    };
    answer.map_err(|error| error::failed(what, &worker::Error::from(error).to_string()))
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^53")]
fn seconds(ttl: Millis) -> f64 {
    ttl.as_secs_ceil() as f64
}

impl Isolate {
    /// An empty memory with a random seed. Within a request: the platform gives no randomness before.
    #[must_use]
    pub fn random(config: Config) -> Self {
        Self::new(Math::random().to_bits() ^ Math::random().to_bits().rotate_left(32), config)
    }
}

impl<S: BestEffort> KvLimiter<'_, S> {
    /// Flushes until nothing waits, as long as it is this caller's turn: give it to `Context::wait_until`. `now` is
    /// the instant of the request.
    pub async fn write_back(self, now: UnixMillis) {
        let mut waited = Millis::ZERO;
        while let Some(wait) = self.flush(now + waited).await {
            // None at all would be a loop that never ends.
            let wait = wait.max(Millis::new(1));
            if waited + wait > LINGER_MAX {
                return;
            }
            #[allow(clippy::cast_precision_loss, reason = "far below 2^53")]
            let _nothing = JsFuture::from(self::wait(wait.get() as f64)).await;
            waited = waited + wait;
        }
    }
}
