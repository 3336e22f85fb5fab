//! The limiters, and what they claim.

use tidegate_harness::target::ALL;
use tidegate_harness::target::peer::{Host, Over};

use super::{Peer, Place, Windows};

const WINDOWS: &[&str] = &["fixed_window"];
const BUCKETS: &[&str] = &["token_bucket"];
const NO_CLAIM: &str = "None. conformance/peers/naive.mjs";
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

/// A limiter of another project, as most are: in memory, with windows that begin with the first request.
const fn other(name: &'static str, claim: &'static str, host: Host) -> Peer {
    Peer {
        name,
        store: "memory",
        algorithms: WINDOWS,
        claim,
        windows: Windows::FirstRequest,
        costs: false,
        refills_in_batches: false,
        on_virtual_time: true,
        place: Place::Peer(host),
    }
}

const fn node(package: &'static str, over: Over, claim: &'static str) -> Peer {
    other(package, claim, Host::Node { package, over })
}

const fn native(package: &'static str, claim: &'static str) -> Peer {
    Peer { costs: true, ..other(package, claim, Host::Native { package }) }
}

const OTHERS: &[Peer] = &[
    Peer {
        store: "Upstash over REST",
        algorithms: WINDOWS_AND_BUCKETS,
        windows: Windows::Aligned,
        costs: true,
        refills_in_batches: true,
        ..node(
            "@upstash/ratelimit",
            Over::Rest,
            "At most the limit in a window; the sliding window is an approximation. \
             https://upstash.com/docs/redis/sdks/ratelimit-ts/algorithms",
        )
    },
    Peer {
        store: "Redis",
        windows: Windows::RedisKey,
        costs: true,
        ..node(
            "rate-limiter-flexible",
            Over::Redis,
            "Atomic increments; a window begins with the first request. \
             https://github.com/animir/node-rate-limiter-flexible",
        )
    },
    Peer {
        store: "PostgreSQL",
        costs: true,
        ..node(
            "rate-limiter-flexible",
            Over::Postgres,
            "Atomic increments; a window begins with the first request. \
             https://github.com/animir/node-rate-limiter-flexible/wiki/PostgreSQL",
        )
    },
    Peer {
        costs: true,
        ..node(
            "rate-limiter-flexible",
            Over::Memory,
            "A window begins with the first request. https://github.com/animir/node-rate-limiter-flexible",
        )
    },
    Peer {
        store: "rate-limit-redis",
        ..node(
            "express-rate-limit",
            Over::Redis,
            "At most `limit` requests of a client in each window. https://express-rate-limit.mintlify.app/reference/stores",
        )
    },
    node(
        "express-rate-limit",
        Over::Memory,
        "At most `limit` requests of a client in each window. \
         https://express-rate-limit.mintlify.app/reference/configuration",
    ),
    node(
        "hono-rate-limiter",
        Over::Memory,
        "At most `limit` requests of a client in each window. https://github.com/rhinobase/hono-rate-limiter",
    ),
    node(
        "@joint-ops/hitlimit",
        Over::Memory,
        "\"max requests per window\". https://www.npmjs.com/package/@joint-ops/hitlimit",
    ),
    Peer {
        algorithms: BUCKETS,
        windows: Windows::Aligned,
        ..native(
            "governor",
            "GCRA, \"exactly the same\" as a leaky bucket. https://docs.rs/governor/0.10.4/governor/_guide/",
        )
    },
    Peer {
        algorithms: BUCKETS,
        windows: Windows::Aligned,
        ..native("throttlecrab", "GCRA with a burst and a rate. https://docs.rs/throttlecrab/0.4.40/throttlecrab/")
    },
    Peer {
        algorithms: WINDOWS_AND_BUCKETS,
        windows: Windows::Aligned,
        ..native(
            "rate-net",
            "\"Never over-admits\": at most `limit` in an aligned window, and `burst + rate x elapsed` of a bucket; the sliding window is an \
             approximation. https://docs.rs/rate-net/2.1.0/rate_net/",
        )
    },
    Peer {
        on_virtual_time: false,
        ..native(
            "limitador",
            "\"When storing the counters in memory, Limitador guarantees that we'll never go over the limits defined.\" \
             https://docs.rs/limitador/0.14.0/limitador/",
        )
    },
    Peer {
        store: "Workers KV",
        windows: Windows::Aligned,
        ..other("a counter as in tutorials", NO_CLAIM, Host::Workerd { store: "kv" })
    },
    Peer {
        store: "a Durable Object",
        ..other("a counter as in tutorials", NO_CLAIM, Host::Workerd { store: "objects" })
    },
];
