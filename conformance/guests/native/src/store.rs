//! Opens the store that the command line selects.

use clap::ValueEnum;
use tidegate_core::{ErasedLimiter, Error, ErrorKind, MemoryLimiter, Millis};
use tidegate_redis::{Clock, Config, Redis, Rest, RestConfig};

/// The name of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StoreName {
    /// The memory of this process.
    Memory,
    /// One Redis server.
    Redis,
    /// A Redis cluster.
    RedisCluster,
    /// An Upstash database, over its REST protocol.
    UpstashRest,
}

/// The memory store's shards in test mode. There are so many that no shard holds enough keys to be swept: fixtures run on
/// clocks of their own, and a sweep by the clock of one would remove the keys of another.
const TEST_SHARDS: usize = 1_024;

/// The shortest lifetime of a row in test mode. The store's clock advances while the virtual time stands still.
const TEST_TTL_MIN: Millis = Millis::from_secs(3_600);

/// The deadline of a call in test mode, in which thousands of calls are in flight on the machine that also runs the
/// clients.
const TEST_DEADLINE: Millis = Millis::from_secs(10);

pub(crate) async fn open(
    name: StoreName,
    urls: &[String],
    token: Option<String>,
    test_mode: bool,
) -> Result<Box<dyn ErasedLimiter>, Error> {
    let config = match (name, urls) {
        (StoreName::Memory, _) if test_mode => return Ok(Box::new(MemoryLimiter::with_shards(TEST_SHARDS))),
        (StoreName::Memory, _) => return Ok(Box::new(MemoryLimiter::new())),
        (StoreName::Redis, [url]) => Config::new(url),
        (StoreName::RedisCluster, [_, ..]) => Config::cluster(urls),
        (StoreName::UpstashRest, [url]) => {
            return rest(RestConfig::new(url, token.unwrap_or_default()), test_mode).await;
        }
        _ => return Err(Error::new(ErrorKind::Invalid, "no store address; add --url redis://127.0.0.1:6379")),
    };
    let config =
        if test_mode { config.clock(Clock::Caller).min_ttl(TEST_TTL_MIN).deadline(TEST_DEADLINE) } else { config };
    let redis = Redis::new(config)?;
    redis.ping().await?;
    Ok(Box::new(redis.limiter()))
}

async fn rest(config: RestConfig, test_mode: bool) -> Result<Box<dyn ErasedLimiter>, Error> {
    // Tests use the script that Upstash gets.
    let test = |config: RestConfig| {
        config.clock(Clock::Caller).min_ttl(TEST_TTL_MIN).deadline(TEST_DEADLINE).key_locking(true)
    };
    let rest = Rest::new(if test_mode { test(config) } else { config })?;
    rest.ping().await?;
    Ok(Box::new(rest.limiter()))
}
