//! The service limits requests by its rules, and says what is wrong with its options.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::process::Command;

use support::{get, service};

const PROGRAM: &str = env!("CARGO_BIN_EXE_tidegate-guest-native");

#[test]
fn a_burst_is_admitted_and_no_more() {
    let (_service, address) = service(PROGRAM, &[]);
    let answers: Vec<_> = (0..6).map(|_| get(&address)).collect();
    let admitted = answers.iter().filter(|answer| answer.starts_with("HTTP/1.1 200 ")).count();
    // A slow machine may refill a token.
    assert!(admitted >= 5, "{answers:?}");
    assert!(answers[0].contains("\"daily\";r=999"), "{}", answers[0]);
    if admitted == 5 {
        assert!(answers[5].starts_with("HTTP/1.1 429 ") && answers[5].contains("retry-after: 1\r\n"), "{}", answers[5]);
    }
}

#[test]
fn a_service_without_rules_does_not_start() {
    let output = Command::new(PROGRAM).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "tidegate-guest-native: no rules; add --rules FILE\n");
}
