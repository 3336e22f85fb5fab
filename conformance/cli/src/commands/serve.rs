//! `tidegate serve`.

#[cfg(all(feature = "serve", unix))]
pub(super) mod server;
/// In place of the server, how to install it.
#[cfg(not(all(feature = "serve", unix)))]
pub(super) mod server {
    use crate::program::Failure;

    pub(in crate::commands) fn run(_: &super::Args) -> Result<(), Failure> {
        let install =
            "cargo install tidegate --features serve, or cargo install --path conformance/cli --features serve";
        Err(Failure::Usage(format!("this build has no server; on Unix, install one that has: {install}")))
    }
}

use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
#[command(after_help = include_str!("serve/examples.txt"))]
pub(super) struct Args {
    /// The address where Envoy asks, over gRPC, and without --tls-cert in the clear. It has the standard health service, too.
    #[arg(long, value_name = "ADDRESS")]
    rls: SocketAddr,
    /// The server's certificate, with those between it and its authority, in PEM. Envoy then has to ask over TLS.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The key of the certificate, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// The authorities, in PEM, of which one must have issued the certificate of whoever asks.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
    /// The rules file, in TOML or JSON.
    #[arg(long, value_name = "FILE")]
    rules: PathBuf,
    /// A store by its name in the rules, and where it is: memory, redis://…, rediss://…, postgresql://…, or env:VARIABLE for a URL
    /// that nobody shall see in the list of processes. May be repeated; rules without a store use the first.
    #[arg(long, value_name = "NAME=URL", default_value = "main=memory")]
    store: Vec<String>,
    /// The longest time of a call to a store, in milliseconds. Keep it below the timeout of Envoy's filter.
    #[arg(long, value_name = "MS", default_value_t = 250, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    deadline_ms: u64,
    /// The address where Prometheus reads /metrics, over HTTP.
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<SocketAddr>,
    /// Let requests over a limit pass, and only count them.
    #[arg(long)]
    shadow: bool,
}
