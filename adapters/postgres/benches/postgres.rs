//! The cost of a decision on a local PostgreSQL, compared with a peer: `cargo bench -p tidegate-postgres`. Server and clients share the
//! machine's cores. The server waits for its disk as Debian's does.

#![allow(clippy::unwrap_used, reason = "a benchmark may panic")]

#[path = "peer/peer.rs"]
mod peer;
#[path = "../tests/support/mod.rs"]
mod support;

use std::io::Result;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use peer::Peer;
use support::{PASSWORD, Server};
use tidegate_core::{Check, Key, LimiterExt, Millis, Policy, Quota, UnixMillis};
use tidegate_measured::{Aim, At, Measurement, ROUNDS, Unit, shortened};
use tidegate_postgres::{Config, Postgres, PostgresLimiter};
use tokio::runtime::{Builder, Runtime};

/// How long a round counts decisions, after a third of that as a warm-up.
const DURATION: Duration = Duration::from_millis(750);

fn main() -> Result<()> {
    // `cargo test --benches` runs this without `--bench`, and must not measure.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    // `-- throughput table` selects what to run.
    let named = |name: &str| {
        let mut names = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).peekable();
        names.peek().is_none() || names.any(|argument| argument == name)
    };
    let server = Server::start_with(&["autovacuum_naptime=10s"]);
    if named("throughput") {
        throughput(&server)?;
    }
    if named("table") {
        table(&server)?;
    }
    Ok(())
}

fn policy(name: &str) -> Arc<Policy> {
    let quota = Quota::token_bucket(1_000_000_000, 1_000_000, Millis::from_secs(1)).unwrap();
    Arc::new(Policy::new(name, [quota]).unwrap())
}

fn now() -> UnixMillis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    UnixMillis::new(u64::try_from(since.as_millis()).unwrap())
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().enable_all().build().unwrap()
}

fn limiter(server: &Server, configure: impl FnOnce(Config) -> Config) -> Arc<PostgresLimiter> {
    let config = Config::new(server.url()).unwrap().deadline(support::DEADLINE);
    Arc::new(Postgres::new(configure(config)).unwrap().limiter())
}

/// Decides until the end, each of `keys` keys in turn. Returns how often.
async fn decide(limiter: Arc<PostgresLimiter>, policy: Arc<Policy>, keys: Vec<Key>, until: Instant) -> u32 {
    let mut decisions = 0;
    for key in keys.iter().cycle() {
        if Instant::now() >= until {
            break;
        }
        assert!(limiter.check(Check::new(&policy, key, now())).await.unwrap().is_allowed());
        decisions += 1;
    }
    decisions
}

/// Decisions a second, of so many keys, which all requests in flight use in turn.
fn per_second(runtime: &Runtime, limiter: &Arc<PostgresLimiter>, in_flight: usize, keys: usize) -> f64 {
    let run = async |duration: Duration| {
        let began = Instant::now();
        let decide = |place| {
            let keys = (0..keys).map(|nth| Key::new(format!("user-{}", (nth + place * keys / in_flight) % keys)));
            decide(Arc::clone(limiter), policy("bench"), keys.collect(), began + duration)
        };
        let workers: Vec<_> = (0..in_flight).map(|place| tokio::spawn(decide(place))).collect();
        let mut decisions = 0;
        for worker in workers {
            decisions += worker.await.unwrap();
        }
        f64::from(decisions) / began.elapsed().as_secs_f64()
    };
    runtime.block_on(async {
        run(shortened(DURATION) / 3).await;
        run(shortened(DURATION)).await
    })
}

/// How often a second the shortest statement that swaps a state can be run, prepared, on as many connections.
fn floor(runtime: &Runtime, server: &Server, in_flight: usize) -> f64 {
    const ROWS: &str = "CREATE TABLE IF NOT EXISTS alone (LIKE tidegate INCLUDING ALL) WITH (fillfactor = 70); \
        INSERT INTO alone SELECT 'tg1:bench:tb1000:user-' || nth, '\\x14e80300000000000000505c18a3010000', now() \
        FROM generate_series(1, 2000) AS nth ON CONFLICT DO NOTHING; \
        SET synchronous_commit = off; SET enable_seqscan = off";
    const SWAP: &str =
        "UPDATE alone SET state = $2, expires_at = now() + interval '70 s' WHERE name = $1 AND state <> $2";
    runtime.block_on(async {
        let mut clients = Vec::new();
        for _ in 0..in_flight.min(Config::DEFAULT_CONNECTIONS) {
            let client = server.client().await;
            client.batch_execute(ROWS).await.unwrap();
            let swap = client.prepare(SWAP).await.unwrap();
            clients.push(Arc::new((client, swap)));
        }
        let names: Arc<Vec<_>> = Arc::new((1..=2_000).map(|nth| format!("tg1:bench:tb1000:user-{nth}")).collect());
        let began = Instant::now();
        let until = began + shortened(DURATION);
        let swap = |place: usize| {
            let (client, names) = (Arc::clone(&clients[place % clients.len()]), Arc::clone(&names));
            async move {
                let mut swaps = 0;
                for name in names.iter().cycle().skip(place * names.len() / in_flight) {
                    if Instant::now() >= until {
                        break;
                    }
                    let mut state = [0x14; 17];
                    state[..4].copy_from_slice(&u32::to_le_bytes(swaps));
                    let _swapped = client.0.execute(&client.1, &[name, &&state[..]]).await.unwrap();
                    swaps += 1;
                }
                swaps
            }
        };
        let workers: Vec<_> = (0..in_flight).map(|place| tokio::spawn(swap(place))).collect();
        let mut swaps = 0;
        for worker in workers {
            swaps += worker.await.unwrap();
        }
        f64::from(swaps) / began.elapsed().as_secs_f64()
    })
}

/// Decisions per second, alternating with rate-limiter-flexible on pg.
fn throughput(server: &Server) -> Result<()> {
    let runtime = runtime();
    let quick = runtime.block_on(async {
        let quick = limiter(server, |config| config);
        quick.store().create_table().await.unwrap();
        quick
    });
    let durable = limiter(server, |config| config.durable(true));
    let unprepared = limiter(server, |config| config.prepared(false));
    let url = server.url_of("tidegate", PASSWORD);
    // The peer waits for the disk unless its connections are told not to.
    let mut peer = Peer::start(&format!("{url}?options=-csynchronous_commit%3Doff"))?;
    let mut durable_peer = Peer::start(&url)?;
    for (keys, of) in [(1, "one key"), (2_000, "2000 keys")] {
        for in_flight in [1, 8, 64] {
            let [mut ours, mut theirs, mut waiting, mut theirs_waiting, mut plain, mut least] =
                [const { Vec::new() }; 6];
            for _ in 0..ROUNDS {
                ours.push(per_second(&runtime, &quick, in_flight, keys));
                theirs.push(peer.per_second(in_flight, keys, DURATION)?);
                waiting.push(per_second(&runtime, &durable, in_flight, keys));
                theirs_waiting.push(durable_peer.per_second(in_flight, keys, DURATION)?);
                plain.push(per_second(&runtime, &unprepared, in_flight, keys));
                if keys > 1 {
                    least.push(floor(&runtime, server, in_flight));
                }
            }
            let at = At::InFlight(u32::try_from(in_flight).unwrap());
            for (how, aim, ours, name, theirs) in [
                ("", Some(Aim::Ratio(1.5)), &ours, peer::NAME, &theirs),
                (", both durable", None, &waiting, peer::NAME, &theirs_waiting),
                (", not prepared", None, &plain, peer::NAME, &theirs),
                (", beside a statement", None, &ours, "an UPDATE alone, prepared", &least),
            ] {
                let name_of = format!("decisions a second, {of}{how}");
                let measured = Measurement::new("postgres", &name_of, Unit::PerSecond).at(at);
                let measured = match aim {
                    Some(aim) => measured.aim(aim),
                    None => measured,
                };
                if !theirs.is_empty() {
                    measured.record_beside(ours, name, theirs)?;
                }
            }
        }
    }
    Ok(())
}

/// The table after a million decisions of 10,000 keys, by how much of a page is filled, and by when it is vacuumed. For people.
fn table(server: &Server) -> Result<()> {
    const DECISIONS: u32 = 1_000_000;
    const KEYS: u32 = 10_000;
    const IN_FLIGHT: u32 = 64;
    let runtime = runtime();
    println!(
        "fillfactor, vacuum scale factor: size of the table and its index, dead rows, HOT updates, vacuums, decisions a second"
    );
    for (fillfactor, scale) in [(70, "0.02"), (100, "0.02"), (70, "0.2"), (100, "0.2"), (50, "0.02")] {
        runtime.block_on(async {
            let client = server.client().await;
            client.batch_execute("DROP TABLE IF EXISTS tidegate").await.unwrap();
            let limiter = limiter(server, |config| config);
            limiter.store().create_table().await.unwrap();
            let set = format!(
                "ALTER TABLE tidegate SET (fillfactor = {fillfactor}, autovacuum_vacuum_scale_factor = {scale})"
            );
            client.batch_execute(&set).await.unwrap();
            let (policy, began) = (policy("table"), Instant::now());
            let workers = (0..IN_FLIGHT).map(|place| {
                let (limiter, policy) = (Arc::clone(&limiter), Arc::clone(&policy));
                tokio::spawn(async move {
                    for nth in 0..shortened(DECISIONS) / IN_FLIGHT {
                        // As clients come: in no order.
                        let key = (nth * IN_FLIGHT + place).wrapping_mul(2_654_435_761) >> 7;
                        let key = Key::new(format!("ip:198.51.{}.{}", key % KEYS / 256, key % KEYS % 256));
                        limiter.check(Check::new(&policy, &key, now())).await.unwrap();
                    }
                })
            });
            for worker in workers.collect::<Vec<_>>() {
                worker.await.unwrap();
            }
            let seconds = began.elapsed().as_secs_f64();
            drop(limiter);
            // The backends tell what they did when they end.
            tokio::time::sleep(Duration::from_secs(2)).await;
            let asked = "SELECT pg_relation_size('tidegate'), pg_indexes_size('tidegate'), n_dead_tup, n_tup_hot_upd, n_tup_upd, \
                         autovacuum_count FROM pg_stat_user_tables WHERE relname = 'tidegate'";
            let row = client.query_one(asked, &[]).await.unwrap();
            let [size, index, dead, hot, updates, vacuums] = [0, 1, 2, 3, 4, 5].map(|place| row.get::<_, i64>(place));
            println!(
                "{fillfactor}, {scale}: {} KiB and {} KiB, {dead} dead rows, {:.1} % HOT, {vacuums} vacuums, {:.0}/s",
                size / 1024,
                index / 1024,
                100.0 * hot as f64 / updates.max(1) as f64,
                f64::from(shortened(DECISIONS)) / seconds
            );
        });
    }
    Ok(())
}
