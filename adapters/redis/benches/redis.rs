//! The cost of a decision on a local Redis, compared with peers: `cargo bench -p tidegate-redis`. Server and clients
//! share the machine's cores.

#![allow(clippy::unwrap_used, reason = "a benchmark may panic")]

#[path = "peer/peer.rs"]
mod peer;
#[path = "../tests/support/mod.rs"]
mod support;

use std::future::Future;
use std::io::Result;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use peer::Peer;
use support::Server;
use tidegate_core::lending::Lease;
use tidegate_core::{Check, Fallback, Key, Keys, Limiter, LimiterExt, Millis, Policy, Quota, UnixMillis};
use tidegate_measured::{Aim, At, Measurement, ROUNDS, Unit, median, shortened};
use tidegate_redis::wire::Script;
use tidegate_redis::{Config, Redis, RedisLimiter};
use tokio::runtime::{Builder, Runtime};

const IN_FLIGHT: u32 = 64;
/// How long a round counts decisions, after a third of that as a warm-up.
const DURATION: Duration = Duration::from_millis(750);

fn main() -> Result<()> {
    // `cargo test --benches` runs this without `--bench`, and must not measure.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    // `-- latency throughput lending quotas dimensions ceiling outage` selects what to run.
    let named = |name: &str| {
        let mut names = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).peekable();
        names.peek().is_none() || names.any(|argument| argument == name)
    };
    let server = Server::start();
    for (name, measure) in [
        ("latency", latency as fn(&Server) -> Result<()>),
        ("throughput", throughput),
        ("lending", lending),
        ("quotas", quotas),
        ("dimensions", dimensions),
        ("ceiling", ceiling),
        ("outage", outage),
    ] {
        if named(name) {
            measure(&server)?;
        }
    }
    Ok(())
}

fn policy() -> Policy {
    named("bench")
}

fn named(name: &str) -> Policy {
    let quota = Quota::token_bucket(1_000_000_000, 1_000_000, Millis::from_secs(1)).unwrap();
    Policy::new(name, [quota]).unwrap()
}

/// The same bucket several times, for one key.
fn of_quotas(many: u32) -> Policy {
    let quota = |nth| policy().quotas()[0].clone().named(&format!("q{nth}")).unwrap();
    Policy::new("several", (0..many).map(quota)).unwrap()
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

/// How long a call takes, in microseconds.
async fn timed(call: impl Future) -> f64 {
    let began = Instant::now();
    call.await;
    began.elapsed().as_secs_f64() * 1e6
}

/// Sequential decisions, alternating with a PING on the same connection, and the part that any script takes.
fn latency(server: &Server) -> Result<()> {
    let names = ["a decision, one after another, current_thread", "a decision, one after another, multi_thread"];
    for (name, runtime) in names.into_iter().zip([current_thread(), multi_thread()]) {
        let (limiter, policy, key) = (server.limiter(), policy(), Key::new("ip:192.0.2.1"));
        let measured = Measurement::new("redis", name, Unit::Us).aim(Aim::Ratio(1.08));
        alternating(&measured, &runtime, async |which| match which {
            Turn::Ours => timed(limiter.check(Check::new(&policy, &key, now()))).await,
            Turn::Ping => timed(limiter.store().ping()).await,
        })?;
    }
    floor(server)
}

#[derive(Clone, Copy)]
enum Turn {
    Ours,
    Ping,
}

/// Records the medians of each round. The calls of a round alternate, too.
fn alternating(measured: &Measurement<'_>, runtime: &Runtime, call: impl AsyncFn(Turn) -> f64) -> Result<()> {
    let (mut ours, mut pings) = (Vec::new(), Vec::new());
    runtime.block_on(async {
        for round in 0..=ROUNDS {
            let (mut calls, mut others) = (Vec::new(), Vec::new());
            for _ in 0..shortened(3_000_u32) {
                others.push(call(Turn::Ping).await);
                calls.push(call(Turn::Ours).await);
            }
            // The first round is a warm-up.
            if round > 0 {
                ours.push(median(calls));
                pings.push(median(others));
            }
        }
    });
    measured.record_beside(&ours, "PING on the same connection", &pings)
}

/// The deadline of a decision while the server does not answer.
const DEADLINE: Millis = Millis::new(50);

/// Sequential decisions of a [`Fallback`] whose server stops answering and answers again.
fn outage(server: &Server) -> Result<()> {
    multi_thread().block_on(async {
        let (proxy, deaf) = support::deaf_proxy(server.port).await;
        let config = Config::new(format!("redis://{proxy}")).deadline(DEADLINE);
        let limiter =
            Fallback::new(Redis::new(config).unwrap().limiter(), 10).unwrap().breaker(8, Millis::from_secs(2));
        let (policy, key) = (policy(), Key::new("ip:192.0.2.1"));
        let decide = async || timed(async { limiter.check(Check::new(&policy, &key, now())).await.unwrap() }).await;
        let phases = [
            ("the server answers", 500, None),
            ("it does not, breaker closed", 8, Some(60_000.0)),
            ("breaker open", 500, Some(1_000.0)),
        ];
        let mut medians = phases.map(|_| Vec::new());
        let mut longest = phases.map(|_| Vec::new());
        for _ in 0..ROUNDS {
            for (phase, (_, calls, _)) in phases.iter().enumerate() {
                deaf.store(phase > 0, Ordering::Relaxed);
                let mut latencies = Vec::new();
                for _ in 0..*calls {
                    latencies.push(decide().await);
                }
                longest[phase].push(latencies.iter().copied().fold(0.0, f64::max));
                medians[phase].push(median(latencies));
            }
            deaf.store(false, Ordering::Relaxed);
            // The breaker asks again after its pause.
            while limiter.down_for(now()).is_some() {
                tokio::time::sleep(Duration::from_millis(20)).await;
                decide().await;
            }
        }
        for (phase, (name, _, most)) in phases.iter().enumerate() {
            for (what, values) in [("median", &medians[phase]), ("longest", &longest[phase])] {
                let name = format!("a decision in an outage: {name}, {what}");
                let measured = Measurement::new("redis", &name, Unit::Us);
                most.map_or(measured.clone(), |most| measured.aim(Aim::Value(most))).record(values)?;
            }
        }
        Ok(())
    })
}

/// A minimal token bucket against PING with the client library alone: the lower bound for any script on this machine.
fn floor(server: &Server) -> Result<()> {
    let least = load(server, include_str!("bucket.lua"));
    let at = now().get().to_string();
    let runtime = current_thread();
    let connection = runtime.block_on(async {
        redis::Client::open(server.url()).unwrap().get_multiplexed_async_connection().await.unwrap()
    });
    let ping = redis::cmd("PING");
    let measured = Measurement::new("redis", "the minimal bucket script, one after another", Unit::Us);
    alternating(&measured, &runtime, async |which| {
        let mut connection = connection.clone();
        let Turn::Ours = which else { return timed(connection.send_packed_command(&ping)).await };
        timed(async {
            let mut command = redis::cmd("EVALSHA");
            for argument in [&*least, "1", "{bench:floor}", "1000000000", "1000000", "1000", &at, "1"] {
                command.arg(argument);
            }
            connection.send_packed_command(&command).await
        })
        .await
    })
}

/// Loads a script. Returns its SHA-1.
fn load(server: &Server, script: &str) -> String {
    redis::cmd("SCRIPT").arg("LOAD").arg(script).query(&mut server.connection()).unwrap()
}

/// Decisions per second, alternating with rate-limiter-flexible on ioredis.
fn throughput(server: &Server) -> Result<()> {
    let mut peer = Peer::start(server.port)?;
    for in_flight in [1, 8, IN_FLIGHT, 512] {
        let (mut current, mut multi, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
        let (one, several) =
            (Load::new(server, current_thread(), policy()), Load::new(server, multi_thread(), policy()));
        for _ in 0..ROUNDS {
            current.push(one.per_second(in_flight));
            theirs.push(peer.per_second(in_flight, 1, DURATION)?);
            multi.push(several.per_second(in_flight));
        }
        for (name, ours) in
            [("decisions a second, current_thread", current), ("decisions a second, multi_thread", multi)]
        {
            let measured = Measurement::new("redis", name, Unit::PerSecond).at(At::InFlight(in_flight));
            // With one in flight, both wait for the server.
            let measured = if in_flight < IN_FLIGHT { measured } else { measured.aim(Aim::Ratio(1.5)) };
            measured.record_beside(&ours, peer::NAME, &theirs)?;
        }
    }
    Ok(())
}

/// Decisions of many keys and of few by a limiter that borrows, alternating with one that does not.
fn lending(server: &Server) -> Result<()> {
    const TERMS: Lease = Lease::new(100, Millis::from_secs(10));
    let store = || Redis::new(Config::new(server.url())).unwrap();
    for (name, keys) in [("1,000 keys", 1_000), ("two keys", 2)] {
        for (runtime, runtimes) in [
            ("current_thread", [current_thread(), current_thread()]),
            ("multi_thread", [multi_thread(), multi_thread()]),
        ] {
            let name = format!("decisions a second of {name} with loans of 100, {runtime}");
            let [lent, asked] = runtimes;
            // Each on rows of its own, because a plain check of a lent row costs more.
            let leased = Load::of(lent, "lent", keys, async || store().lending(TERMS).unwrap());
            let plain = Load::of(asked, "asked", keys, async || store().limiter());
            let measured = Measurement::new("redis", &name, Unit::PerSecond).at(At::InFlight(IN_FLIGHT));
            let measured = if keys > 2 { measured.aim(Aim::Ratio(5.0)) } else { measured };
            measured.beside("without loans", || leased.per_second(IN_FLIGHT), || plain.per_second(IN_FLIGHT))?;
        }
    }
    Ok(())
}

/// Decisions of several quotas, alternating with a union of limiters, which charges one by one.
fn quotas(server: &Server) -> Result<()> {
    let mut peer = Peer::start(server.port)?;
    for quotas in [1, 2, 4, 8] {
        let load = Load::new(server, multi_thread(), of_quotas(quotas));
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            ours.push(load.per_second(IN_FLIGHT));
            theirs.push(peer.per_second(IN_FLIGHT, quotas, DURATION)?);
        }
        let measured = Measurement::new("redis", "decisions a second by quotas, 64 in flight", Unit::PerSecond);
        measured.at(At::Quotas(quotas)).record_beside(&ours, &format!("{}, as a union", peer::NAME), &theirs)?;
    }
    Ok(())
}

/// A decision over three keys by a decision over one.
fn dimensions(server: &Server) -> Result<()> {
    let one = Load::new(server, multi_thread(), policy());
    let three = Load::new(server, multi_thread(), of_three_dimensions());
    let us = |load: &Load<_>| 1e6 / load.per_second(IN_FLIGHT);
    let measured =
        Measurement::new("redis", "a decision over three keys, 64 in flight", Unit::Us).aim(Aim::Ratio(1.35));
    measured.beside("over one key", || us(&three), || us(&one))
}

/// A limiter with its runtime and its connections, which last for all rounds.
struct Load<L> {
    limiter: Arc<L>,
    policy: Arc<Policy>,
    runtime: Runtime,
    /// How many keys each request in flight takes in turn.
    keys: usize,
}

impl Load<RedisLimiter> {
    fn new(server: &Server, runtime: Runtime, policy: Policy) -> Self {
        // The connections belong to the runtime.
        let limiter = runtime.block_on(async { server.limiter() });
        Self { limiter: Arc::new(limiter), policy: Arc::new(policy), runtime, keys: 1 }
    }
}

impl<L: Limiter + 'static> Load<L> {
    fn of(runtime: Runtime, policy: &str, keys: usize, limiter: impl AsyncFnOnce() -> L) -> Self {
        let limiter = Arc::new(runtime.block_on(limiter()));
        Self { limiter, policy: Arc::new(named(policy)), runtime, keys }
    }

    fn per_second(&self, in_flight: u32) -> f64 {
        let run = async |duration: Duration| {
            let began = Instant::now();
            let decide = |place| {
                let (limiter, policy) = (Arc::clone(&self.limiter), Arc::clone(&self.policy));
                decide(limiter, policy, place, self.keys, began + duration)
            };
            let workers: Vec<_> = (0..in_flight).map(|place| tokio::spawn(decide(place))).collect();
            let mut decisions = 0_u32;
            for worker in workers {
                decisions += worker.await.unwrap();
            }
            f64::from(decisions) / began.elapsed().as_secs_f64()
        };
        self.runtime.block_on(async {
            run(shortened(DURATION) / 3).await;
            run(shortened(DURATION)).await
        })
    }
}

/// The tasks of a runtime are polled in turn. One that never waits lets the others run after so many decisions.
const YIELD_AFTER: usize = 64;

async fn decide(limiter: Arc<impl Limiter>, policy: Arc<Policy>, place: u32, keys: usize, until: Instant) -> u32 {
    let [tenant, all] = [format!("tenant-{}", place % 5), "all".to_owned()].map(Key::new);
    let users: Vec<_> = match keys {
        1 => vec![Key::new(format!("user-{place}"))],
        keys => (0..keys).map(|user| Key::new(format!("user-{user}"))).collect(),
    };
    let mut decisions = 0;
    // Each request in flight begins with another key.
    for nth in (place as usize * 16).. {
        if Instant::now() >= until {
            break;
        }
        let user = &users[nth % users.len()];
        let several = [("", user), ("user", user), ("tenant", &tenant), ("all", &all)];
        let keys = if keys > 1 { Keys::from(user) } else { Keys::from(&several) };
        assert!(limiter.check(Check::new(&policy, keys, now())).await.unwrap().is_allowed());
        decisions += 1;
        if nth % YIELD_AFTER == 0 {
            tokio::task::yield_now().await;
        }
    }
    decisions
}

/// Each script alone, driven by redis-benchmark, alternating with a minimal token bucket.
fn ceiling(server: &Server) -> Result<()> {
    let (plain, general) = [Script::Plain, Script::General].map(|script| load(server, &script.text(false))).into();
    let least = load(server, include_str!("bucket.lua"));
    let at = now().get().to_string();
    let short = ["1", "{bench:short}", "tb", "1000000000", "1000", "1", "1000000", &at];
    let decide = ["1", "{bench:ours}", "c", &at, "1", "1", "tb", "1000000000", "1000", "1000000"];
    let bucket = ["1", "{bench:least}", "1000000000", "1000000", "1000", &at, "1"];
    for (name, sha1, arguments) in [
        ("the script of a plain check alone, 50 pipelined", &plain, &short[..]),
        ("the general script alone, 50 pipelined", &general, &decide),
    ] {
        let measured = Measurement::new("redis", name, Unit::PerSecond).aim(Aim::Ratio(0.8));
        measured.beside(
            "the minimal bucket script",
            || run_script(server, sha1, arguments),
            || run_script(server, &least, &bucket),
        )?;
    }
    Ok(())
}

/// Runs of the script per second.
fn run_script(server: &Server, sha1: &str, arguments: &[&str]) -> f64 {
    let (port, runs) = (server.port.to_string(), shortened(200_000_u32).to_string());
    let output = Command::new("redis-benchmark")
        .args(["-p", &port, "-n", &runs, "-P", "50", "-c", "10", "--csv", "EVALSHA", sha1])
        .args(arguments)
        .stderr(Stdio::null())
        .output()
        .expect("redis-benchmark (apt-get install redis-tools)");
    let table = String::from_utf8(output.stdout).unwrap();
    // "command","rps",…: the command contains no comma.
    let rate = table.lines().last().and_then(|line| line.split("\",\"").nth(1)).expect("a rate");
    rate.trim_matches('"').parse().unwrap()
}
