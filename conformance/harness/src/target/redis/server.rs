//! Redis servers on free loopback ports. Each has its own folder, which is removed with it.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use tidegate_conformance::fixture::Disturb;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::target::process::{Process, folder, guarded};

/// How long servers may take to answer, and to agree on their slots.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a server that hangs does not answer.
const HANG: Duration = Duration::from_secs(1);

/// How long requests gather at a halted server whose answers will be lost.
const GATHER: Duration = Duration::from_millis(200);

/// The start of the name of a server's folder.
const FOLDER: &str = "tidegate-redis-";

/// The number of hash slots of a Redis cluster.
const SLOTS: usize = 16_384;

/// The servers of one store. Dropping it ends them.
#[derive(Debug)]
pub(in crate::target) struct Servers {
    nodes: Vec<Node>,
}

/// What servers have run since they started.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::target) struct Counts {
    /// The script calls.
    pub(in crate::target) scripts: u64,
    /// The commands: the script calls, and what the scripts call.
    pub(in crate::target) commands: u64,
}

#[derive(Debug)]
struct Node {
    port: u16,
    bus_port: u16,
    process: Process,
}

/// The version of the redis-server on the path.
pub(in crate::target) fn version() -> Result<String, String> {
    let told = std::process::Command::new("redis-server").arg("--version").output().map_err(|_| missing())?;
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    let version = told.split_whitespace().find_map(|word| word.strip_prefix("v="));
    Ok(version.unwrap_or("unknown").to_string())
}

fn missing() -> String {
    "redis-server is not installed; install it with: sudo apt-get install redis-server (or brew install redis)".into()
}

/// Whether a server, or the endpoint in front of it, can be disturbed in this way.
pub(in crate::target) fn can(disturb: Disturb) -> bool {
    !matches!(disturb, Disturb::Evict | Disturb::Kill)
}

impl Servers {
    pub(in crate::target) async fn start(nodes: usize) -> Result<Self, String> {
        let clustered = nodes > 1;
        let start = async |ports| Node::start(&folder(FOLDER)?, ports, clustered, &[]).await;
        let nodes = try_join_all(free_ports(nodes)?.into_iter().map(start)).await?;
        let servers = Self { nodes };
        servers.answering().await?;
        if clustered {
            servers.share_slots().await?;
            servers.agreed().await?;
        }
        Ok(servers)
    }

    /// Starts one server whose clock stands still at the time in a file, which others write. Returns the file.
    pub(in crate::target) async fn at_the_time_in_a_file() -> Result<(Self, PathBuf), String> {
        let folder = folder(FOLDER)?;
        let clock = folder.join("clock");
        std::fs::write(&clock, "2027-01-15 08:00:00.000").map_err(|error| error.to_string())?;
        let library = faketime()?;
        // The library cannot start within jemalloc, which Debian's server uses. libc's own allocator comes before that.
        let environment = [
            "TZ=UTC".to_string(),
            format!("LD_PRELOAD={}:libc.so.6", library.display()),
            format!("FAKETIME_TIMESTAMP_FILE={}", clock.display()),
            "FAKETIME_NO_CACHE=1".into(),
            "FAKETIME_DONT_FAKE_MONOTONIC=1".into(),
        ];
        let ports = free_ports(1)?.into_iter().next().ok_or("no free port")?;
        let servers = Self { nodes: vec![Node::start(&folder, ports, false, &environment).await?] };
        servers.answering().await?;
        Ok((servers, clock))
    }

    pub(in crate::target) fn urls(&self) -> impl Iterator<Item = String> {
        self.nodes.iter().map(|node| format!("redis://127.0.0.1:{}", node.port))
    }

    pub(in crate::target) async fn script_flush(&self) -> Result<(), String> {
        self.each(&["SCRIPT", "FLUSH", "SYNC"]).await.map(drop)
    }

    /// Kills all servers and starts them again from their files.
    pub(in crate::target) async fn restart(&self) -> Result<(), String> {
        self.tell("restart").await?;
        self.answering().await?;
        if self.nodes.len() > 1 {
            self.agreed().await?;
        }
        Ok(())
    }

    /// Halts all servers for a second.
    pub(in crate::target) async fn hang(&self) -> Result<(), String> {
        self.halt().await?;
        tokio::time::sleep(HANG).await;
        self.resume().await
    }

    /// Ends every connection after its requests have been performed, and before they are answered.
    ///
    /// A server reads from all connections that have requests, in the order in which these arrived, before it answers any.
    /// So it is halted until there are some, and the last one ends all other connections.
    pub(in crate::target) async fn lose_answers(&self) -> Result<(), String> {
        let mut last = try_join_all(self.nodes.iter().map(Node::open)).await?;
        // The server reads from a connection only after it has accepted it.
        try_join_all(last.iter_mut().map(|last| last.ask(&["PING"]))).await?;
        self.halt().await?;
        tokio::time::sleep(GATHER).await;
        let sent = try_join_all(last.iter_mut().map(|last| last.send(&["CLIENT", "KILL", "TYPE", "normal"]))).await;
        self.resume().await?;
        sent?;
        let ended = try_join_all(last.iter_mut().map(Connection::answer)).await?;
        // Each answer is the number of connections that the server has ended.
        if ended.iter().all(|ended| ended == "0") {
            return Err("no connection was open, so no answer was lost".into());
        }
        Ok(())
    }

    /// Halts all servers. They accept connections and take requests, and answer none until they [resume](Self::resume).
    pub(in crate::target) async fn halt(&self) -> Result<(), String> {
        self.tell("halt").await
    }

    pub(in crate::target) async fn resume(&self) -> Result<(), String> {
        self.tell("resume").await
    }

    async fn tell(&self, word: &str) -> Result<(), String> {
        try_join_all(self.nodes.iter().map(|node| node.process.tell(word))).await.map(drop)
    }

    /// Counts the script calls and the commands since the servers started, without those of clients' connections and of
    /// this suite.
    pub(in crate::target) async fn counts(&self) -> Result<Counts, String> {
        let told = self.each(&["INFO", "commandstats"]).await?;
        let mut counts = Counts::default();
        for (name, calls) in told.iter().flat_map(|told| told.lines()).filter_map(calls) {
            match name.split('|').next().unwrap_or(name) {
                "eval" | "evalsha" => counts.scripts += calls,
                "auth" | "client" | "cluster" | "command" | "hello" | "info" | "ping" | "script" => continue,
                _ => {}
            }
            counts.commands += calls;
        }
        Ok(counts)
    }

    pub(in crate::target) async fn end(self: Box<Self>) {
        for node in self.nodes {
            node.process.stop().await;
        }
    }

    async fn share_slots(&self) -> Result<(), String> {
        let count = self.nodes.len();
        for (place, node) in self.nodes.iter().enumerate() {
            let (first, last) = (place * SLOTS / count, (place + 1) * SLOTS / count - 1);
            node.ask(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()]).await?;
            node.ask(&["CLUSTER", "SET-CONFIG-EPOCH", &(place + 1).to_string()]).await?;
        }
        for other in &self.nodes[1..] {
            let (port, bus_port) = (other.port.to_string(), other.bus_port.to_string());
            self.nodes[0].ask(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus_port]).await?;
        }
        Ok(())
    }

    /// Waits until every server answers.
    async fn answering(&self) -> Result<(), String> {
        self.until(&["PING"], |told| told.trim() == "PONG").await
    }

    /// Waits until all nodes know each other and all slots are served.
    async fn agreed(&self) -> Result<(), String> {
        let known = format!("cluster_known_nodes:{}", self.nodes.len());
        let ok = |told: &str| told.contains("cluster_state:ok") && told.contains(&known);
        self.until(&["CLUSTER", "INFO"], ok).await
    }

    async fn until(&self, command: &[&str], done: impl Fn(&str) -> bool) -> Result<(), String> {
        let began = Instant::now();
        loop {
            match self.each(command).await {
                Ok(told) if told.iter().all(|told| done(told)) => return Ok(()),
                told if began.elapsed() > PATIENCE => {
                    return Err(format!("not ready within {PATIENCE:?}; {} answers {told:?}", command.join(" ")));
                }
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    async fn each(&self, command: &[&str]) -> Result<Vec<String>, String> {
        try_join_all(self.nodes.iter().map(|node| node.ask(command))).await
    }
}

impl Node {
    async fn start(
        folder: &Path,
        (port, bus_port): (u16, u16),
        clustered: bool,
        environment: &[String],
    ) -> Result<Self, String> {
        let (port_text, bus_text) = (port.to_string(), bus_port.to_string());
        let mut args = vec!["--port", &port_text, "--bind", "127.0.0.1", "--protected-mode", "yes"];
        // The server syncs each write to disk before it answers, so a restart loses nothing that was acknowledged.
        args.extend(["--save", "", "--appendonly", "yes", "--appendfsync", "always"]);
        // A burst may open a connection for each of its requests.
        args.extend(["--tcp-backlog", "4096"]);
        if clustered {
            args.extend(["--cluster-enabled", "yes", "--cluster-port", &bus_text, "--cluster-node-timeout", "5000"]);
        }
        let server = std::iter::once("redis-server").chain(args).map(str::to_string);
        let command: Vec<String> = environment.iter().cloned().chain(server).collect();
        let process = guarded(folder, "env", &command).await?;
        Ok(Self { port, bus_port, process })
    }

    async fn ask(&self, command: &[&str]) -> Result<String, String> {
        self.open().await?.ask(command).await
    }

    async fn open(&self) -> Result<Connection, String> {
        let socket = TcpStream::connect(("127.0.0.1", self.port)).await;
        socket.map(|socket| Connection(BufReader::new(socket))).map_err(|error| format!("redis-server: {error}"))
    }
}

/// A connection for the suite's own commands. A process of redis-cli for each would take longer than most fixtures.
struct Connection(BufReader<TcpStream>);

impl Connection {
    async fn ask(&mut self, command: &[&str]) -> Result<String, String> {
        self.send(command).await?;
        self.answer().await.map_err(|error| format!("redis-server, {}: {error}", command.join(" ")))
    }

    async fn send(&mut self, command: &[&str]) -> Result<(), String> {
        let line = format!("{}\r\n", command.join(" "));
        self.0.write_all(line.as_bytes()).await.map_err(|error| error.to_string())
    }

    /// Reads a line or a string.
    async fn answer(&mut self) -> Result<String, String> {
        let mut line = String::new();
        self.0.read_line(&mut line).await.map_err(|error| error.to_string())?;
        match line.trim_end().split_at_checked(1) {
            Some(("$", length)) => {
                let length = length.parse().map_err(|_| format!("answered {line:?}"))?;
                let mut text = vec![0; length];
                self.0.read_exact(&mut text).await.map_err(|error| error.to_string())?;
                Ok(String::from_utf8_lossy(&text).into_owned())
            }
            Some(("+" | ":", text)) => Ok(text.to_string()),
            _ => Err(format!("answered {line:?}")),
        }
    }
}

/// A command and its number of calls, from a line as `cmdstat_get:calls=3,usec=…`.
fn calls(line: &str) -> Option<(&str, u64)> {
    let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
    Some((name, rest.split(',').next()?.parse().ok()?))
}

/// The library that gives a program another clock.
pub(in crate::target) fn faketime() -> Result<PathBuf, String> {
    let libraries = Path::new("/usr/lib").read_dir().into_iter().flatten().flatten();
    let found = libraries.map(|folder| folder.path().join("faketime/libfaketime.so.1")).find(|file| file.exists());
    found.ok_or_else(|| "libfaketime is not installed; install it with: sudo apt-get install faketime".into())
}

/// Finds two free ports for each server. The ports are released again, so another process may take one. Then the server
/// fails to start with an error.
fn free_ports(servers: usize) -> Result<Vec<(u16, u16)>, String> {
    let bind = |_| TcpListener::bind("127.0.0.1:0");
    let bound = (0..2 * servers).map(bind).collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
    let port = |socket: &TcpListener| socket.local_addr().map(|address| address.port());
    let ports = bound.iter().map(port).collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
    Ok(ports.chunks(2).map(|pair| (pair[0], pair[1])).collect())
}
