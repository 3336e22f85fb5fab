//! The cost of a decision in a Spin app, on our host: each limiter compared with the same app without one.
//!
//! `conformance/hosts/spin/bench.sh` builds what it needs. Each route is measured twice: with the key-value store's
//! database in memory (`/dev/shm`), and on the disk, where every write is synced as in `spin up`. The routes take
//! turns, so that other load on the machine affects all of them.
//!
//! As in Spin, each request has a new instance of the app. So the cold start that is measured is a request that decides nothing,
//! beside the same request to the smallest app.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use http_body_util::{BodyExt as _, Empty};
use hyper::Request;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tidegate_measured::{Measurement, ROUNDS, Unit, median, shortened};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The first one is the baseline.
const ROUTES: [&str; 4] = ["free", "kv", "atomics", "window"];
const PEER: &str = "the same app deciding nothing";
const LEAST: &str = "the smallest Spin app";
/// Sequential requests per route and round.
const CALLS: u32 = 100;
const ROUND: Duration = Duration::from_millis(500);
const IN_FLIGHT: usize = 50;
/// Limits that the benchmark never reaches.
const POLICIES: [&str; 2] = [
    r#"POLICY={"name":"b","quotas":[{"algorithm":"token_bucket","capacity":1000000000,"refill":1,"per_ms":1000}]}"#,
    r#"WINDOW_POLICY={"name":"b","quotas":[{"algorithm":"fixed_window","limit":1000000000,"window_ms":60000}]}"#,
];

/// An app on the host.
struct Host {
    child: Child,
    lines: BufReader<ChildStdout>,
    client: Client<HttpConnector, Empty<Bytes>>,
    base: String,
}

impl Host {
    /// The client keeps at most this many idle connections.
    fn start(program: &Path, component: &Path, state: &Path, idle: usize) -> Result<Self> {
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../guests/spin/spin.toml");
        let mut command = Command::new(program);
        command.arg(format!("--manifest={manifest}")).arg(format!("--component={}", component.display()));
        command.arg(format!("--state-dir={}", state.display()));
        // All clients have the same address, so the header distinguishes them.
        command.arg("--env=TRUST_TRUE_CLIENT_IP=on").args(POLICIES.map(|policy| format!("--env={policy}")));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut lines = BufReader::new(child.stdout.take().ok_or("no pipe")?);
        let mut address = String::new();
        lines.read_line(&mut address)?;
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(idle).build(connector);
        Ok(Self { child, lines, client, base: address.trim().into() })
    }

    async fn ask(&self, route: &str, client: usize) -> Result<()> {
        let request = Request::get(format!("{}/{route}", self.base));
        let request = request.header("true-client-ip", format!("198.51.100.{client}")).body(Empty::new())?;
        let response = self.client.request(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        if status == 200 { Ok(()) } else { Err(format!("/{route} answered {status} {body:?}").into()) }
    }

    /// The microseconds that reads and writes of the store took so far.
    fn took_us(&mut self) -> Result<[f64; 2]> {
        writeln!(self.child.stdin.as_mut().ok_or("no pipe")?, "took")?;
        let mut answer = String::new();
        self.lines.read_line(&mut answer)?;
        let (reads, writes) = answer.trim().split_once(' ').ok_or("the host answered something else")?;
        Ok([reads.parse()?, writes.parse()?])
    }

    async fn per_second(&self, route: &str) -> Result<f64> {
        let began = Instant::now();
        let clients = (0..IN_FLIGHT).map(|client| async move {
            let mut done = 0u32;
            while began.elapsed() < shortened(ROUND) {
                self.ask(route, client).await?;
                done += 1;
            }
            Result::Ok(done)
        });
        let done = join_all(clients).await.into_iter().sum::<Result<u32>>()?;
        Ok(f64::from(done) / began.elapsed().as_secs_f64())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let args: Vec<_> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    // Cargo starts a benchmark in its package's folder.
    let workspace = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let [program, app, least] = args
        .iter()
        .map(|file| workspace.join(file))
        .collect::<Vec<_>>()
        .try_into()
        .map_err(|_| "run conformance/hosts/spin/bench.sh")?;
    let kib = |file: &Path| -> Result<f64> {
        let zipped = Command::new("gzip").arg("-9c").arg(file).output()?.stdout;
        Ok(f64::from(u32::try_from(zipped.len())?) / 1_024.0)
    };
    let size = Measurement::new("size, gzipped", "the Spin app with all its routes", Unit::Kib);
    size.record_beside(&[kib(&app)?], LEAST, &[kib(&least)?])?;
    for (place, folder) in [("in memory", "/dev/shm".into()), ("on a disk", workspace.join("target"))] {
        if !folder.is_dir() {
            eprintln!("the store {place} is not measured: there is no {}", folder.display());
            continue;
        }
        let state = tempfile::TempDir::with_prefix_in("tidegate-bench-", folder)?;
        let mut host = Host::start(&program, &app, state.path(), IN_FLIGHT)?;
        latency(&host, place).await?;
        parts(&mut host, place).await?;
        rate(&host, place).await?;
    }
    let states = [tempfile::tempdir()?, tempfile::tempdir()?];
    // The smallest app sends its answer in two parts. On a connection that was used before, the host's system holds the second
    // part back until the client acknowledges the first one, which takes 40 ms. So each request has a new connection.
    let hosts =
        [Host::start(&program, &app, states[0].path(), 0)?, Host::start(&program, &least, states[1].path(), 0)?];
    cold_start(&hosts).await
}

/// Sequential requests.
async fn latency(host: &Host, place: &str) -> Result<()> {
    let taken = in_turn(&ROUTES.map(|route| (host, route))).await?;
    for (route, ours) in ROUTES.iter().zip(&taken).skip(1) {
        let us = |ms: &[f64]| ms.iter().map(|ms| ms * 1e3).collect::<Vec<_>>();
        let name = format!("one decision after another, by {route}, store {place}");
        Measurement::new("spin", &name, Unit::Us).record_beside(&us(ours), PEER, &us(&taken[0]))?;
    }
    Ok(())
}

/// What a decision spends in the store. The rest of what it takes more than a request without one is the app's own, and the calls
/// between it and the host.
async fn parts(host: &mut Host, place: &str) -> Result<()> {
    for route in &ROUTES[1..] {
        let (mut all, mut within) = (Vec::new(), [Vec::new(), Vec::new()]);
        for _ in 0..ROUNDS {
            let (before, began) = (host.took_us()?, Instant::now());
            for _ in 0..shortened(CALLS) {
                host.ask(route, 1).await?;
            }
            let calls = f64::from(shortened(CALLS));
            all.push(began.elapsed().as_secs_f64() * 1e6 / calls);
            let after = host.took_us()?;
            within
                .iter_mut()
                .zip(before.iter().zip(after))
                .for_each(|(us, (before, after))| us.push((after - before) / calls));
        }
        for (what, us) in ["reads", "writes"].into_iter().zip(&within) {
            let name = format!("of a decision by {route}, store {place}: in {what} of the store");
            Measurement::new("spin", &name, Unit::Us).record_beside(us, "the whole request", &all)?;
        }
    }
    Ok(())
}

/// Requests that decide nothing.
async fn cold_start([ours, least]: &[Host; 2]) -> Result<()> {
    let taken = in_turn(&[(ours, "free"), (least, "free")]).await?;
    let measured =
        Measurement::new("cold start", "a new instance of the Spin app with all its routes, and its answer", Unit::Ms);
    Ok(measured.record_beside(&taken[0], LEAST, &taken[1])?)
}

/// The median of each route in each round, in milliseconds.
async fn in_turn(routes: &[(&Host, &str)]) -> Result<Vec<Vec<f64>>> {
    let mut medians = vec![Vec::new(); routes.len()];
    for round in 0..=ROUNDS {
        let mut taken = vec![Vec::new(); routes.len()];
        for _ in 0..shortened(CALLS) {
            for ((host, route), taken) in routes.iter().zip(&mut taken) {
                let began = Instant::now();
                host.ask(route, 1).await?;
                taken.push(began.elapsed().as_secs_f64() * 1e3);
            }
        }
        // The first round creates the rows.
        if round > 0 {
            taken.into_iter().zip(&mut medians).for_each(|(taken, medians)| medians.push(median(taken)));
        }
    }
    Ok(medians)
}

/// Requests a second. Each client has one request at a time.
async fn rate(host: &Host, place: &str) -> Result<()> {
    let mut rates = ROUTES.map(|_| Vec::new());
    for _ in 0..ROUNDS {
        for (rates, route) in rates.iter_mut().zip(ROUTES) {
            rates.push(host.per_second(route).await?);
        }
    }
    for (route, ours) in ROUTES.iter().zip(&rates).skip(1) {
        let name = format!("requests a second, {IN_FLIGHT} clients, by {route}, store {place}");
        Measurement::new("spin", &name, Unit::PerSecond).record_beside(ours, PEER, &rates[0])?;
    }
    Ok(())
}
