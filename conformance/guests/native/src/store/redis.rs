//! Opens Redis, a cluster of it, or Upstash.

use std::sync::Arc;

use tidegate_core::lending::Terms;
use tidegate_core::store::{Atomic, AtomicLimiter, LendingLimiter};
use tidegate_core::{ErasedLimiter, Error, ErrorKind, Millis};
use tidegate_redis::{Clock, Config, Redis, Rest, RestConfig};

use super::{Opening, StoreName};

/// The shortest lifetime of a row in test mode. The store's clock advances while the virtual time stands still.
const TEST_TTL_MIN: Millis = Millis::from_secs(3_600);

/// The deadline of a call in test mode, in which thousands of calls are in flight on the machine that also runs the
/// clients.
const TEST_DEADLINE: Millis = Millis::from_secs(10);

/// The same with a fallback, which must not wait for a store that hangs for a second.
const FALLBACK_DEADLINE: Millis = Millis::new(500);

/// The longest life of a loan.
const LIFETIME: Millis = Millis::from_secs(2);

pub(super) async fn open(opening: &Opening<'_>) -> Result<Arc<dyn ErasedLimiter>, Error> {
    let deadline = if opening.fallback.is_some() { FALLBACK_DEADLINE } else { TEST_DEADLINE };
    let config = match (opening.name, opening.urls) {
        (StoreName::UpstashRest, [url]) => {
            let token = opening.token.clone().unwrap_or_default();
            return rest(RestConfig::new(url, token), opening, deadline).await;
        }
        (StoreName::Redis, [url]) => Config::new(url),
        (StoreName::RedisCluster, [_, ..]) => Config::cluster(opening.urls),
        _ => return Err(Error::new(ErrorKind::Invalid, "no store address; add --url redis://127.0.0.1:6379")),
    };
    let test = |config: Config| config.clock(Clock::Caller).min_ttl(TEST_TTL_MIN).deadline(deadline);
    let redis = Redis::new(if opening.test_mode { test(config) } else { config })?;
    redis.ping().await?;
    limiter(redis, opening.lend)
}

/// A limiter that borrows up to so many units of a key, or one that does not borrow.
fn limiter(store: impl Atomic + 'static, lend: Option<u64>) -> Result<Arc<dyn ErasedLimiter>, Error> {
    let limiter = AtomicLimiter::new(store);
    Ok(match lend {
        Some(slice) => Arc::new(LendingLimiter::new(limiter, Terms::new(slice, LIFETIME))?),
        None => Arc::new(limiter),
    })
}

async fn rest(config: RestConfig, opening: &Opening<'_>, deadline: Millis) -> Result<Arc<dyn ErasedLimiter>, Error> {
    // Tests use the script that Upstash gets.
    let test =
        |config: RestConfig| config.clock(Clock::Caller).min_ttl(TEST_TTL_MIN).deadline(deadline).key_locking(true);
    let rest = Rest::new(if opening.test_mode { test(config) } else { config })?;
    rest.ping().await?;
    limiter(rest, opening.lend)
}
