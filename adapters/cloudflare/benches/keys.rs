//! How long a step of one object takes as the number of its keys grows, in processor time:
//!
//!     cargo bench -p tidegate-cloudflare --features durable-objects
//!
//! The rows are in memory. `bench.sh keys` in conformance/hosts/cloudflare measures the same on workerd.

#![allow(clippy::unwrap_used, reason = "a benchmark")]

#[path = "../tests/durable_objects/support.rs"]
#[allow(dead_code, reason = "the benchmark uses a part")]
mod support;

use std::io::Result;
use std::num::NonZero;
use std::sync::LazyLock;
use std::thread;
use std::time::Instant;

use pollster::block_on;
use support::Rig;
use tidegate_cloudflare::durable_objects::{Config, DurableObjects, Placement};
use tidegate_core::{Check, Key, LimiterExt, Millis, Policy, Quota};
use tidegate_measured::{At, Measurement, Unit, shortened};
use tidegate_testing::NOW;

fn main() -> Result<()> {
    for keys in [1_000, 10_000, 100_000, 1_000_000] {
        one_object(keys)?;
    }
    Ok(())
}

/// Measures an object that has this many keys. New keys come last, because they add to that.
fn one_object(keys: u32) -> Result<()> {
    let policy = Policy::new("api", [Quota::token_bucket(10, 1, Millis::from_secs(3_600)).unwrap()]).unwrap();
    let rig = Rig::default();
    let shard = Config::default().placement(Placement::Shards(NonZero::new(1).unwrap()));
    let limiter = DurableObjects::with_config(&rig, shard).limiter();
    let step = |number: u64| {
        let key = Key::new(format!("user:{number}"));
        block_on(limiter.check(Check::new(&policy, &key, NOW))).unwrap();
    };
    let round = |key: &mut dyn FnMut(u64) -> u64| {
        let steps = shortened(10_000_u32);
        let began = now_ns();
        (0..steps.into()).for_each(|number| step(key(number)));
        (now_ns() - began) / f64::from(steps)
    };
    let (mut next, mut random) = (u64::from(keys), 1_u64);
    (0..next).for_each(step);
    let measured = |name| Measurement::new("durable object in memory", name, Unit::Ns).at(At::Keys(keys));
    measured("a step, one of 100 keys").alone(|| round(&mut |number| number % 100))?;
    measured("a step, any key").alone(|| {
        round(&mut |_| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % u64::from(keys)
        })
    })?;
    measured("a step, a new key").alone(|| {
        round(&mut |_| {
            next += 1;
            next
        })
    })
}

/// The processor time of this thread, or the wall clock if the system does not report it.
fn now_ns() -> f64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    // The system counts up to the last time that it scheduled the thread.
    thread::yield_now();
    let used = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let used = used.split(' ').next().and_then(|ns| ns.parse::<f64>().ok());
    used.unwrap_or_else(|| START.elapsed().as_secs_f64() * 1e9)
}
