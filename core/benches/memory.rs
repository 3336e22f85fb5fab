//! The memory of `MemoryLimiter` per key, and how calls return the memory of expired keys. Linux only: it reads the resident
//! set size from `/proc`.
//!
//! `cargo bench -p tidegate-core --bench memory`
#![allow(clippy::unwrap_used, reason = "a benchmark may panic")]

use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, fs};

use tidegate_core::{Check, Key, MemoryLimiter, Millis, Policy, Quota, UnixMillis};

const NOW: UnixMillis = UnixMillis::new(1_800_000_000_000);
const MINUTE: Millis = Millis::from_secs(60);

/// The most keys that a table holds before it grows to 2^21 buckets.
const FULL: usize = (1 << 20) * 7 / 8;

fn main() {
    if let Some(name) = env::args().nth(1).filter(|name| !name.starts_with('-')) {
        return per_key(&name, env::args().nth(2).unwrap().parse().unwrap());
    }
    println!("Resident bytes per key, with the table full, and just after it has grown");
    for name in ["token bucket", "fixed window", "sliding window", "two quotas", "four quotas"] {
        // A process of its own, so that no memory is reused.
        let measure = |keys: usize| {
            let output = Command::new(env::current_exe().unwrap()).args([name, &keys.to_string()]).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        println!("  {name:16} {:>4} to {:>4}", measure(FULL), measure(FULL + 1));
    }
    expiry();
}

fn per_key(name: &str, keys: usize) {
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
    print!("{}", (resident() - before) / keys);
}

fn resident() -> usize {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4_096
}

fn decide(limiter: &MemoryLimiter, policy: &Policy, client: usize, now: UnixMillis) {
    let key = Key::new(format!("ip:{client}"));
    assert!(limiter.decide(Check::new(policy, &key, now)).unwrap().is_allowed());
}

fn expiry() {
    const KEYS: usize = 10_000_000;
    let policy = Policy::new("api", [Quota::token_bucket(10, 10, MINUTE).unwrap()]).unwrap();
    let before = resident();
    let limiter = MemoryLimiter::new();
    let fill = |now| (0..KEYS).for_each(|client| decide(&limiter, &policy, client, now));
    fill(NOW);
    println!("\n{KEYS} keys of a token bucket: {} MB resident", (resident() - before) >> 20);
    reclaim(&limiter, 10_000, NOW + Millis::from_secs(180));
    println!("  resident: {} MB", resident().saturating_sub(before) >> 20);
    fill(NOW + Millis::from_secs(180));
    reclaim(&limiter, 1, NOW + Millis::from_secs(360));
    println!("  resident: {} MB", resident().saturating_sub(before) >> 20);
}

/// Makes calls for `clients` live keys until the expired keys are gone.
fn reclaim(limiter: &MemoryLimiter, clients: usize, now: UnixMillis) {
    let policy = Policy::new("plenty", [Quota::token_bucket(1 << 30, 1 << 30, Millis::from_secs(1)).unwrap()]).unwrap();
    let (held, mut calls, mut slowest) = (limiter.allocated_bytes(), 0, Duration::ZERO);
    while limiter.len() > clients + 1_024 && calls < 50_000_000 {
        for _ in 0..10_000 {
            let call = Instant::now();
            decide(limiter, &policy, 1_000_000_000 + calls % clients, now);
            slowest = slowest.max(call.elapsed());
            calls += 1;
        }
    }
    println!(
        "  after they expired and {calls} calls for {clients} live keys: {} keys, tables of {} MB instead of {} MB, slowest \
         call {slowest:?}",
        limiter.len(),
        limiter.allocated_bytes() >> 20,
        held >> 20,
    );
}
