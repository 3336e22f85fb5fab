//! Where it counts, chosen on the command line.

use clap::ValueEnum;
use tidegate_core::MemoryLimiter;
#[cfg(feature = "redis")]
use tidegate_core::{Error, ErrorKind, Millis};
#[cfg(feature = "redis")]
use tidegate_redis::{Config, Redis, RedisLimiter, Rest, RestConfig, RestLimiter};

/// A store by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StoreName {
    /// In this process.
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

/// Shards of the memory store in test mode: so many that no fixture's clock sweeps away what another still counts.
const TEST_SHARDS: usize = 1_024;

/// In test mode a state lives at least this long by the server's clock, because virtual time stands still meanwhile.
#[cfg(feature = "redis")]
const TEST_TTL_MIN: Millis = Millis::from_secs(3_600);

/// In test mode thousands of calls are in flight at once, on a machine that also runs their clients.
#[cfg(feature = "redis")]
const TEST_DEADLINE: Millis = Millis::from_secs(10);

pub(crate) fn memory(test_mode: bool) -> MemoryLimiter {
    if test_mode { MemoryLimiter::with_shards(TEST_SHARDS) } else { MemoryLimiter::new() }
}

/// One server where there is one address, else a cluster.
#[cfg(feature = "redis")]
pub(crate) async fn redis(name: StoreName, urls: &[String], test_mode: bool) -> Result<RedisLimiter, Error> {
    let config = match (name, urls) {
        (StoreName::RedisCluster, [_, ..]) => Config::cluster(urls),
        (_, [url]) => Config::new(url),
        _ => return Err(no_address()),
    };
    let redis = Redis::new(if test_mode { config.min_ttl(TEST_TTL_MIN).deadline(TEST_DEADLINE) } else { config })?;
    redis.ping().await?;
    Ok(redis.limiter())
}

#[cfg(feature = "redis")]
pub(crate) async fn rest(urls: &[String], token: Option<String>, test_mode: bool) -> Result<RestLimiter, Error> {
    let [url] = urls else { return Err(no_address()) };
    // The script that Upstash is given, wherever it is tested.
    let test = |config: RestConfig| config.min_ttl(TEST_TTL_MIN).deadline(TEST_DEADLINE).key_locking(true);
    let config = RestConfig::new(url, token.unwrap_or_default());
    let rest = Rest::new(if test_mode { test(config) } else { config })?;
    rest.ping().await?;
    Ok(rest.limiter())
}

#[cfg(feature = "redis")]
fn no_address() -> Error {
    Error::new(ErrorKind::Invalid, "where is the store? add --url redis://127.0.0.1:6379")
}
