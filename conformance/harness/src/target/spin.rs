//! The targets on Spin: a real app, on `spin` if it is installed, otherwise on our host.

mod host;
mod middleware;
mod redis;

use std::net::TcpListener;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use tidegate_conformance::declared::{Declared, Declares};
use tidegate_conformance::fixture::Disturb;
use tidegate_conformance::operation::{Operation, Operations};
use tidegate_conformance::report::Emulator;
use tidegate_core::Capabilities;
use tokio::net::TcpStream;

pub use self::host::Host;
pub(super) use self::middleware::MIDDLEWARE;
pub(super) use self::redis::REDIS;
use super::build;
use super::checkout::workspace;
use super::{Facts, Running, Store, Target, process, wasm};
use crate::http::{Http, Version};
use crate::target::Group;

/// The suite counts admissions, so it need not wait as long as Spin's clients.
const NO_DELAY: &str = "--no-delay";

const GUEST: &str = "tidegate-guest-spin";
/// Our host.
const HOST: &str = "tidegate-host-spin";

const WASM: &str = "wasm32-wasip1";

/// The manifest of the guest.
pub const MANIFEST: &str = "conformance/guests/spin/spin.toml";

/// Beyond it, `spin` answers with a 500 and no body. By default it is 1,000, and a fixture has more requests at once.
const INSTANCES: &str = "SPIN_MAX_INSTANCE_COUNT=4000";

/// How long to wait until `spin` listens. It compiles the app first.
const PATIENCE: Duration = Duration::from_secs(60);

/// Get and put.
pub(super) const KV: Spin = Spin {
    name: "spin-kv",
    about: "get and put in a Spin app, a fresh instance for each request",
    route: "kv",
    capabilities: tidegate_spin::kv::CAPABILITIES,
    // This simulates a network. Without it, a burst ends too soon to lose updates.
    pause_ms: 2,
};

/// Compare-and-swap.
pub(super) const ATOMICS: Spin = Spin {
    name: "spin-atomics",
    about: "wasi:keyvalue atomics in a Spin app, a fresh instance for each request",
    route: "atomics",
    capabilities: tidegate_spin::atomics::CAPABILITIES,
    // If a thousand requests overlapped at every step, each could need as many attempts as the limit.
    pause_ms: 0,
};

/// Increments.
pub(super) const WINDOW: Spin = Spin {
    name: "spin-window",
    about: "wasi:keyvalue increments in a Spin app, a fresh instance for each request",
    route: "window",
    capabilities: tidegate_spin::window::CAPABILITIES,
    pause_ms: 2,
};

/// One of the app's routes that count on a key-value store.
#[derive(Debug)]
pub(super) struct Spin {
    name: &'static str,
    about: &'static str,
    route: &'static str,
    capabilities: Capabilities,
    /// The delay of each operation on our host's store, so that concurrent requests overlap.
    pause_ms: u64,
}

impl Declares for Spin {
    fn declared(&self) -> Declared {
        Declared { forgets_on_virtual_time: true, ..Declared::new(self.capabilities) }
    }

    fn can(&self, disturb: Disturb) -> bool {
        disturb == Disturb::LoseAnswers && real().is_none()
    }
}

impl Target for Spin {
    fn facts(&self) -> Facts<'_> {
        Facts { needs: &[Group::Spin], ..Facts::new(self.name, self.about) }
    }

    fn emulator(&self) -> Result<Emulator, String> {
        emulator()
    }

    fn start(&self) -> LocalBoxFuture<'_, Result<Running, String>> {
        async {
            if real().is_some() {
                let (spin, address) = spin_up(&[]).await?;
                let http = Http::new(&[format!("{address}/{}", self.route)], Version::Http1);
                return Ok(Running::new(http, vec![spin], None));
            }
            let host = Host::start(&[NO_DELAY.into(), format!("--pause-ms={}", self.pause_ms)]).await?;
            let http = Http::new(&[format!("{}/{}", host.base(), self.route)], Version::Http2);
            Ok(Running::new(http, Vec::new(), Some(Box::new(host))))
        }
        .boxed_local()
    }
}

/// Returns the program that runs the app.
fn emulator() -> Result<Emulator, String> {
    wasm::toolchain(WASM)?;
    match real() {
        Some(spin) => Ok(spin),
        None => Ok(Emulator { name: format!("{HOST} on wasmtime"), version: build::locked(build::HOSTS, "wasmtime")? }),
    }
}

/// Returns the `spin` on the path, if there is one.
fn real() -> Option<Emulator> {
    let told = wasm::said(std::process::Command::new("spin").arg("--version"))?;
    let version = told.strip_prefix("spin ")?.split_whitespace().next()?.to_string();
    Some(Emulator { name: "spin".into(), version })
}

/// Starts the app on `spin` with these variables. `spin` does not report when it listens, and does not end when a pipe
/// closes.
async fn spin_up(env: &[String]) -> Result<(process::Process, String), String> {
    build::module(GUEST, WASM).await?;
    let port =
        TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).map_err(|error| error.to_string())?;
    let folder = process::folder("tidegate-spin-")?;
    let manifest = workspace().join(MANIFEST).display().to_string();
    let (listen, state) = (port.to_string(), folder.display().to_string());
    let args = [INSTANCES, "spin", "up", "--quiet", "--from", &manifest, "--listen", &listen, "--state-dir", &state];
    let env = ["TIDEGATE_TEST_MODE=on"].into_iter().chain(env.iter().map(String::as_str));
    let args = args.into_iter().chain(env.flat_map(|variable| ["--env", variable]));
    let args = args.map(ToString::to_string).collect::<Vec<_>>();
    let spin = process::guarded(&folder, "env", &args).await?;
    let began = Instant::now();
    while TcpStream::connect(port).await.is_err() {
        if began.elapsed() > PATIENCE {
            return Err(format!("spin did not listen within {PATIENCE:?}"));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok((spin, format!("http://{port}")))
}

impl Store for Host {
    fn prepare(&self, disturb: Disturb) -> LocalBoxFuture<'_, Result<(), String>> {
        self.losing.prepare(&self.process, disturb)
    }

    fn disturb(&self, disturb: Disturb) -> LocalBoxFuture<'_, Result<(), String>> {
        self.losing.disturb(&self.process, disturb)
    }

    fn operations(&self) -> LocalBoxFuture<'_, Result<Operations, String>> {
        async {
            let count = self.tell("operations").await?.parse();
            Ok([(Operation::SpinOperation, count.map_err(|_| "the host did not return a count")?)].into())
        }
        .boxed_local()
    }

    fn stop(self: Box<Self>) -> LocalBoxFuture<'static, ()> {
        (*self).stop().boxed_local()
    }
}
