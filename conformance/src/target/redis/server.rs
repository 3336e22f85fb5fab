//! Redis servers on free loopback ports. Each has its own folder, which is removed with it.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use tokio::process::Command;

use crate::target::process::{Process, guarded};

/// How long servers may take to answer, and to agree on their slots.
const PATIENCE: Duration = Duration::from_secs(30);

/// The number of hash slots of a Redis cluster.
const SLOTS: usize = 16_384;

/// The servers of one store. Dropping it ends them.
#[derive(Debug)]
pub(in crate::target) struct Servers {
    nodes: Vec<Node>,
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

pub(in crate::target) fn cli_available() -> Result<(), String> {
    std::process::Command::new("redis-cli").arg("--version").output().map(drop).map_err(|_| missing())
}

fn missing() -> String {
    "redis-server is not installed; install it with: sudo apt-get install redis-server (or brew install redis)".into()
}

impl Servers {
    pub(in crate::target) async fn start(nodes: usize) -> Result<Self, String> {
        let clustered = nodes > 1;
        let nodes = try_join_all(free_ports(nodes)?.into_iter().map(|ports| Node::start(ports, clustered))).await?;
        let servers = Self { nodes };
        servers.answering().await?;
        if clustered {
            servers.share_slots().await?;
            servers.agreed().await?;
        }
        Ok(servers)
    }

    pub(in crate::target) fn urls(&self) -> impl Iterator<Item = String> {
        self.nodes.iter().map(|node| format!("redis://127.0.0.1:{}", node.port))
    }

    pub(in crate::target) async fn script_flush(&self) -> Result<(), String> {
        self.each(&["SCRIPT", "FLUSH", "SYNC"]).await.map(drop)
    }

    /// Kills all servers and starts them again from their files.
    pub(in crate::target) async fn restart(&self) -> Result<(), String> {
        try_join_all(self.nodes.iter().map(|node| node.process.tell("restart"))).await?;
        self.answering().await?;
        if self.nodes.len() > 1 {
            self.agreed().await?;
        }
        Ok(())
    }

    /// Halts all servers for a second.
    pub(in crate::target) async fn hang(&self) -> Result<(), String> {
        try_join_all(self.nodes.iter().map(|node| node.process.tell("hang"))).await.map(drop)
    }

    /// Counts the script calls. Each one is a round trip.
    pub(in crate::target) async fn script_calls(&self) -> Result<u64, String> {
        let told = self.each(&["INFO", "commandstats"]).await?;
        let calls = told.iter().flat_map(|told| told.lines()).filter_map(|line| {
            let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            let script = matches!(name, "eval" | "evalsha" | "fcall" | "eval_ro" | "evalsha_ro" | "fcall_ro");
            script.then(|| rest.split(',').next()?.parse::<u64>().ok()).flatten()
        });
        Ok(calls.sum())
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
    async fn start((port, bus_port): (u16, u16), clustered: bool) -> Result<Self, String> {
        let folder = tempfile::Builder::new().prefix("tidegate-redis-").tempdir().map_err(|error| error.to_string())?;
        let (port_text, bus_text) = (port.to_string(), bus_port.to_string());
        let mut args = vec!["--port", &port_text, "--bind", "127.0.0.1", "--protected-mode", "yes"];
        // The server syncs each write to disk before it answers, so a restart loses nothing that was acknowledged.
        args.extend(["--save", "", "--appendonly", "yes", "--appendfsync", "always"]);
        if clustered {
            args.extend(["--cluster-enabled", "yes", "--cluster-port", &bus_text, "--cluster-node-timeout", "5000"]);
        }
        let args: Vec<String> = args.into_iter().map(str::to_string).collect();
        // The guard removes the folder, because it also runs if this process is killed.
        let process = guarded(&folder.keep(), "redis-server", &args).await?;
        Ok(Self { port, bus_port, process })
    }

    async fn ask(&self, command: &[&str]) -> Result<String, String> {
        let mut cli = Command::new("redis-cli");
        cli.args(["-h", "127.0.0.1", "-p", &self.port.to_string()]).args(command).kill_on_drop(true);
        let told = cli.output().await.map_err(|error| format!("redis-cli: {error}"))?;
        let text = String::from_utf8_lossy(&told.stdout).into_owned();
        if told.status.success() && !text.starts_with("ERR") {
            Ok(text)
        } else {
            Err(format!("redis-cli {}: {}{text}", command.join(" "), String::from_utf8_lossy(&told.stderr)))
        }
    }
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
