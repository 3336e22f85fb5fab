//! The namespace, as crate `worker` sees it.

use std::time::Duration;

use tollgate_core::store::BestEffort;
use tollgate_core::{Error, Millis, UnixMillis};
use worker::{Delay, Env, KvStore, js_sys::Math};

use crate::config::Config;
use crate::error;
use crate::isolate::{Isolate, LINGER_MAX};
use crate::store::KvLimiter;

/// A namespace of Workers KV.
#[derive(Clone, Debug)]
pub struct WorkersKv {
    store: KvStore,
    cache_ttl: Option<Millis>,
}

impl WorkersKv {
    /// The namespace bound as `name`.
    ///
    /// # Errors
    /// [`Invalid`](tollgate_core::ErrorKind::Invalid) where there is no such binding.
    pub fn from_env(env: &Env, name: &str) -> Result<Self, Error> {
        let store = env.kv(name).map_err(|error| error::missing(name, &error.to_string()))?;
        Ok(Self { store, cache_ttl: None })
    }

    /// How long a location may answer reads from its cache: the platform's 60 s unless said otherwise, and 30 s at least.
    #[must_use]
    pub const fn cache_ttl(mut self, ttl: Millis) -> Self {
        self.cache_ttl = Some(ttl);
        self
    }
}

impl BestEffort for WorkersKv {
    fn capabilities(&self) -> tollgate_core::Capabilities {
        crate::CAPABILITIES
    }

    async fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Error> {
        let mut get = self.store.get(key);
        if let Some(ttl) = self.cache_ttl {
            get = get.cache_ttl(ttl.as_secs_ceil());
        }
        get.bytes().await.map_err(|error| error::failed("get", &error.to_string()))
    }

    async fn put(&self, key: &str, bytes: &[u8], ttl: Millis) -> Result<(), Error> {
        let failed = |error: worker::KvError| error::failed("put", &error.to_string());
        let put = self.store.put_bytes(key, bytes).map_err(failed)?;
        put.expiration_ttl(ttl.max(Config::TTL_MIN).as_secs_ceil()).execute().await.map_err(failed)
    }

    async fn delete(&self, key: &str) -> Result<(), Error> {
        self.store.delete(key).await.map_err(|error| error::failed("delete", &error.to_string()))
    }
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
            Delay::from(Duration::from_millis(wait.get())).await;
            waited = waited + wait;
        }
    }
}
