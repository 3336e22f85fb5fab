//! The npm package on the runtimes where it is deployed, over its stores.

mod store;

use std::path::PathBuf;

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use serde_json::json;
use tidegate_conformance::declared::{Declared, Declares};
use tidegate_conformance::fixture::Disturb;
use tidegate_conformance::report::Emulator;
use tidegate_core::lending::Lease;
use tidegate_core::store::lending_capabilities;
use tokio::process::Command;
use tokio::sync::OnceCell;

use self::store::Kind;
use super::checkout::workspace;
use super::redis::{GRACE, GUESTS};
use super::{Facts, Running, Target, process, wasm};
use crate::http::{Http, Version};
use crate::output::errln;
use crate::target::Group;

/// The npm package in npm's `edge-runtime`.
pub(super) const VERCEL: JavaScript = JavaScript {
    name: "vercel",
    about: "the npm package in Vercel's edge runtime, three guests over Upstash's REST protocol",
    runtime: Runtime::Vercel,
    key: Some("edge-light"),
    platform: "vercel",
    store: Kind::Upstash,
    lends: None,
};

/// The npm package in Node.js, which runs Vercel's functions and the `proxy.ts` of Next.js 16.
pub(super) const VERCEL_NODE: JavaScript = JavaScript {
    name: "vercel-node",
    about: "the npm package in Node.js as in Next.js 16's proxy.ts, three guests over Upstash's REST protocol",
    runtime: Runtime::Node,
    key: Some("node"),
    platform: "vercel",
    store: Kind::Upstash,
    lends: None,
};

/// The npm package in npm's `deno`.
pub(super) const NETLIFY: JavaScript = JavaScript {
    name: "netlify",
    about: "the npm package in Deno as on Netlify's edge, three guests over Upstash's REST protocol",
    runtime: Runtime::Deno,
    key: Some("netlify"),
    platform: "netlify",
    store: Kind::Upstash,
    lends: None,
};

/// The npm package over the local server of `@netlify/blobs`, as `blobs-server.mjs` extends it.
pub(super) const NETLIFY_BLOBS: JavaScript = JavaScript {
    name: "netlify-blobs",
    about: "the npm package in Deno over Netlify's local BlobsServer with ETags added, three guests",
    runtime: Runtime::Deno,
    key: Some("netlify"),
    platform: "netlify",
    store: Kind::Blobs,
    lends: None,
};

/// The npm package over Deno's own key-value store.
pub(super) const DENO_KV: JavaScript = JavaScript {
    name: "deno-kv",
    about: "the npm package in Deno over Deno KV in one SQLite file, three guests",
    runtime: Runtime::Deno,
    key: Some("deno"),
    platform: "direct",
    store: Kind::DenoKv,
    lends: None,
};

/// The npm package over a client of Redis.
pub(super) const REDIS: JavaScript = JavaScript {
    name: "js-redis",
    about: "the npm package in Node.js over ioredis and one redis-server, three guests",
    runtime: Runtime::Node,
    key: None,
    platform: "direct",
    store: Kind::Redis,
    lends: None,
};

/// The same, with leases from that server.
pub(super) const REDIS_GRACED: JavaScript = JavaScript {
    name: "js-redis-leased-grace",
    about: "the same, with leases of ten, and each guest admits one unit of a key before the server has heard of it",
    lends: Some(GRACE),
    ..REDIS
};

/// The npm package over a client of PostgreSQL.
pub(super) const POSTGRES: JavaScript = JavaScript {
    name: "js-postgres",
    about: "the npm package in Node.js over pg and one PostgreSQL server, three guests",
    runtime: Runtime::Node,
    key: None,
    platform: "direct",
    store: Kind::Postgres,
    lends: None,
};

/// The npm package in one process.
pub(super) const MEMORY: JavaScript = JavaScript {
    name: "js-memory",
    about: "the npm package in Node.js with its counts in memory, one process",
    runtime: Runtime::Node,
    key: None,
    platform: "direct",
    store: Kind::Memory,
    lends: None,
};

/// The folder of the programs that run the guests.
const HOST: &str = "conformance/hosts/edge";

/// The npm package on a runtime and a store.
#[derive(Debug)]
pub(super) struct JavaScript {
    name: &'static str,
    about: &'static str,
    runtime: Runtime,
    /// WinterTC's key of the platform's runtime, if the target is the one that is published for it.
    key: Option<&'static str>,
    /// The platform whose client address the guest's own route reads.
    platform: &'static str,
    store: Kind,
    /// What a guest borrows of a key, if it does.
    lends: Option<Lease>,
}

/// The runtime of a guest.
#[derive(Debug)]
enum Runtime {
    /// The `node` on the path.
    Node,
    /// Vercel's `edge-runtime` from npm.
    Vercel,
    /// `deno` from npm.
    Deno,
}

impl Runtime {
    /// The program that runs a guest.
    const fn host(&self) -> &'static str {
        match self {
            Self::Node => "node.mjs",
            Self::Vercel => "edge-runtime.mjs",
            Self::Deno => "deno.mjs",
        }
    }

    fn emulator(&self) -> Result<Emulator, String> {
        let (name, version) = match self {
            Self::Node => ("node", node()?),
            Self::Vercel => ("edge-runtime", version("edge-runtime")?),
            Self::Deno => ("deno", version("deno")?),
        };
        Ok(Emulator { name: name.into(), version })
    }
}

impl Declares for JavaScript {
    fn declared(&self) -> Declared {
        let store = self.store.capabilities();
        Declared {
            forgets_on_virtual_time: matches!(self.store, Kind::Memory),
            makes_tokens: true,
            ..Declared::new(self.lends.map_or(store, |lease| lending_capabilities(store, &lease)))
        }
    }

    fn can(&self, disturb: Disturb) -> bool {
        self.store.can(disturb)
    }
}

impl Target for JavaScript {
    fn facts(&self) -> Facts<'_> {
        Facts {
            runtime: self.key,
            provider: matches!(self.store, Kind::Upstash).then_some("upstash"),
            needs: match self.store {
                Kind::Upstash | Kind::Redis => &[Group::Redis, Group::Npm],
                Kind::Postgres => &[Group::Postgres, Group::Npm],
                Kind::Blobs | Kind::DenoKv | Kind::Memory => &[Group::Npm],
            },
            ..Facts::new(self.name, self.about)
        }
    }

    fn emulator(&self) -> Result<Emulator, String> {
        let runtime = self.runtime.emulator()?;
        Ok(match self.store.emulator()? {
            Some(store) => Emulator {
                name: format!("{} over {}", runtime.name, store.name),
                version: format!("{}, {}", runtime.version, store.version),
            },
            None => runtime,
        })
    }

    fn start(&self) -> LocalBoxFuture<'_, Result<Running, String>> {
        async {
            let hosts = package().await?;
            let (store, variables) = self.store.start(&hosts).await?;
            let host = hosts.join(self.runtime.host()).to_string_lossy().into_owned();
            let mut args = vec![host, "--guest".into(), self.store.guest().into()];
            for (name, value) in variables.iter().map(|(name, value)| (*name, value.as_str())) {
                args.extend(["--env".into(), format!("{name}={value}")]);
            }
            args.extend(["--env".into(), format!("PLATFORM={}", self.platform)]);
            if let Some(Lease { slice, lifetime, grace, .. }) = self.lends {
                let leases = json!({ "slice": slice, "lifetimeMs": lifetime.get(), "grace": grace });
                args.extend(["--env".into(), format!("LEASES={leases}")]);
            }
            let count = if matches!(self.store, Kind::Memory) { 1 } else { GUESTS };
            let (guests, addresses) = process::guests(count, "node".as_ref(), &args).await?;
            Ok(Running::new(Http::new(&addresses, Version::Http1), guests, Some(store)))
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
    let _alone = super::build::alone("guests").await?;
    errln!("building the npm package");
    let mut build = Command::new(workspace().join("adapters/npm/build.sh"));
    let output = build.kill_on_drop(true).output().await.map_err(|error| format!("build.sh: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    errln!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Err("the npm package could not be built; see the output above".into())
}
