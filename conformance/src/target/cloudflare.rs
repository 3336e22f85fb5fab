//! The targets on Cloudflare: a real Worker on workerd, the runtime that Cloudflare itself runs.

use std::path::PathBuf;

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use tokio::process::Command;
use tokio::sync::OnceCell;
use tollgate_core::Capabilities;

use super::build::workspace;
use super::{Emulator, Running, Target, process, wasm};
use crate::fixture::Disturb;
use crate::subject::{Http, Version};

/// As many as any fixture has locations. A limiter that is exact in one isolate only is found out.
const ISOLATES: usize = 3;

/// A Durable Object for each key.
pub(super) const DURABLE_OBJECT: Cloudflare = Cloudflare {
    name: "cloudflare-do",
    about: "Durable Objects on workerd, called from three isolates",
    route: "do",
    capabilities: Capabilities::EXACT,
    apart: false,
};

/// Isolates that count for themselves, and share through Workers KV.
pub(super) const KV: Cloudflare = Cloudflare {
    name: "cloudflare-kv",
    about: "Workers KV on workerd, three isolates that never see each other's writes",
    route: "kv",
    capabilities: tollgate_cloudflare_kv::CAPABILITIES,
    apart: true,
};

/// One of the Worker's routes.
#[derive(Debug)]
pub(super) struct Cloudflare {
    name: &'static str,
    about: &'static str,
    route: &'static str,
    capabilities: Capabilities,
    /// Whether each isolate is a location that counts on its own.
    apart: bool,
}

impl Target for Cloudflare {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn can(&self, _: Disturb) -> bool {
        false
    }

    fn forgets_on_virtual_time(&self) -> bool {
        false
    }

    fn emulator(&self) -> Result<Emulator, String> {
        Tools::find().map(|tools| Emulator { name: "workerd".into(), version: tools.workerd })
    }

    fn start(&self) -> LocalBoxFuture<'_, Result<Running, String>> {
        async {
            let built = BUILT.get_or_init(|| async { build(&Tools::find()?).await }).await.clone()?;
            let host = workspace().join("conformance/hosts/cloudflare/serve.mjs");
            let args = [
                host.display().to_string(),
                format!("--guest={}", guest().display()),
                format!("--built={}", built.display()),
                format!("--isolates={ISOLATES}"),
            ];
            let (guest, addresses) = process::guest("node".as_ref(), &args).await?;
            let addresses = addresses.split_whitespace().map(|address| format!("{address}/{}", self.route));
            let addresses = addresses.collect::<Vec<_>>();
            let http = Http::new(&addresses, Version::Http1);
            let http = if self.apart { http.apart() } else { http };
            Ok(Running { http, guests: vec![guest], store: None })
        }
        .boxed_local()
    }
}

/// The Worker, built once for all targets.
static BUILT: OnceCell<Result<PathBuf, String>> = OnceCell::const_new();

fn guest() -> PathBuf {
    workspace().join("conformance/guests/cloudflare")
}

/// What it takes to build a Worker and to run it.
struct Tools {
    toolchain: wasm::Toolchain,
    worker_build: PathBuf,
    wasm_bindgen: PathBuf,
    esbuild: PathBuf,
    workerd: String,
}

impl Tools {
    fn find() -> Result<Self, String> {
        let version = |command: &mut std::process::Command| wasm::said(command.arg("--version"));
        version(&mut std::process::Command::new("node"))
            .ok_or("node is not on the path; install it with: sudo apt-get install nodejs npm")?;
        let workerd = wasm::tool("conformance/hosts/cloudflare/node_modules/.bin/workerd")?;
        let workerd = version(&mut std::process::Command::new(workerd)).ok_or("workerd does not start")?;
        Ok(Self {
            toolchain: wasm::toolchain("wasm32-unknown-unknown")?,
            worker_build: wasm::tool("target/tools/bin/worker-build")?,
            wasm_bindgen: wasm::tool("target/tools/bin/wasm-bindgen")?,
            esbuild: wasm::tool("conformance/hosts/cloudflare/node_modules/.bin/esbuild")?,
            workerd: workerd.trim_start_matches("workerd ").to_string(),
        })
    }
}

/// Builds the Worker as `wrangler deploy` does, but for the last squeeze that only makes it smaller.
async fn build(tools: &Tools) -> Result<PathBuf, String> {
    eprintln!("building tollgate-guest-cloudflare (release, WebAssembly)");
    let built = workspace().join("target/guests/cloudflare");
    let mut build = Command::new(&tools.worker_build);
    build.current_dir(guest()).args(["--release", "--no-opt", "--out-dir", "../../../target/guests/cloudflare"]);
    build.envs(tools.toolchain.clone());
    build.env("WASM_BINDGEN_BIN", &tools.wasm_bindgen).env("ESBUILD_BIN", &tools.esbuild);
    let output = build.kill_on_drop(true).output().await.map_err(|error| format!("worker-build: {error}"))?;
    if output.status.success() {
        return Ok(built);
    }
    eprintln!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Err("worker-build could not build the guest; what it said is above".into())
}
