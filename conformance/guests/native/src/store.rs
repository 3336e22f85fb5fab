//! Where it counts, chosen on the command line.

use clap::ValueEnum;
use tidegate_core::{
    Capabilities, Check, Decision, Error, ErrorKind, Key, Limiter, MemoryLimiter, Millis, Policy, Refund,
};
use tidegate_redis::{Clock, Config, Redis, RedisLimiter, Rest, RestConfig, RestLimiter};

/// A store by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StoreName {
    /// In this process.
    Memory,
    /// One Redis server.
    Redis,
    /// A Redis cluster.
    RedisCluster,
    /// A database of Upstash, over its REST protocol.
    UpstashRest,
}

/// A store, opened.
pub(crate) enum Store {
    Memory(MemoryLimiter),
    Redis(RedisLimiter),
    Rest(RestLimiter),
}

/// Shards of the memory store in test mode: so many that no fixture's clock sweeps away what another still counts.
const TEST_SHARDS: usize = 1_024;

/// In test mode a state lives at least this long by the server's clock, for virtual time stands still meanwhile.
const TEST_TTL_MIN: Millis = Millis::from_secs(3_600);

/// In test mode thousands of calls are under way at once on a machine that runs their clients too.
const TEST_DEADLINE: Millis = Millis::from_secs(10);

impl Store {
    pub(crate) async fn open(
        name: StoreName,
        urls: &[String],
        token: Option<String>,
        test_mode: bool,
    ) -> Result<Self, Error> {
        let config = match (name, urls) {
            (StoreName::Memory, _) if test_mode => return Ok(Self::Memory(MemoryLimiter::with_shards(TEST_SHARDS))),
            (StoreName::Memory, _) => return Ok(Self::Memory(MemoryLimiter::new())),
            (StoreName::Redis, [url]) => Config::new(url),
            (StoreName::RedisCluster, [_, ..]) => Config::cluster(urls),
            (StoreName::UpstashRest, [url]) => {
                return Self::rest(RestConfig::new(url, token.unwrap_or_default()), test_mode).await;
            }
            _ => return Err(Error::new(ErrorKind::Invalid, "where is the store? add --url redis://127.0.0.1:6379")),
        };
        let config = if test_mode { config.clock(Clock::Caller).min_ttl(TEST_TTL_MIN).deadline(TEST_DEADLINE) } else { config };
        let redis = Redis::new(config)?;
        redis.ping().await?;
        Ok(Self::Redis(redis.limiter()))
    }

    async fn rest(config: RestConfig, test_mode: bool) -> Result<Self, Error> {
        // The script that Upstash is given, wherever it is tested.
        let test = |config: RestConfig| config.clock(Clock::Caller).min_ttl(TEST_TTL_MIN).deadline(TEST_DEADLINE).key_locking(true);
        let rest = Rest::new(if test_mode { test(config) } else { config })?;
        rest.ping().await?;
        Ok(Self::Rest(rest.limiter()))
    }
}

impl Limiter for Store {
    fn capabilities(&self) -> Capabilities {
        match self {
            Self::Memory(limiter) => limiter.capabilities(),
            Self::Redis(limiter) => limiter.capabilities(),
            Self::Rest(limiter) => limiter.capabilities(),
        }
    }

    async fn check(&self, check: Check<'_>) -> Result<Decision, Error> {
        match self {
            Self::Memory(limiter) => limiter.check(check).await,
            Self::Redis(limiter) => limiter.check(check).await,
            Self::Rest(limiter) => limiter.check(check).await,
        }
    }

    async fn peek(&self, check: Check<'_>) -> Result<Decision, Error> {
        match self {
            Self::Memory(limiter) => limiter.peek(check).await,
            Self::Redis(limiter) => limiter.peek(check).await,
            Self::Rest(limiter) => limiter.peek(check).await,
        }
    }

    async fn refund(&self, refund: Refund<'_>) -> Result<(), Error> {
        match self {
            Self::Memory(limiter) => limiter.refund(refund).await,
            Self::Redis(limiter) => limiter.refund(refund).await,
            Self::Rest(limiter) => limiter.refund(refund).await,
        }
    }

    async fn reset(&self, policy: &Policy, key: &Key) -> Result<(), Error> {
        match self {
            Self::Memory(limiter) => limiter.reset(policy, key).await,
            Self::Redis(limiter) => limiter.reset(policy, key).await,
            Self::Rest(limiter) => limiter.reset(policy, key).await,
        }
    }
}
