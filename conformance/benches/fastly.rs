//! The cost of a decision in a Compute app, on Viceroy: each limiter compared with the same app without one.
//!
//! The routes take turns and are compared turn by turn, so that other load on the machine affects all of them. The
//! client and Viceroy share the machine's cores; a PoP uses one. Each client has an address of its own.

use std::io::{BufRead as _, BufReader};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use http_body_util::{BodyExt as _, Empty};
use hyper::Uri;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tidegate_conformance::target::workspace;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The first one is the baseline.
const ROUTES: [(&str, &str); 3] = [("nothing", "/health"), ("KV Store", "/kv"), ("Edge Rate Limiting", "/erl")];
const IN_FLIGHT: u8 = 50;
const CALLS: usize = 2_000;
const ROUNDS: usize = 31;
const ROUND: Duration = Duration::from_millis(200);

/// A limit that the benchmark never reaches.
const POLICY: &str = r#"{ "name": "bench", "quotas": [{ "algorithm": "token_bucket", "capacity": 1000000, "refill": 1, "per_ms": 1 }] }"#;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let app = workspace().join("target/deployed/wasm32-wasip1/release/tidegate-guest-fastly.wasm");
    // Build in the app's own folder, as `fastly compute build` does, to use that folder's profile.
    build("conformance/guests/fastly", "--target=wasm32-wasip1 --target-dir=../../../target/deployed")?;
    build("conformance/hosts", "--workspace --target-dir=../../target/hosts")?;
    let (mut host, base) = start(&app)?;
    let urls = ROUTES.map(|(_, path)| format!("{base}{path}").parse::<Uri>());
    let urls = urls.into_iter().collect::<std::result::Result<Vec<_>, _>>()?;
    row(["", "ours", "deciding nothing", "ratio"]);
    latency(&urls).await?;
    rate("one client", &urls, 1).await?;
    rate("50 clients", &urls, IN_FLIGHT).await?;
    let zipped = Command::new("gzip").arg("-9c").arg(&app).output()?.stdout.len();
    row(["the app, gzipped", &format!("{} KiB", zipped.div_ceil(1_024)), "", ""]);
    drop(host.stdin.take());
    host.wait()?;
    Ok(())
}

fn build(folder: &str, args: &str) -> Result<()> {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(workspace().join(folder)).args(["build", "--quiet", "--release"]).args(args.split(' '));
    if cargo.status()?.success() { Ok(()) } else { Err("run conformance/setup.sh, and try again".into()) }
}

/// Starts one PoP with the deployed app and a different policy.
fn start(app: &Path) -> Result<(Child, String)> {
    let manifest = std::fs::read_to_string(workspace().join("conformance/guests/fastly/fastly.toml"))?;
    let with_policy =
        |line: &str| if line.starts_with("policy = ") { format!("policy = '{POLICY}'") } else { line.into() };
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(&file, manifest.lines().map(with_policy).collect::<Vec<_>>().join("\n"))?;
    let mut command = Command::new(workspace().join("target/hosts/release/tidegate-host-fastly"));
    command.arg(format!("--guest={}", app.display())).arg(format!("--manifest={}", file.path().display()));
    let mut host = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut address = String::new();
    BufReader::new(host.stdout.as_mut().ok_or("no pipe")?).read_line(&mut address)?;
    Ok((host, address.trim().into()))
}

/// Measures sequential decisions.
async fn latency(urls: &[Uri]) -> Result<()> {
    let client = client(1);
    let mut taken = vec![Vec::with_capacity(CALLS); urls.len()];
    for call in 0..CALLS + CALLS / 10 {
        for (url, taken) in urls.iter().zip(&mut taken) {
            let began = Instant::now();
            assert!(ask(&client, url).await?, "nobody else is there to write the key");
            // The first calls are a warm-up.
            if call >= CALLS / 10 {
                taken.push(began.elapsed().as_secs_f64() * 1e6);
            }
        }
    }
    for ((by, _), ours) in ROUTES.iter().zip(&taken).skip(1) {
        let ratio = median(ours.iter().zip(&taken[0]).map(|(ours, nothing)| ours / nothing));
        let us = |taken: &[f64]| format!("{:.0} us", median(taken.iter().copied()));
        row([
            &format!("one decision after another, median, by {by}"),
            &us(ours),
            &us(&taken[0]),
            &format!("{ratio:.2}"),
        ]);
    }
    Ok(())
}

/// Measures the throughput with this number of clients.
async fn rate(who: &str, urls: &[Uri], clients: u8) -> Result<()> {
    let clients: Vec<_> = (0..IN_FLIGHT).map(|place| client(1 + place % clients)).collect();
    let mut rates = vec![Vec::with_capacity(ROUNDS); urls.len()];
    let mut contended = vec![0.0; urls.len()];
    for round in 0..=ROUNDS {
        for (place, url) in urls.iter().enumerate() {
            let (decided, lost) = turn(&clients, url).await?;
            // The first round is a warm-up.
            if round > 0 {
                rates[place].push(decided / ROUND.as_secs_f64());
                contended[place] += 100.0 * lost / (decided + lost) / ROUNDS as f64;
            }
        }
    }
    for (place, (by, _)) in ROUTES.iter().enumerate().skip(1) {
        let ratio = median(rates[place].iter().zip(&rates[0]).map(|(ours, nothing)| ours / nothing));
        let [ours, nothing] = [place, 0].map(|place| format!("{:.0}", median(rates[place].iter().copied())));
        row([&format!("decisions/s, {IN_FLIGHT} in flight, {who}, by {by}"), &ours, &nothing, &format!("{ratio:.2}")]);
        if contended[place] > 0.0 {
            row([
                "  contended: 16 attempts failed because others wrote the key first",
                &format!("{:.1} %", contended[place]),
                "",
                "",
            ]);
        }
    }
    Ok(())
}

/// Measures one turn. Returns the number of decisions, and of requests without one.
async fn turn(clients: &[Sender], url: &Uri) -> Result<(f64, f64)> {
    let began = Instant::now();
    let calls = clients.iter().map(|client| async move {
        let (mut decided, mut contended) = (0.0, 0.0);
        while began.elapsed() < ROUND {
            *if ask(client, url).await? { &mut decided } else { &mut contended } += 1.0;
        }
        Ok((decided, contended))
    });
    let counts = join_all(calls).await.into_iter().collect::<Result<Vec<(f64, f64)>>>()?;
    let sum = counts.into_iter().fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    // Requests that were in flight at the end finished slightly later.
    let scale = ROUND.as_secs_f64() / began.elapsed().as_secs_f64();
    Ok((sum.0 * scale, sum.1 * scale))
}

type Sender = Client<HttpConnector, Empty<Bytes>>;

/// A client with its own address.
fn client(place: u8) -> Sender {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector.set_local_address(Some(IpAddr::V4(Ipv4Addr::new(127, 0, 0, place))));
    Client::builder(TokioExecutor::new()).build(connector)
}

/// Returns whether there was a decision. All decisions are admissions, because nothing here reaches its limit.
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

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn row([what, ours, nothing, ratio]: [&str; 4]) {
    println!("{what:<72} {ours:>10} {nothing:>17} {ratio:>6}");
}
