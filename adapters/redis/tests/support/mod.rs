//! A redis-server for one test: on a free loopback port, in a temporary directory, stopped on drop.

#![allow(dead_code, reason = "the benchmark uses a part of this module")]
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub, reason = "a failing rig fails its test")]

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tidegate_core::{Check, Decision, Error, Limiter, LimiterExt, Millis, Policy};
use tidegate_redis::{Clock, Config, Redis, RedisLimiter};
use tidegate_testing::{NOW, key};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Long enough that no key expires while the virtual time of a test stands still.
pub const MIN_TTL: Millis = Millis::from_secs(3_600);

/// The deadline of most limiters, which a busy machine does not reach.
pub const DEADLINE: Millis = Millis::from_secs(60);

/// More than a call takes on a busy machine, if it does not wait for [`DEADLINE`].
pub const AT_ONCE: Duration = Duration::from_secs(20);

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
    arguments: Vec<String>,
    pub dir: tempfile::TempDir,
}

impl Server {
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    pub fn start_with(arguments: &[&str]) -> Self {
        let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        // Another program may take the port before the server does. Then the server ends.
        for _ in 0..5 {
            let dir = tempfile::tempdir().unwrap();
            let port = free_port();
            let process = spawn(port, &dir, &arguments);
            let mut server = Self { process, port, arguments: arguments.clone(), dir };
            if server.comes_up() {
                return server;
            }
        }
        panic!("redis-server ends at once; start it with the arguments {arguments:?} to see why");
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub fn limiter(&self) -> RedisLimiter {
        self.limiter_with(|config| config)
    }

    pub fn limiter_with(&self, configure: impl FnOnce(Config) -> Config) -> RedisLimiter {
        let config = Config::new(self.url()).clock(Clock::Caller).min_ttl(MIN_TTL).deadline(DEADLINE);
        Redis::new(configure(config)).unwrap().limiter()
    }

    /// A plain connection, independent of the limiter's.
    pub fn connection(&self) -> redis::Connection {
        redis::Client::open(self.url()).unwrap().get_connection().unwrap()
    }

    /// How many connections it has received, with the one that asks.
    pub fn connections_received(&self) -> u64 {
        let stats: String = redis::cmd("INFO").arg("stats").query(&mut self.connection()).unwrap();
        let received = stats.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
        received.unwrap().parse().unwrap()
    }

    pub fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// Kills the server, as a crash would.
    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    pub fn restart(&mut self) {
        self.process = spawn(self.port, &self.dir, &self.arguments);
        assert!(self.comes_up(), "redis-server ends at once");
    }

    /// Waits until the server answers. Returns false if it ends instead.
    fn comes_up(&mut self) -> bool {
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            let asked = redis::Client::open(self.url())
                .unwrap()
                .get_connection()
                .and_then(|mut connection| redis::cmd("INFO").arg("server").query::<String>(&mut connection));
            match asked {
                // The server of another program may have the port.
                Ok(info) => return info.contains(&format!("process_id:{}\r", self.process.id())),
                Err(_) if self.process.try_wait().unwrap().is_some() => return false,
                Err(error) => assert!(Instant::now() < until, "redis-server did not come up: {error}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn spawn(port: u16, dir: &tempfile::TempDir, arguments: &[String]) -> Child {
    Command::new("redis-server")
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--loglevel", "warning"])
        .arg("--dir")
        .arg(dir.path())
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("these tests need redis-server ({error}): apt-get install redis-server"))
}

/// A port that nothing listens on, below the range of ephemeral ports.
pub fn free_port() -> u16 {
    loop {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        // A cluster node also listens on its port plus 10000.
        if port < 50_000 && TcpListener::bind(("127.0.0.1", port + 10_000)).is_ok() {
            return port;
        }
    }
}

pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// A proxy to a loopback port that drops the answers while the flag is set. Returns its address and the flag.
pub async fn deaf_proxy(port: u16) -> (std::net::SocketAddr, Arc<AtomicBool>) {
    lying_proxy(port, b"").await
}

/// A proxy to a loopback port that answers with `instead` while the flag is set. Returns its address and the flag.
pub async fn lying_proxy(port: u16, instead: &'static [u8]) -> (std::net::SocketAddr, Arc<AtomicBool>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, lies) = (listener.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
    let told = Arc::clone(&lies);
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let far = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let (mut near_read, mut near_write) = near.into_split();
            let (mut far_read, mut far_write) = far.into_split();
            tokio::spawn(async move { tokio::io::copy(&mut near_read, &mut far_write).await });
            let lies = Arc::clone(&told);
            tokio::spawn(async move {
                let mut buffer = [0; 4_096];
                while let Ok(length @ 1..) = far_read.read(&mut buffer).await {
                    let answer = if lies.load(Ordering::Relaxed) { instead } else { &buffer[..length] };
                    if near_write.write_all(answer).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, lies)
}

/// A proxy to a loopback port whose answers take this long, each by itself. Returns its address.
pub async fn delaying_proxy(port: u16, delay: Duration) -> std::net::SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let Ok(far) = tokio::net::TcpStream::connect(("127.0.0.1", port)).await else { continue };
            let (mut near_read, mut near_write) = near.into_split();
            let (mut far_read, mut far_write) = far.into_split();
            tokio::spawn(async move { tokio::io::copy(&mut near_read, &mut far_write).await });
            let (late, mut due) = tokio::sync::mpsc::unbounded_channel();
            tokio::spawn(async move {
                let mut buffer = [0; 65_536];
                while let Ok(length @ 1..) = far_read.read(&mut buffer).await {
                    let _ = late.send((tokio::time::Instant::now() + delay, buffer[..length].to_vec()));
                }
            });
            tokio::spawn(async move {
                while let Some((at, bytes)) = due.recv().await {
                    tokio::time::sleep_until(at).await;
                    if near_write.write_all(&bytes).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

#[cfg(feature = "rest")]
pub mod rest {
    use tidegate_host_upstash_rest::Front;
    use tidegate_redis::{Rest, RestConfig, RestLimiter};
    use tokio::net::TcpListener;

    use super::{DEADLINE, MIN_TTL, Server};

    pub const TOKEN: &str = "AXm3hunter2==";

    /// Upstash's REST protocol in front of a server, served on the current runtime.
    pub struct Endpoint {
        pub front: Front,
        pub port: u16,
    }

    impl Endpoint {
        pub async fn start(server: &Server) -> Self {
            Self::start_at(server, 0).await
        }

        pub async fn start_at(server: &Server, port: u16) -> Self {
            let front = Front::new(&server.url(), TOKEN).unwrap();
            let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
            let port = listener.local_addr().unwrap().port();
            tokio::spawn(front.clone().serve(listener));
            Self { front, port }
        }

        pub fn url(&self) -> String {
            format!("http://127.0.0.1:{}", self.port)
        }

        pub fn limiter_with(&self, configure: impl FnOnce(RestConfig) -> RestConfig) -> RestLimiter {
            let config = RestConfig::new(self.url(), TOKEN)
                .clock(tidegate_redis::Clock::Caller)
                .min_ttl(MIN_TTL)
                .deadline(DEADLINE);
            Rest::new(configure(config)).unwrap().limiter()
        }
    }
}
