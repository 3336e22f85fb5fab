//! Opens the store that the command line selects.

use std::future::ready;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use tidegate_core::lending::Lease;
use tidegate_core::store::{Atomic, AtomicLimiter, LendingLimiter};
use tidegate_core::{Capabilities, ErasedLimiter, Error, ErrorKind, Fallback, Limiter, Millis, Operation, Reply};
use tidegate_guest_native::memory;
use tidegate_redis::{Clock, Config, Redis, Rest, RestConfig};

/// The shortest lifetime of a row in test mode. The store's clock advances while the virtual time stands still.
const TEST_TTL_MIN: Millis = Millis::from_secs(3_600);

/// The deadline of a call in test mode, in which thousands of calls are in flight on the machine that also runs the
/// clients.
const TEST_DEADLINE: Millis = Millis::from_secs(10);

/// The same with a fallback, which must not wait for a store that hangs for a second.
const FALLBACK_DEADLINE: Millis = Millis::new(500);

/// The longest life of a loan.
const LIFETIME: Millis = Millis::from_secs(2);

/// The name of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum StoreName {
    /// One Redis server.
    Redis,
    /// A Redis cluster.
    RedisCluster,
    /// An Upstash database, over its REST protocol.
    UpstashRest,
}

/// The options of the store.
#[derive(Debug, Args)]
pub(crate) struct Store {
    /// The store that counts.
    #[arg(long, value_enum, default_value_t = StoreName::Redis)]
    store: StoreName,
    /// The store's address, for example redis://127.0.0.1:6379. Repeat the option for a cluster.
    #[arg(long)]
    url: Vec<String>,
    /// The token of a store at an https:// address. The default is the environment variable UPSTASH_REDIS_REST_TOKEN.
    #[arg(long)]
    token: Option<String>,
    /// While the store does not answer, admit this percentage of every limit from this process's memory.
    #[arg(long, value_name = "PERCENT")]
    fallback: Option<u8>,
    /// Borrow up to this number of units of a key from the store, and decide without a call as long as a loan holds.
    #[arg(long, value_name = "UNITS")]
    lend: Option<u64>,
    /// Admit this number of units of a key before the store has heard of it.
    #[arg(long, value_name = "UNITS", default_value_t = 0, requires = "lend")]
    grace: u64,
}

impl Store {
    pub(crate) async fn open(self, test_mode: bool) -> Result<Arc<dyn ErasedLimiter>, Error> {
        let store = self.connect(test_mode).await?;
        let Some(percent) = self.fallback else { return Ok(store) };
        let fallback = Fallback::new(store, percent)?.backup(memory(test_mode))?;
        // Virtual time stands still, so no pause would end.
        Ok(Arc::new(if test_mode { fallback.breaker(1, Millis::ZERO) } else { fallback }))
    }

    async fn connect(&self, test_mode: bool) -> Result<Arc<dyn ErasedLimiter>, Error> {
        let config = match (self.store, self.url.as_slice()) {
            (StoreName::UpstashRest, [url]) => return self.rest(url, test_mode).await,
            (StoreName::Redis, [url]) => Config::new(url),
            (StoreName::RedisCluster, [_, ..]) => Config::cluster(&self.url),
            _ => return Err(Error::new(ErrorKind::Invalid, "no store address; add --url redis://127.0.0.1:6379")),
        };
        let test = |config: Config| config.clock(Clock::Caller).min_ttl(TEST_TTL_MIN).deadline(self.test_deadline());
        let redis = Redis::new(if test_mode { test(config) } else { config })?;
        redis.ping().await?;
        self.limiter(redis)
    }

    async fn rest(&self, url: &str, test_mode: bool) -> Result<Arc<dyn ErasedLimiter>, Error> {
        let token = self.token.clone().or_else(|| std::env::var("UPSTASH_REDIS_REST_TOKEN").ok());
        let config = RestConfig::new(url, token.unwrap_or_default());
        let test = |config: RestConfig| {
            let config = config.clock(Clock::Caller).min_ttl(TEST_TTL_MIN).deadline(self.test_deadline());
            // Tests use the script that Upstash gets.
            config.key_locking(true)
        };
        let rest = Rest::new(if test_mode { test(config) } else { config })?;
        rest.ping().await?;
        self.limiter(rest)
    }

    const fn test_deadline(&self) -> Millis {
        if self.fallback.is_some() { FALLBACK_DEADLINE } else { TEST_DEADLINE }
    }

    /// A limiter that borrows as many units as the command line says, or one that does not borrow.
    fn limiter(&self, store: impl Atomic + 'static) -> Result<Arc<dyn ErasedLimiter>, Error> {
        let limiter = AtomicLimiter::new(store);
        Ok(match self.lend {
            Some(slice) if self.grace == 0 => Arc::new(LendingLimiter::new(limiter, Lease::new(slice, LIFETIME))?),
            Some(slice) => {
                let lease = Lease { in_background: true, grace: self.grace, ..Lease::new(slice, LIFETIME) };
                Arc::new(Telling(LendingLimiter::new(limiter, lease)?))
            }
            None => Arc::new(limiter),
        })
    }
}

/// Tells the store what was admitted by grace when the request ends: virtual time stands still, so no pause would end.
#[derive(Debug)]
struct Telling<L>(LendingLimiter<'static, L>);

impl<L: Limiter + 'static> Limiter for Telling<L> {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    async fn apply(&self, operation: Operation<'_>) -> Result<Reply, Error> {
        let reply = self.0.apply(operation).await;
        self.0.after(|| operation.now(), ready(())).await;
        reply
    }
}
