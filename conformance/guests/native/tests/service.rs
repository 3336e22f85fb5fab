//! The service limits requests by its rules, and says what is wrong with its options.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::process::Command;
use std::time::Instant;

use support::{get, service};

const PROGRAM: &str = env!("CARGO_BIN_EXE_tidegate-guest-native");

#[test]
fn a_burst_is_admitted_and_no_more() {
    let (_service, address) = service(PROGRAM, &[]);
    let began = Instant::now();
    let answers: Vec<_> = (0..30).map(|_| get(&address)).collect();
    let (admitted, denied): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.starts_with("HTTP/1.1 200 "));
    // The capacity, and one a second.
    let refilled = usize::try_from(began.elapsed().as_secs()).unwrap() + 1;
    assert!((5..=5 + refilled).contains(&admitted.len()), "{} in {refilled} s", admitted.len());
    assert!(admitted[0].contains("\"daily\";r=999"), "{}", admitted[0]);
    let says_when = |answer: &&String| answer.starts_with("HTTP/1.1 429 ") && answer.contains("retry-after: 1\r\n");
    assert!(!denied.is_empty() && denied.iter().all(says_when), "{denied:?}");
}

#[test]
fn a_service_without_rules_does_not_start() {
    let output = Command::new(PROGRAM).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "tidegate-guest-native: no rules; add --rules FILE\n");
}
