//! The limiters, and what they claim.

use tidegate_conformance::target::ALL;
use tidegate_conformance::target::peer::{Host, Over};

use super::{Peer, Place, Windows};

const WINDOWS: &[&str] = &["fixed_window"];
const BUCKETS: &[&str] = &["token_bucket"];
const WINDOWS_AND_BUCKETS: &[&str] = &["fixed_window", "sliding_window", "token_bucket"];

/// Returns all limiters: Tidegate's, so that they are held to the same standard, and those of others.
#[must_use]
pub fn all() -> Vec<Peer> {
    let ours = [("tidegate-core", "memory", "memory"), ("tidegate-redis", "Redis", "redis")];
    let ours = ours.into_iter().filter_map(|(name, store, target)| {
        let target = ALL.iter().find(|one| one.name() == target)?;
        Some(Peer {
            name,
            store,
            algorithms: WINDOWS_AND_BUCKETS,
            claim: "Exactly the limit is admitted, and a denial charges nothing. core/docs/costs.md",
            windows: Windows::Aligned,
            costs: true,
            refills_in_batches: false,
            on_virtual_time: true,
            place: Place::Target(*target),
        })
    });
    ours.chain(OTHERS.iter().copied()).collect()
}

const OTHERS: &[Peer] = &[
    Peer {
        name: "@upstash/ratelimit",
        store: "Upstash over REST",
        algorithms: WINDOWS_AND_BUCKETS,
        claim: "At most the limit in a window; the sliding window is an approximation. \
                https://upstash.com/docs/redis/sdks/ratelimit-ts/algorithms",
        windows: Windows::Aligned,
        costs: true,
        refills_in_batches: true,
        on_virtual_time: true,
        place: Place::Peer(Host::Node { package: "@upstash/ratelimit", over: Over::Rest }),
    },
    Peer {
        name: "rate-limiter-flexible",
        store: "Redis",
        algorithms: WINDOWS,
        claim: "Atomic increments; a window begins with the first request. \
                https://github.com/animir/node-rate-limiter-flexible",
        windows: Windows::RedisKey,
        costs: true,
        refills_in_batches: false,
        on_virtual_time: true,
        place: Place::Peer(Host::Node { package: "rate-limiter-flexible", over: Over::Redis }),
    },
    Peer {
        name: "rate-limiter-flexible",
        store: "memory",
        algorithms: WINDOWS,
        claim: "A window begins with the first request. https://github.com/animir/node-rate-limiter-flexible",
        windows: Windows::FirstRequest,
        costs: true,
        refills_in_batches: false,
        on_virtual_time: true,
        place: Place::Peer(Host::Node { package: "rate-limiter-flexible", over: Over::Memory }),
    },
    Peer {
        name: "express-rate-limit",
        store: "rate-limit-redis",
        algorithms: WINDOWS,
        claim: "At most `limit` requests of a client in each window. https://express-rate-limit.mintlify.app/reference/stores",
        windows: Windows::FirstRequest,
        costs: false,
        refills_in_batches: false,
        on_virtual_time: true,
        place: Place::Peer(Host::Node { package: "express-rate-limit", over: Over::Redis }),
    },
    Peer {
        name: "express-rate-limit",
        store: "memory",
        algorithms: WINDOWS,
        claim: "At most `limit` requests of a client in each window. \
                https://express-rate-limit.mintlify.app/reference/configuration",
        windows: Windows::FirstRequest,
        costs: false,
        refills_in_batches: false,
        on_virtual_time: true,
        place: Place::Peer(Host::Node { package: "express-rate-limit", over: Over::Memory }),
    },
    Peer {
        name: "hono-rate-limiter",
        store: "memory",
        algorithms: WINDOWS,
        claim: "At most `limit` requests of a client in each window. https://github.com/rhinobase/hono-rate-limiter",
        windows: Windows::FirstRequest,
        costs: false,
        refills_in_batches: false,
        on_virtual_time: true,
        place: Place::Peer(Host::Node { package: "hono-rate-limiter", over: Over::Memory }),
    },
    Peer {
        name: "governor",
        store: "memory",
        algorithms: BUCKETS,
        claim: "GCRA, \"exactly the same\" as a leaky bucket. https://docs.rs/governor/0.10.4/governor/_guide/",
        windows: Windows::Aligned,
        costs: true,
        refills_in_batches: false,
        on_virtual_time: true,
        place: Place::Peer(Host::Native { package: "governor" }),
    },
    Peer {
        name: "throttlecrab",
        store: "memory",
        algorithms: BUCKETS,
        claim: "GCRA with a burst and a rate. https://docs.rs/throttlecrab/0.4.40/throttlecrab/",
        windows: Windows::Aligned,
        costs: true,
        refills_in_batches: false,
        on_virtual_time: true,
        place: Place::Peer(Host::Native { package: "throttlecrab" }),
    },
    Peer {
        name: "limitador",
        store: "memory",
        algorithms: WINDOWS,
        claim: "\"When storing the counters in memory, Limitador guarantees that we'll never go over the limits defined.\" \
                https://docs.rs/limitador/0.14.0/limitador/",
        windows: Windows::FirstRequest,
        costs: true,
        refills_in_batches: false,
        on_virtual_time: false,
        place: Place::Peer(Host::Native { package: "limitador" }),
    },
    Peer {
        name: "a counter as in tutorials",
        store: "Workers KV",
        algorithms: WINDOWS,
        claim: "None. conformance/peers/naive.mjs",
        windows: Windows::Aligned,
        costs: false,
        refills_in_batches: false,
        on_virtual_time: true,
        place: Place::Peer(Host::Workerd { store: "kv" }),
    },
    Peer {
        name: "a counter as in tutorials",
        store: "a Durable Object",
        algorithms: WINDOWS,
        claim: "None. conformance/peers/naive.mjs",
        windows: Windows::FirstRequest,
        costs: false,
        refills_in_batches: false,
        on_virtual_time: true,
        place: Place::Peer(Host::Workerd { store: "objects" }),
    },
];
