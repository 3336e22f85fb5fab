//! The cost of a decision on a local Redis, compared with peers: `cargo bench -p tidegate-redis`. Server and clients
//! share the machine's cores.

#![allow(clippy::unwrap_used, reason = "a benchmark may panic")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::future::Future;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use support::Server;
use tidegate_core::{Check, Fallback, Key, Limiter, Millis, Policy, Quota, UnixMillis};
use tidegate_redis::{Config, Redis, RedisLimiter, SCRIPT, SCRIPT_SHA1};
use tokio::runtime::{Builder, Runtime};

const IN_FLIGHT: usize = 50;
const DURATION: Duration = Duration::from_millis(1_500);
const ROUNDS: usize = 7;

fn main() {
    // `cargo test --benches` runs this without `--bench`, and must not measure.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    // `-- latency throughput dimensions ceiling outage` selects what to run.
    let named = |name: &str| {
        let mut names = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).peekable();
        names.peek().is_none() || names.any(|argument| argument == name)
    };
    println!("{:<58} {:>12} {:>12} {:>8}  target", "", "ours", "theirs", "ratio");
    let server = Server::start();
    for (name, measure) in [
        ("latency", latency as fn(&Server)),
        ("throughput", throughput),
        ("dimensions", dimensions),
        ("ceiling", ceiling),
        ("outage", outage),
    ] {
        if named(name) {
            measure(&server);
        }
    }
}

fn row(what: &str, ours: &str, theirs: &str, ratio: f64, target: &str) {
    println!("{what:<58} {ours:>12} {theirs:>12} {ratio:>8.2}  {target}");
}

fn policy() -> Policy {
    let quota = Quota::token_bucket(1_000_000_000, 1_000_000, Millis::from_secs(1)).unwrap();
    Policy::new("bench", [quota]).unwrap()
}

/// The same bucket for a user, a tenant and all requests together, in one decision.
fn of_three_dimensions() -> Policy {
    let quota = |name| Quota::token_bucket(1_000_000_000, 1_000_000, Millis::from_secs(1)).unwrap().by(name).unwrap();
    Policy::new("bench3", [quota("user"), quota("tenant"), quota("all")]).unwrap()
}

fn now() -> UnixMillis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    UnixMillis::new(u64::try_from(since.as_millis()).unwrap())
}

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn multi_thread() -> Runtime {
    Builder::new_multi_thread().enable_all().build().unwrap()
}

async fn timed(call: impl Future) -> Duration {
    let began = Instant::now();
    call.await;
    began.elapsed()
}

fn median<T: Copy + PartialOrd>(values: &mut [T]) -> T {
    values.sort_unstable_by(|a, b| a.partial_cmp(b).unwrap());
    values[values.len() / 2]
}

/// Sequential decisions, alternating with a PING on the same connection, and the part that any script takes.
fn latency(server: &Server) {
    for (name, runtime) in [("current_thread", current_thread()), ("multi_thread", multi_thread())] {
        let (limiter, policy, key) = (server.limiter(), policy(), Key::new("ip:192.0.2.1"));
        let (mut decisions, mut pings) = (Vec::new(), Vec::new());
        runtime.block_on(async {
            for round in 0..22_000 {
                let ping = timed(limiter.store().ping()).await;
                let decision = timed(limiter.check(Check::new(&policy, &key, now()))).await;
                if round >= 2_000 {
                    pings.push(ping);
                    decisions.push(decision);
                }
            }
        });
        let (decision, ping) = (median(&mut decisions), median(&mut pings));
        row(
            &format!("sequential decision against PING, median, {name}"),
            &format!("{:.1} us", decision.as_secs_f64() * 1e6),
            &format!("{:.1} us", ping.as_secs_f64() * 1e6),
            decision.as_secs_f64() / ping.as_secs_f64(),
            "<= 1.08",
        );
    }
    floor(server);
}

/// The deadline of a decision while the server does not answer.
const DEADLINE: Millis = Millis::new(50);

/// Sequential decisions of a [`Fallback`] whose server stops answering and answers again.
fn outage(server: &Server) {
    multi_thread().block_on(async {
        let (proxy, deaf) = support::deaf_proxy(server.port).await;
        let config = Config::new(format!("redis://{proxy}")).deadline(DEADLINE);
        let limiter =
            Fallback::new(Redis::new(config).unwrap().limiter(), 10).unwrap().breaker(8, Millis::from_secs(2));
        let (policy, key) = (policy(), Key::new("ip:192.0.2.1"));
        let decide = async || {
            let began = Instant::now();
            limiter.check(Check::new(&policy, &key, now())).await.unwrap();
            began.elapsed()
        };
        let mut phases = vec![
            ("the server answers", Vec::new()),
            ("it does not, breaker closed", Vec::new()),
            ("breaker open", Vec::new()),
        ];
        for _ in 0..5 {
            for _ in 0..500 {
                phases[0].1.push(decide().await);
            }
            deaf.store(true, Ordering::Relaxed);
            for _ in 0..8 {
                phases[1].1.push(decide().await);
            }
            for _ in 0..500 {
                phases[2].1.push(decide().await);
            }
            deaf.store(false, Ordering::Relaxed);
            // The breaker asks again after its pause.
            while limiter.down_for(now()).is_some() {
                tokio::time::sleep(Duration::from_millis(20)).await;
                decide().await;
            }
        }
        for ((name, mut latencies), target) in phases.into_iter().zip(["", "<= 60 ms", "<= 1 ms"]) {
            let (middle, longest) = (median(&mut latencies), latencies.iter().max().copied().unwrap_or_default());
            let ms = |span: Duration| format!("{:.3} ms", span.as_secs_f64() * 1e3);
            println!("outage: {name:<50} {:>12} {:>12} (median, longest)  {target}", ms(middle), ms(longest));
        }
    });
}

/// A minimal token bucket against PING with the client library alone: the lower bound for any script on this machine.
fn floor(server: &Server) {
    let least = load(server, include_str!("bucket.lua"));
    let at = now().get().to_string();
    let (mut scripts, mut pings) = (Vec::new(), Vec::new());
    current_thread().block_on(async {
        let client = redis::Client::open(server.url()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let ping = redis::cmd("PING");
        for round in 0..22_000 {
            let pinged = timed(connection.send_packed_command(&ping)).await;
            let run = timed(async {
                let mut command = redis::cmd("EVALSHA");
                command
                    .arg(&least)
                    .arg("1")
                    .arg("{bench:floor}")
                    .arg("1000000000")
                    .arg("1000000")
                    .arg("1000")
                    .arg(&at)
                    .arg("1");
                connection.send_packed_command(&command).await
            })
            .await;
            if round >= 2_000 {
                pings.push(pinged);
                scripts.push(run);
            }
        }
    });
    let (script, ping) = (median(&mut scripts), median(&mut pings));
    row(
        "  minimal bucket against PING, median, current_thread",
        &format!("{:.1} us", script.as_secs_f64() * 1e6),
        &format!("{:.1} us", ping.as_secs_f64() * 1e6),
        script.as_secs_f64() / ping.as_secs_f64(),
        "",
    );
}

/// Loads a script. Returns its SHA-1.
fn load(server: &Server, script: &str) -> String {
    redis::cmd("SCRIPT").arg("LOAD").arg(script).query(&mut server.connection()).unwrap()
}

/// Decisions per second with fifty in flight, alternating with rate-limiter-flexible on ioredis.
fn throughput(server: &Server) {
    let peer = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/peer");
    let installed = peer.join("node_modules").is_dir()
        || Command::new("npm")
            .args(["ci", "--silent", "--no-audit", "--no-fund"])
            .current_dir(&peer)
            .status()
            .is_ok_and(|status| status.success());
    if !installed {
        println!("50 in flight: skipped, because it needs node and npm to install rate-limiter-flexible");
        return;
    }
    let (mut current, mut multi, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        current.push(decisions_per_second(server, current_thread(), policy()));
        multi.push(decisions_per_second(server, multi_thread(), policy()));
        theirs.push(peer_decisions_per_second(server, &peer));
    }
    let theirs = median(&mut theirs);
    for (name, ours) in [("current_thread", median(&mut current)), ("multi_thread", median(&mut multi))] {
        row(
            &format!("{IN_FLIGHT} in flight against rate-limiter-flexible, 1/s, {name}"),
            &format!("{ours:.0}"),
            &format!("{theirs:.0}"),
            ours / theirs,
            ">= 1.5",
        );
    }
}

/// A decision over three keys by a decision over one.
fn dimensions(server: &Server) {
    let (mut one, mut three) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        one.push(decisions_per_second(server, multi_thread(), policy()));
        three.push(decisions_per_second(server, multi_thread(), of_three_dimensions()));
    }
    let (one, three) = (median(&mut one), median(&mut three));
    row(
        &format!("{IN_FLIGHT} in flight, three keys by one key, cost of a decision"),
        &format!("{three:.0}/s"),
        &format!("{one:.0}/s"),
        one / three,
        "<= 1.35",
    );
}

fn decisions_per_second(server: &Server, runtime: Runtime, policy: Policy) -> f64 {
    let limiter = Arc::new(server.limiter());
    let policy = Arc::new(policy);
    let run = async |duration: Duration| {
        let began = Instant::now();
        let workers: Vec<_> = (0..IN_FLIGHT)
            .map(|place| tokio::spawn(decide(Arc::clone(&limiter), Arc::clone(&policy), place, began + duration)))
            .collect();
        let mut decisions = 0_u32;
        for worker in workers {
            decisions += worker.await.unwrap();
        }
        f64::from(decisions) / began.elapsed().as_secs_f64()
    };
    runtime.block_on(async {
        run(Duration::from_millis(500)).await;
        run(DURATION).await
    })
}

async fn decide(limiter: Arc<RedisLimiter>, policy: Arc<Policy>, place: usize, until: Instant) -> u32 {
    let [user, tenant, all] =
        [format!("user-{place}"), format!("tenant-{}", place % 5), "all".to_owned()].map(Key::new);
    let keys = [("", &user), ("user", &user), ("tenant", &tenant), ("all", &all)];
    let mut decisions = 0;
    while Instant::now() < until {
        assert!(limiter.check(Check::new(&policy, &keys, now())).await.unwrap().is_allowed());
        decisions += 1;
    }
    decisions
}

fn peer_decisions_per_second(server: &Server, peer: &Path) -> f64 {
    let output = Command::new("node")
        .arg("throughput.mjs")
        .args([server.port.to_string(), IN_FLIGHT.to_string(), DURATION.as_millis().to_string()])
        .current_dir(peer)
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
}

/// The script alone, driven by redis-benchmark, alternating with a minimal token bucket.
fn ceiling(server: &Server) {
    assert_eq!(load(server, SCRIPT), SCRIPT_SHA1);
    let least = load(server, include_str!("bucket.lua"));
    let at = now().get().to_string();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let decide = ["1", "{bench:ours}", "c", &at, "1", "1", "tb", "1000000000", "1000000", "1000"];
        let bucket = ["1", "{bench:least}", "1000000000", "1000000", "1000", &at, "1"];
        let (Some(our), Some(their)) = (run_script(server, SCRIPT_SHA1, &decide), run_script(server, &least, &bucket))
        else {
            println!("script ceiling: skipped, because it needs redis-benchmark (apt-get install redis-tools)");
            return;
        };
        ours.push(our);
        theirs.push(their);
    }
    let (ours, theirs) = (median(&mut ours), median(&mut theirs));
    row(
        "script alone, 50 pipelined, against minimal bucket, 1/s",
        &format!("{ours:.0}"),
        &format!("{theirs:.0}"),
        ours / theirs,
        ">= 0.80",
    );
}

/// Runs of the script per second.
fn run_script(server: &Server, sha1: &str, arguments: &[&str]) -> Option<f64> {
    let output = Command::new("redis-benchmark")
        .args(["-p", &server.port.to_string(), "-n", "300000", "-P", "50", "-c", "10", "--csv", "EVALSHA", sha1])
        .args(arguments)
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let table = String::from_utf8(output.stdout).ok()?;
    let line = table.lines().last()?;
    // "command","rps",…: the command contains no comma.
    line.split("\",\"").nth(1)?.trim_matches('"').parse().ok()
}
