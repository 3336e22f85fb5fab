//! What `docs/algorithms.md` says of each algorithm's worst case is reached, and not exceeded.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::HashSet;

use tidegate_core::{Millis, Policy, PolicyState, Quota, UnixMillis};

const PAGE: &str = include_str!("../../docs/algorithms.md");
const ALGORITHMS: [&str; 5] = ["sliding_log", "sliding_window", "fixed_window", "token_bucket", "leaky_bucket"];
const HOUR_MS: u64 = 3_600_000;

/// `limit` in a window. A bucket holds as many, and gets as many back.
fn policy(algorithm: &str, limit: u64, window_ms: u64) -> Policy {
    let window = Millis::new(window_ms);
    let quota = match algorithm {
        "sliding_log" => Quota::sliding_log(limit, window),
        "sliding_window" => Quota::sliding_window(limit, window),
        "fixed_window" => Quota::fixed_window(limit, window),
        "token_bucket" => Quota::token_bucket(limit, limit, window),
        _ => Quota::leaky_bucket(limit, limit, window),
    };
    Policy::new("worst", [quota.unwrap()]).unwrap()
}

/// What the page's table says of an algorithm: the most in any 10 s, then what a greedy client gets in an hour, of 10 in 10 s and of 1 in 1 min.
fn said(algorithm: &str) -> [u64; 3] {
    let start = format!("| `{algorithm}` |");
    let table = PAGE.split("## The worst case").nth(1).unwrap();
    let row = table.lines().find(|line| line.starts_with(&start)).unwrap();
    let numbers: Vec<u64> = row.split('|').filter_map(|cell| cell.trim().replace(',', "").parse().ok()).collect();
    numbers.try_into().unwrap()
}

fn admits(policy: &Policy, state: &mut PolicyState, at_ms: u64) -> bool {
    policy.decide(state, UnixMillis::new(at_ms), 1).is_allowed()
}

/// What a client gets that sends as soon as it is admitted, from `start_ms` to before `end_ms`, and when.
fn greedy(policy: &Policy, start_ms: u64, end_ms: u64) -> Vec<u64> {
    let (mut state, mut at_ms, mut admitted) = (policy.initial_state(), start_ms, Vec::new());
    while at_ms < end_ms {
        let decision = policy.decide(&mut state, UnixMillis::new(at_ms), 1);
        match decision.retry_after() {
            None => admitted.push(at_ms),
            Some(wait) => at_ms += wait.get(),
        }
    }
    admitted
}

/// The most of these instants in any span that is shorter than a window.
fn most_in_a_window(admitted: &[u64], window_ms: u64) -> u64 {
    let counts =
        admitted.iter().enumerate().map(|(nth, first)| admitted[nth..].partition_point(|at| at - first < window_ms));
    counts.max().unwrap() as u64
}

/// Every client that sends requests of cost 1 in whole milliseconds: the most that any of them gets in less than a window.
fn most_of_all_clients(policy: &Policy, window_ms: u64) -> u64 {
    let limit = policy.quotas()[0].rule().limit();
    let mut most = 0;
    // The states that clients can reach, each with what was admitted in the milliseconds of the last window.
    let mut reached = HashSet::from([(policy.initial_state(), Vec::new())]);
    for at_ms in 0..3 * window_ms {
        let mut next = HashSet::new();
        for (state, recent) in reached {
            let mut state: PolicyState = state;
            for sent in 0..=limit {
                if sent > 0 && !admits(policy, &mut state, at_ms) {
                    break;
                }
                let mut recent: Vec<u64> = recent.clone();
                recent.push(sent);
                most = most.max(recent.iter().sum());
                if recent.len() as u64 == window_ms {
                    recent.remove(0);
                }
                next.insert((state.clone(), recent));
            }
        }
        reached = next;
    }
    most
}

#[test]
fn no_client_gets_more_in_a_window_than_the_page_says_and_one_gets_it() {
    const WINDOW_MS: u64 = 8;
    for algorithm in ALGORITHMS {
        for limit in 1..=3 {
            let expected = match algorithm {
                "sliding_log" => limit,
                "sliding_window" => 2 * limit - 1,
                "fixed_window" => 2 * limit,
                _ => limit + limit * (WINDOW_MS - 1) / WINDOW_MS,
            };
            let most = most_of_all_clients(&policy(algorithm, limit, WINDOW_MS), WINDOW_MS);
            assert_eq!(most, expected, "{algorithm} of {limit} in {WINDOW_MS} ms");
        }
    }
}

#[test]
fn the_most_of_10_in_10_s_is_reached_at_the_end_of_a_window() {
    for algorithm in ALGORITHMS {
        let admitted = greedy(&policy(algorithm, 10, 10_000), 9_999, 40_000);
        assert_eq!(most_in_a_window(&admitted, 10_000), said(algorithm)[0], "{algorithm}");
    }
}

#[test]
fn a_greedy_client_gets_in_an_hour_what_the_page_says() {
    for algorithm in ALGORITHMS {
        let in_an_hour = |limit, window_ms| greedy(&policy(algorithm, limit, window_ms), 0, HOUR_MS).len() as u64;
        assert_eq!([in_an_hour(10, 10_000), in_an_hour(1, 60_000)], said(algorithm)[1..], "{algorithm}");
    }
}

/// Two counters take the requests of the window before for evenly spread, which costs a greedy client one in each window.
#[test]
fn in_the_long_run_a_greedy_client_gets_the_limit_or_one_less() {
    for (algorithm, limit, in_ten_windows) in [
        ("sliding_log", 10, 100),
        ("fixed_window", 10, 100),
        ("token_bucket", 10, 100),
        ("sliding_window", 10, 90),
        ("sliding_window", 2, 10),
        ("sliding_window", 1, 5),
    ] {
        let admitted = greedy(&policy(algorithm, limit, 10_000), 0, 1_100_000);
        let of_ten_windows = admitted.iter().filter(|at| **at >= 1_000_000).count();
        assert_eq!(of_ten_windows, in_ten_windows, "{algorithm} of {limit}");
    }
}
