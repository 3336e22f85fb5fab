//! A small rate-limited HTTP service, as one would run in a container: `GET /` is limited by a policy file and the
//! client's address. Built with the feature `redis`, it can also count in Redis.
//!
//! ```text
//! tidegate-guest-native --policy policy.json --listen 0.0.0.0:8080
//! tidegate-guest-native --policy policy.json --store redis --url redis://127.0.0.1:6379
//! tidegate-guest-native --policy policy.json --store upstash-rest --url https://eu1-quick-fox-1.upstash.io
//! ```
//!
//! Started with `--test-mode`, and only then, it also answers the conformance suite's routes, takes its time from them,
//! and ends when its standard input does. Never start it so where others can reach it.

mod app;
mod listen;
mod store;

use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use tidegate_core::{ClientIpSource, Limiter, Platform, Policy};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

use crate::app::App;
use crate::store::StoreName;

/// A small HTTP service behind a rate limiter.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Args {
    /// The policy that `GET /` is limited by: a JSON file.
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// The platform in front, which alone knows the client's address: cloudflare, vercel, netlify, spin, or direct for
    /// none.
    #[arg(long, default_value = "direct")]
    platform: Platform,
    /// The address to listen on. Port 0 takes a free one; the address is printed on standard output.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Where to count.
    #[arg(long, value_enum, default_value_t = StoreName::Memory)]
    store: StoreName,
    /// The store's address, for example redis://127.0.0.1:6379; several times for a cluster.
    #[cfg(feature = "redis")]
    #[arg(long)]
    url: Vec<String>,
    /// The token that the store at an https:// address wants. Without it, the environment's UPSTASH_REDIS_REST_TOKEN.
    #[cfg(feature = "redis")]
    #[arg(long)]
    token: Option<String>,
    /// Answer the conformance suite's routes, on virtual time, and end when standard input does.
    #[arg(long)]
    test_mode: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tidegate-guest-native: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> Result<(), Box<dyn Error>> {
    match args.store {
        StoreName::Memory => serve(store::memory(args.test_mode), args).await,
        #[cfg(feature = "redis")]
        StoreName::Redis | StoreName::RedisCluster => {
            serve(store::redis(args.store, &args.url, args.test_mode).await?, args).await
        }
        #[cfg(feature = "redis")]
        StoreName::UpstashRest => {
            let token = args.token.clone().or_else(|| std::env::var("UPSTASH_REDIS_REST_TOKEN").ok());
            serve(store::rest(&args.url, token, args.test_mode).await?, args).await
        }
    }
}

async fn serve(limiter: impl Limiter + 'static, args: Args) -> Result<(), Box<dyn Error>> {
    let policy = args.policy.map(read_policy).transpose()?;
    if policy.is_none() && !args.test_mode {
        return Err("nothing to limit by; add --policy FILE".into());
    }
    let app = Arc::new(App { limiter, policy, client_ip: ClientIpSource::new(args.platform) });
    let listener = TcpListener::bind(args.listen).await?;
    println!("http://{}", listener.local_addr()?);
    let service = app::router(app, args.test_mode);
    if args.test_mode {
        tokio::select! {
            () = listen::forever(listener, service) => {}
            () = stdin_ends() => {}
        }
    } else {
        listen::forever(listener, service).await;
    }
    Ok(())
}

fn read_policy(path: PathBuf) -> Result<Policy, Box<dyn Error>> {
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?)
}

/// Ends with the harness, however that ended: the pipe closes even when it was killed.
async fn stdin_ends() {
    let (mut stdin, mut rest) = (tokio::io::stdin(), [0; 64]);
    while stdin.read(&mut rest).await.is_ok_and(|read| read > 0) {}
}
