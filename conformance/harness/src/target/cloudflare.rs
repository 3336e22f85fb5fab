//! The Cloudflare targets: a Worker on workerd, the runtime that Cloudflare itself runs.

mod host;

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use tidegate_conformance::declared::{Declared, Declares, OWN_CLOCK, OWN_TOKENS};
use tidegate_conformance::fixture::{Disturb, Fixture, Step};
use tidegate_conformance::operation::{Operation, Operations};
use tidegate_conformance::report::{Cause, Emulator};
use tidegate_core::store::lending_capabilities;
use tidegate_core::{Capabilities, Millis, Policy};
use tokio::process::Command;

pub use self::host::Host;
use super::build::alone;
use super::checkout::workspace;
use super::redis::{GRACE, LEASE};
use super::{Facts, Running, Store, Target, javascript, wasm};
use crate::http::{Http, Version};
use crate::output::errln;
use crate::target::Group;
use crate::target::losing::Losing;

/// The most locations of any fixture. With several, a limiter that is exact in only one isolate fails.
const ISOLATES: usize = 3;

/// The limit of open files of each process: more than twice the largest burst.
const FILES: u64 = 8_192;

/// A Durable Object for each key.
pub(super) const DURABLE_OBJECT: Cloudflare = Cloudflare {
    name: "cloudflare-do",
    about: "Durable Objects on workerd, called from three isolates",
    guest: Guest::Rust,
    route: "do",
    capabilities: tidegate_cloudflare::durable_objects::CAPABILITIES,
    counts: Counts::Together,
};

/// Isolates that lease from the objects.
pub(super) const LEASED: Cloudflare = Cloudflare {
    name: "cloudflare-do-leased",
    about: "the same, with leases of ten for each of the isolates",
    guest: Guest::Rust,
    route: "do-leased",
    capabilities: lending_capabilities(tidegate_cloudflare::durable_objects::CAPABILITIES, &LEASE),
    counts: Counts::Together,
};

/// The same with a grace.
pub(super) const GRACED: Cloudflare = Cloudflare {
    name: "cloudflare-do-leased-grace",
    about: "the same, and each isolate admits one unit of a key before its object has heard of it",
    route: "do-leased-grace",
    capabilities: lending_capabilities(tidegate_cloudflare::durable_objects::CAPABILITIES, &GRACE),
    ..LEASED
};

/// The same objects in JavaScript.
pub(super) const JS_OBJECT: Cloudflare = Cloudflare {
    name: "js-durable-object",
    about: "the npm package's Durable Objects on workerd, called from three isolates",
    guest: Guest::JavaScript,
    ..DURABLE_OBJECT
};

/// Isolates in JavaScript that count on their own and share their counts through Workers KV.
pub(super) const JS_KV: Cloudflare = Cloudflare {
    name: "js-kv",
    about: "the npm package on Workers KV on workerd, three locations that read each other's writes a minute late",
    guest: Guest::JavaScript,
    ..KV
};

/// Isolates that count on their own and share their counts through Workers KV.
pub(super) const KV: Cloudflare = Cloudflare {
    name: "cloudflare-kv",
    about: "Workers KV on workerd, three locations that read each other's writes a minute late",
    guest: Guest::Rust,
    route: "kv",
    capabilities: tidegate_cloudflare::kv::CAPABILITIES,
    counts: Counts::Apart,
};

/// The platform's own limiter.
pub(super) const RATE_LIMIT: Cloudflare = Cloudflare {
    name: "cloudflare-ratelimit",
    about: "the Rate Limiting binding's emulation, three locations",
    guest: Guest::Rust,
    route: "ratelimit",
    capabilities: tidegate_cloudflare::rate_limit::CAPABILITIES,
    counts: Counts::ByThePlatform,
};

/// The limits that the fixtures use. Each has a binding with a period of a minute.
const LIMITS: [u64; 7] = [1, 2, 10, 60, 100, 999, 1_000];
const PERIOD: Millis = Millis::from_secs(60);

/// The emulation's windows are the wall clock's minutes. A fixture takes less than this part of one.
const WINDOW_LEFT_MIN: Duration = Duration::from_secs(10);

/// The milliseconds after a write in which the adapter may not write the key again, if no other isolate writes it.
const KV_PAUSE_MAX: i64 = 2_000;

/// The counts of the host, by their names.
const COUNTED: [(&str, Operation); 7] = [
    ("objectCalls", Operation::ObjectRequest),
    ("rowsRead", Operation::RowRead),
    ("rowsWritten", Operation::RowWritten),
    ("alarmsSet", Operation::AlarmSet),
    ("kvReads", Operation::KvRead),
    ("kvWrites", Operation::KvWrite),
    ("limiterCalls", Operation::BindingCall),
];

/// One of the Worker's routes.
#[derive(Debug)]
pub(super) struct Cloudflare {
    name: &'static str,
    about: &'static str,
    guest: Guest,
    route: &'static str,
    capabilities: Capabilities,
    counts: Counts,
}

/// The Worker that has the route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Guest {
    Rust,
    JavaScript,
}

/// How isolates count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counts {
    /// In one store, as a single location.
    Together,
    /// Each isolate is a location.
    Apart,
    /// Each isolate is a location. The platform counts by its own clock, with limits that are deployed with the Worker.
    ByThePlatform,
}

impl Declares for Cloudflare {
    fn declared(&self) -> Declared {
        Declared { makes_tokens: self.guest == Guest::JavaScript, ..Declared::new(self.capabilities) }
    }

    fn can(&self, disturb: Disturb) -> bool {
        match self.counts {
            Counts::Together => matches!(disturb, Disturb::Restart | Disturb::Evict | Disturb::LoseAnswers),
            Counts::Apart => matches!(disturb, Disturb::Evict | Disturb::LoseAnswers),
            Counts::ByThePlatform => false,
        }
    }

    fn takes(&self, policy: &Policy) -> bool {
        let rule = policy.quotas()[0].rule();
        self.counts != Counts::ByThePlatform || (LIMITS.contains(&rule.limit()) && rule.window() == PERIOD)
    }

    fn unverified(&self, fixture: &Fixture) -> Option<(Cause, &'static str)> {
        let time_passes = || fixture.steps.windows(2).any(|steps| steps[0].at_ms != steps[1].at_ms);
        match self.counts {
            Counts::ByThePlatform if fixture.steps.iter().any(|step| step.policy.is_some()) => Some((
                Cause::Platform,
                "the platform's limits are deployed with the Worker, so a request cannot change them",
            )),
            Counts::ByThePlatform => time_passes().then_some((Cause::Emulator, OWN_CLOCK)),
            Counts::Apart if loses_between_writes(fixture) => Some((
                Cause::Platform,
                "Workers KV takes one write of a key each second, so this burst makes no write whose answer could be lost",
            )),
            _ if fixture.outlives_a_token() => Some((Cause::Emulator, OWN_CLOCK)),
            _ if fixture.lacks_a_token() && self.declared().makes_tokens => Some((Cause::Adapter, OWN_TOKENS)),
            _ => None,
        }
    }
}

impl Target for Cloudflare {
    fn facts(&self) -> Facts<'_> {
        Facts {
            runtime: Some("workerd"),
            provider: Some("cloudflare"),
            needs: match self.guest {
                Guest::Rust => &[Group::Cloudflare],
                Guest::JavaScript => &[Group::Cloudflare, Group::Npm],
            },
            ..Facts::new(self.name, self.about)
        }
    }

    fn emulator(&self) -> Result<Emulator, String> {
        Tools::find().map(|tools| Emulator { name: "workerd".into(), version: tools.workerd })
    }

    fn start(&self) -> LocalBoxFuture<'_, Result<Running, String>> {
        async {
            // Each request in flight has a connection, both here and in workerd, which inherits the limit. Fixtures
            // fail if it is too low.
            let _as_it_was = rlimit::increase_nofile_limit(FILES);
            let mut args = vec![format!("--isolates={ISOLATES}")];
            if self.counts == Counts::ByThePlatform {
                args.extend(LIMITS.map(|limit| format!("--rate-limit={limit}/{}", PERIOD.as_secs_ceil())));
            }
            let host = match self.guest {
                Guest::Rust => Host::start(&args).await?,
                Guest::JavaScript => Host::start_javascript(&args).await?,
            };
            let addresses: Vec<_> = host.addresses().map(|address| format!("{address}/{}", self.route)).collect();
            let http = Http::new(&addresses, Version::Http1);
            let http = if self.counts == Counts::Together { http } else { http.apart() };
            let store = Worker { host, counts: self.counts, losing: Losing::default() };
            Ok(Running::new(http, Vec::new(), Some(Box::new(store))))
        }
        .boxed_local()
    }
}

/// Whether answers are to be lost in a burst that comes too soon after another one of its key to be written.
fn loses_between_writes(fixture: &Fixture) -> bool {
    let too_soon = |one: &Step, later: &Step| one.key == later.key && later.at_ms - one.at_ms < KV_PAUSE_MAX;
    let steps = fixture.steps.iter().enumerate();
    let mut losing = steps.filter(|(_, step)| step.disturb == Some(Disturb::LoseAnswers));
    losing.any(|(place, step)| fixture.steps[..place].iter().any(|one| too_soon(one, step)))
}

/// How long the current window still lasts, if it is about to end.
fn about_to_end() -> Option<Duration> {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let period = PERIOD.as_secs_ceil();
    let left = Duration::from_secs(period - since_epoch.as_secs() % period);
    (left < WINDOW_LEFT_MIN).then_some(left)
}

/// The running Worker with its bindings.
struct Worker {
    host: Host,
    counts: Counts,
    losing: Losing,
}

impl Store for Worker {
    fn begin(&self) -> LocalBoxFuture<'_, ()> {
        let left = if self.counts == Counts::ByThePlatform { about_to_end() } else { None };
        async move {
            if let Some(left) = left {
                tokio::time::sleep(left).await;
            }
        }
        .boxed_local()
    }

    fn prepare(&self, disturb: Disturb) -> LocalBoxFuture<'_, Result<(), String>> {
        self.losing.prepare(self.host.process(), disturb)
    }

    fn disturb(&self, disturb: Disturb) -> LocalBoxFuture<'_, Result<(), String>> {
        async move {
            let word = match (disturb, self.counts) {
                (Disturb::LoseAnswers, _) => return self.losing.disturb(self.host.process(), disturb).await,
                (Disturb::Restart, _) => "restart",
                (Disturb::Evict, Counts::Together) => "evict",
                (Disturb::Evict, _) => "replace",
                _ => return Err("objects run in the same process as their callers".into()),
            };
            self.host.tell(word).await.map(drop)
        }
        .boxed_local()
    }

    fn operations(&self) -> LocalBoxFuture<'_, Result<Operations, String>> {
        async {
            let counts = self.host.tell("counts").await?;
            let counted = COUNTED.iter().filter_map(|(name, operation)| Some((*operation, counts[*name].as_u64()?)));
            Ok(counted.filter(|(_, count)| *count > 0).collect())
        }
        .boxed_local()
    }

    fn stop(self: Box<Self>) -> LocalBoxFuture<'static, ()> {
        self.host.stop().boxed_local()
    }
}

const GUEST: &str = "conformance/guests/cloudflare";

/// The guest with the npm package.
const GUEST_JS: &str = "conformance/guests/cloudflare-js";

/// The tools that build and run a Worker.
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

/// Bundles the guest with the npm package as `wrangler deploy` does.
async fn bundle() -> Result<PathBuf, String> {
    let hosts = javascript::package().await?;
    let _alone = alone("guests").await?;
    let built = workspace().join("target/guests").join(GUEST_JS.replace('/', "-"));
    let mut node = Command::new("node");
    node.arg(hosts.join("cloudflare.mjs")).arg(workspace().join(GUEST_JS).join("worker.mjs")).arg(&built);
    let output = node.kill_on_drop(true).output().await.map_err(|error| format!("node: {error}"))?;
    match output.status.success() {
        true => Ok(built),
        false => Err(format!("{GUEST_JS} could not be bundled: {}", String::from_utf8_lossy(&output.stderr))),
    }
}

/// Builds the Worker in a folder as `wrangler deploy` does, but without wasm-opt, which only reduces its size.
async fn build(folder: &str, args: &[&str]) -> Result<PathBuf, String> {
    let tools = Tools::find()?;
    let _alone = alone("guests").await?;
    errln!("building the Worker in {folder} (release, WebAssembly)");
    let built = workspace().join("target/guests").join(folder.replace('/', "-"));
    let mut build = Command::new(&tools.worker_build);
    build.current_dir(workspace().join(folder)).args(["--release", "--no-opt", "--out-dir"]).arg(&built);
    build.arg(".").args(args);
    build.envs(tools.toolchain.clone());
    build.env("WASM_BINDGEN_BIN", &tools.wasm_bindgen).env("ESBUILD_BIN", &tools.esbuild);
    let output = build.kill_on_drop(true).output().await.map_err(|error| format!("worker-build: {error}"))?;
    if output.status.success() {
        return Ok(built);
    }
    errln!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Err("worker-build could not build the Worker; see its output above".into())
}
