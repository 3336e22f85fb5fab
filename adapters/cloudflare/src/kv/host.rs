//! [`WorkersKv`], and what else needs crate `worker`.

use tidegate_core::store::BestEffort;
use tidegate_core::{Capabilities, Error, Limiter, Millis, Operation, Reply, UnixMillis};
use worker::Env;
use worker::js_sys::{Math, Promise, Reflect, Uint8Array};
use worker::wasm_bindgen::prelude::wasm_bindgen;
use worker::wasm_bindgen::{self, JsValue};
use worker::wasm_bindgen_futures::{JsFuture, future_to_promise};

use crate::kv::config::Config;
use crate::kv::error;
use crate::kv::isolate::{Isolate, LINGER_MAX};
use crate::kv::store::KvLimiter;

// `worker::KvStore` would add serde, JSON and the formatting of floating-point numbers to the module.
#[wasm_bindgen(module = "/src/kv/host.js")]
extern "C" {
    #[wasm_bindgen(catch)]
    fn get(namespace: &JsValue, key: &str, cache_ttl_s: f64) -> Result<Promise, JsValue>;
    #[wasm_bindgen(catch)]
    fn put(namespace: &JsValue, key: &str, bytes: &[u8], ttl_s: f64) -> Result<Promise, JsValue>;
    #[wasm_bindgen(catch)]
    fn remove(namespace: &JsValue, key: &str) -> Result<Promise, JsValue>;
    fn wait(ms: f64) -> Promise;
}

#[wasm_bindgen(module = "cloudflare:workers")]
extern "C" {
    #[wasm_bindgen(js_name = waitUntil)]
    fn wait_until(promise: &Promise);
}

/// A Workers KV namespace.
#[derive(Clone, Debug)]
pub struct WorkersKv {
    namespace: JsValue,
    cache_ttl: Millis,
}

impl WorkersKv {
    /// Returns the namespace that is bound as `name`.
    ///
    /// # Errors
    /// [`Invalid`](tidegate_core::ErrorKind::Invalid) if the binding does not exist.
    pub fn from_env(env: &Env, name: &str) -> Result<Self, Error> {
        let property = |of: &JsValue, name: &str| Reflect::get(of, &JsValue::from_str(name)).unwrap_or_default();
        let namespace = property(env.as_ref(), name);
        if !property(&namespace, "getWithMetadata").is_function() {
            return Err(error::missing(name));
        }
        Ok(Self { namespace, cache_ttl: Config::CACHE_TTL_MIN })
    }

    /// Sets for how long a location caches a value that it has read (`cacheTtl`). The default is 30 s, which is also the
    /// minimum. The platform's own default is 60 s. A longer time makes reads faster, and the counts of other locations older.
    #[must_use]
    pub fn cache_ttl(mut self, ttl: Millis) -> Self {
        self.cache_ttl = ttl.max(Config::CACHE_TTL_MIN);
        self
    }
}

impl BestEffort for WorkersKv {
    fn capabilities(&self) -> Capabilities {
        crate::kv::CAPABILITIES
    }

    async fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Error> {
        let asked = get(&self.namespace, key, seconds(self.cache_ttl));
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
    /// Creates an empty memory with a random seed. Call it within a request, because the platform has no randomness before the
    /// first one.
    #[must_use]
    pub fn random(config: Config) -> Self {
        Self::new(Math::random().to_bits() ^ Math::random().to_bits().rotate_left(32), config)
    }
}

impl<S: BestEffort> KvLimiter<'_, S> {
    /// Flushes until everything is written or another caller takes over. Pass the future to `Context::wait_until`. `now` is the
    /// time of the request.
    pub async fn write_back(self, now: UnixMillis) {
        let mut waited = Millis::ZERO;
        while let Some(wait) = self.flush(now + waited).await {
            // A wait of zero would loop forever.
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

/// A limiter for all requests of an isolate, such as a gate's. It writes what is due after each response by itself, with
/// `waitUntil` of `cloudflare:workers`, so the Worker needs a compatibility date of 2025-08-08 or later.
///
/// ```ignore
/// let limiter = SharedKv::from_env(&env, "COUNTS", Config::default())?;
/// ```
#[derive(Debug)]
pub struct SharedKv(KvLimiter<'static, WorkersKv>);

impl SharedKv {
    /// A limiter with an empty memory, over the namespace that is bound as `name`. Create one for each isolate, within a
    /// request.
    ///
    /// # Errors
    /// [`Invalid`](tidegate_core::ErrorKind::Invalid) if the binding does not exist.
    pub fn from_env(env: &Env, name: &str, config: Config) -> Result<Self, Error> {
        let store = WorkersKv::from_env(env, name)?;
        // It lives as long as the isolate, because writes outlive their requests.
        Ok(Self(KvLimiter::new(Box::leak(Box::new(Isolate::random(config))), store)))
    }
}

impl Limiter for SharedKv {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    async fn apply(&self, operation: Operation<'_>) -> Result<Reply, Error> {
        let reply = self.0.apply(operation).await;
        if let Operation::Check(check) = operation {
            let (limiter, now) = (self.0.clone(), check.now);
            wait_until(&future_to_promise(async move {
                limiter.write_back(now).await;
                Ok(JsValue::UNDEFINED)
            }));
        }
        reply
    }
}
