//! Opens the store that the command line selects.

#[cfg(feature = "redis")]
mod redis;

use std::sync::Arc;

use clap::ValueEnum;
use tidegate_core::{ErasedLimiter, Error, Fallback, MemoryLimiter, Millis};

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

/// What the command line says about the store.
#[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "memory has no address"))]
pub(crate) struct Opening<'a> {
    pub(crate) name: StoreName,
    pub(crate) urls: &'a [String],
    pub(crate) token: Option<String>,
    /// The percentage of each limit to admit while the store does not answer.
    pub(crate) fallback: Option<u8>,
    /// The most units of a key to borrow.
    pub(crate) lend: Option<u64>,
    pub(crate) test_mode: bool,
}

/// The memory store's shards in test mode. There are so many that no shard holds enough keys to be swept: fixtures run
/// on clocks of their own, and a sweep by the clock of one would remove the keys of another.
const TEST_SHARDS: usize = 1_024;

#[cfg_attr(not(feature = "redis"), expect(clippy::unused_async, reason = "memory needs no connection"))]
pub(crate) async fn open(opening: &Opening<'_>) -> Result<Arc<dyn ErasedLimiter>, Error> {
    let store: Arc<dyn ErasedLimiter> = match opening.name {
        StoreName::Memory => Arc::new(memory(opening.test_mode)),
        #[cfg(feature = "redis")]
        _ => redis::open(opening).await?,
    };
    let Some(percent) = opening.fallback else { return Ok(store) };
    let fallback = Fallback::new(store, percent)?.backup(memory(opening.test_mode))?;
    // Virtual time stands still, so no pause would end.
    Ok(Arc::new(if opening.test_mode { fallback.breaker(1, Millis::ZERO) } else { fallback }))
}

fn memory(test_mode: bool) -> MemoryLimiter {
    if test_mode { MemoryLimiter::with_shards(TEST_SHARDS) } else { MemoryLimiter::new() }
}
