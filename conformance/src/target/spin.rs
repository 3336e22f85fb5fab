//! The targets on Spin: a real app, on `spin` where that is installed, else on a host of ours.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use tidegate_core::Capabilities;
use tokio::net::TcpStream;

use super::build::{self, workspace};
use super::{Emulator, Running, Store, Target, process, wasm};
use crate::setup::Group;
use crate::subject::{Http, Version};

const GUEST: &str = "tidegate-guest-spin";
const HOST: &str = "tidegate-host-spin";
const WASM: &str = "wasm32-wasip1";
const MANIFEST: &str = "conformance/guests/spin/spin.toml";

/// Spin compiles the app before it listens.
const PATIENCE: Duration = Duration::from_secs(60);

/// Get and put.
pub(super) const KV: Spin = Spin {
    name: "spin-kv",
    about: "get and put in a Spin app, a fresh instance for each request",
    route: "kv",
    capabilities: tidegate_spin::CAPABILITIES_KV,
    // As of a store a network away. Without it a burst is over too soon to lose what it should.
    pause_ms: 2,
};

/// Compare-and-swap.
pub(super) const ATOMICS: Spin = Spin {
    name: "spin-atomics",
    about: "wasi:keyvalue atomics in a Spin app, a fresh instance for each request",
    route: "atomics",
    capabilities: tidegate_spin::CAPABILITIES_ATOMICS,
    // A thousand that meet at every step would need as many attempts as the limit is high.
    pause_ms: 0,
};

/// One of the app's routes.
#[derive(Debug)]
pub(super) struct Spin {
    name: &'static str,
    about: &'static str,
    route: &'static str,
    capabilities: Capabilities,
    /// What each operation of our host's store waits, so that requests meet which come together.
    pause_ms: u64,
}

impl Target for Spin {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn forgets_on_virtual_time(&self) -> bool {
        true
    }

    fn needs(&self) -> &'static [Group] {
        &[Group::Spin]
    }

    fn emulator(&self) -> Result<Emulator, String> {
        wasm::toolchain(WASM)?;
        match real() {
            Some(spin) => Ok(spin),
            None => Ok(Emulator { name: format!("{HOST} on wasmtime"), version: build::host_dependency("wasmtime")? }),
        }
    }

    fn start(&self) -> LocalBoxFuture<'_, Result<Running, String>> {
        async {
            if real().is_some() {
                let (spin, address) = spin_up().await?;
                let http = Http::new(&[format!("{address}/{}", self.route)], Version::Http1);
                return Ok(Running::new(http, vec![spin], None));
            }
            let (host, address) = serve(&[format!("--pause-ms={}", self.pause_ms)]).await?;
            let http = Http::new(&[format!("{address}/{}", self.route)], Version::Http2);
            Ok(Running::new(http, Vec::new(), Some(Box::new(Host(host)))))
        }
        .boxed_local()
    }
}

/// The `spin` on the path.
fn real() -> Option<Emulator> {
    let told = wasm::said(std::process::Command::new("spin").arg("--version"))?;
    let version = told.strip_prefix("spin ")?.split_whitespace().next()?.to_string();
    Some(Emulator { name: "spin".into(), version })
}

/// Starts the app on `spin` itself, which tells nothing when it listens, and ends with no pipe.
async fn spin_up() -> Result<(process::Process, String), String> {
    build::module(GUEST, WASM).await?;
    let port =
        TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).map_err(|error| error.to_string())?;
    let folder = tempfile::Builder::new().prefix("tidegate-spin-").tempdir().map_err(|error| error.to_string())?;
    let folder = folder.keep();
    let manifest = workspace().join(MANIFEST).display().to_string();
    let (listen, state) = (port.to_string(), folder.display().to_string());
    let args = ["up", "--quiet", "--from", &manifest, "--listen", &listen, "--state-dir", &state];
    let args = args.into_iter().chain(["--env", "TIDEGATE_TEST_MODE=on"]).map(ToString::to_string).collect::<Vec<_>>();
    let spin = process::guarded(&folder, "spin", &args).await?;
    let began = Instant::now();
    while TcpStream::connect(port).await.is_err() {
        if began.elapsed() > PATIENCE {
            return Err(format!("spin does not listen within {PATIENCE:?}"));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok((spin, format!("http://{port}")))
}

/// Starts the app on our host, with these arguments besides.
async fn serve(more: &[String]) -> Result<(process::Process, String), String> {
    let module = build::module(GUEST, WASM).await?;
    let host = build::host(HOST).await?;
    let manifest = workspace().join(MANIFEST);
    let mut args = vec![format!("--manifest={}", manifest.display()), format!("--component={}", module.display())];
    args.extend_from_slice(more);
    process::guest(&host, &args).await
}

/// Our host, which counts what its store is asked.
struct Host(process::Process);

impl Store for Host {
    fn round_trips(&self) -> LocalBoxFuture<'_, Result<u64, String>> {
        async { self.0.tell("operations").await?.parse().map_err(|_| "the host counts nothing".into()) }.boxed_local()
    }

    fn stop(self: Box<Self>) -> LocalBoxFuture<'static, ()> {
        self.0.stop().boxed_local()
    }
}

#[cfg(test)]
mod tests;
