//! A small rate-limited HTTP service that counts in its own memory.
//!
//! ```text
//! tidegate-guest-native --rules rules.toml --listen 0.0.0.0:8080
//! ```

use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use tidegate_core::ErasedLimiter;
use tidegate_guest_native::{Service, memory};

/// A small HTTP service behind a rate limiter, which counts in memory.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Args {
    #[command(flatten)]
    service: Service,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Args { service } = Args::parse();
    let limiter: Arc<dyn ErasedLimiter> = Arc::new(memory(service.test_mode));
    service.serve(env!("CARGO_BIN_NAME"), async { Ok(limiter) }).await
}
