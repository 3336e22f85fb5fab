//! The limiters, each from its binding.

use std::num::NonZero;
use std::sync::OnceLock;

use tollgate_cloudflare_do::{DurableObjects, DurableObjectsLimiter, Leases};
use tollgate_cloudflare_kv::{Isolate, KvLimiter, WorkersKv};
use tollgate_cloudflare_ratelimit::{RateLimit, RateLimitLimiter};
use tollgate_core::{
    Capabilities, Check, Decision, Error, ErrorKind, Key, Limiter, Millis, Policy, Refund, UnixMillis,
};
use worker::{Context, Env, ObjectNamespace, RateLimiter};

use crate::in_test_mode;
use crate::virtual_time::Timed;

/// In test mode a state lives at least this long by the platform's clock, for virtual time stands still meanwhile.
const TEST_TTL_MIN: Millis = Millis::from_secs(3_600);

/// In test mode thousands of calls are under way at once on a machine that runs their clients too.
const TEST_DEADLINE: Millis = Millis::from_secs(25);

pub(crate) fn durable_objects(env: &Env) -> Result<DurableObjectsLimiter<ObjectNamespace>, Error> {
    objects(env).map(DurableObjects::limiter)
}

fn objects(env: &Env) -> Result<DurableObjects<ObjectNamespace>, Error> {
    let namespace = env.durable_object("TOLLGATE").map_err(|error| no_binding(&error))?;
    let config = tollgate_cloudflare_do::Config::default();
    let config = if in_test_mode(env) { config.min_ttl(TEST_TTL_MIN).deadline(TEST_DEADLINE) } else { config };
    Ok(DurableObjects::with_config(namespace, config))
}

/// What this isolate has leased: of each key up to 10 at a time, for up to 2 s.
static LEASES: OnceLock<Leases<ObjectNamespace>> = OnceLock::new();

pub(crate) fn leases(env: &Env) -> Result<&'static Leases<ObjectNamespace>, Error> {
    if let Some(leases) = LEASES.get() {
        return Ok(leases);
    }
    const SLICE: NonZero<u64> = NonZero::new(10).expect("10 is not 0");
    let leases = Leases::new(objects(env)?, SLICE, Millis::from_secs(2))?;
    Ok(LEASES.get_or_init(|| leases))
}

/// What this isolate counted. It must outlive the request: it is what the bound rests on.
static ISOLATE: OnceLock<Isolate> = OnceLock::new();

pub(crate) fn kv<'a>(env: &Env, context: &'a Context) -> Result<Kv<'a>, Error> {
    let isolate = ISOLATE.get_or_init(|| Isolate::random(tollgate_cloudflare_kv::Config::default()));
    Ok(Kv { isolate, namespace: WorkersKv::from_env(env, "COUNTS")?, context, test_mode: in_test_mode(env) })
}

/// What this isolate did with Workers KV, and what it met there.
pub(crate) fn kv_stats() -> String {
    ISOLATE.get().map_or_else(|| "nothing yet".into(), |isolate| format!("{:?}", isolate.stats()))
}

/// Workers KV, written to after the response.
pub(crate) struct Kv<'a> {
    isolate: &'static Isolate,
    namespace: WorkersKv,
    context: &'a Context,
    test_mode: bool,
}

impl Kv<'_> {
    fn at(&self, now: UnixMillis) -> KvLimiter<'static, Timed> {
        KvLimiter::new(self.isolate, Timed { kv: self.namespace.clone(), now: self.test_mode.then_some(now) })
    }
}

impl Limiter for Kv<'_> {
    fn capabilities(&self) -> Capabilities {
        tollgate_cloudflare_kv::CAPABILITIES
    }

    async fn check(&self, check: Check<'_>) -> Result<Decision, Error> {
        let limiter = self.at(check.now);
        let decision = limiter.check(check).await;
        if self.test_mode {
            // Virtual time does not pass while it waits for the next write, and the next step must find this one's.
            limiter.flush(check.now).await;
        } else {
            self.context.wait_until(limiter.write_back(check.now));
        }
        decision
    }

    async fn peek(&self, check: Check<'_>) -> Result<Decision, Error> {
        self.at(check.now).peek(check).await
    }

    async fn refund(&self, refund: Refund<'_>) -> Result<(), Error> {
        self.at(refund.now).refund(refund).await
    }

    async fn reset(&self, policy: &Policy, key: &Key) -> Result<(), Error> {
        self.at(UnixMillis::default()).reset(policy, key).await
    }
}

/// The Rate Limiting binding. It has one limit, so an app that has several policies has a binding for each: here
/// `LIMITER_100_60` is 100 in 60 s.
pub(crate) struct RateLimits<'a> {
    pub(crate) env: &'a Env,
}

impl RateLimits<'_> {
    fn of(&self, policy: &Policy) -> Result<RateLimitLimiter<RateLimiter>, Error> {
        let rule = policy.quotas()[0].rule();
        let (limit, period) = (rule.limit(), rule.window());
        RateLimit::from_env(self.env, &format!("LIMITER_{limit}_{}", period.get() / 1_000), limit, period)
            .map(RateLimit::limiter)
            .map_err(|error| Error::new(ErrorKind::Unsupported, error.to_string()))
    }
}

impl Limiter for RateLimits<'_> {
    fn capabilities(&self) -> Capabilities {
        tollgate_cloudflare_ratelimit::CAPABILITIES
    }

    async fn check(&self, check: Check<'_>) -> Result<Decision, Error> {
        self.capabilities().supports(&check)?;
        self.of(check.policy)?.check(check).await
    }

    async fn peek(&self, check: Check<'_>) -> Result<Decision, Error> {
        self.of(check.policy)?.peek(check).await
    }

    async fn refund(&self, refund: Refund<'_>) -> Result<(), Error> {
        self.of(refund.policy)?.refund(refund).await
    }

    async fn reset(&self, policy: &Policy, key: &Key) -> Result<(), Error> {
        self.of(policy)?.reset(policy, key).await
    }
}

fn no_binding(error: &worker::Error) -> Error {
    Error::new(ErrorKind::Invalid, format!("{error}; is it in wrangler.jsonc?"))
}
