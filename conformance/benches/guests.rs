//! Measures a decision through a guest on its host against the same guest when it decides nothing, and what it weighs:
//!
//!     cargo bench --package tollgate-conformance --bench guests [-- NAME...]
//!
//! The routes are measured by turns, and medians of the rounds are compared. Client and host share the machine's cores; a PoP
//! of Viceroy uses one. Clients are told apart by their address, so each sends from one of its own.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use http_body_util::{BodyExt as _, Empty};
use hyper::Uri;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const IN_FLIGHT: u8 = 50;
const ROUNDS: usize = 15;
const ROUND: Duration = Duration::from_millis(400);
const CALLS_IN_TURN: usize = 2_000;

/// What nobody's requests come near.
const POLICY: &str = r#"{ "name": "bench", "quotas": [{ "algorithm": "token_bucket", "capacity": 1000000, "refill": 1, "per_ms": 1 }] }"#;

/// A guest that is measured: its routes, of which the first decides nothing.
struct Measured {
    name: &'static str,
    host: &'static str,
    guest: &'static str,
    routes: &'static [(&'static str, &'static str)],
}

const MEASURED: [Measured; 1] = [Measured {
    name: "fastly",
    host: "tollgate-host-fastly",
    guest: "tollgate-guest-fastly",
    routes: &[("nothing", "/health"), ("KV Store", "/kv"), ("Edge Rate Limiting's calls", "/erl")],
}];

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let names: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    row(["", "ours", "deciding nothing", "ratio"]);
    for guest in MEASURED.iter().filter(|guest| names.is_empty() || names.iter().any(|name| name == guest.name)) {
        guest.measure().await?;
    }
    Ok(())
}

impl Measured {
    async fn measure(&self) -> Result<()> {
        cargo(&["--profile=deployed", "--package", self.guest, "--target=wasm32-wasip1"])?;
        let hosts = ["--manifest-path=conformance/hosts/Cargo.toml", "--target-dir=target/hosts"];
        cargo(&["--release", "--package", self.host, hosts[0], hosts[1]])?;
        let module = workspace().join("target/wasm32-wasip1/deployed").join(self.guest).with_extension("wasm");
        let (mut host, base) = self.start(&module)?;
        let urls = self.routes.iter().map(|(_, path)| format!("{base}{path}").parse());
        let urls: Vec<Uri> = urls.collect::<std::result::Result<_, _>>()?;
        let latencies = latencies(&urls).await?;
        for ((what, _), ours) in self.routes.iter().zip(&latencies).skip(1) {
            let us = |seconds: f64| format!("{:.0} us", seconds * 1e6);
            let what = format!("{}: one decision after another, median, by {what}", self.name);
            row([&what, &us(*ours), &us(latencies[0]), &format!("{:.2}", ours / latencies[0])]);
        }
        for (who, clients) in [("one client", 1), ("50 clients", IN_FLIGHT)] {
            let rates = rates(&urls, clients).await?;
            let nothing = rates[0].0;
            for ((what, _), (ours, contended)) in self.routes.iter().zip(&rates).skip(1) {
                let what = format!("{}: decisions/s, {IN_FLIGHT} in flight, {who}, by {what}", self.name);
                row([&what, &format!("{ours:.0}"), &format!("{nothing:.0}"), &format!("{:.2}", ours / nothing)]);
                if *contended > 0.0 {
                    row(["  and came to none, for others wrote the key first", &format!("{contended:.1} %"), "", ""]);
                }
            }
        }
        let zipped = Command::new("gzip").arg("-9c").arg(&module).output()?.stdout.len();
        row([&format!("{}: the module, gzipped", self.name), &format!("{} KiB", zipped.div_ceil(1024)), "", ""]);
        drop(host.stdin.take());
        host.wait()?;
        Ok(())
    }

    /// Starts the host, as deployed but for the policy.
    fn start(&self, module: &Path) -> Result<(Child, String)> {
        let manifest = std::fs::read_to_string(workspace().join("conformance/guests/fastly/fastly.toml"))?;
        let policy = |line: &str| line.starts_with("policy = ").then(|| format!("policy = '{POLICY}'"));
        let lines: Vec<_> = manifest.lines().map(|line| policy(line).unwrap_or_else(|| line.into())).collect();
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(&file, lines.join("\n"))?;
        let mut command = Command::new(workspace().join("target/hosts/release").join(self.host));
        command.arg(format!("--guest={}", module.display())).arg(format!("--manifest={}", file.path().display()));
        let mut host = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut address = String::new();
        let stdout = host.stdout.as_mut().ok_or("no pipe")?;
        std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut address)?;
        Ok((host, address.trim().into()))
    }
}

/// The median of each route's calls, one after another, each beside one of the others'.
async fn latencies(urls: &[Uri]) -> Result<Vec<f64>> {
    let client = client(1);
    let mut taken = vec![Vec::with_capacity(CALLS_IN_TURN); urls.len()];
    for call in 0..CALLS_IN_TURN + CALLS_IN_TURN / 10 {
        for (url, taken) in urls.iter().zip(&mut taken) {
            let began = Instant::now();
            assert!(ask(&client, url).await?, "nobody else is there to contend");
            // The first are a warm-up.
            if call >= CALLS_IN_TURN / 10 {
                taken.push(began.elapsed().as_secs_f64());
            }
        }
    }
    Ok(taken.into_iter().map(median).collect())
}

/// The median of each route's decisions a second, over rounds by turns, from so many clients; and the percentage that came to
/// none for contention.
async fn rates(urls: &[Uri], clients: u8) -> Result<Vec<(f64, f64)>> {
    let clients: Vec<_> = (0..IN_FLIGHT).map(|place| client(1 + place % clients)).collect();
    let mut rates = vec![Vec::with_capacity(ROUNDS); urls.len()];
    let mut contended = vec![Vec::with_capacity(ROUNDS); urls.len()];
    for round in 0..=ROUNDS {
        for (place, url) in urls.iter().enumerate() {
            let began = Instant::now();
            let calls = clients.iter().map(|client| async move {
                let (mut decided, mut contended) = (0.0, 0.0);
                while began.elapsed() < ROUND {
                    *if ask(client, url).await? { &mut decided } else { &mut contended } += 1.0;
                }
                Ok((decided, contended))
            });
            let counts = join_all(calls).await.into_iter().collect::<Result<Vec<(f64, f64)>>>()?;
            let (decided, lost) = counts.into_iter().fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
            if round > 0 {
                rates[place].push(decided / began.elapsed().as_secs_f64());
                contended[place].push(100.0 * lost / (decided + lost));
            }
        }
    }
    Ok(rates.into_iter().map(median).zip(contended.into_iter().map(median)).collect())
}

type Sender = Client<HttpConnector, Empty<Bytes>>;

/// A client with an address of its own.
fn client(place: u8) -> Sender {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector.set_local_address(Some(IpAddr::V4(Ipv4Addr::new(127, 0, 0, place))));
    Client::builder(TokioExecutor::new()).build(connector)
}

/// Whether it came to a decision. Which is a yes: nothing here comes near its limit.
async fn ask(client: &Sender, url: &Uri) -> Result<bool> {
    let response = client.get(url.clone()).await?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    match status.as_u16() {
        200 => Ok(true),
        503 if body.windows(9).any(|word| word == b"contended") => Ok(false),
        _ => Err(format!("{url} answered {status} {}", String::from_utf8_lossy(&body)).into()),
    }
}

fn cargo(args: &[&str]) -> Result<()> {
    let built = Command::new("cargo").current_dir(workspace()).args(["build", "--quiet"]).args(args).status()?;
    if built.success() { Ok(()) } else { Err("run conformance/setup.sh, and try again".into()) }
}

fn workspace() -> PathBuf {
    tollgate_conformance::target::workspace()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn row([what, ours, theirs, ratio]: [&str; 4]) {
    println!("{what:<88} {ours:>10} {theirs:>17} {ratio:>6}");
}
