//! A PostgreSQL server for one test: on a free loopback port, in a temporary directory, stopped on drop.

#![allow(dead_code, reason = "the benchmark uses a part of this module")]
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub, reason = "a failing rig fails its test")]

use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_core::{Check, Decision, Error, Limiter, LimiterExt, Millis, Policy};
use tidegate_postgres::tokio_postgres::{self, NoTls};
use tidegate_postgres::{Config, Postgres, PostgresLimiter};
use tidegate_testing::{NOW, key};

/// Long enough that no key expires while the virtual time of a test stands still.
pub const MIN_TTL: Millis = Millis::from_secs(3_600);

/// The deadline of most limiters, which a busy machine does not reach.
pub const DEADLINE: Millis = Millis::from_secs(60);

/// The password of the user `tidegate`.
pub const PASSWORD: &str = "hunter2";

/// The user to run as in place of root, whom the server refuses: `nobody`.
const NOBODY: u32 = 65_534;

/// Sends `count` concurrent checks of [`key`], spread over the limiters.
pub async fn burst(
    limiters: &[Arc<impl Limiter + 'static>],
    policy: &Policy,
    count: usize,
) -> Vec<Result<Decision, Error>> {
    let check = |place: usize| {
        let (limiter, policy) = (Arc::clone(&limiters[place % limiters.len()]), policy.clone());
        tokio::spawn(async move { limiter.check(Check::new(&policy, &key(), NOW)).await })
    };
    let tasks: Vec<_> = (0..count).map(check).collect();
    let mut answers = Vec::with_capacity(count);
    for task in tasks {
        answers.push(task.await.unwrap());
    }
    answers
}

pub fn admitted(answers: &[Result<Decision, Error>]) -> usize {
    answers.iter().filter(|answer| answer.as_ref().is_ok_and(Decision::is_allowed)).count()
}

pub struct Server {
    process: Child,
    pub port: u16,
    dir: tempfile::TempDir,
    arguments: Vec<String>,
}

impl Server {
    pub fn start() -> Self {
        Self::start_with(&["fsync=off"])
    }

    /// A server with the certificate `host.crt` of a folder.
    pub fn start_with_tls(dir: &Path) -> Self {
        given_to_server(dir);
        let file = |name: &str| dir.join(name).to_str().unwrap().to_owned();
        let (certificate, key) = (file("host.crt"), file("host.key"));
        Self::start_with(&[
            "fsync=off",
            "ssl=on",
            &format!("ssl_cert_file={certificate}"),
            &format!("ssl_key_file={key}"),
        ])
    }

    /// A server with these settings.
    pub fn start_with(settings: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("password"), PASSWORD).unwrap();
        given_to_server(dir.path());
        let made = program("initdb")
            .args(["--username", "tidegate", "--pwfile", "password", "--auth", "scram-sha-256"])
            .args(["--no-sync", "--encoding", "UTF8", "--locale", "C", "data"])
            .current_dir(dir.path())
            .output()
            .unwrap();
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let settings = ["shared_buffers=32MB", "unix_socket_directories=", "listen_addresses=127.0.0.1"]
            .iter()
            .chain(settings)
            .map(|setting| (*setting).to_owned());
        let arguments: Vec<_> = settings.flat_map(|setting| ["-c".to_owned(), setting]).collect();
        let process = spawn(dir.path(), port, &arguments);
        let mut server = Self { process, port, dir, arguments };
        server.comes_up();
        server
    }

    pub fn url(&self) -> String {
        self.url_of("tidegate", PASSWORD)
    }

    pub fn url_of(&self, user: &str, password: &str) -> String {
        format!("postgresql://{user}:{password}@127.0.0.1:{}/postgres", self.port)
    }

    pub fn config(&self) -> Config {
        Config::new(self.url()).unwrap().min_ttl(MIN_TTL).deadline(DEADLINE)
    }

    /// A limiter with connections of its own, as that of another process.
    pub fn limiter(&self) -> PostgresLimiter {
        Postgres::new(self.config()).unwrap().limiter()
    }

    /// A server with a table, and a limiter on it.
    pub async fn with_table() -> (Self, PostgresLimiter) {
        let server = Self::start();
        let limiter = server.limiter();
        limiter.store().create_table().await.unwrap();
        (server, limiter)
    }

    /// A plain connection, independent of the limiters'.
    pub async fn client(&self) -> tokio_postgres::Client {
        let (client, connection) = tokio_postgres::connect(&self.url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    pub async fn count(&self) -> u64 {
        let row = self.client().await.query_one("SELECT count(*) FROM tidegate", &[]).await.unwrap();
        row.get::<_, i64>(0).try_into().unwrap()
    }

    /// Ends the server and all its backends at once, as a crash of the server would.
    pub fn crash(&mut self) {
        self.signal("QUIT");
        self.process.wait().unwrap();
    }

    pub fn start_again(&mut self) {
        self.process = spawn(self.dir.path(), self.port, &self.arguments);
        self.comes_up();
    }

    /// Halts the server and its backends, or lets them go on.
    pub fn halt(&self, halted: bool) {
        let signal = if halted { "-STOP" } else { "-CONT" };
        let parent = self.process.id().to_string();
        Command::new("pkill").args([signal, "-P", &parent]).status().unwrap();
        Command::new("kill").args([signal, &parent]).status().unwrap();
    }

    fn signal(&self, signal: &str) {
        Command::new("kill").args(["-s", signal, &self.process.id().to_string()]).status().unwrap();
    }

    fn comes_up(&mut self) {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let url = self.url();
            // A runtime of the test's may be running on this thread.
            let asked = std::thread::spawn(move || {
                runtime.block_on(async { tokio_postgres::connect(&url, NoTls).await.map(drop) })
            });
            match asked.join().unwrap() {
                Ok(()) => return,
                Err(error) => assert!(
                    Instant::now() < until && self.process.try_wait().unwrap().is_none(),
                    "postgres did not come up: {error}"
                ),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.halt(false);
        self.signal("QUIT");
        let _ = self.process.wait();
    }
}

/// Has a folder and its files belong to whom the server runs as.
pub fn given_to_server(dir: &Path) {
    if is_root() {
        chown(dir, Some(NOBODY), Some(NOBODY)).unwrap();
        for entry in dir.read_dir().unwrap() {
            chown(entry.unwrap().path(), Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// A program of PostgreSQL, which Debian does not install on the path. It runs as another user than root.
fn program(name: &str) -> Command {
    let installed = Path::new("/usr/lib/postgresql").read_dir().into_iter().flatten().flatten();
    let version = |path: &PathBuf| path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
    let newest = installed.map(|entry| entry.path()).filter(|path| version(path).is_some()).max_by_key(version);
    let path = newest.map_or_else(|| name.into(), |folder| folder.join("bin").join(name));
    let mut command = Command::new(path);
    as_server(&mut command);
    command
}

/// Has a program run as another user than root.
pub fn as_server(command: &mut Command) -> &mut Command {
    if is_root() { command.uid(NOBODY).gid(NOBODY) } else { command }
}

fn spawn(dir: &Path, port: u16, arguments: &[String]) -> Child {
    program("postgres")
        .args(["-D", "data", "-p", &port.to_string()])
        .args(arguments)
        .current_dir(dir)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("these tests need PostgreSQL ({error}): apt-get install postgresql"))
}
