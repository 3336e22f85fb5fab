//! Rows that have expired are removed, and count as absent.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use tidegate_conformance::{Rows, Suite};
use tidegate_core::{Check, Key, LimiterExt, Millis};
use tidegate_postgres::{Postgres, SWEEP_ALL};
use tidegate_testing::{NOW, per_minute};

use crate::support::Server;

struct Table<'a>(&'a Server);

impl Rows for Table<'_> {
    async fn count(&self) -> Result<u64, String> {
        Ok(self.0.count().await)
    }

    /// The rows become older by so much, because nobody sets the database's clock.
    async fn pass(&self, span: Millis) -> Result<(), String> {
        let span = i64::try_from(span.get()).unwrap();
        let older = "UPDATE tidegate SET expires_at = expires_at - $1 * interval '1 ms'";
        self.0.client().await.execute(older, &[&(span as f64)]).await.map(drop).map_err(|error| error.to_string())
    }
}

#[tokio::test]
async fn rows_of_unused_keys_are_removed() {
    let (server, first) = Server::with_table().await;
    drop(first);
    let config = server.config().min_ttl(Millis::ZERO);
    let limiter = Postgres::new(config).unwrap().limiter();
    Suite::check_expiry(&limiter, &Table(&server)).await.unwrap();
}

#[tokio::test]
async fn a_row_is_kept_for_its_ttl_and_then_created_anew() {
    let (server, first) = Server::with_table().await;
    let config = server.config().min_ttl(Millis::ZERO);
    let limiter = Postgres::new(config).unwrap().limiter();
    let (policy, key, client) = (per_minute(5), Key::new("k"), server.client().await);
    limiter.check(Check::new(&policy, &key, NOW)).await.unwrap();
    let left = "SELECT extract(epoch FROM expires_at - now())::float8 FROM tidegate";
    let left: f64 = client.query_one(left, &[]).await.unwrap().get(0);
    assert!((60.0..=71.0).contains(&left), "{left} s: the window's 60, and 10 more");
    // Nobody removes it.
    client.execute("UPDATE tidegate SET expires_at = now() - interval '1 s'", &[]).await.unwrap();
    // Another process knows nothing of it, and creates it over the old one.
    let decided = first.check(Check::new(&policy, &key, NOW)).await.unwrap();
    assert_eq!(decided.binding().remaining(), Some(4));
    assert_eq!(server.count().await, 1);
    // What the first one remembers is gone.
    let decided = limiter.check(Check::new(&policy, &key, NOW)).await.unwrap();
    assert_eq!(decided.binding().remaining(), Some(3));
}

#[tokio::test]
async fn a_sweep_removes_what_has_expired_and_leaves_what_is_locked() {
    let (server, limiter) = Server::with_table().await;
    let client = server.client().await;
    let insert = "INSERT INTO tidegate SELECT 'k' || n, 'x', now() + CASE WHEN n % 3 = 0 THEN interval '1 h' ELSE interval '-1 s' END \
                  FROM generate_series(1, 3000) AS n";
    client.execute(insert, &[]).await.unwrap();
    let mut locking = server.client().await;
    let locked = locking.transaction().await.unwrap();
    locked.query("SELECT 1 FROM tidegate WHERE name IN ('k1', 'k2999') FOR UPDATE", &[]).await.unwrap();
    for _ in 0..2 {
        limiter.store().sweep().await.unwrap();
    }
    assert_eq!(server.count().await, 1_002);
    locked.rollback().await.unwrap();
    client.execute(SWEEP_ALL, &[]).await.unwrap();
    assert_eq!(server.count().await, 1_000);
    // A sweep is bounded: 64 pages of many.
    let insert =
        "INSERT INTO tidegate SELECT 'long' || n, 'x', now() - interval '1 s' FROM generate_series(1, 20000) AS n";
    client.execute(insert, &[]).await.unwrap();
    limiter.store().sweep().await.unwrap();
    let left = server.count().await;
    assert!((10_000..20_900).contains(&left), "{left}");
}
