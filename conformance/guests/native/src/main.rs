//! A small rate-limited HTTP service to run in a container. A rules file limits its requests. Build it with the feature
//! `redis` to count in Redis or Upstash.
//!
//! ```text
//! tidegate-guest-native --rules rules.toml --listen 0.0.0.0:8080
//! tidegate-guest-native --rules rules.toml --store redis --url redis://127.0.0.1:6379
//! tidegate-guest-native --rules rules.toml --store upstash-rest --url https://eu1-quick-fox-1.upstash.io
//! ```
//!
//! With `--test-mode`, the service also answers the conformance suite's routes, takes the time from them, and exits
//! when its standard input closes. Do not use that mode where others can reach the service.

mod app;
mod listen;
mod store;

use std::error::Error;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use axum::Router;
use clap::Parser;
use tidegate_core::gate::{Gate, Rules};
use tidegate_core::{ClientIpSource, Platform};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

use crate::store::{Opening, StoreName};

/// A small HTTP service behind a rate limiter.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Args {
    /// The rules, a file in TOML or JSON.
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// The platform in front of the service, which supplies the client's address: cloudflare, vercel, netlify, spin, or
    /// direct for none.
    #[arg(long, default_value = "direct")]
    platform: Platform,
    /// The address to listen on. Port 0 selects a free port. The service prints its address on standard output.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// The store that counts.
    #[arg(long, value_enum, default_value_t = StoreName::Memory)]
    store: StoreName,
    /// The store's address, for example redis://127.0.0.1:6379. Repeat the option for a cluster.
    #[arg(long)]
    url: Vec<String>,
    /// The token of a store at an https:// address. The default is the environment variable UPSTASH_REDIS_REST_TOKEN.
    #[arg(long)]
    token: Option<String>,
    /// While the store does not answer, admit this percentage of every limit from this process's memory.
    #[arg(long, value_name = "PERCENT")]
    fallback: Option<u8>,
    /// Borrow up to this number of units of a key from Redis or Upstash, and decide without a call as long as a loan holds.
    #[arg(long, value_name = "UNITS")]
    lend: Option<u64>,
    /// Answer the conformance suite's routes on virtual time, and exit when standard input closes.
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
    let rules = args.rules.as_deref().map(read_rules).transpose()?;
    if rules.is_none() && !args.test_mode {
        return Err("no rules; add --rules FILE".into());
    }
    let token = args.token.or_else(|| std::env::var("UPSTASH_REDIS_REST_TOKEN").ok());
    let limiter = store::open(&Opening {
        name: args.store,
        urls: &args.url,
        token,
        fallback: args.fallback,
        lend: args.lend,
        test_mode: args.test_mode,
    })
    .await?;
    let mut service = match rules {
        Some(rules) => app::limited(Gate::new(rules, Arc::clone(&limiter), ClientIpSource::new(args.platform))?),
        None => Router::new(),
    };
    if args.test_mode {
        service = app::suite(limiter).merge(service);
    }
    let listener = TcpListener::bind(args.listen).await?;
    println!("http://{}", listener.local_addr()?);
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

/// Reads the rules, and prints their warnings.
fn read_rules(path: &Path) -> Result<Rules, Box<dyn Error>> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let rules = Rules::parse(&path.display().to_string(), &text)?;
    for warning in rules.warnings() {
        eprintln!("warning: {warning}");
    }
    Ok(rules)
}

/// Returns when standard input closes, which it does however the parent process ends.
async fn stdin_ends() {
    let (mut stdin, mut rest) = (tokio::io::stdin(), [0; 64]);
    while stdin.read(&mut rest).await.is_ok_and(|read| read > 0) {}
}
