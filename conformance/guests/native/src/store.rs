//! Opens the store that the command line selects.

#[cfg(feature = "redis")]
mod redis;

use std::sync::Arc;

use clap::ValueEnum;
use tidegate_core::{ErasedLimiter, Error, MemoryLimiter};

/// The name of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StoreName {
    /// The memory of this process.
    Memory,
    /// One Redis server.
    #[cfg(feature = "redis")]
    Redis,
    /// A Redis cluster.
    #[cfg(feature = "redis")]
    RedisCluster,
    /// An Upstash database, over its REST protocol.
    #[cfg(feature = "redis")]
    UpstashRest,
}

/// The memory store's shards in test mode. There are so many that no shard holds enough keys to be swept: fixtures run
/// on clocks of their own, and a sweep by the clock of one would remove the keys of another.
const TEST_SHARDS: usize = 1_024;

#[cfg_attr(not(feature = "redis"), expect(unused_variables, clippy::unused_async, reason = "memory has no address"))]
pub(crate) async fn open(
    name: StoreName,
    urls: &[String],
    token: Option<String>,
    test_mode: bool,
) -> Result<Arc<dyn ErasedLimiter>, Error> {
    match name {
        StoreName::Memory if test_mode => Ok(Arc::new(MemoryLimiter::with_shards(TEST_SHARDS))),
        StoreName::Memory => Ok(Arc::new(MemoryLimiter::new())),
        #[cfg(feature = "redis")]
        _ => redis::open(name, urls, token, test_mode).await,
    }
}
