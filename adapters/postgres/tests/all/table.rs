//! The table, and what is sent to it.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidegate_core::{Check, Error, Key, LimiterExt, Millis};
use tidegate_postgres::tokio_postgres::types::ToSql;
use tidegate_postgres::tokio_postgres::{self, Client, Row};
use tidegate_postgres::{Connections, Postgres, Statement};
use tidegate_testing::{NOW, per_minute};

use crate::support::{DEADLINE, Server};

/// Counts the statements.
#[derive(Clone)]
struct Counting(Arc<Client>, Arc<AtomicUsize>);

impl Connections for Counting {
    type Connection = Arc<Client>;

    async fn get(&self, deadline: Millis) -> Result<Arc<Client>, Error> {
        self.0.get(deadline).await
    }

    async fn query(
        &self,
        connection: &Arc<Client>,
        statement: Statement,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.query(connection, statement, parameters).await
    }
}

#[tokio::test]
async fn a_decision_is_one_statement() {
    let (server, other) = Server::with_table().await;
    let counting = Counting(Arc::new(server.client().await), Arc::default());
    let count = || counting.1.swap(0, Ordering::Relaxed);
    let limiter = Postgres::over(counting.clone(), false, DEADLINE).unwrap().limiter();
    let (policy, key) = (per_minute(3), Key::new("k"));
    for (allowed, statements, what) in [(true, 1, "a new key"), (true, 1, "a key that it remembers")] {
        assert_eq!(limiter.check(Check::new(&policy, &key, NOW)).await.unwrap().is_allowed(), allowed);
        assert_eq!(count(), statements, "{what}");
    }
    assert!(other.check(Check::new(&policy, &key, NOW)).await.unwrap().is_allowed());
    assert!(!limiter.check(Check::new(&policy, &key, NOW)).await.unwrap().is_allowed());
    assert_eq!(count(), 1, "a lost swap tells the present state");
    assert!(!limiter.check(Check::new(&policy, &key, NOW)).await.unwrap().is_allowed());
    assert_eq!(count(), 1, "a denial");
    // A setting of one statement is not one of the session.
    let setting: String = counting.0.query_one("SHOW synchronous_commit", &[]).await.unwrap().get(0);
    assert_eq!(setting, "on");
}

#[tokio::test]
async fn a_commit_waits_for_the_disk_only_if_it_is_asked_to() {
    // With a server that cannot write its log before an hour has passed, what does not wait is not flushed.
    let server = Server::start_with(&["wal_writer_delay=10s", "wal_writer_flush_after=1GB"]);
    let client = server.client().await;
    for durable in [false, true] {
        let config = server.config().durable(durable);
        let limiter = Postgres::new(config).unwrap().limiter();
        limiter.store().create_table().await.unwrap();
        let (policy, key) = (per_minute(100), Key::new(if durable { "durable" } else { "quick" }));
        // Which prepares the statements.
        for _ in 0..2 {
            limiter.check(Check::new(&policy, &key, NOW)).await.unwrap();
        }
        client.execute("CHECKPOINT", &[]).await.unwrap();
        let mut behind = 0;
        for _ in 0..20 {
            limiter.check(Check::new(&policy, &key, NOW)).await.unwrap();
            let flushed = "SELECT pg_current_wal_flush_lsn() < pg_current_wal_insert_lsn()";
            behind += usize::from(client.query_one(flushed, &[]).await.unwrap().get::<_, bool>(0));
        }
        assert_eq!(behind > 10, !durable, "durable: {durable}, behind after {behind} of 20");
    }
}

#[tokio::test]
async fn the_table_is_created_once_also_by_many_at_once() {
    let server = Server::start();
    let stores: Vec<_> = (0..8).map(|_| Postgres::new(server.config()).unwrap()).collect();
    let mut created = tokio::task::JoinSet::new();
    for store in stores {
        created.spawn(async move { store.create_table().await.and(store.ping().await) });
    }
    while let Some(created) = created.join_next().await {
        created.unwrap().unwrap();
    }
}

#[tokio::test]
async fn updates_stay_hot() {
    let (server, limiter) = Server::with_table().await;
    let (policy, client) = (per_minute(1_000_000), server.client().await);
    for nth in 0..2_000 {
        let key = Key::new(format!("k{}", nth % 100));
        assert!(limiter.check(Check::new(&policy, &key, NOW)).await.unwrap().is_allowed());
    }
    drop(limiter);
    // A backend tells its statistics a second later, or when it ends.
    let stats = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'tidegate'";
    let mut told = (0, 0);
    for _ in 0..200 {
        let row = client.query_one(stats, &[]).await.unwrap();
        told = (row.get::<_, i64>(0), row.get::<_, i64>(1));
        if told.0 >= 1_900 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert!(told.0 >= 1_900 && told.1 * 100 >= told.0 * 95, "{told:?}");
}

#[tokio::test]
async fn a_table_that_has_grown_is_not_scanned() {
    for prepared in [false, true] {
        let server = Server::start();
        let limiter = Postgres::new(server.config().prepared(prepared).connections(1)).unwrap().limiter();
        limiter.store().create_table().await.unwrap();
        let (policy, client) = (per_minute(1_000_000), server.client().await);
        client.batch_execute("ALTER TABLE tidegate SET (autovacuum_enabled = off)").await.unwrap();
        let check = async || {
            let decided = limiter.check(Check::new(&policy, &Key::new("k"), NOW)).await;
            assert!(decided.unwrap().is_allowed());
        };
        check().await;
        // With a page, the planner scans the table.
        client.batch_execute("ANALYZE tidegate").await.unwrap();
        for _ in 0..20 {
            check().await;
        }
        let many =
            "INSERT INTO tidegate SELECT 'n' || n, 'x', now() + interval '1 h' FROM generate_series(1, 50000) AS n";
        client.execute(many, &[]).await.unwrap();
        for _ in 0..50 {
            check().await;
        }
        // A backend tells its statistics when it ends.
        drop(limiter);
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
        let scanned = "SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'tidegate'";
        let rows: i64 = client.query_one(scanned, &[]).await.unwrap().get(0);
        assert!(rows < 50_000, "{rows} rows were scanned by 50 decisions, prepared: {prepared}");
    }
}
