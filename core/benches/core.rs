//! The cost of a decision, compared with the governor crate in the same run.
//!
//! `cargo bench -p tidegate-core`
#![allow(clippy::unwrap_used, reason = "a benchmark may panic")]

use std::hint::black_box;
use std::num::NonZeroU32;
use std::thread;
use std::time::{Duration, Instant};

use governor::clock::FakeRelativeClock;
use governor::{DefaultKeyedRateLimiter, RateLimiter};
use tidegate_core::algorithm::{Algorithm, BucketState, FixedWindow, SlidingLog, SlidingWindow, TokenBucket};
use tidegate_core::{Check, Key, MemoryLimiter, Millis, Policy, Quota, Rule, UnixMillis};

const NOW: UnixMillis = UnixMillis::new(1_800_000_000_000);
const KEYS: usize = 10_000;
/// The number of rounds. The fastest counts, because other load on the machine only makes a round slower.
const ROUNDS: usize = 60;

fn main() {
    println!("One step of an algorithm, decided and charged (ns, best of {ROUNDS} rounds)");
    steps();
    println!("\nA check of one of {KEYS} keys (ns per check, best of {ROUNDS} rounds, lower is better)");
    keyed();
}

fn steps() {
    let bucket = TokenBucket::new(1_000_000, 1_000, Millis::from_secs(1)).unwrap();
    row("token bucket", Some(5.0), step(&bucket));
    row("token bucket, all denied", Some(5.0), denied(&bucket));
    row("fixed window", None, step(&FixedWindow::new(1_000_000, Millis::from_secs(1)).unwrap()));
    row("sliding window", None, step(&SlidingWindow::new(1_000_000, Millis::from_secs(1)).unwrap()));
    row("sliding log of 100", None, step(&SlidingLog::new(100, Millis::from_secs(1)).unwrap()));
    let policy = Policy::new("api", [Rule::TokenBucket(bucket).into()]).unwrap();
    let mut state = policy.initial_state();
    let mut at = 0;
    let whole = best(100_000, || {
        at += 1;
        black_box(policy.decide(&mut state, NOW + Millis::new(at), black_box(1)));
    });
    row("token bucket, the whole decision with remaining and reset", None, whole);
}

fn step<A: Algorithm>(rule: &A) -> f64 {
    let (mut state, mut at) = (A::State::default(), 0);
    best(100_000, || {
        at += 1;
        black_box(black_box(rule).step(&mut state, NOW + Millis::new(at), black_box(1)));
    })
}

fn denied(bucket: &TokenBucket) -> f64 {
    let mut state = BucketState::default();
    bucket.charge(&mut state, NOW, bucket.capacity());
    best(100_000, || {
        black_box(black_box(bucket).step(black_box(&mut state), black_box(NOW), black_box(1)));
    })
}

fn row(name: &str, target: Option<f64>, ns: f64) {
    let target = target.map_or(String::new(), |target| format!("(target: at most {target})"));
    println!("  {name:58} {ns:6.1}  {target}");
}

fn best(iterations: u32, mut body: impl FnMut()) -> f64 {
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..iterations {
            body();
        }
        best = best.min(start.elapsed());
    }
    best.as_nanos() as f64 / f64::from(iterations)
}

/// Compares both limiters with the same text keys, in the same order, all requests admitted.
fn keyed() {
    let names: Vec<String> = (0..KEYS).map(|n| format!("ip:10.{}.{}.{}", n / 2500, n / 50 % 50, n % 50)).collect();
    let keys: Vec<Key> = names.iter().map(Key::new).collect();
    let policy =
        Policy::new("api", [Quota::token_bucket(1_000_000, 1_000_000, Millis::from_secs(1)).unwrap()]).unwrap();
    let million = NonZeroU32::new(1_000_000).unwrap();
    let rate = governor::Quota::per_second(million).allow_burst(million);

    for threads in [1, 2] {
        let memory = MemoryLimiter::new();
        let governor: DefaultKeyedRateLimiter<String> = RateLimiter::dashmap(rate);
        let stopped = RateLimiter::dashmap_with_clock(rate, FakeRelativeClock::default());
        let clock = quanta::Clock::new();
        let started = clock.raw();
        let with_clock = compare(
            threads,
            |n| {
                let now = NOW + Millis::new(clock.delta_as_nanos(started, clock.raw()) / 1_000_000);
                assert!(memory.decide(Check::new(&policy, &keys[n], now)).unwrap().is_allowed());
            },
            |n| {
                black_box(governor.check_key(&names[n])).unwrap();
            },
        );
        report(threads, "each reads the clock (quanta)", with_clock);
        let without = compare(
            threads,
            |n| assert!(memory.decide(Check::new(&policy, &keys[n], NOW)).unwrap().is_allowed()),
            |n| {
                black_box(stopped.check_key(&names[n])).unwrap();
            },
        );
        report(threads, "no clock is read (governor: its fake clock)", without);
    }
}

/// Alternates between both bodies, so that other load affects both alike.
fn compare(threads: usize, ours: impl Fn(usize) + Sync, theirs: impl Fn(usize) + Sync) -> (f64, f64) {
    let (mut best_ours, mut best_theirs) = (f64::MAX, f64::MAX);
    for _ in 0..ROUNDS {
        best_ours = best_ours.min(time(threads, &ours));
        best_theirs = best_theirs.min(time(threads, &theirs));
    }
    (best_ours, best_theirs)
}

/// Wall time per check over all threads. Each thread starts at a different key, and visits the keys in a scattered
/// order, like requests of many clients.
fn time(threads: usize, body: impl Fn(usize) + Sync) -> f64 {
    const PASSES: usize = 5;
    // A prime, so that it shares no factor with the number of keys.
    const STRIDE: usize = 7_919;
    let start = Instant::now();
    thread::scope(|scope| {
        for thread in 0..threads {
            let body = &body;
            scope.spawn(move || {
                let mut key = thread * KEYS / 2;
                for _ in 0..PASSES * KEYS {
                    key = (key + STRIDE) % KEYS;
                    body(key);
                }
            });
        }
    });
    start.elapsed().as_nanos() as f64 / (PASSES * KEYS * threads) as f64
}

fn report(threads: usize, what: &str, (ours, theirs): (f64, f64)) {
    println!(
        "  {threads} thread{}, {what}: {ours:.1}, governor {theirs:.1}: {:.2} x (target: at most 1.00)",
        if threads == 1 { "" } else { "s" },
        ours / theirs
    );
}
