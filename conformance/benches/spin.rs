//! The cost of a decision in a Spin app, on our host: each limiter compared with the same app without one.
//!
//! `conformance/hosts/spin/bench.sh` builds what it needs. Each route is measured twice: with the key-value store's
//! database in memory (`/dev/shm`), and on the disk, where every write is synced as in `spin up`. The routes take
//! turns, so that other load on the machine affects all of them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use http_body_util::{BodyExt as _, Empty};
use hyper::Request;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The first one is the baseline.
const ROUTES: [&str; 4] = ["free", "kv", "atomics", "window"];
const CALLS: usize = 500;
const ROUNDS: usize = 21;
const ROUND: Duration = Duration::from_millis(400);
const IN_FLIGHT: usize = 50;
/// Limits that the benchmark never reaches.
const POLICIES: [&str; 2] = [
    r#"POLICY={"name":"b","quotas":[{"algorithm":"token_bucket","capacity":1000000000,"refill":1,"per_ms":1000}]}"#,
    r#"WINDOW_POLICY={"name":"b","quotas":[{"algorithm":"fixed_window","limit":1000000000,"window_ms":60000}]}"#,
];

struct Host {
    child: Child,
    told: ChildStdin,
    tells: BufReader<ChildStdout>,
}

impl Host {
    fn start(program: PathBuf, component: &str, state: &Path) -> Result<(Self, String)> {
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/guests/spin/spin.toml");
        let mut command = Command::new(program);
        command.arg(format!("--manifest={manifest}")).arg(format!("--component={component}"));
        command.arg(format!("--state-dir={}", state.display()));
        // All clients have the same address, so the header distinguishes them.
        command.arg("--env=TRUST_TRUE_CLIENT_IP=on").args(POLICIES.map(|policy| format!("--env={policy}")));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (told, tells) = child.stdin.take().zip(child.stdout.take()).ok_or("no pipes")?;
        let mut host = Self { child, told, tells: BufReader::new(tells) };
        let address = host.line()?;
        Ok((host, address))
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.tells.read_line(&mut line)?;
        Ok(line.trim().to_string())
    }

    fn operations(&mut self) -> Result<u32> {
        writeln!(self.told, "operations")?;
        Ok(self.line()?.parse()?)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ended = self.child.kill();
    }
}

struct Caller {
    client: Client<HttpConnector, Empty<Bytes>>,
    base: String,
}

impl Caller {
    async fn ask(&self, route: &str, client: usize) -> Result<()> {
        let request = Request::get(format!("{}/{route}", self.base));
        let request = request.header("true-client-ip", format!("198.51.100.{client}")).body(Empty::new())?;
        let response = self.client.request(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        if status == 200 { Ok(()) } else { Err(format!("/{route} answered {status} {body:?}").into()) }
    }

    async fn per_second(&self, route: &str) -> Result<f64> {
        let began = Instant::now();
        let clients = (0..IN_FLIGHT).map(|client| async move {
            let mut done = 0u32;
            while began.elapsed() < ROUND {
                self.ask(route, client).await?;
                done += 1;
            }
            Result::Ok(done)
        });
        let done = join_all(clients).await.into_iter().sum::<Result<u32>>()?;
        Ok(f64::from(done) / began.elapsed().as_secs_f64())
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let args: Vec<_> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let [program, component] = args.as_slice() else { return Err("run conformance/hosts/spin/bench.sh".into()) };
    // Cargo starts a benchmark in its package's folder.
    let workspace = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let component = workspace.join(component).display().to_string();
    for (place, folder) in [("in memory", "/dev/shm".into()), ("on disk", workspace.join("target"))] {
        if !folder.is_dir() {
            println!("the store {place}: not measured, there is no {}", folder.display());
            continue;
        }
        let state = tempfile::TempDir::with_prefix_in("tidegate-bench-", folder)?;
        println!("the store {place}:");
        measure(workspace.join(program), &component, state.path()).await?;
    }
    println!("each limited client has one request at a time; {IN_FLIGHT} clients at once for requests/s");
    Ok(())
}

async fn measure(program: PathBuf, component: &str, state: &Path) -> Result<()> {
    let (mut host, base) = Host::start(program, component, state)?;
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let caller = Caller { client: Client::builder(TokioExecutor::new()).build(connector), base };

    let mut taken = ROUTES.map(|_| Vec::new());
    let mut operations = ROUTES.map(|_| 0.0);
    for call in 0..CALLS {
        for (place, route) in ROUTES.iter().enumerate() {
            let before = host.operations()?;
            let began = Instant::now();
            caller.ask(route, 1).await?;
            taken[place].push(began.elapsed().as_secs_f64() * 1e6);
            // The first call creates the rows, so it takes more operations.
            if call > 0 {
                operations[place] += f64::from(host.operations()? - before);
            }
        }
    }
    let mut rates = ROUTES.map(|_| Vec::new());
    for _ in 0..ROUNDS {
        for (place, route) in ROUTES.iter().enumerate() {
            rates[place].push(caller.per_second(route).await?);
        }
    }
    let (taken, rates) = (taken.map(median), rates.map(median));
    println!(
        "{:10} {:>12} {:>8} {:>14} {:>8} {:>12}",
        "route", "median us", "ratio", "requests/s", "ratio", "operations"
    );
    for (place, route) in ROUTES.iter().enumerate() {
        let (slower, fewer) = (taken[place] / taken[0], rates[place] / rates[0]);
        let (us, rate) = (taken[place], rates[place]);
        #[expect(clippy::cast_precision_loss, reason = "a few hundred")]
        let each = operations[place] / (CALLS - 1) as f64;
        println!("{route:10} {us:12.0} {slower:8.2} {rate:14.0} {fewer:8.2} {each:12.2}");
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
