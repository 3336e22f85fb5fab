//! The memory of `MemoryLimiter` per key, beside the governor crate, and how calls return the memory of expired keys. Linux
//! only: it reads the resident set size from `/proc`.
//!
//! `cargo bench -p tidegate-core --bench memory`
#![allow(clippy::unwrap_used, reason = "a benchmark may panic")]

use std::io::Result;
use std::num::NonZeroU32;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, fs};

use governor::RateLimiter;
use tidegate_core::{Check, Key, MemoryLimiter, Millis, Policy, Quota, UnixMillis};
use tidegate_measured::{Measurement, ROUNDS, Unit};
use tidegate_testing::NOW;

const MINUTE: Millis = Millis::from_secs(60);

/// Keys with which the parts of a table are about as full as they get, and keys with which most have just grown.
const FULL: u32 = 820_000;
const GROWN: u32 = 950_000;

/// Keys that ask with two tokens each.
const ASKING: u32 = 5_000_000;

/// The keys that expire, of which some stay in use.
const EXPIRING: u32 = 1_000_000;

fn main() -> Result<()> {
    let args: Vec<String> = env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    if let [name, keys] = &*args {
        let keys = keys.parse().unwrap();
        match &**name {
            "governor" => println!("{}", of_governor(keys)),
            "tokens" => tokens(keys, MemoryLimiter::DEFAULT_ANSWERS),
            "all tokens" => tokens(keys, 2 * keys as usize),
            name => println!("{}", of_limiter(name, keys)),
        }
        return Ok(());
    }
    for (keys, when) in [(FULL, "table full"), (GROWN, "table just grown")] {
        let title = |name| format!("a key's memory, {name}, {when}");
        let bucket = title("token bucket");
        let measured = Measurement::new("memory", &bucket, Unit::Bytes);
        measured.beside("governor 0.10", || apart("token bucket", keys), || apart("governor", keys))?;
        for name in ["fixed window", "sliding window", "two quotas", "four quotas"] {
            Measurement::new("memory", &title(name), Unit::Bytes).record(&[apart(name, keys)])?;
        }
    }
    for (name, what) in [("tokens", "the default answers"), ("all tokens", "every answer")] {
        let measured: Vec<_> = (0..ROUNDS).map(|_| numbers_apart(name, ASKING)).collect();
        for (place, what_of, unit) in [(0, "memory", Unit::Kib), (1, "the slowest call", Unit::Ms)] {
            let title = format!("5,000,000 keys with two tokens each, {what}: {what_of}");
            let samples: Vec<f64> = measured.iter().map(|numbers| numbers[place]).collect();
            Measurement::new("tokens", &title, unit).record(&samples)?;
        }
    }
    expiry()
}

/// Measures in a process of its own, so that no memory is reused.
fn apart(name: &str, keys: u32) -> f64 {
    numbers_apart(name, keys)[0]
}

fn numbers_apart(name: &str, keys: u32) -> Vec<f64> {
    let output = Command::new(env::current_exe().unwrap()).args([name, &keys.to_string()]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_whitespace().map(|number| number.parse().unwrap()).collect()
}

/// Prints the memory in KiB and the slowest call in ms of keys that ask with two tokens each.
fn tokens(keys: u32, answers: usize) {
    let policy = Policy::new("api", [Quota::token_bucket(10, 10, MINUTE).unwrap()]).unwrap();
    let (before, mut slowest) = (resident(), Duration::ZERO);
    let limiter = MemoryLimiter::new().answers(answers);
    for token in ["first", "second"] {
        for client in 0..keys {
            let key = Key::new(format!("ip:{client}"));
            let check = Check::new(&policy, &key, NOW).idempotent(token, Millis::from_secs(600));
            let call = Instant::now();
            assert!(limiter.decide(check).unwrap().is_allowed());
            slowest = slowest.max(call.elapsed());
        }
    }
    println!("{} {}", (resident() - before) >> 10, slowest.as_secs_f64() * 1e3);
}

fn of_limiter(name: &str, keys: u32) -> u64 {
    let bucket = || Quota::token_bucket(10, 10, MINUTE).unwrap();
    let window = |name: &str| Quota::fixed_window(10, MINUTE).unwrap().named(name).unwrap();
    let policy = match name {
        "token bucket" => Policy::new("api", [bucket()]),
        "fixed window" => Policy::new("api", [window("a")]),
        "sliding window" => Policy::new("api", [Quota::sliding_window(10, MINUTE).unwrap()]),
        "two quotas" => Policy::new("api", [bucket(), window("b")]),
        _ => Policy::new("api", ["a", "b", "c", "d"].map(window)),
    };
    let (policy, before) = (policy.unwrap(), resident());
    let limiter = MemoryLimiter::with_shards(1);
    (0..keys).for_each(|client| decide(&limiter, &policy, client, NOW));
    (resident() - before) / u64::from(keys)
}

/// The same keys as text, which governor stores.
fn of_governor(keys: u32) -> u64 {
    let before = resident();
    let limiter = RateLimiter::dashmap(governor::Quota::per_minute(NonZeroU32::new(10).unwrap()));
    (0..keys).for_each(|client| limiter.check_key(&format!("ip:{client}")).unwrap());
    (resident() - before) / u64::from(keys)
}

fn resident() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4_096
}

fn decide(limiter: &MemoryLimiter, policy: &Policy, client: u32, now: UnixMillis) {
    let key = Key::new(format!("ip:{client}"));
    assert!(limiter.decide(Check::new(policy, &key, now)).unwrap().is_allowed());
}

/// Fills a limiter, and makes calls for a few live keys until the expired keys are gone.
fn expiry() -> Result<()> {
    let policy = Policy::new("api", [Quota::token_bucket(10, 10, MINUTE).unwrap()]).unwrap();
    let kib = |limiter: &MemoryLimiter| f64::from(u32::try_from(limiter.allocated_bytes() >> 10).unwrap());
    for (live, shown) in [(1, "1"), (10_000, "10,000")] {
        let (mut filled, mut returned, mut slowest) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let limiter = MemoryLimiter::new();
            (0..EXPIRING).for_each(|client| decide(&limiter, &policy, client, NOW));
            filled.push(kib(&limiter));
            slowest.push(reclaim(&limiter, live, NOW + Millis::from_secs(180)).as_secs_f64() * 1e3);
            returned.push(kib(&limiter));
        }
        let title = |what: &str| format!("1,000,000 keys expired, {shown} live: {what}");
        Measurement::new("expiry", &title("the tables before"), Unit::Kib).record(&filled)?;
        Measurement::new("expiry", &title("the tables after"), Unit::Kib).record(&returned)?;
        Measurement::new("expiry", &title("the slowest call"), Unit::Ms).record(&slowest)?;
    }
    Ok(())
}

/// The slowest call.
fn reclaim(limiter: &MemoryLimiter, live: u32, now: UnixMillis) -> Duration {
    let policy = Policy::new("plenty", [Quota::token_bucket(1 << 30, 1 << 30, Millis::from_secs(1)).unwrap()]).unwrap();
    let (mut calls, mut slowest) = (0_u32, Duration::ZERO);
    while limiter.len() > live as usize + 1_024 {
        assert!(calls < 50_000_000, "the expired keys stay: {}", limiter.len());
        for _ in 0..10_000 {
            let call = Instant::now();
            decide(limiter, &policy, 1_000_000_000 + calls % live, now);
            slowest = slowest.max(call.elapsed());
            calls += 1;
        }
    }
    slowest
}
