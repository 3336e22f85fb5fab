//! A small rate-limited HTTP service to run in a container. A rules file limits its requests. The program of this package
//! counts in its own memory, and that of `tidegate-guest-redis` in Redis or Upstash.
//!
//! With `--test-mode`, the service also answers the conformance suite's routes, takes the time from them, and exits
//! when its standard input closes. Do not use that mode where others can reach the service.

mod app;
mod listen;

use std::error::Error;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use axum::Router;
use clap::Args;
use tidegate_core::gate::{Gate, Rules};
use tidegate_core::{ClientIpSource, ErasedLimiter, MemoryLimiter, Platform};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

/// The memory store's shards in test mode. There are so many that no shard holds enough keys to be swept: fixtures run
/// on clocks of their own, and a sweep by the clock of one would remove the keys of another.
const TEST_SHARDS: usize = 1_024;

/// The options that a service has whatever counts.
#[derive(Debug, Args)]
pub struct Service {
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
    /// Answer the conformance suite's routes on virtual time, and exit when standard input closes.
    #[arg(long)]
    pub test_mode: bool,
}

impl Service {
    /// Serves, with what `open` returns as the store. The program returns this exit code.
    pub async fn serve(
        self,
        program: &str,
        open: impl Future<Output = Result<Arc<dyn ErasedLimiter>, tidegate_core::Error>>,
    ) -> ExitCode {
        match self.run(open).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{program}: {error}");
                ExitCode::FAILURE
            }
        }
    }

    async fn run(
        self,
        open: impl Future<Output = Result<Arc<dyn ErasedLimiter>, tidegate_core::Error>>,
    ) -> Result<(), Box<dyn Error>> {
        let rules = self.rules.as_deref().map(read_rules).transpose()?;
        if rules.is_none() && !self.test_mode {
            return Err("no rules; add --rules FILE".into());
        }
        let limiter = open.await?;
        let mut service = match rules {
            Some(rules) => app::limited(Gate::new(rules, Arc::clone(&limiter), ClientIpSource::new(self.platform))?),
            None => Router::new(),
        };
        if self.test_mode {
            service = app::suite(limiter).merge(service);
        }
        let listener = TcpListener::bind(self.listen).await?;
        println!("http://{}", listener.local_addr()?);
        if self.test_mode {
            tokio::select! {
                () = listen::forever(listener, service) => {}
                () = stdin_ends() => {}
            }
        } else {
            listen::forever(listener, service).await;
        }
        Ok(())
    }
}

/// The memory of a process as a store.
#[must_use]
pub fn memory(test_mode: bool) -> MemoryLimiter {
    if test_mode { MemoryLimiter::with_shards(TEST_SHARDS) } else { MemoryLimiter::new() }
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
