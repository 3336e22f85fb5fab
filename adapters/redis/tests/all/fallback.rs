//! A server that stalls behind a fallback: what it has charged without answering is given back.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a failing rig fails its test")]

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use crate::support::Server;
use tidegate_core::{Check, ErrorKind, Fallback, Limiter, LimiterExt, Millis, Policy, Quota, Settle};
use tidegate_testing::{NOW, key, policy};

const SLOTS: u64 = 100;

fn signal(server: &Server, name: &str) {
    let done = Command::new("kill").args([name, &server.process_id().to_string()]).status().unwrap();
    assert!(done.success());
}

/// Takes a slot and gives it back, however often that fails. A denial of the fallback may hide a slot that the server has given.
async fn work(limiter: &impl Limiter, policy: &Policy, token: &str) {
    let key = key();
    let check = Check::new(policy, &key, NOW).idempotent(token, Millis::from_secs(600));
    let _ = limiter.check(check).await;
    for _ in 0..500 {
        match limiter.settle(Settle::release(policy, &key, token, NOW)).await {
            Ok(_) => return,
            Err(error) if error.kind() == ErrorKind::UnknownCharge => return,
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
    panic!("the server does not come back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_stalls_no_slot_is_left_behind() {
    let server = Server::start();
    let store = server.limiter_with(|config| config.deadline(Millis::new(50)));
    let policy = Arc::new(policy(Quota::concurrency(SLOTS, Millis::from_secs(600))));
    // On virtual time, which stands still, no pause would end.
    let limiter = Arc::new(Fallback::new(store, 10).unwrap().breaker(1, Millis::ZERO));
    work(&*limiter, &policy, "first").await;
    let mut tasks = Vec::new();
    for stall in 0..3 {
        signal(&server, "-STOP");
        for nth in 0..70 {
            let (limiter, policy) = (Arc::clone(&limiter), Arc::clone(&policy));
            tasks.push(tokio::spawn(async move { work(&*limiter, &policy, &format!("{stall}-{nth}")).await }));
        }
        tokio::time::sleep(Duration::from_millis(400)).await;
        signal(&server, "-CONT");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for task in tasks {
        task.await.unwrap();
    }
    let (key, patient) = (key(), server.limiter());
    let left = patient.peek(Check::new(&policy, &key, NOW).idempotent("last", Millis::from_secs(1))).await.unwrap();
    assert_eq!(left.binding().remaining(), Some(SLOTS));
}
