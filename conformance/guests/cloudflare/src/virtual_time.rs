//! A Workers KV namespace on the suite's virtual time.

use tidegate_cloudflare::kv::WorkersKv;
use tidegate_core::store::BestEffort;
use tidegate_core::{Capabilities, Error, Millis, UnixMillis};

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
