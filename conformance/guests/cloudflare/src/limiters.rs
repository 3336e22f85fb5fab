//! Creates the limiters from their bindings.

use tidegate_cloudflare::PerIsolate;
use tidegate_cloudflare::durable_objects::{Clock, DurableObjects, DurableObjectsLimiter, Jurisdiction, Leases};
use tidegate_cloudflare::kv::{Isolate, KvLimiter, Stats, WorkersKv};
use tidegate_cloudflare::rate_limit::RateLimit;
use tidegate_core::lending::Lease;
use tidegate_core::store::{Native, NativeLimiter};
use tidegate_core::{Capabilities, Check, Error, ErrorKind, Limiter, Millis, Operation, Policy, Reply, UnixMillis};
use worker::wasm_bindgen::{JsCast as _, JsValue};
use worker::{Context, Env, ObjectNamespace};

use crate::task;
use crate::{in_test_mode, policies};

/// The store that a path names. An app with one store does not need this.
pub(crate) enum Store<'a> {
    Objects(&'static DurableObjectsLimiter<ObjectNamespace>),
    Leases(&'static Leases<'static, ObjectNamespace>),
    #[cfg(feature = "suite")]
    Graced(crate::virtual_time::Telling),
    Kv(Kv<'a>),
    RateLimits(NativeLimiter<RateLimits<'a>>),
}

impl<'a> Store<'a> {
    pub(crate) fn named(name: &str, env: &'a Env, context: &'a Context) -> Option<Result<Self, Error>> {
        Some(match name {
            "do" => durable_objects(env).map(Self::Objects),
            "do-leased" => leases(env).map(Self::Leases),
            #[cfg(feature = "suite")]
            "do-leased-grace" => graced(env).map(crate::virtual_time::Telling).map(Self::Graced),
            "kv" => kv(env, context).map(Self::Kv),
            "ratelimit" => Ok(Self::RateLimits(NativeLimiter::new(RateLimits { env }))),
            _ => return None,
        })
    }

    pub(crate) fn policy(&self, env: &Env) -> Result<&'static Policy, Error> {
        match self {
            Self::RateLimits(_) => policies::per_location(),
            _ => policies::api(env),
        }
    }

    /// This isolate's operations on Workers KV and their errors.
    pub(crate) fn stats(&self) -> Option<String> {
        let Self::Kv(kv) = self else { return None };
        let Stats { keys, reads, reads_failed, corrupt, writes, writes_throttled, writes_failed, .. } =
            kv.isolate.stats();
        Some(format!(
            "keys: {keys}, reads: {reads}, reads_failed: {reads_failed}, corrupt: {corrupt}, writes: {writes}, \
             writes_throttled: {writes_throttled}, writes_failed: {writes_failed}\n"
        ))
    }
}

/// Calls a method of the limiter of a store.
macro_rules! of_each {
    ($store:expr, $limiter:ident => $call:expr) => {
        match $store {
            Store::Objects($limiter) => $call,
            Store::Leases($limiter) => $call,
            #[cfg(feature = "suite")]
            Store::Graced($limiter) => $call,
            Store::Kv($limiter) => $call,
            Store::RateLimits($limiter) => $call,
        }
    };
}

impl Limiter for Store<'_> {
    fn capabilities(&self) -> Capabilities {
        of_each!(self, limiter => limiter.capabilities())
    }

    async fn apply(&self, operation: Operation<'_>) -> Result<Reply, Error> {
        of_each!(self, limiter => limiter.apply(operation).await)
    }
}

/// The shortest lifetime of a state in test mode. States expire by the platform's clock, which advances while virtual
/// time stands still.
const TEST_TTL_MIN: Millis = Millis::from_secs(3_600);

/// The deadline in test mode, in which thousands of calls are in flight on a machine that also runs their clients.
const TEST_DEADLINE: Millis = Millis::from_secs(25);

fn durable_objects(env: &Env) -> Result<&'static DurableObjectsLimiter<ObjectNamespace>, Error> {
    static OBJECTS: PerIsolate<DurableObjectsLimiter<ObjectNamespace>> = PerIsolate::new();
    OBJECTS.get_or_make(|| objects(env).map(DurableObjects::limiter))
}

pub(crate) fn objects(env: &Env) -> Result<DurableObjects<ObjectNamespace>, Error> {
    let config = tidegate_cloudflare::durable_objects::Config::default();
    let config = match in_test_mode(env) {
        // The suite sends virtual time with each request. workerd has no jurisdictions, so this asks for one that objects are not in.
        true => {
            let config = config.clock(Clock::Caller).min_ttl(TEST_TTL_MIN).deadline(TEST_DEADLINE);
            config.jurisdiction(Jurisdiction::Eu)
        }
        false => config,
    };
    DurableObjects::from_env(env, "TIDEGATE", config)
}

/// The leases of this isolate: up to `SLICE` units of each key at a time, for up to `LEASE_MS` milliseconds.
fn leases(env: &Env) -> Result<&'static Leases<'static, ObjectNamespace>, Error> {
    static LEASES: PerIsolate<Leases<'static, ObjectNamespace>> = PerIsolate::new();
    LEASES.get_or_make(|| Leases::with_lease(objects(env)?, lease(env)?))
}

fn lease(env: &Env) -> Result<Lease, Error> {
    match policies::number(env, "SLICE")? {
        0 => Err(Error::new(ErrorKind::Invalid, "variable SLICE: 0 leases nothing; write at least 1")),
        slice => Ok(Lease::new(slice, Millis::new(policies::number(env, "LEASE_MS")?))),
    }
}

/// The same leases with a grace of one unit of each key.
#[cfg(feature = "suite")]
fn graced(env: &Env) -> Result<&'static Leases<'static, ObjectNamespace>, Error> {
    static LEASES: PerIsolate<Leases<'static, ObjectNamespace>> = PerIsolate::new();
    LEASES.get_or_make(|| Leases::with_lease(objects(env)?, Lease { in_background: true, grace: 1, ..lease(env)? }))
}

fn kv<'a>(env: &Env, context: &'a Context) -> Result<Kv<'a>, Error> {
    /// The counts of this isolate. They must outlive the request, because the bound depends on them.
    static ISOLATE: PerIsolate<Isolate> = PerIsolate::new();
    let isolate =
        ISOLATE.get_or_make(|| Ok::<_, Error>(Isolate::random(tidegate_cloudflare::kv::Config::default())))?;
    Ok(Kv {
        isolate,
        namespace: WorkersKv::from_env(env, "COUNTS")?,
        context,
        #[cfg(feature = "suite")]
        test_mode: in_test_mode(env),
        #[cfg(feature = "suite")]
        is_emulated: crate::suite::has_emulated_kv(env),
    })
}

/// A limiter on Workers KV that writes after the response.
pub(crate) struct Kv<'a> {
    isolate: &'static Isolate,
    namespace: WorkersKv,
    context: &'a Context,
    #[cfg(feature = "suite")]
    test_mode: bool,
    #[cfg(feature = "suite")]
    is_emulated: bool,
}

impl Kv<'_> {
    #[cfg(not(feature = "suite"))]
    fn at(&self, _: UnixMillis) -> KvLimiter<'static, WorkersKv> {
        KvLimiter::new(self.isolate, self.namespace.clone())
    }

    #[cfg(feature = "suite")]
    fn at(&self, now: UnixMillis) -> KvLimiter<'static, crate::virtual_time::Timed> {
        let kv = self.namespace.clone();
        KvLimiter::new(self.isolate, crate::virtual_time::Timed { kv, now: self.is_emulated.then_some(now) })
    }
}

impl Limiter for Kv<'_> {
    fn capabilities(&self) -> Capabilities {
        tidegate_cloudflare::kv::CAPABILITIES
    }

    async fn apply(&self, operation: Operation<'_>) -> Result<Reply, Error> {
        let now = operation.now();
        let limiter = self.at(now);
        let reply = limiter.apply(operation).await;
        if !matches!(operation, Operation::Check(_)) {
            return reply;
        }
        #[cfg(feature = "suite")]
        if self.test_mode {
            // Write now: virtual time does not advance until the next write is due, and the next step must find this
            // one.
            limiter.flush(now).await;
            return reply;
        }
        // `Context::wait_until` would create a promise even if the future is ready at once.
        let written = task::run(async move {
            limiter.write_back(now).await;
            JsValue::UNDEFINED
        });
        if !written.is_undefined() {
            let _ = self.context.as_ref().wait_until(written.unchecked_ref());
        }
        reply
    }
}

/// The Rate Limiting binding. A binding has one limit, so an app needs one for each policy. `LIMITER_100_60` allows 100
/// requests in 60 s.
pub(crate) struct RateLimits<'a> {
    pub(crate) env: &'a Env,
}

impl Native for RateLimits<'_> {
    fn capabilities(&self) -> Capabilities {
        tidegate_cloudflare::rate_limit::CAPABILITIES
    }

    async fn limit(&self, check: Check<'_>) -> Result<bool, Error> {
        let rule = check.policy.quotas()[0].rule();
        let (limit, period) = (rule.limit(), rule.window());
        let binding = format!("LIMITER_{limit}_{}", period.get() / 1_000);
        match RateLimit::from_env(self.env, &binding, limit, period) {
            Ok(binding) => binding.limit(check).await,
            Err(error) => Err(Error::new(ErrorKind::Unsupported, error.to_string())),
        }
    }
}
