//! Prints how long a step of one object takes as the number of its keys grows:
//!
//!     cargo bench -p tidegate-cloudflare-do
//!
//! The rows are in memory. `bench.sh keys` in conformance/hosts/cloudflare measures the same on workerd.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::num::NonZero;
use std::sync::LazyLock;
use std::time::Instant;

use pollster::block_on;
use support::{Rig, START_MS};
use tidegate_cloudflare_do::{Config, DurableObjects, Placement};
use tidegate_core::{Check, Key, Limiter, Millis, Policy, Quota, UnixMillis};

/// Steps of a measurement. The fastest of [`ROUNDS`] counts.
const STEPS: u64 = 10_000;
const ROUNDS: u64 = 5;

fn main() {
    let policy = Policy::new("api", [Quota::token_bucket(10, 1, Millis::from_secs(3_600)).unwrap()]).unwrap();
    let rig = Rig::default();
    let shard = Config::default().placement(Placement::Shards(NonZero::new(1).unwrap()));
    let limiter = DurableObjects::with_config(&rig, shard).limiter();
    let step = |number: u64| {
        let key = Key::new(format!("user:{number}"));
        block_on(limiter.check(Check::new(&policy, &key, UnixMillis::new(START_MS)))).unwrap();
    };
    let fastest = |key: &mut dyn FnMut(u64) -> u64| {
        let round = |_| {
            let began = now_ns();
            (0..STEPS).for_each(|number| step(key(number)));
            now_ns() - began
        };
        (0..ROUNDS).map(round).min().unwrap_or(0) / STEPS
    };
    println!("{:>10} {:>14} {:>14} {:>14}", "keys", "hot, ns", "any key, ns", "new key, ns");
    let (mut keys, mut random) = (0, 1_u64);
    for size in [1_000, 10_000, 100_000, 1_000_000] {
        while keys < size {
            step(keys);
            keys += 1;
        }
        let hot = fastest(&mut |number| number % 100);
        let any = fastest(&mut |_| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % size
        });
        let new = fastest(&mut |_| {
            keys += 1;
            keys
        });
        println!("{size:>10} {hot:>14} {any:>14} {new:>14}");
    }
}

/// The processor time of this thread, or the wall clock if the system does not report it.
fn now_ns() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let used = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let used = used.split(' ').next().and_then(|ns| ns.parse().ok());
    used.unwrap_or_else(|| START.elapsed().as_nanos().try_into().unwrap())
}
