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
use tidegate_harness::target::workspace;
use tidegate_measured::{Measurement, ROUNDS, Unit, median, shortened};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The first one is the baseline.
const ROUTES: [(&str, &str); 3] = [("nothing", "/health"), ("KV Store", "/kv"), ("Edge Rate Limiting", "/erl")];
const IN_FLIGHT: u8 = 50;
const PEER: &str = "the same app deciding nothing";
/// Sequential requests per route and round.
const CALLS: u32 = 300;
const ROUND: Duration = Duration::from_millis(500);

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
    latency(&urls).await?;
    rate("one client", &urls, 1).await?;
    rate("50 clients", &urls, IN_FLIGHT).await?;
    let zipped = u32::try_from(Command::new("gzip").arg("-9c").arg(&app).output()?.stdout.len())?;
    let size = Measurement::new("size, gzipped", "the Compute app with both limiters", Unit::Kib);
    size.record(&[f64::from(zipped) / 1_024.0])?;
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
    let mut medians = vec![Vec::with_capacity(ROUNDS); urls.len()];
    for round in 0..=ROUNDS {
        let mut taken = vec![Vec::new(); urls.len()];
        for _ in 0..shortened(CALLS) {
            for (url, taken) in urls.iter().zip(&mut taken) {
                let began = Instant::now();
                assert!(ask(&client, url).await?, "nobody else is there to write the key");
                taken.push(began.elapsed().as_secs_f64() * 1e6);
            }
        }
        // The first round is a warm-up.
        if round > 0 {
            taken.into_iter().zip(&mut medians).for_each(|(taken, medians)| medians.push(median(taken)));
        }
    }
    for ((by, _), ours) in ROUTES.iter().zip(&medians).skip(1) {
        let name = format!("one decision after another, by {by}");
        Measurement::new("fastly", &name, Unit::Us).record_beside(ours, PEER, &medians[0])?;
    }
    Ok(())
}

/// Measures the throughput with this number of clients.
async fn rate(who: &str, urls: &[Uri], clients: u8) -> Result<()> {
    let clients: Vec<_> = (0..IN_FLIGHT).map(|place| client(1 + place % clients)).collect();
    let mut rates = vec![Vec::with_capacity(ROUNDS); urls.len()];
    let mut contended = rates.clone();
    for round in 0..=ROUNDS {
        for (place, url) in urls.iter().enumerate() {
            let (decided, lost) = turn(&clients, url, shortened(ROUND)).await?;
            // The first round is a warm-up.
            if round > 0 {
                rates[place].push(decided);
                contended[place].push(100.0 * lost / (decided + lost));
            }
        }
    }
    for (place, (by, _)) in ROUTES.iter().enumerate().skip(1) {
        let name = format!("decisions a second, {IN_FLIGHT} in flight, {who}, by {by}");
        Measurement::new("fastly", &name, Unit::PerSecond).record_beside(&rates[place], PEER, &rates[0])?;
        if contended[place].iter().any(|share| *share > 0.0) {
            let name = format!("requests that lost 16 races for the key, {who}, by {by}");
            Measurement::new("fastly", &name, Unit::Percent).record(&contended[place])?;
        }
    }
    Ok(())
}

/// Measures one turn. Returns the decisions a second, and the requests without one.
async fn turn(clients: &[Sender], url: &Uri, duration: Duration) -> Result<(f64, f64)> {
    let began = Instant::now();
    let calls = clients.iter().map(|client| async move {
        let (mut decided, mut contended) = (0.0, 0.0);
        while began.elapsed() < duration {
            *if ask(client, url).await? { &mut decided } else { &mut contended } += 1.0;
        }
        Ok((decided, contended))
    });
    let counts = join_all(calls).await.into_iter().collect::<Result<Vec<(f64, f64)>>>()?;
    let sum = counts.into_iter().fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    let seconds = began.elapsed().as_secs_f64();
    Ok((sum.0 / seconds, sum.1 / seconds))
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
