//! Processes behind a PgBouncer that gives each transaction another session.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_core::{Check, LimiterExt};
use tidegate_postgres::tokio_postgres::{self, NoTls, SimpleQueryMessage};
use tidegate_postgres::{Config, Postgres, PostgresLimiter};
use tidegate_testing::{NOW, key, named_per_minute};

use crate::support::{DEADLINE, MIN_TTL, PASSWORD, Server, admitted, as_server, burst, given_to_server};

const LIMIT: u64 = 137;
const PROCESSES: usize = 4;
const EACH: usize = 100;

/// A PgBouncer on a free port, stopped on drop.
struct Pooler {
    process: Child,
    port: u16,
    _dir: tempfile::TempDir,
}

impl Pooler {
    fn start(server: &Server, sessions: u16, more: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let config = format!(
            "[databases]\npostgres = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = plain\nauth_file = users\npool_mode = transaction\ndefault_pool_size = {sessions}\n\
             max_client_conn = 200\n{more}\n",
            server.port
        );
        std::fs::write(dir.path().join("config"), config).unwrap();
        std::fs::write(dir.path().join("users"), format!("\"tidegate\" \"{PASSWORD}\"\n")).unwrap();
        given_to_server(dir.path());
        // Debian has it where only root's path leads.
        let program = if Command::new("pgbouncer").arg("--version").output().is_ok() {
            "pgbouncer"
        } else {
            "/usr/sbin/pgbouncer"
        };
        let process = as_server(Command::new(program).args(["--quiet", "config"]).current_dir(dir.path()))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("this test needs PgBouncer ({error}): apt-get install pgbouncer"));
        let mut pooler = Self { process, port, _dir: dir };
        let until = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let lives = Instant::now() < until && pooler.process.try_wait().unwrap().is_none();
            assert!(lives, "PgBouncer did not come up");
            std::thread::sleep(Duration::from_millis(20));
        }
        pooler
    }

    fn url(&self) -> String {
        format!("postgresql://tidegate:{PASSWORD}@127.0.0.1:{}/postgres", self.port)
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn processes_behind_a_pooler_admit_exactly_the_limit() {
    if let (Ok(url), Ok(policy)) = (std::env::var("POOLER"), std::env::var("POLICY")) {
        return one_process(&url, &policy);
    }
    let server = Server::start();
    create_table(&server);
    // One refuses the setting of the session that a prepared statement needs, and the other drops it.
    for (policy, more) in [("refuses", ""), ("drops", "ignore_startup_parameters = options")] {
        let pooler = Pooler::start(&server, 5, more);
        let mut processes: Vec<_> = (0..PROCESSES)
            .map(|_| {
                Command::new(std::env::current_exe().unwrap())
                    .args(["--exact", "pooler::processes_behind_a_pooler_admit_exactly_the_limit", "--nocapture"])
                    .env("POOLER", pooler.url())
                    .env("POLICY", policy)
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .spawn()
                    .unwrap()
            })
            .collect();
        let mut said: Vec<_> = processes.iter_mut().map(|one| BufReader::new(one.stdout.take().unwrap())).collect();
        // All begin at once, when all are ready.
        for one in &mut said {
            line_with(one, "ready");
        }
        for one in &mut processes {
            drop(one.stdin.take());
        }
        let admitted: u64 = said.iter_mut().map(|one| line_with(one, "admitted ").parse::<u64>().unwrap()).sum();
        for mut one in processes {
            assert!(one.wait().unwrap().success());
        }
        assert_eq!(admitted, LIMIT, "{policy}");
    }
}

/// What follows after these words in the first line that has them.
fn line_with(said: &mut impl std::io::BufRead, words: &str) -> String {
    let found = said.lines().map_while(Result::ok).find_map(|line| Some(line.split_once(words)?.1.to_owned()));
    found.unwrap_or_else(|| panic!("a process ended without {words:?}"))
}

#[tokio::main(flavor = "current_thread")]
async fn create_table(server: &Server) {
    Postgres::new(server.config()).unwrap().create_table().await.unwrap();
}

fn limiter(url: &str) -> PostgresLimiter {
    Postgres::new(Config::new(url).unwrap().min_ttl(MIN_TTL).deadline(DEADLINE)).unwrap().limiter()
}

/// The part of the test that runs in each process: a burst of a limiter with connections of its own.
#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn one_process(url: &str, policy: &str) {
    let limiter = Arc::new(limiter(url));
    limiter.store().ping().await.unwrap();
    println!("ready");
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    let answers = burst(std::slice::from_ref(&limiter), &named_per_minute(policy, LIMIT), EACH).await;
    assert!(answers.iter().all(Result::is_ok), "{:?}", answers.iter().find(|answer| answer.is_err()));
    println!("admitted {}", admitted(&answers));
}

#[test]
fn nothing_is_prepared_behind_a_pooler() {
    let server = Server::start();
    create_table(&server);
    for more in ["", "ignore_startup_parameters = options"] {
        prepares_nothing(&Pooler::start(&server, 1, more));
    }
}

#[tokio::main(flavor = "current_thread")]
async fn prepares_nothing(pooler: &Pooler) {
    let limiter = limiter(&pooler.url());
    let (policy, key) = (named_per_minute("prepared", 1_000), key());
    for _ in 0..20 {
        assert!(limiter.check(Check::new(&policy, &key, NOW)).await.unwrap().is_allowed());
    }
    // The pooler has one session for all.
    let (client, connection) = tokio_postgres::connect(&pooler.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    let asked = "SELECT count(*)::int AS prepared FROM pg_prepared_statements";
    let answer = client.simple_query(asked).await.unwrap();
    let rows: Vec<_> = answer
        .iter()
        .filter_map(
            |part| if let SimpleQueryMessage::Row(row) = part { Some(row.get("prepared").unwrap()) } else { None },
        )
        .collect();
    assert_eq!(rows, ["0"]);
}
