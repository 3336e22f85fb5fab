//! A PostgreSQL server on a free loopback port, in a folder that is removed with it.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::process::Command;

use crate::target::process::{Process, folder, guarded};

/// How long the server may take to answer, or to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a server that hangs does not answer.
const HANG: Duration = Duration::from_secs(1);

/// Where Debian installs the programs, in a folder for each version. Few of them are on the path.
const INSTALLED: &str = "/usr/lib/postgresql";

/// The user to run as in place of root, whom the server refuses: `nobody`.
const NOBODY: u32 = 65_534;

/// A server. Dropping it ends it.
#[derive(Debug)]
pub(in crate::target) struct Server {
    folder: PathBuf,
    port: u16,
    process: Process,
}

/// The version of the server that is installed.
pub(in crate::target) fn version() -> Result<String, String> {
    let told = std::process::Command::new(program("postgres")).arg("--version").output().map_err(|_| missing())?;
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    Ok(told.split_whitespace().nth(2).unwrap_or("unknown").to_string())
}

fn missing() -> String {
    "PostgreSQL is not installed; install it with: sudo apt-get install postgresql (or brew install postgresql)".into()
}

/// A program of the newest version, or else the one on the path.
fn program(name: &str) -> PathBuf {
    let version = |path: &PathBuf| path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
    let installed = Path::new(INSTALLED).read_dir().into_iter().flatten().flatten().map(|entry| entry.path());
    let programs = installed.filter(|path| version(path).is_some() && path.join("bin").join(name).exists());
    programs.max_by_key(version).map_or_else(|| name.into(), |path| path.join("bin").join(name))
}

/// A command as a user whom the server accepts.
fn command(name: &str) -> Vec<String> {
    let mut words = Vec::new();
    if is_root() {
        words.extend(["setpriv".to_string(), format!("--reuid={NOBODY}"), format!("--regid={NOBODY}")]);
        words.push("--clear-groups".into());
    }
    words.push(program(name).display().to_string());
    words
}

fn is_root() -> bool {
    #[cfg(unix)]
    return rustix::process::geteuid().is_root();
    #[cfg(not(unix))]
    return false;
}

impl Server {
    pub(in crate::target) async fn start() -> Result<Self, String> {
        version()?;
        let folder = folder("tidegate-postgres-")?;
        #[cfg(unix)]
        if is_root() {
            std::os::unix::fs::chown(&folder, Some(NOBODY), Some(NOBODY)).map_err(|error| error.to_string())?;
        }
        let data = ["--username=tidegate", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C", "data"];
        run(&folder, &command("initdb"), &data).await?;
        // Released again, so another process may take it. Then the server fails to start with an error.
        let bound = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        let port = bound.map_err(|error| error.to_string())?.port();
        let settings = [
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            "shared_buffers=32MB",
            // Counts the statements.
            "shared_preload_libraries=pg_stat_statements",
            "pg_stat_statements.track_utility=off",
        ];
        let mut words = command("postgres");
        words.extend(["-D".into(), "data".into(), "-p".into(), port.to_string()]);
        words.extend(settings.iter().flat_map(|setting| ["-c".to_string(), (*setting).to_string()]));
        let process = guarded(&folder, "env", &words).await?;
        let server = Self { folder, port, process };
        server.answering().await?;
        server.ask("CREATE EXTENSION IF NOT EXISTS pg_stat_statements").await?;
        Ok(server)
    }

    pub(in crate::target) fn url(&self) -> String {
        format!("postgresql://tidegate@127.0.0.1:{}/postgres", self.port)
    }

    /// Ends the server and all connections at once, as a crash would, and starts it again from its files.
    pub(in crate::target) async fn restart(&self) -> Result<(), String> {
        self.quit().await?;
        self.process.tell("restart").await?;
        self.answering().await
    }

    /// Halts the server for a second.
    pub(in crate::target) async fn hang(&self) -> Result<(), String> {
        self.halt().await?;
        tokio::time::sleep(HANG).await;
        self.resume().await
    }

    /// Halts the server. It accepts connections and takes statements, and answers none until it [resumes](Self::resume).
    pub(in crate::target) async fn halt(&self) -> Result<(), String> {
        self.process.tell("halt").await?;
        self.signal_backends("STOP").await
    }

    pub(in crate::target) async fn resume(&self) -> Result<(), String> {
        self.signal_backends("CONT").await?;
        self.process.tell("resume").await.map(drop)
    }

    /// The statements of limiters since the statistics were reset, which a crash does, too.
    pub(in crate::target) async fn statements(&self) -> Result<u64, String> {
        // Statements that create the table are none of a decision's.
        let asked = "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements WHERE query LIKE '%tidegate%' AND query NOT LIKE '%pg_stat%' \
                     AND query NOT LIKE '%ctid%' AND query NOT LIKE '%pg_relation_size%'";
        let told = self.ask(asked).await?;
        told.parse().map_err(|_| format!("postgres: {told:?} is no number of statements"))
    }

    pub(in crate::target) async fn end(self: Box<Self>) {
        // The server returns its shared memory. The guard then removes the folder.
        let _ended_or_late = self.quit().await;
        self.process.stop().await;
    }

    /// Ends the server without a checkpoint, and waits until it has ended.
    async fn quit(&self) -> Result<(), String> {
        let stop = ["stop", "--pgdata=data", "--mode=immediate", "--timeout=30", "--silent"];
        run(&self.folder, &command("pg_ctl"), &stop).await.map(drop)
    }

    /// Each backend has a process group of its own.
    async fn signal_backends(&self, signal: &str) -> Result<(), String> {
        let file = self.folder.join("data/postmaster.pid");
        let server = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
        let server = server.lines().next().unwrap_or_default();
        let words = ["pkill".to_string(), format!("-{signal}"), "-P".to_string(), server.to_string()];
        run(&self.folder, &words, &[]).await.map(drop)
    }

    async fn answering(&self) -> Result<(), String> {
        let began = Instant::now();
        loop {
            match self.ask("SELECT 1").await {
                Ok(_) => return Ok(()),
                Err(error) if began.elapsed() > PATIENCE => {
                    return Err(format!("not ready within {PATIENCE:?}: {error}"));
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// The first value that a statement returns.
    async fn ask(&self, sql: &str) -> Result<String, String> {
        let words = [program("psql").display().to_string()];
        run(&self.folder, &words, &["--no-psqlrc", "-qtA", &format!("--dbname={}", self.url()), "--command", sql]).await
    }
}

/// Runs a program, and returns what it prints.
async fn run(folder: &Path, words: &[String], args: &[&str]) -> Result<String, String> {
    let [program, first @ ..] = words else { return Err("no program".into()) };
    let mut command = Command::new(program);
    command.args(first).args(args).current_dir(folder).stdin(Stdio::null()).env("PGCONNECT_TIMEOUT", "10");
    let output = command.output().await.map_err(|error| format!("{program}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_string())
}
