//! A small rate-limited HTTP service that counts in Redis or Upstash.
//!
//! ```text
//! tidegate-guest-redis --rules rules.toml --url redis://127.0.0.1:6379 --listen 0.0.0.0:8080
//! tidegate-guest-redis --rules rules.toml --store upstash-rest --url https://eu1-quick-fox-1.upstash.io
//! ```

mod store;

use std::process::ExitCode;

use clap::Parser;
use tidegate_guest_native::Service;

use crate::store::Store;

/// A small HTTP service behind a rate limiter, which counts in Redis or Upstash.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Args {
    #[command(flatten)]
    service: Service,
    #[command(flatten)]
    store: Store,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Args { service, store } = Args::parse();
    let test_mode = service.test_mode;
    service.serve(env!("CARGO_BIN_NAME"), store.open(test_mode)).await
}
