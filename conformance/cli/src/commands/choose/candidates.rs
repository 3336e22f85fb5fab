//! The designs that `tidegate choose` knows, and how an application makes each.

use super::platform::Platform;

/// A design that an application can use, and where.
pub(super) struct Candidate {
    pub(super) design: &'static str,
    platforms: &'static [Platform],
    pub(super) rust: Option<Rust>,
    pub(super) javascript: Option<JavaScript>,
}

/// How to make the limiter in Rust. In its texts, what is in angle brackets is replaced.
pub(super) struct Rust {
    /// The commands that add the adapter with its features, as they work from a checkout. `cargo make released` changes them.
    pub(super) cargo: &'static str,
    /// The adapter's crate, which has what [every example imports](super::code).
    pub(super) adapter: &'static str,
    /// What is imported of the adapter besides that.
    pub(super) names: &'static [&'static str],
    /// What else is imported.
    pub(super) imports: &'static [&'static str],
    /// What an application has outside of functions.
    pub(super) item: &'static str,
    pub(super) parameters: &'static str,
    /// The type of the limiter.
    pub(super) returns: &'static str,
    /// The expression that makes the limiter, and the lines around it.
    pub(super) limiter: &'static str,
    pub(super) before: &'static str,
    pub(super) after: &'static str,
}

/// The same in JavaScript.
pub(super) struct JavaScript {
    /// The entry of the npm package.
    pub(super) entry: &'static str,
    /// What comes before the policy.
    pub(super) before: &'static str,
    /// The call that makes the limiter, with `<options>` where the common options go.
    pub(super) limiter: &'static str,
}

const OBJECTS: Rust = Rust {
    cargo: r#"cargo add tidegate-cloudflare --path "$TIDEGATE/adapters/cloudflare" --features durable-objects
cargo add worker@0.8"#,
    adapter: "tidegate_cloudflare",
    names: &[],
    imports: &["tidegate_cloudflare::durable_objects::{Config, DurableObjects}", "worker::Env"],
    item: "tidegate_cloudflare::durable_object!(Tidegate);",
    parameters: "env: &Env",
    returns: "impl Limiter",
    limiter: r#"DurableObjects::from_env(env, "TIDEGATE", Config::default())?.limiter()"#,
    before: "",
    after: "",
};

const REDIS: Rust = Rust {
    cargo: r#"cargo add tidegate-redis --path "$TIDEGATE/adapters/redis""#,
    adapter: "tidegate_redis",
    names: &["Config", "Redis"],
    imports: &[],
    item: "",
    parameters: "url: &str",
    returns: "impl Limiter",
    limiter: "Redis::new(Config::new(url))?.limiter()",
    before: "",
    after: "",
};

const UPSTASH: Rust = Rust {
    cargo: r#"cargo add tidegate-redis --path "$TIDEGATE/adapters/redis" --no-default-features --features rest"#,
    adapter: "tidegate_redis",
    names: &["Rest", "RestConfig"],
    imports: &[],
    item: "",
    parameters: "url: &str, token: &str",
    returns: "impl Limiter",
    limiter: "Rest::new(RestConfig::new(url, token))?.limiter()",
    before: "",
    after: "",
};

const UPSTASH_LEASED: Rust = Rust {
    names: &["Rest", "RestConfig", "Lease"],
    limiter: "Rest::new(RestConfig::new(url, token))?.lending(Lease::new(50, Millis::from_secs(60)))?",
    ..UPSTASH
};

const OBJECTS_GRACE: Rust = Rust {
    names: &["UnixMillis"],
    imports: &[
        "std::time::Duration",
        "tidegate_cloudflare::durable_objects::{Config, DurableObjects, Lease, Leases}",
        "worker::{Context, Date, Delay, Env, ObjectNamespace}",
    ],
    item: "tidegate_cloudflare::durable_object!(Tidegate);

/// Call it with each response, and keep the limiter in a `static`: the objects are told what was admitted before they were asked.
pub fn after(limiter: &'static Leases<'static, ObjectNamespace>, context: &Context) {
    let now = || UnixMillis::new(Date::now().as_millis());
    context.wait_until(limiter.after(now, Delay::from(Duration::from_millis(100))));
}",
    returns: "Leases<'static, ObjectNamespace>",
    limiter: r#"Leases::with_lease(DurableObjects::from_env(env, "TIDEGATE", Config::default())?, lease)?"#,
    before: LEASE,
    ..OBJECTS
};

/// A lease with a grace, in Rust.
const LEASE: &str =
    "    let lease = Lease { grace: <grace>, in_background: true, ..Lease::new(50, Millis::from_secs(60)) };\n";

/// Tells a store what was admitted by grace.
const TASK: &str = "    // In a runtime of tokio: the store is told what was admitted before it was asked.
    let told = Arc::downgrade(&limiter);
    tokio::spawn(async move {
        while let Some(limiter) = told.upgrade() {
            limiter.after(UnixMillis::now, ready(())).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
";

/// What the task needs.
const OF_THE_TASK: [&str; 3] = ["std::future::ready", "std::sync::Arc", "std::time::Duration"];

/// Of Durable Objects in JavaScript.
const OBJECT_CLASS: &str = "import { env } from \"cloudflare:workers\";
export { TidegateObject } from \"@tidegate/edge/cloudflare\";
";

const ENV: &str = "import { env } from \"cloudflare:workers\";\n";

const IOREDIS: &str = "import { Redis } from \"ioredis\";

const url = process.env.REDIS_URL ?? \"redis://127.0.0.1:6379\";
const client = new Redis(url, { enableOfflineQueue: false, autoResendUnfulfilledCommands: false, maxRetriesPerRequest: 0, socketTimeout: 5000 });
";

/// Hosts with environment variables. Cloudflare Workers have bindings.
const HOSTS: [Platform; 3] = [Platform::Vercel, Platform::Netlify, Platform::Server];

static CANDIDATES: [Candidate; 25] = [
    Candidate {
        design: "durable-object",
        platforms: &[Platform::Cloudflare],
        rust: Some(OBJECTS),
        javascript: Some(JavaScript {
            entry: "@tidegate/edge/cloudflare",
            before: OBJECT_CLASS,
            limiter: "new Tidegate({ namespace: env.TIDEGATE, <options> })",
        }),
    },
    Candidate {
        design: "durable-object-deny-cache",
        platforms: &[Platform::Cloudflare],
        rust: Some(Rust {
            names: &["DenyCache"],
            limiter: r#"DenyCache::new(DurableObjects::from_env(env, "TIDEGATE", Config::default())?.limiter())"#,
            ..OBJECTS
        }),
        javascript: Some(JavaScript {
            entry: "@tidegate/edge/cloudflare",
            before: OBJECT_CLASS,
            limiter: "new Tidegate({ namespace: env.TIDEGATE, denyCache: true, <options> })",
        }),
    },
    Candidate {
        design: "durable-object-leased",
        platforms: &[Platform::Cloudflare],
        rust: Some(Rust {
            imports: &[
                "std::num::NonZero",
                "tidegate_cloudflare::durable_objects::{Config, DurableObjects, Leases}",
                "worker::Env",
            ],
            limiter: "Leases::new(\n        DurableObjects::from_env(env, \"TIDEGATE\", Config::default())?,\n        \
                      const { NonZero::new(50).unwrap() },\n        Millis::from_secs(60),\n    )?",
            ..OBJECTS
        }),
        javascript: Some(JavaScript {
            entry: "@tidegate/edge/cloudflare",
            before: OBJECT_CLASS,
            limiter: "new Tidegate({ namespace: env.TIDEGATE, leases: true, <options> })",
        }),
    },
    Candidate {
        design: "durable-object-leased-grace",
        platforms: &[Platform::Cloudflare],
        rust: Some(OBJECTS_GRACE),
        javascript: Some(JavaScript {
            entry: "@tidegate/edge/cloudflare",
            before: OBJECT_CLASS,
            limiter: "new Tidegate({ namespace: env.TIDEGATE, leases: { grace: <grace> }, <options> })",
        }),
    },
    Candidate {
        design: "workers-kv",
        platforms: &[Platform::Cloudflare],
        rust: Some(Rust {
            cargo: r#"cargo add tidegate-cloudflare --path "$TIDEGATE/adapters/cloudflare" --features kv
cargo add worker@0.8"#,
            imports: &["tidegate_cloudflare::kv::{Config, SharedKv}", "worker::Env"],
            item: "",
            limiter: r#"SharedKv::from_env(env, "COUNTS", Config::default())?"#,
            ..OBJECTS
        }),
        javascript: Some(JavaScript {
            entry: "@tidegate/edge/cloudflare-kv",
            before: ENV,
            limiter: "new Tidegate({ namespace: env.COUNTS, <options> })",
        }),
    },
    Candidate {
        design: "rate-limit-binding",
        platforms: &[Platform::Cloudflare],
        rust: Some(Rust {
            cargo: r#"cargo add tidegate-cloudflare --path "$TIDEGATE/adapters/cloudflare" --features rate-limit
cargo add worker@0.8"#,
            imports: &["tidegate_cloudflare::rate_limit::RateLimit", "worker::Env"],
            item: "",
            limiter: r#"RateLimit::from_env(env, "LIMITER", <limit>, Millis::new(<window>))?.limiter()"#,
            ..OBJECTS
        }),
        javascript: Some(JavaScript {
            entry: "@tidegate/edge/cloudflare-ratelimit",
            before: ENV,
            limiter: "new Tidegate({ binding: env.LIMITER, <options> })",
        }),
    },
    Candidate {
        design: "upstash",
        platforms: &[Platform::Cloudflare],
        rust: None,
        javascript: Some(JavaScript {
            entry: "@tidegate/edge",
            before: ENV,
            limiter: "Tidegate.fromEnv({ platform: <platform>, <options> }, env)",
        }),
    },
    Candidate {
        design: "upstash-deny-cache",
        platforms: &[Platform::Cloudflare],
        rust: None,
        javascript: Some(JavaScript {
            entry: "@tidegate/edge",
            before: ENV,
            limiter: "Tidegate.fromEnv({ platform: <platform>, denyCache: true, <options> }, env)",
        }),
    },
    Candidate {
        design: "upstash-leased",
        platforms: &[Platform::Cloudflare],
        rust: None,
        javascript: Some(JavaScript {
            entry: "@tidegate/edge",
            before: "import { env, waitUntil } from \"cloudflare:workers\";\n",
            limiter: "Tidegate.fromEnv({ platform: <platform>, leases: true, waitUntil, <options> }, env)",
        }),
    },
    Candidate {
        design: "upstash-leased-grace",
        platforms: &[Platform::Cloudflare],
        rust: None,
        javascript: Some(JavaScript {
            entry: "@tidegate/edge",
            before: "import { env, waitUntil } from \"cloudflare:workers\";\n",
            limiter: "Tidegate.fromEnv({ platform: <platform>, leases: { grace: <grace> }, waitUntil, <options> }, env)",
        }),
    },
    Candidate {
        design: "upstash",
        platforms: &HOSTS,
        rust: Some(UPSTASH),
        javascript: Some(JavaScript {
            entry: "@tidegate/edge",
            before: "",
            limiter: "Tidegate.fromEnv({ platform: <platform>, <options> })",
        }),
    },
    Candidate {
        design: "upstash-deny-cache",
        platforms: &HOSTS,
        rust: Some(Rust {
            names: &["DenyCache", "Rest", "RestConfig"],
            limiter: "DenyCache::new(Rest::new(RestConfig::new(url, token))?.limiter())",
            ..UPSTASH
        }),
        javascript: Some(JavaScript {
            entry: "@tidegate/edge",
            before: "",
            limiter: "Tidegate.fromEnv({ platform: <platform>, denyCache: true, <options> })",
        }),
    },
    Candidate {
        design: "upstash-leased",
        platforms: &[Platform::Vercel],
        rust: Some(UPSTASH_LEASED),
        javascript: Some(JavaScript {
            entry: "@tidegate/edge",
            before: "\n// In the edge runtime, leases also need waitUntil, of @vercel/functions.",
            limiter: "Tidegate.fromEnv({ platform: <platform>, leases: true, <options> })",
        }),
    },
    Candidate {
        design: "upstash-leased",
        platforms: &[Platform::Netlify, Platform::Server],
        rust: Some(UPSTASH_LEASED),
        javascript: Some(JavaScript {
            entry: "@tidegate/edge",
            before: "",
            limiter: "Tidegate.fromEnv({ platform: <platform>, leases: true, <options> })",
        }),
    },
    Candidate {
        design: "upstash-leased-grace",
        platforms: &[Platform::Vercel],
        // It has no time after its response.
        rust: None,
        javascript: Some(JavaScript {
            entry: "@tidegate/edge",
            before: "\n// What a grace admits is told after the response. So pass waitUntil, of @vercel/functions.",
            limiter: "Tidegate.fromEnv({ platform: <platform>, leases: { grace: <grace> }, <options> })",
        }),
    },
    Candidate {
        design: "upstash-leased-grace",
        platforms: &[Platform::Netlify],
        rust: None,
        javascript: Some(JavaScript {
            entry: "@tidegate/edge",
            before: "",
            limiter: "Tidegate.fromEnv({ platform: <platform>, leases: { grace: <grace> }, <options> })",
        }),
    },
    Candidate {
        design: "upstash-leased-grace",
        platforms: &[Platform::Server],
        rust: Some(Rust {
            cargo: r#"cargo add tidegate-redis --path "$TIDEGATE/adapters/redis" --no-default-features --features rest
cargo add tokio@1 --features rt,time"#,
            names: &["Lease", "Rest", "RestConfig", "UnixMillis"],
            imports: &OF_THE_TASK,
            limiter: "Arc::new(Rest::new(RestConfig::new(url, token))?.lending(lease)?)",
            before: LEASE,
            after: TASK,
            ..UPSTASH
        }),
        javascript: Some(JavaScript {
            entry: "@tidegate/edge",
            before: "",
            limiter: "Tidegate.fromEnv({ platform: <platform>, leases: { grace: <grace> }, <options> })",
        }),
    },
    Candidate {
        design: "fastly-kv",
        platforms: &[Platform::Fastly],
        rust: Some(Rust {
            cargo: r#"cargo add tidegate-fastly --path "$TIDEGATE/adapters/fastly""#,
            adapter: "tidegate_fastly",
            names: &["Kv"],
            imports: &[],
            item: "",
            parameters: "",
            returns: "impl Limiter",
            limiter: r#"Kv::open("tidegate")?.limiter()"#,
            before: "",
            after: "",
        }),
        javascript: None,
    },
    Candidate {
        design: "akamai-kv",
        platforms: &[Platform::Spin],
        rust: Some(Rust {
            cargo: r#"cargo add tidegate-spin --path "$TIDEGATE/adapters/spin""#,
            adapter: "tidegate_spin",
            names: &["SpinKv"],
            imports: &[],
            item: "",
            parameters: "",
            returns: "impl Limiter",
            limiter: r#"SpinKv::open("default")?.limiter()"#,
            before: "",
            after: "",
        }),
        javascript: None,
    },
    Candidate {
        design: "redis",
        platforms: &[Platform::Spin],
        rust: Some(Rust {
            cargo: r#"cargo add tidegate-spin --path "$TIDEGATE/adapters/spin" --features redis"#,
            adapter: "tidegate_spin",
            names: &["RedisConnection", "SpinRedis"],
            imports: &[],
            item: "",
            parameters: "url: &str",
            returns: "impl Limiter",
            limiter: "SpinRedis::new(RedisConnection::open(url)?).limiter()",
            before: "",
            after: "",
        }),
        javascript: None,
    },
    Candidate {
        design: "redis",
        platforms: &[Platform::Server],
        rust: Some(REDIS),
        javascript: Some(JavaScript {
            entry: "@tidegate/edge/redis",
            before: IOREDIS,
            limiter: "new Tidegate({ client, platform: <platform>, <options> })",
        }),
    },
    Candidate {
        design: "redis-deny-cache",
        platforms: &[Platform::Server],
        rust: Some(Rust {
            names: &["Config", "DenyCache", "Redis"],
            limiter: "DenyCache::new(Redis::new(Config::new(url))?.limiter())",
            ..REDIS
        }),
        javascript: Some(JavaScript {
            entry: "@tidegate/edge/redis",
            before: IOREDIS,
            limiter: "new Tidegate({ client, platform: <platform>, denyCache: true, <options> })",
        }),
    },
    Candidate {
        design: "redis-leased",
        platforms: &[Platform::Server],
        rust: Some(Rust {
            names: &["Config", "Redis", "Lease"],
            limiter: "Redis::new(Config::new(url))?.lending(Lease::new(50, Millis::from_secs(60)))?",
            ..REDIS
        }),
        javascript: Some(JavaScript {
            entry: "@tidegate/edge/redis",
            before: IOREDIS,
            limiter: "new Tidegate({ client, platform: <platform>, leases: true, <options> })",
        }),
    },
    Candidate {
        design: "redis-leased-grace",
        platforms: &[Platform::Server],
        rust: Some(Rust {
            cargo: r#"cargo add tidegate-redis --path "$TIDEGATE/adapters/redis"
cargo add tokio@1 --features rt,time"#,
            names: &["Config", "Lease", "Redis", "UnixMillis"],
            imports: &OF_THE_TASK,
            limiter: "Arc::new(Redis::new(Config::new(url))?.lending(lease)?)",
            before: LEASE,
            after: TASK,
            ..REDIS
        }),
        javascript: Some(JavaScript {
            entry: "@tidegate/edge/redis",
            before: IOREDIS,
            limiter: "new Tidegate({ client, platform: <platform>, leases: { grace: <grace> }, <options> })",
        }),
    },
    Candidate {
        design: "memory",
        platforms: &[Platform::Server],
        rust: Some(Rust {
            cargo: r#"cargo add tidegate-core --path "$TIDEGATE/core""#,
            adapter: "tidegate_core",
            names: &["MemoryLimiter"],
            imports: &[],
            item: "",
            parameters: "",
            returns: "impl Limiter",
            limiter: "MemoryLimiter::new()",
            before: "",
            after: "",
        }),
        javascript: Some(JavaScript {
            entry: "@tidegate/edge/memory",
            before: "",
            limiter: "new Tidegate({ platform: <platform>, <options> })",
        }),
    },
];

/// The designs that a platform has.
pub(super) fn candidates(platform: Platform) -> impl Iterator<Item = &'static Candidate> {
    CANDIDATES.iter().filter(move |candidate| candidate.platforms.contains(&platform))
}
