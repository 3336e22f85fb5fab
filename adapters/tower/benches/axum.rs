//! Requests over HTTP to axum servers: in memory beside `tower_governor`, and with 20,000 clients on a local Redis, with leases and plain. Both
//! beside the same app without a limit.
//!
//! `cargo bench -p tidegate-tower --bench axum -- memory redis`, or one of them. Servers, Redis and the client share the machine's cores.
#![allow(clippy::unwrap_used, reason = "a benchmark may panic")]

#[allow(unexpected_cfgs, reason = "a part of it is for a feature of the other crate")]
#[path = "../../redis/tests/support/mod.rs"]
mod redis_server;

use std::io::{Error, Result};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::get;
use tidegate_core::gate::{Gate, OnFailure, Rules};
use tidegate_core::{ClientIpSource, MemoryLimiter, Millis, Platform, Policy, Quota};
use tidegate_measured::{Aim, At, Measurement, ROUNDS, Unit, shortened};
use tidegate_redis::{Config, Redis};
use tidegate_tower::RateLimitLayer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;

const IN_FLIGHT: u32 = 64;
const CLIENTS: u32 = 20_000;
/// How long a round counts requests.
const DURATION: Duration = Duration::from_millis(1_500);

fn main() -> Result<()> {
    // `cargo test --benches` runs this without `--bench`, and must not measure.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    let named: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let serving = Builder::new_multi_thread().enable_all().build()?;
    let is_named = |part: &str| named.is_empty() || named.iter().any(|named| named == part);
    if is_named("memory") {
        in_memory(&serving)?;
    }
    if is_named("redis") {
        on_redis(&serving)?;
    }
    Ok(())
}

fn in_memory(serving: &Runtime) -> Result<()> {
    let quota = Quota::token_bucket(1_000_000_000, 1_000_000_000, Millis::from_secs(1)).unwrap();
    let rules = Rules::all(Policy::new("api", [quota]).unwrap(), OnFailure::Closed);
    let gate = Gate::new(rules, MemoryLimiter::new(), ClientIpSource::new(Platform::Direct)).unwrap();
    let ours = RateLimitLayer::with_peer(gate, |extensions| {
        extensions.get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(peer)| peer.ip())
    });
    let mut theirs = GovernorConfigBuilder::default().use_headers();
    let theirs = GovernorLayer::new(theirs.per_nanosecond(1).burst_size(1_000_000_000).finish().unwrap());
    let servers = [app().layer(ours), app().layer(theirs), app()].map(|app| serving.block_on(serve(app)));
    let [ours, theirs, unlimited] = rates(servers)?;
    let name = "requests a second to axum in memory";
    for (which, peer, theirs, aim) in [
        ("headers in both", "tower_governor 0.8 with use_headers", &theirs, Some(1.0)),
        ("beside no limit", "the same app without a limit", &unlimited, None),
    ] {
        measured(&format!("{name}, {which}"), aim).record_beside(&ours, peer, theirs)?;
    }
    Ok(())
}

fn on_redis(serving: &Runtime) -> Result<()> {
    let redis = redis_server::Server::start();
    let limited = |name: &str, lease: &str| {
        let rules = format!(
            "[limits.{name}]\nquotas = [{{ algorithm = \"fixed_window\", limit = 1_000_000_000, window_ms = 60_000 }}]\n\
             {lease}\n[[rules]]\nlimits = [\"{name}\"]\n"
        );
        serving.block_on(async {
            let store = Redis::new(Config::new(redis.url()).deadline(Millis::from_secs(30))).unwrap().limiter();
            let rules = Rules::parse("rules.toml", &rules).unwrap();
            let gate = Gate::new(rules, store, ClientIpSource::new(Platform::Vercel)).unwrap();
            serve(app().layer(RateLimitLayer::new(gate).unwrap())).await
        })
    };
    let servers = [
        limited("leased", "lease = { slice = 1_000, grace = 1 }"),
        limited("plain", ""),
        serving.block_on(serve(app())),
    ];
    let [leased, plain, unlimited] = rates(servers)?;
    let name = "requests a second to axum on Redis, 20,000 clients";
    for (which, ours, peer, theirs, aim) in [
        ("leased with a grace", &leased, "without leases", &plain, Some(5.0)),
        ("leased with a grace, beside no limit", &leased, "the same app without a limit", &unlimited, None),
        ("plain, beside no limit", &plain, "the same app without a limit", &unlimited, None),
    ] {
        measured(&format!("{name}: {which}"), aim).record_beside(ours, peer, theirs)?;
    }
    Ok(())
}

fn measured(name: &str, aim: Option<f64>) -> Measurement<'_> {
    let measured = Measurement::new("layer", name, Unit::PerSecond).at(At::InFlight(IN_FLIGHT));
    aim.map_or(measured.clone(), |aim| measured.aim(Aim::Ratio(aim)))
}

/// The requests a second of each server, in rounds.
fn rates(servers: [SocketAddr; 3]) -> Result<[Vec<f64>; 3]> {
    let asking = Builder::new_current_thread().enable_all().build()?;
    let mut rates = [const { Vec::new() }; 3];
    for round in 0..=ROUNDS {
        let mut turns = [0, 1, 2];
        if round % 2 == 1 {
            turns.reverse();
        }
        for server in turns {
            let rate = asking.block_on(per_second(servers[server]))?;
            // The first round is a warm-up.
            if round > 0 {
                rates[server].push(rate);
            }
        }
    }
    Ok(rates)
}

fn app() -> Router {
    Router::new().route("/", get(async || "hello\n"))
}

async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// How many requests a second are answered, each connection asking for the next client once it has an answer.
async fn per_second(server: SocketAddr) -> Result<f64> {
    let (began, until) = (Instant::now(), shortened(DURATION));
    let connections: Vec<_> = (0..IN_FLIGHT)
        .map(|place| {
            tokio::spawn(async move {
                let mut stream = TcpStream::connect(server).await?;
                stream.set_nodelay(true)?;
                let (mut answered, mut client, mut answer) = (0_u32, place, [0; 2_048]);
                while began.elapsed() < until {
                    let [_, high, middle, low] = client.to_be_bytes();
                    let request = format!(
                        "GET / HTTP/1.1\r\nhost: localhost\r\nx-vercel-forwarded-for: 10.{high}.{middle}.{low}\r\n\r\n"
                    );
                    stream.write_all(request.as_bytes()).await?;
                    let mut length = 0;
                    while !answer[..length].ends_with(b"hello\n") {
                        let read = stream.read(&mut answer[length..]).await?;
                        length += read;
                        // Nobody is denied, and the store does not fail, or the measurement is void.
                        if read == 0 || length >= 12 && !answer.starts_with(b"HTTP/1.1 200") {
                            return Err(Error::other(String::from_utf8_lossy(&answer[..length]).into_owned()));
                        }
                    }
                    answered += 1;
                    client = (client + IN_FLIGHT) % CLIENTS;
                }
                Ok::<_, Error>(answered)
            })
        })
        .collect();
    let mut answered = 0;
    for connection in connections {
        answered += connection.await??;
    }
    Ok(f64::from(answered) / began.elapsed().as_secs_f64())
}
