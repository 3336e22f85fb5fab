//! Connections of the application's.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;

use tidegate_core::{Check, ErrorKind, LimiterExt, Millis};
use tidegate_postgres::Postgres;
use tidegate_testing::{NOW, key, per_minute};

use crate::support::{DEADLINE, Server, admitted, burst};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_of_the_applications_counts() {
    let (server, _) = Server::with_table().await;
    let client = Arc::new(server.client().await);
    let limiter = Arc::new(Postgres::over(client, false, DEADLINE).unwrap().limiter());
    let answers = burst(&[limiter], &per_minute(30), 100).await;
    assert_eq!(admitted(&answers), 30);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prepared_statements_count() {
    let (server, _) = Server::with_table().await;
    let limiter = Arc::new(Postgres::new(server.config().prepared(true)).unwrap().limiter());
    let answers = burst(&[limiter], &per_minute(30), 100).await;
    assert_eq!(admitted(&answers), 30);
}

#[cfg(feature = "deadpool")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_of_the_applications_counts_and_one_that_is_used_up_is_contention() {
    use deadpool_postgres::{Manager, Pool};
    use tidegate_postgres::tokio_postgres::NoTls;

    let (server, _) = Server::with_table().await;
    let manager = Manager::new(server.url().parse().unwrap(), NoTls);
    let runtime = deadpool_postgres::Runtime::Tokio1;
    let pool = Pool::builder(manager).max_size(3).runtime(runtime).build().unwrap();
    let limiter = Arc::new(Postgres::over(pool.clone(), false, DEADLINE).unwrap().limiter());
    let answers = burst(std::slice::from_ref(&limiter), &per_minute(30), 100).await;
    assert_eq!(admitted(&answers), 30);
    let hasty = Postgres::over(pool.clone(), false, Millis::new(50)).unwrap().limiter();
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(pool.get().await.unwrap());
    }
    let (policy, key) = (per_minute(30), key());
    let error = hasty.check(Check::new(&policy, &key, NOW)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Contended, "{error:?}");
    drop(held);
    assert!(hasty.check(Check::new(&policy, &key, NOW)).await.is_ok());
}
