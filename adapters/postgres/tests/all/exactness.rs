//! Many requests at once, over several processes' worth of connections.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;

use tidegate_core::store::VersionedLimiter;
use tidegate_core::{Check, LimiterExt};
use tidegate_postgres::Postgres;
use tidegate_testing::{NOW, key, per_minute};

use crate::support::{Server, admitted, burst};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_at_once_admit_the_limit() {
    let (server, first) = Server::with_table().await;
    let mut limiters = vec![Arc::new(first)];
    limiters.extend((0..3).map(|_| Arc::new(server.limiter())));
    for (round, limit) in [60, 100, 499].into_iter().enumerate() {
        let policy = per_minute(limit);
        limiters[round].reset(&policy, (&key()).into()).await.unwrap();
        let answers = burst(&limiters, &policy, 500).await;
        assert!(answers.iter().all(Result::is_ok), "{:?}", answers.iter().find(|answer| answer.is_err()));
        assert_eq!(admitted(&answers), usize::try_from(limit).unwrap());
        let mut left: Vec<_> = answers
            .iter()
            .flatten()
            .filter(|decision| decision.is_allowed())
            .map(|decision| decision.binding().remaining().unwrap())
            .collect();
        left.sort_unstable();
        assert_eq!(left, (0..limit).collect::<Vec<_>>(), "each admitted request has a place of its own");
        let denied = limiters[0].check(Check::new(&policy, &key(), NOW)).await.unwrap();
        assert!(!denied.is_allowed());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_remembers_and_one_that_does_not_count_together() {
    let (server, remembering) = Server::with_table().await;
    let plain = VersionedLimiter::new(Postgres::new(server.config()).unwrap()).attempts(1_000);
    let policy = per_minute(50);
    let (remembering, plain) = (Arc::new(remembering), Arc::new(plain));
    let (one, other) = tokio::join!(
        burst(std::slice::from_ref(&remembering), &policy, 200),
        burst(std::slice::from_ref(&plain), &policy, 60)
    );
    assert!(other.iter().all(Result::is_ok), "{other:?}");
    assert_eq!(admitted(&one) + admitted(&other), 50);
}
