//! Waiting in line: how many calls it takes, in which order, and until when.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_core::{ErrorKind, Key, Millis, Policy, Quota};
use tidegate_testing::{FlakyStore, at, per_minute, policy};
use tidegate_tower::Queue;
use tokio::time::Instant;

fn queue() -> Arc<Queue<FlakyStore>> {
    let start = Instant::now();
    let elapsed = move || u64::try_from(start.elapsed().as_millis()).unwrap();
    Arc::new(Queue::new(FlakyStore::default()).clock(move || at(elapsed())))
}

#[tokio::test(start_paused = true)]
async fn a_hundred_waiters_are_admitted_in_order_with_at_most_150_calls() {
    let second = Millis::from_secs(1);
    for quota in [
        Quota::token_bucket(5, 10, second),
        Quota::fixed_window(10, second),
        Quota::sliding_log(10, second),
        Quota::leaky_bucket(100, 10, second),
    ] {
        let policy = Arc::new(Policy::new("api", [quota.unwrap()]).unwrap());
        let (queue, order, started) = (queue(), Arc::new(Mutex::new(Vec::new())), Instant::now());
        let mut tasks = Vec::new();
        for nth in 0..100 {
            let (queue, policy, order) = (Arc::clone(&queue), Arc::clone(&policy), Arc::clone(&order));
            tasks.push(tokio::spawn(async move {
                let deadline = Instant::now() + Duration::from_secs(60);
                let admitted = queue.until_admitted(&policy, &Key::new("partner:1"), 1, deadline).await.unwrap();
                assert!(admitted.unwrap().is_allowed());
                order.lock().unwrap().push(nth);
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        assert!(order.lock().unwrap().is_sorted(), "{policy:?}");
        let calls = queue.limiter().take_checks();
        assert!((100..=150).contains(&calls), "{calls} calls of {:?}", policy.quotas()[0].rule());
        // Nobody waits much longer than the limit asks for.
        assert!(
            started.elapsed() < Duration::from_secs(13),
            "{:?} of {:?}",
            started.elapsed(),
            policy.quotas()[0].rule()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_the_wait_and_an_impossible_cost_is_an_error() {
    let policy = per_minute(1);
    let (queue, key, within) = (queue(), Key::new("partner:1"), |ms| Instant::now() + Duration::from_millis(ms));
    assert!(queue.until_admitted(&policy, &key, 1, within(10)).await.unwrap().is_some());
    let started = Instant::now();
    let second = queue.until_admitted(&policy, &key, 1, within(500));
    let third = queue.until_admitted(&policy, &key, 1, within(700));
    let (second, third) = tokio::join!(second, third);
    assert!(second.unwrap().is_none() && third.unwrap().is_none());
    assert!(started.elapsed() < Duration::from_millis(750), "{:?}", started.elapsed());
    let error = queue.until_admitted(&policy, &key, 2, within(500)).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.to_string().as_str()),
        (ErrorKind::Invalid, "cost: 2 is more than the limit, 1, so no wait helps")
    );
    assert!(queue.until_admitted(&policy, &key, 1, within(60_000)).await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_leaky_buckets_delay_is_waited_for_and_not_beyond_the_deadline() {
    let policy = policy(Quota::leaky_bucket(100, 1, Millis::from_secs(1)));
    let (queue, key, started) = (queue(), Key::new("partner:1"), Instant::now());
    for (deadline_ms, admitted, ended_ms) in [
        (100, true, 0),
        (500, false, 500),
        // The one that was not admitted in time is not charged.
        (60_000, true, 1_000),
        (2_000, true, 2_000),
        (2_999, false, 2_999),
    ] {
        let deadline = started + Duration::from_millis(deadline_ms);
        let decision = queue.until_admitted(&policy, &key, 1, deadline).await.unwrap();
        assert_eq!((decision.is_some(), started.elapsed().as_millis()), (admitted, ended_ms), "{deadline_ms} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn waiters_pass_a_window_that_is_full() {
    // A wait for the next window is longer by a random time of up to 50 ms.
    let policy = per_minute(5);
    let (queue, key, started) = (queue(), Key::new("partner:1"), Instant::now());
    for nth in 0..11 {
        let deadline = started + Duration::from_secs(600);
        assert!(queue.until_admitted(&policy, &key, 1, deadline).await.unwrap().is_some());
        let since = started.elapsed().as_millis() - 60_000 * (nth / 5);
        assert!(since <= 50 * (nth / 5), "{nth}: {since} ms after the window began");
    }
}
