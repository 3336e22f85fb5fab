//! The designs that are compared.

use std::num::NonZero;

use tidegate_core::lending::{Lease, can_lend};
use tidegate_core::{Capabilities, Error, Limiter as _, Load, Millis, Policy, Quota, Rule};

use super::environment::HOME;
use super::isolate::Fleet;
use super::model::Model;
use super::stores::PlaceCounts;
use super::world::World;

/// A way to count, with its parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Design {
    /// The designs with this name are one curve.
    pub name: &'static str,
    /// Who has it: an adapter of Tidegate, or what is often recommended.
    pub about: &'static str,
    /// What distinguishes it from the others of its name, such as `slice 10`. Empty if there is one.
    pub parameter: String,
    /// The platform whose prices apply, as in `prices.json`.
    pub provider: Option<&'static str>,
    /// How it decides.
    pub model: Model,
}

/// The lease that `tidegate choose` prints.
const SLICE: u64 = 50;
const LIFETIME: Millis = Millis::from_secs(60);

/// The designs. With a grace, those that lend are among them with and without it.
#[must_use]
pub fn designs(grace: u64) -> Vec<Design> {
    let (cloudflare, upstash) = (Some("cloudflare"), Some("upstash"));
    let mut all = Vec::new();
    let mut add =
        |name, about, parameter, provider, model| all.push(Design { name, about, parameter, provider, model });
    for (name, about, provider, model) in [
        ("durable-object", "tidegate-cloudflare, one object for each key", cloudflare, Model::Objects),
        ("durable-object-deny-cache", "the same, with a DenyCache in each isolate", cloudflare, Model::DenyCache),
        ("memory", "tidegate-core, a MemoryLimiter in each process", None, Model::PerProcess),
        ("redis", "tidegate-redis, one server at the first place", None, Model::Exact),
        ("redis-deny-cache", "the same, with a DenyCache in each process", None, Model::ExactDenyCache),
        ("upstash", "tidegate-redis over REST, one database at the first place", upstash, Model::Exact),
        ("upstash-deny-cache", "the same, with a DenyCache in each isolate", upstash, Model::ExactDenyCache),
        (
            "upstash-fallback",
            "on Upstash, and a tenth of the limit in each isolate while it does not answer",
            upstash,
            Model::Fallback(10),
        ),
        ("fastly-kv", "tidegate-fastly on the KV Store", None, Model::FastlyKv),
        ("akamai-kv", "tidegate-spin on the key-value store of Akamai Functions", None, Model::SpinKv),
        ("rate-limit-binding", "tidegate-cloudflare, a count at each place", cloudflare, Model::Binding),
        ("per-location", "an exact store at each place, without the others", None, Model::PerPlace),
        ("kv-counter", "a counter in Workers KV, as in tutorials", cloudflare, Model::NaiveKv),
    ] {
        add(name, about, String::new(), provider, model);
    }
    let of_objects: fn(Lease) -> Model = Model::Leases;
    let of_server: fn(Lease) -> Model = Model::ExactLeases;
    let over_rest: fn(Lease) -> Model = Model::RestLeases;
    let about = "tidegate-cloudflare, objects with leases";
    let leased = [
        ("durable-object-leased", "durable-object-leased-grace", about, cloudflare, of_objects),
        (
            "redis-leased",
            "redis-leased-grace",
            "tidegate-redis, one server at the first place that lends",
            None,
            of_server,
        ),
        ("upstash-leased", "upstash-leased-grace", "the same over REST", upstash, over_rest),
    ];
    for (name, with_grace, about, provider, model) in leased {
        for slice in [1, 2, 5, 10, 20, SLICE] {
            add(name, about, format!("slice {slice}"), provider, model(Lease::new(slice, LIFETIME)));
        }
        if grace > 0 {
            let about = "the same, where an isolate admits a key's first units before it asks";
            let lease = Lease { grace, in_background: true, ..Lease::new(SLICE, LIFETIME) };
            add(with_grace, about, format!("of {grace}"), provider, model(lease));
            let shards = [1, 4, 16].into_iter().filter(|_| name == "durable-object-leased").filter_map(NonZero::new);
            for shards in shards {
                let about = "the same with so many objects for all clients: what an isolate has to tell one of them is one request";
                add(with_grace, about, format!("shards {shards}"), provider, Model::ShardedLeases(lease, shards));
            }
        }
    }
    for seconds in [1, 5, 30] {
        let about = "tidegate-cloudflare, counts in each isolate and in Workers KV";
        add("workers-kv", about, format!("refresh {seconds} s"), cloudflare, Model::WorkersKv(seconds));
    }
    for ms in [10, 100, 1_000, 10_000] {
        let about = "counts in each isolate, synchronized through a server at the first place";
        add("synchronized", about, format!("every {ms} ms"), None, Model::Synchronized(ms));
    }
    all
}

impl Design {
    /// Whether its parameter is the adapter's own default, or there is none.
    #[must_use]
    pub fn is_default(&self) -> bool {
        match (self.lease(), self.model) {
            (_, Model::Synchronized(_) | Model::ShardedLeases(..)) => false,
            (Some(lease), _) => lease.slice == SLICE,
            (None, Model::WorkersKv(seconds)) => seconds == 1,
            _ => true,
        }
    }

    /// The lease of an isolate, if it borrows.
    #[must_use]
    pub const fn lease(&self) -> Option<Lease> {
        match self.model {
            Model::Leases(lease)
            | Model::ShardedLeases(lease, _)
            | Model::ExactLeases(lease)
            | Model::RestLeases(lease) => Some(lease),
            _ => None,
        }
    }

    /// Whether it never admits more than the limit with so many isolates, as its adapter declares.
    #[must_use]
    pub fn is_strict(&self, isolates: usize) -> bool {
        if self.model == Model::PerProcess && isolates > 1 {
            return false;
        }
        let busy = Load { limit: 100, quota: 100, in_flight: 1_000, locations: 10 };
        self.capabilities().is_ok_and(|can| can.accuracy.ceiling(busy) <= busy.limit)
    }

    fn capabilities(&self) -> Result<Capabilities, Error> {
        Ok(Fleet::emulated(&World::default(), self.model, 1, 0).isolate(HOME)?.limiter.capabilities())
    }

    /// Why this design cannot count by the policy, if so.
    ///
    /// # Errors
    /// The reason.
    pub fn takes(&self, policy: &Policy) -> Result<(), String> {
        let is_rate = |quota: &Quota| !matches!(quota.rule(), Rule::Penalty(_) | Rule::Balance(_));
        if policy.has_slots() || !policy.quotas().iter().all(is_rate) {
            return Err("a simulation is of rates, and not of concurrency limits, penalties or balances".into());
        }
        if policy.dimensions().len() > 1 {
            return Err("a simulated client has one key".into());
        }
        self.capabilities().and_then(|can| can.supports_policy(policy)).map_err(|error| error.to_string())?;
        match self.model {
            _ if self.lease().is_some() && !can_lend(policy) => {
                Err("it leases windows of counters and token buckets, and asks the store otherwise".into())
            }
            Model::Binding if !PlaceCounts::offers(policy.quotas()[0].rule().window()) => {
                Err("its periods are 10 and 60 s".into())
            }
            _ => Ok(()),
        }
    }
}
