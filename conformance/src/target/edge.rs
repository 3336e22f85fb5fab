//! The npm package on the runtimes where it is deployed: Vercel's edge runtime, Node.js, and Deno, which runs Netlify's
//! edge functions.

use std::path::PathBuf;

use futures_util::FutureExt as _;
use futures_util::future::{LocalBoxFuture, try_join_all};
use tidegate_core::Capabilities;
use tokio::process::Command;
use tokio::sync::OnceCell;

use super::build::workspace;
use super::redis::{GUESTS, server};
use super::upstash_rest::{Fronted, TOKEN};
use super::{Emulator, Running, Target, process, wasm};
use crate::fixture::Disturb;
use crate::setup::Group;
use crate::subject::{Http, Version};

/// The npm package in npm's `edge-runtime`.
pub(super) const VERCEL: Edge = Edge {
    name: "vercel",
    about: "the npm package in Vercel's edge runtime, three guests over Upstash's REST protocol",
    host: "vercel.mjs",
    key: "edge-light",
    runtime: Runtime::Npm("edge-runtime"),
};

/// The npm package in Node.js, which runs Vercel's functions and the `proxy.ts` of Next.js 16.
pub(super) const VERCEL_NODE: Edge = Edge {
    name: "vercel-node",
    about: "the npm package in Node.js as in Next.js 16's proxy.ts, three guests over Upstash's REST protocol",
    host: "node.mjs",
    key: "node",
    runtime: Runtime::Node,
};

/// The npm package in npm's `deno`.
pub(super) const NETLIFY: Edge = Edge {
    name: "netlify",
    about: "the npm package in Deno as on Netlify's edge, three guests over Upstash's REST protocol",
    host: "netlify.mjs",
    key: "netlify",
    runtime: Runtime::Npm("deno"),
};

/// The folder of the programs that run the guests.
const HOST: &str = "conformance/hosts/edge";

/// The npm package on a runtime, over Upstash's REST protocol.
#[derive(Debug)]
pub(super) struct Edge {
    name: &'static str,
    about: &'static str,
    host: &'static str,
    /// WinterTC's key of the platform's runtime.
    key: &'static str,
    runtime: Runtime,
}

/// The runtime of a guest.
#[derive(Debug)]
enum Runtime {
    /// The `node` on the path.
    Node,
    /// A runtime from npm, by the name of its package.
    Npm(&'static str),
}

impl Target for Edge {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn has_gate(&self) -> bool {
        false
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::EXACT
    }

    fn makes_tokens(&self) -> bool {
        true
    }

    fn can(&self, disturb: Disturb) -> bool {
        server::can(disturb)
    }

    fn runtime(&self) -> Option<&'static str> {
        Some(self.key)
    }

    fn provider(&self) -> Option<&'static str> {
        Some("upstash")
    }

    fn needs(&self) -> &'static [Group] {
        &[Group::Redis, Group::Npm]
    }

    fn emulator(&self) -> Result<Emulator, String> {
        let front = Fronted::emulator()?;
        let (runtime, version) = match self.runtime {
            Runtime::Npm(name) => (name, version(name)?),
            Runtime::Node => ("node", node()?),
        };
        Ok(Emulator {
            name: format!("{runtime} over {}", front.name),
            version: format!("{version}, {}", front.version),
        })
    }

    fn start(&self) -> LocalBoxFuture<'_, Result<Running, String>> {
        async {
            let host = package().await?.join(self.host);
            let (store, url) = Fronted::start().await?;
            let args = [host.to_string_lossy().as_ref(), "--url", &url, "--token", TOKEN].map(str::to_string);
            let guests = try_join_all((0..GUESTS).map(|_| process::guest("node".as_ref(), &args))).await?;
            let (guests, addresses): (Vec<_>, Vec<_>) = guests.into_iter().unzip();
            Ok(Running::new(Http::new(&addresses, Version::Http1), guests, Some(Box::new(store))))
        }
        .boxed_local()
    }
}

/// The version of a package that the hosts use.
pub(super) fn version(package: &str) -> Result<String, String> {
    node()?;
    installed(HOST, package)
}

/// The version of a package that is installed from npm in a folder of the workspace.
pub(super) fn installed(folder: &str, package: &str) -> Result<String, String> {
    let manifest = wasm::tool(&format!("{folder}/node_modules/{package}/package.json"))
        .map_err(|missing| missing.replace("package.json", package))?;
    let manifest = std::fs::read(manifest).map_err(|error| error.to_string())?;
    let manifest = serde_json::from_slice::<serde_json::Value>(&manifest).map_err(|error| error.to_string())?;
    Ok(manifest["version"].as_str().unwrap_or("unknown").to_string())
}

/// The version of Node.js. Fails if that or anything else that builds the package and its guests is missing.
fn node() -> Result<String, String> {
    let node = wasm::said(std::process::Command::new("node").arg("--version"));
    let node = node.ok_or("node is not on the path; install it with: sudo apt-get install nodejs npm")?;
    wasm::toolchain("wasm32-unknown-unknown")?;
    wasm::tool("target/tools/bin/wasm-bindgen")?;
    wasm::tool("adapters/npm/node_modules/.bin/tsc")?;
    wasm::tool(&format!("{HOST}/node_modules/esbuild/package.json"))?;
    Ok(node)
}

/// Builds the package once for all targets. Returns the folder of its hosts.
pub(super) async fn package() -> Result<PathBuf, String> {
    static BUILT: OnceCell<Result<(), String>> = OnceCell::const_new();
    BUILT.get_or_init(build).await.clone()?;
    Ok(workspace().join(HOST))
}

async fn build() -> Result<(), String> {
    eprintln!("building the npm package (WebAssembly)");
    let mut build = Command::new(workspace().join("adapters/npm/build.sh"));
    let output = build.kill_on_drop(true).output().await.map_err(|error| format!("build.sh: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    eprintln!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Err("the npm package could not be built; see the output above".into())
}
