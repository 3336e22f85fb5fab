//! How each peer is used, as its own documentation shows.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use clock_lib::ManualClock;
use governor::clock::Clock;
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::keyed::DashMapStateStore;
use limitador::limit::{Context, Limit};
use rate_net::{Algorithm, Decision};
use tidegate_core::{Quota, Rule};

use crate::{Make, bucket};

/// What a peer answers.
pub(crate) enum Said {
    /// The request is admitted.
    Allowed,
    /// The request is denied. How long the peer tells the client to wait, if it does.
    Denied(Option<Duration>),
    /// The request can never be admitted.
    Never,
}

/// A peer's limiter of one quota.
pub(crate) trait Limiter: Send + Sync {
    fn check(&self, key: &str, cost: u64, now_ms: u64) -> Result<Said, String>;
}

/// Returns what makes a peer's limiters.
pub(crate) fn maker(name: &str) -> Option<Make> {
    match name {
        "governor" => Some(|quota| Ok(Box::new(Governor::new(quota)?))),
        "limitador" => Some(|quota| Ok(Box::new(Limitador::new(quota)))),
        "rate-net" => Some(|quota| Ok(Box::new(RateNet::new(quota)?))),
        "throttlecrab" => Some(|quota| Ok(Box::new(Throttlecrab::new(quota)?))),
        _ => None,
    }
}

fn small<T: TryFrom<u64>>(number: u64) -> Result<T, String> {
    T::try_from(number).map_err(|_| format!("{number} is too large"))
}

/// The virtual time in nanoseconds.
#[derive(Clone, Default)]
struct Virtual(Arc<AtomicU64>);

impl Clock for Virtual {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        Nanos::from(self.0.load(Ordering::SeqCst))
    }
}

struct Governor {
    limiter: Mutex<Option<Arc<Keyed>>>,
    quota: governor::Quota,
    clock: Virtual,
}

type Keyed = governor::RateLimiter<String, DashMapStateStore<String>, Virtual, NoOpMiddleware<Nanos>>;

impl Governor {
    fn new(quota: &Quota) -> Result<Self, String> {
        let (capacity, refill, per_ms) = bucket(quota)?;
        let period = Duration::from_nanos(per_ms * 1_000_000 / refill);
        let burst = NonZeroU32::new(small(capacity)?).ok_or("no capacity")?;
        let quota = governor::Quota::with_period(period).ok_or("no period")?.allow_burst(burst);
        Ok(Self { limiter: Mutex::default(), quota, clock: Virtual::default() })
    }
}

impl Limiter for Governor {
    fn check(&self, key: &str, cost: u64, now_ms: u64) -> Result<Said, String> {
        let limiter = {
            self.clock.0.store(now_ms * 1_000_000, Ordering::SeqCst);
            let mut limiter = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
            // A limiter's time begins when it is made.
            let limiter = limiter.get_or_insert_with(|| {
                Arc::new(governor::RateLimiter::new(self.quota, DashMapStateStore::default(), self.clock.clone()))
            });
            Arc::clone(limiter)
        };
        let cost = NonZeroU32::new(small(cost)?).ok_or("no cost")?;
        Ok(match limiter.check_key_n(&key.to_string(), cost) {
            Ok(Ok(())) => Said::Allowed,
            Ok(Err(denied)) => Said::Denied(Some(denied.wait_time_from(self.clock.now()))),
            Err(_) => Said::Never,
        })
    }
}

/// A limiter that reads the wall clock.
struct Limitador(limitador::RateLimiter);

const NAMESPACE: &str = "api";

impl Limitador {
    fn new(quota: &Quota) -> Self {
        let limiter = limitador::RateLimiter::new(10_000);
        let (limit, window_s) = (quota.rule().limit(), quota.rule().window().as_secs_ceil());
        limiter.add_limit(Limit::new(
            NAMESPACE,
            limit,
            window_s,
            [],
            ["user_id".try_into().ok()].into_iter().flatten(),
        ));
        Self(limiter)
    }
}

impl Limiter for Limitador {
    fn check(&self, key: &str, cost: u64, _: u64) -> Result<Said, String> {
        let context = Context::from(HashMap::from([("user_id".to_string(), key.to_string())]));
        let checked = self.0.check_rate_limited_and_update(&NAMESPACE.into(), &context, cost);
        let checked = checked.map_err(|error| error.to_string())?;
        let wait = checked.counters.first().and_then(|counter| counter.expires_in());
        Ok(if checked.limited { Said::Denied(wait) } else { Said::Allowed })
    }
}

struct RateNet {
    limiter: rate_net::RateLimiter<Arc<ManualClock>>,
    clock: Arc<ManualClock>,
}

impl RateNet {
    fn new(quota: &Quota) -> Result<Self, String> {
        let rule = quota.rule();
        // Its windows begin at multiples of their length since the limiter was made. This clock begins with the epoch.
        let clock = Arc::new(ManualClock::new());
        let builder = rate_net::RateLimiter::builder().clock(Arc::clone(&clock));
        let builder = match rule {
            Rule::FixedWindow(_) => builder.algorithm(Algorithm::FixedWindow),
            Rule::SlidingWindow(_) => builder.algorithm(Algorithm::SlidingWindowCounter),
            _ => builder,
        };
        let builder = match rule {
            Rule::TokenBucket(rule) => {
                let period = Duration::from_millis(rule.per().get());
                builder.quota(small(rule.refill())?, period).burst(small(rule.capacity())?)
            }
            _ => builder.quota(small(rule.limit())?, Duration::from_millis(rule.window().get())),
        };
        Ok(Self { limiter: builder.try_build().map_err(|error| error.to_string())?, clock })
    }
}

impl Limiter for RateNet {
    fn check(&self, key: &str, cost: u64, now_ms: u64) -> Result<Said, String> {
        self.clock.advance_to(Duration::from_millis(now_ms));
        Ok(match self.limiter.check_n(key, small(cost)?) {
            Decision::Allow => Said::Allowed,
            denied if denied.is_impossible() => Said::Never,
            denied => Said::Denied(denied.retry_after()),
        })
    }
}

struct Throttlecrab {
    limiter: Mutex<throttlecrab::RateLimiter<throttlecrab::AdaptiveStore>>,
    burst: i64,
    count: i64,
    period_s: i64,
}

impl Throttlecrab {
    fn new(quota: &Quota) -> Result<Self, String> {
        let (capacity, refill, per_ms) = bucket(quota)?;
        let limiter = Mutex::new(throttlecrab::RateLimiter::new(throttlecrab::AdaptiveStore::new()));
        Ok(Self { limiter, burst: small(capacity)?, count: small(refill)?, period_s: small(per_ms / 1_000)? })
    }
}

impl Limiter for Throttlecrab {
    fn check(&self, key: &str, cost: u64, now_ms: u64) -> Result<Said, String> {
        let mut limiter = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
        let now = SystemTime::UNIX_EPOCH + Duration::from_millis(now_ms);
        let asked = limiter.rate_limit(key, self.burst, self.count, self.period_s, small(cost)?, now);
        let (allowed, result) = asked.map_err(|error| error.to_string())?;
        Ok(if allowed { Said::Allowed } else { Said::Denied(Some(result.retry_after)) })
    }
}
