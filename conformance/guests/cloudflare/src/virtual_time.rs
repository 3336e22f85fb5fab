//! A Workers KV namespace and leases with a grace, on the suite's virtual time.

use std::future::ready;

use tidegate_cloudflare::durable_objects::Leases;
use tidegate_cloudflare::kv::WorkersKv;
use tidegate_core::store::BestEffort;
use tidegate_core::{Capabilities, Error, Limiter, Millis, Operation, Reply, UnixMillis};
use worker::ObjectNamespace;

/// Puts the virtual time in front of the key of each operation, as in `1800000000000|key`. Only the suite's own
/// namespace understands it.
#[derive(Clone)]
pub(crate) struct Timed {
    pub(crate) kv: WorkersKv,
    /// The virtual time, on the suite's own namespace only.
    pub(crate) now: Option<UnixMillis>,
}

impl Timed {
    fn name(&self, key: &str) -> String {
        self.now.map_or_else(|| key.to_owned(), |now| format!("{}|{key}", now.get()))
    }
}

impl BestEffort for Timed {
    fn capabilities(&self) -> Capabilities {
        self.kv.capabilities()
    }

    async fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Error> {
        self.kv.get(&self.name(key)).await
    }

    async fn put(&self, key: &str, bytes: &[u8], ttl: Millis) -> Result<(), Error> {
        self.kv.put(&self.name(key), bytes, ttl).await
    }

    async fn delete(&self, key: &str) -> Result<(), Error> {
        self.kv.delete(&self.name(key)).await
    }
}

/// Tells the objects what was admitted by grace when the request ends: virtual time stands still, so no pause would end.
pub(crate) struct Telling(pub(crate) &'static Leases<'static, ObjectNamespace>);

impl Limiter for Telling {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    async fn apply(&self, operation: Operation<'_>) -> Result<Reply, Error> {
        let reply = self.0.apply(operation).await;
        self.0.after(|| operation.now(), ready(())).await;
        reply
    }
}
