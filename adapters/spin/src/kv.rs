//! A store on get and put.

use tidegate_core::store::{BestEffort, BestEffortLimiter};
use tidegate_core::{Accuracy, Capabilities, Drift, Error, Millis};

use crate::atomics;
use crate::bucket::Bucket;

/// The capabilities of [`SpinKv`]. A decision takes a get, and a set if the request is admitted.
pub const CAPABILITIES: Capabilities = atomics::CAPABILITIES
    .accuracy(Accuracy::Approximate(Drift::LAST_WRITER_WINS))
    .algorithms(Capabilities::COUNTING)
    .block(false);

/// A limiter on get and put.
pub type SpinKvLimiter<B> = BestEffortLimiter<SpinKv<B>>;

/// A store on get and put. It is approximate, see [`Drift::LAST_WRITER_WINS`]. A denial writes nothing. A client has one
/// row.
#[derive(Clone, Debug)]
pub struct SpinKv<B>(B);

impl<B: Bucket> SpinKv<B> {
    /// A store over `bucket`.
    pub const fn new(bucket: B) -> Self {
        Self(bucket)
    }

    /// A limiter over this store.
    #[must_use]
    pub const fn limiter(self) -> SpinKvLimiter<B> {
        BestEffortLimiter::new(self)
    }
}

impl<B: Bucket> BestEffort for SpinKv<B> {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    async fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Error> {
        self.0.get(key).await
    }

    async fn put(&self, key: &str, bytes: &[u8], _ttl: Millis) -> Result<(), Error> {
        self.0.set(key, bytes).await
    }

    async fn delete(&self, key: &str) -> Result<(), Error> {
        self.0.delete(key).await
    }
}
