//! The ceiling of get-and-put stores, checked against every interleaving.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::collections::HashMap;

use proptest::prelude::*;
use support::{Model, Next, Random, Tasks, take_turns};
use tidegate_core::{Ceiling, Check, Decision, Error, Key, LimiterExt, Load};
use tidegate_spin::SpinKv;
use tidegate_testing::{NOW, per_minute};

fn ceiling(limit: u64, in_flight: u64) -> u64 {
    Ceiling::LastWriterWins.of(Load { limit, quota: limit, in_flight, locations: 1 })
}

/// The most requests that any interleaving admits from here on. `count` is the stored count. `held` has the counts read
/// by requests that have not written yet.
fn most(limit: u8, in_flight: usize, count: u8, held: &[u8], known: &mut HashMap<(u8, Vec<u8>), u64>) -> u64 {
    let here = (count, held.to_vec());
    if let Some(known) = known.get(&here) {
        return *known;
    }
    let mut best = 0;
    if held.len() < in_flight && count < limit {
        let mut more = held.to_vec();
        more.push(count);
        more.sort_unstable();
        best = most(limit, in_flight, count, &more, known);
    }
    for place in 0..held.len() {
        let mut fewer = held.to_vec();
        let read = fewer.remove(place);
        best = best.max(1 + most(limit, in_flight, read + 1, &fewer, known));
    }
    known.insert(here, best);
    best
}

#[test]
fn the_ceiling_equals_the_worst_interleaving() {
    for limit in 1..=4u8 {
        for in_flight in 1..=4 {
            let found = most(limit, in_flight, 0, &[], &mut HashMap::new());
            assert_eq!(found, ceiling(limit.into(), in_flight as u64), "limit {limit}, {in_flight} in flight");
        }
    }
}

#[test]
fn the_ceiling_at_the_extremes() {
    assert_eq!(ceiling(100, 1), 100);
    assert_eq!(ceiling(1, 50), 50);
    assert_eq!(ceiling(2, 2), 5);
    assert_eq!(ceiling(0, 7), 0);
    assert_eq!(ceiling(1_000, 1_000), u64::MAX);
    assert_eq!(ceiling(u64::MAX, u64::MAX), u64::MAX);
}

/// The worst interleaving of two concurrent requests with a limit of two, step by step, through the limiter.
#[test]
fn two_concurrent_requests_can_admit_five_with_a_limit_of_two() {
    let (model, policy, key) = (Model::default(), per_minute(2), Key::new("k"));
    let limiter = SpinKv::new(&model).limiter();
    let check = || async { limiter.check(Check::new(&policy, &key, NOW)).await.unwrap().is_allowed() };
    let slow_then = |admitted: usize| {
        // The first request reads, and writes only after the others have finished.
        let others = async move |many: usize| {
            for _ in 0..many {
                assert!(check().await);
            }
            many
        };
        let tasks: Tasks<'_, usize> = vec![Box::pin(async { usize::from(check().await) }), Box::pin(others(admitted))];
        let mut steps = 0;
        take_turns(tasks, |among| {
            steps += 1;
            Next::Goes(if steps == 1 { 0 } else { among - 1 })
        })
    };
    let admitted: usize = [slow_then(2), slow_then(1)].into_iter().flatten().sum();
    assert_eq!(admitted as u64, ceiling(2, 2));
}

proptest! {
    /// Each burst finishes before the next starts, so `limit x in_flight` is a bound, too.
    #[test]
    fn bursts_never_exceed_the_ceiling(seed: u64, many in 1..12usize, limit in 1..5u64, bursts in 1..12usize) {
        let (model, policy, key) = (Model::default(), per_minute(limit), Key::new("k"));
        let limiter = SpinKv::new(&model).limiter();
        let mut random = Random(seed);
        let mut admitted = 0;
        for _ in 0..bursts {
            let tasks: Tasks<'_, Result<Decision, Error>> =
                (0..many).map(|_| Box::pin(limiter.check(Check::new(&policy, &key, NOW))) as _).collect();
            let answers = take_turns(tasks, |among| Next::Goes(random.below(among)));
            admitted += answers.into_iter().filter(|answer| answer.as_ref().unwrap().is_allowed()).count() as u64;
        }
        let many = many as u64;
        prop_assert!(admitted <= ceiling(limit, many) && admitted <= limit * many);
        prop_assert!(admitted >= limit.min(many * bursts as u64));
        prop_assert_eq!(model.keys().len(), 1);
    }
}
