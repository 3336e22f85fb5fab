//! The cost of a decision in memory, beside the crates governor and rate-net: one step of an algorithm, and checks of many keys.
//!
//! `cargo bench -p tidegate-core`
#![allow(clippy::unwrap_used, reason = "a benchmark may panic")]

use std::hint::black_box;
use std::io::Result;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use clock_lib::ManualClock;
use governor::RateLimiter;
use governor::clock::FakeRelativeClock;
use tidegate_core::algorithm::{Algorithm, BucketState, FixedWindow, SlidingLog, SlidingWindow, TokenBucket};
use tidegate_core::{Check, Key, MemoryLimiter, Millis, Policy, Quota, Rule};
use tidegate_measured::{Aim, At, Measurement, Unit, ns_per_call, shortened};
use tidegate_testing::NOW;

const GOVERNOR: &str = "governor 0.10";
const RATE_NET: &str = "rate-net 2.1";
/// The steps of a part of a round.
const STEPS: u32 = 100_000;
/// The rate and the burst of governor's limiters. With its fake clock, nothing is refilled.
const BILLION: NonZeroU32 = NonZeroU32::new(1_000_000_000).unwrap();

fn main() -> Result<()> {
    steps()?;
    for keys in [1_000, 10_000, 100_000, 1_000_000] {
        keyed(keys)?;
    }
    for quotas in [1, 2, 4, 8] {
        several(quotas)?;
    }
    Ok(())
}

fn rate() -> governor::Quota {
    governor::Quota::per_second(BILLION).allow_burst(BILLION)
}

fn quota() -> Quota {
    Quota::token_bucket(1_000_000_000, 1_000_000_000, Millis::from_secs(1)).unwrap()
}

fn steps() -> Result<()> {
    let bucket = TokenBucket::new(1_000_000, 1_000, Millis::from_secs(1)).unwrap();
    let measured = |name| Measurement::new("core", name, Unit::Ns);
    let five = Aim::Value(5.0);
    measured("one step of a token bucket").aim(five).alone(|| step(&bucket))?;
    let mut empty = BucketState::default();
    bucket.charge(&mut empty, NOW, bucket.capacity());
    let denied = || ns_per_call(STEPS, || black_box(&bucket).step(black_box(&mut empty), black_box(NOW), black_box(1)));
    measured("one step of a token bucket, denied").aim(five).alone(denied)?;
    let fixed = FixedWindow::new(1_000_000, Millis::from_secs(1)).unwrap();
    measured("one step of a fixed window").alone(|| step(&fixed))?;
    let sliding = SlidingWindow::new(1_000_000, Millis::from_secs(1)).unwrap();
    measured("one step of a sliding window").alone(|| step(&sliding))?;
    let log = SlidingLog::new(100, Millis::from_secs(1)).unwrap();
    measured("one step of a sliding log of 100").alone(|| step(&log))?;
    let policy = Policy::new("api", [Rule::TokenBucket(bucket).into()]).unwrap();
    let (mut state, mut at) = (policy.initial_state(), 0);
    measured("a token bucket's whole decision, with remaining and reset").alone(|| {
        ns_per_call(STEPS, || {
            at += 1;
            policy.decide(&mut state, NOW + Millis::new(at), black_box(1))
        })
    })
}

fn step<A: Algorithm>(rule: &A) -> f64 {
    let (mut state, mut at) = (A::State::default(), 0);
    ns_per_call(STEPS, || {
        at += 1;
        black_box(rule).step(&mut state, NOW + Millis::new(at), black_box(1))
    })
}

/// Compares the limiters with the same text keys, in the same order, all requests admitted.
fn keyed(many: usize) -> Result<()> {
    let names: Vec<String> = (0..many).map(|n| format!("ip:10.{}.{}.{}", n / 62_500, n / 250 % 250, n % 250)).collect();
    let keys: Vec<Key> = names.iter().map(Key::new).collect();
    let policy = Policy::new("api", [quota()]).unwrap();
    let (memory, reading) = (MemoryLimiter::new(), RateLimiter::dashmap(rate()));
    let stopped = RateLimiter::dashmap_with_clock(rate(), FakeRelativeClock::default());
    let per_second = rate_net::Quota::rate(BILLION.get(), Duration::from_secs(1)).unwrap();
    let net = rate_net::RateLimiter::with_quota(per_second).with_clock(Arc::new(ManualClock::new()));
    let clock = quanta::Clock::new();
    let started = clock.raw();
    let ours = |key: usize, now| assert!(memory.decide(Check::new(&policy, &keys[key], now)).unwrap().is_allowed());
    let now = || NOW + Millis::new(clock.delta_as_nanos(started, clock.raw()) / 1_000_000);
    for (key, name) in names.iter().enumerate() {
        ours(key, NOW);
        reading.check_key(name).unwrap();
        stopped.check_key(name).unwrap();
        assert!(net.check(name.as_str()).is_allow());
    }
    let at = At::Keys(u32::try_from(many).unwrap());
    let measured = |name| Measurement::new("core", name, Unit::Ns).at(at).aim(Aim::Ratio(1.0));
    for (threads, name) in [(1, "a check, one thread"), (2, "a check, two threads")] {
        measured(name).beside(
            GOVERNOR,
            || time(threads, many, |key| ours(key, NOW)),
            || time(threads, many, |key| black_box(stopped.check_key(&names[key])).unwrap()),
        )?;
    }
    measured("a check, one thread, beside rate-net").beside(
        RATE_NET,
        || time(1, many, |key| ours(key, NOW)),
        || time(1, many, |key| assert!(net.check(names[key].as_str()).is_allow())),
    )?;
    measured("a check that reads the clock, one thread").beside(
        GOVERNOR,
        || time(1, many, |key| ours(key, now())),
        || time(1, many, |key| black_box(reading.check_key(&names[key])).unwrap()),
    )
}

/// Wall time per check over all threads, of the fastest part of a round. Each thread starts at a different key, and
/// visits the keys in a scattered order, like requests of many clients.
fn time(threads: usize, keys: usize, check: impl Fn(usize) + Sync) -> f64 {
    const PARTS: usize = 4;
    let part = |part| time_of_part(threads, keys, part * keys / PARTS, &check);
    (0..PARTS).map(part).fold(f64::INFINITY, f64::min)
}

fn time_of_part(threads: usize, keys: usize, first: usize, check: &(impl Fn(usize) + Sync)) -> f64 {
    // A prime, so that it shares no factor with the number of keys.
    const STRIDE: usize = 7_919;
    let checks = shortened(200_000_u32) as usize;
    let start = Instant::now();
    thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let mut key = first + thread * keys / 2;
                for _ in 0..checks {
                    key = (key + STRIDE) % keys;
                    check(key);
                }
            });
        }
    });
    start.elapsed().as_secs_f64() * 1e9 / (checks * threads) as f64
}

/// Compares a policy of several quotas with as many limiters asked one after another, which charge one by one.
fn several(quotas: u32) -> Result<()> {
    let named = |n| quota().named(&format!("q{n}")).unwrap();
    let (policy, key) = (Policy::new("api", (0..quotas).map(named)).unwrap(), Key::new("ip:192.0.2.1"));
    let memory = MemoryLimiter::new();
    let check = || memory.decide(Check::new(&policy, black_box(&key), NOW)).unwrap();
    let limiters: Vec<_> =
        (0..quotas).map(|_| RateLimiter::dashmap_with_clock(rate(), FakeRelativeClock::default())).collect();
    let name = "ip:192.0.2.1".to_string();
    let all = || limiters.iter().for_each(|limiter| limiter.check_key(black_box(&name)).unwrap());
    let measured =
        Measurement::new("core", "a check of one key, by the number of quotas", Unit::Ns).at(At::Quotas(quotas));
    measured.beside(
        &format!("{GOVERNOR}, a limiter for each"),
        || ns_per_call(20_000, check),
        || ns_per_call(20_000, all),
    )
}
