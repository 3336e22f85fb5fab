//! With `--fallback`, the service decides itself while its store hangs, without waiting for it, and asks it again afterwards.
//! It runs against a real redis-server.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::process::Command;
use std::time::{Duration, Instant};

use support::{Process, get, redis, service};

/// The store's, unless it is configured.
const DEADLINE: Duration = Duration::from_millis(250);

/// Waits until the store decides.
fn answers_again(address: &str) {
    let until = Instant::now() + Duration::from_secs(30);
    while get(address).contains("x-tidegate-origin") {
        assert!(Instant::now() < until, "the store is not asked");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Sends a signal to the store.
fn signal(store: &Process, name: &str) {
    assert!(Command::new("kill").args([name, &store.0.id().to_string()]).status().unwrap().success());
}

#[test]
fn a_store_that_hangs_is_replaced_within_the_bound_and_used_again() {
    let (store, address) = redis();
    // The daily limit is 1,000, so its share is 500. That of the burst is 2.
    let (_service, address) = service(&address, &["--fallback", "50"]);
    answers_again(&address);

    signal(&store, "-STOP");
    let mut took = Vec::new();
    let answers: Vec<_> = (0..40)
        .map(|_| {
            let began = Instant::now();
            let answer = get(&address);
            took.push(began.elapsed());
            answer
        })
        .collect();
    assert!(answers.iter().all(|answer| answer.contains("x-tidegate-origin: fallback")), "{answers:?}");
    let admitted = answers.iter().filter(|answer| answer.starts_with("HTTP/1.1 200 ")).count();
    // At first 2, and one every 2 seconds.
    let elapsed = took.iter().sum::<Duration>().as_secs();
    assert!((2..=3 + usize::try_from(elapsed / 2).unwrap()).contains(&admitted), "{admitted} in {elapsed} s");
    // Three requests wait for the deadline. Then the breaker is open, and only one a second asks the store.
    took.sort_unstable();
    assert!(took[20] < DEADLINE, "{took:?}");

    signal(&store, "-CONT");
    answers_again(&address);
}
