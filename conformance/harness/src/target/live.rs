//! Targets on the platforms themselves, in an account of the user's.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use serde::Deserialize;
use tidegate_conformance::declared::{Declared, Declares};
use tidegate_conformance::fixture::Fixture;
use tidegate_conformance::report::{Cause, Emulator};
use tidegate_core::Policy;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::timeout;

use super::checkout::workspace;
use super::process::told;
use super::{ALL, Facts, Running, Target, build, cloudflare, javascript};
use crate::http::{Http, Version};

/// A platform that a guest can be deployed to.
#[derive(Debug)]
pub struct Platform {
    /// The name, also of the file in `conformance/live` that lists the commands.
    pub name: &'static str,
    /// The targets that the guest has there.
    pub targets: &'static [&'static str],
}

/// All platforms.
pub const PLATFORMS: [Platform; 5] = [
    Platform {
        name: "cloudflare",
        targets: &["cloudflare-do", "cloudflare-do-leased", "cloudflare-kv", "cloudflare-ratelimit"],
    },
    Platform { name: "fastly", targets: &["fastly-kv", "fastly-erl"] },
    Platform { name: "netlify", targets: &["netlify-blobs"] },
    Platform { name: "spin", targets: &["spin-kv"] },
    Platform { name: "vercel", targets: &["vercel"] },
];

/// How long a deployment, or its removal, may take.
const PATIENCE: Duration = Duration::from_secs(600);

/// How long the last lines of a script that has failed are waited for.
const LAST_LINES: Duration = Duration::from_secs(5);

const ONE_LOCATION: &str = "one client reaches one location of the platform";

const UNKNOWN_ISOLATES: &str = "the platform does not say how many isolates answered, and each counts on its own";

const REHEARSED: &str = "a dry run: the local emulator answered, and not the platform";

/// A guest that `conformance/live/deploy.mjs` has deployed. The script removes it when its standard input closes: in
/// [`Deployment::remove`], or when this process ends in any other way.
#[derive(Debug)]
pub struct Deployment {
    platform: &'static str,
    rehearsed: bool,
    script: Child,
    stdin: ChildStdin,
    deployed: Deployed,
}

/// What the script prints.
#[derive(Debug, Deserialize)]
struct Deployed {
    key: String,
    urls: BTreeMap<String, String>,
}

impl Deployment {
    /// Builds and deploys the guest of a platform. In a dry run, the script runs the dry run of the
    /// platform's own tool, and serves the guest on the local emulator. Each line that the script prints is passed to `tell`.
    ///
    /// # Errors
    /// Fails if a tool or an account's token is missing, or if the platform refuses the guest. The script says why.
    pub async fn start(platform: &Platform, dry_run: bool, tell: fn(&str)) -> Result<Self, String> {
        let platform = platform.name;
        let script = || {
            let mut command = Command::new("node");
            command.arg(workspace().join("conformance/live/deploy.mjs")).arg(platform);
            command.args(dry_run.then_some("--dry-run"));
            command
        };
        // What is missing is told before the guest is built, which may take minutes.
        let checked = script().output().await.map_err(|error| format!("node: {error}"))?;
        if !checked.status.success() {
            return Err(String::from_utf8_lossy(&checked.stderr).trim().trim_start_matches("live: failed: ").into());
        }
        let mut command = script();
        command.arg("--built").arg(built(platform, dry_run).await?);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Ctrl-C must not reach the script, which has to remove what it has deployed.
        #[cfg(unix)]
        command.process_group(0);
        let mut script = command.spawn().map_err(|error| format!("node: {error}"))?;
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (script.stdin.take(), script.stdout.take(), script.stderr.take())
        else {
            return Err("node: no pipes".into());
        };
        let telling = tokio::spawn(told(stderr, tell));
        let line = timeout(PATIENCE, BufReader::new(stdout).lines().next_line()).await;
        let Ok(Ok(Some(line))) = line else {
            // A script that has ended may have written lines that are not read yet.
            let _ = timeout(LAST_LINES, telling).await;
            return Err(format!("{platform}: not deployed; see the lines above"));
        };
        let deployed = serde_json::from_str(&line).map_err(|error| format!("deploy.mjs: {error}: {line}"))?;
        Ok(Self { platform, rehearsed: dry_run, script, stdin, deployed })
    }

    /// The targets of the deployed guest.
    #[must_use]
    pub fn targets(&self) -> Vec<Live> {
        let named = |name: &str| ALL.iter().copied().find(|target| target.name() == name);
        let live = |(name, url): (&String, &String)| {
            let (url, key) = (url.clone(), self.deployed.key.clone());
            Some(Live { local: named(name)?, url, key, platform: self.platform, rehearsed: self.rehearsed })
        };
        self.deployed.urls.iter().filter_map(live).collect()
    }

    /// Removes the guest and everything that was created for it.
    ///
    /// # Errors
    /// Fails if something remains. The script prints the commands that remove it.
    pub async fn remove(mut self) -> Result<(), String> {
        drop(self.stdin);
        match timeout(PATIENCE, self.script.wait()).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            _ => Err(format!("{}: not everything was removed; see the lines above", self.platform)),
        }
    }
}

/// Builds what the script deploys, and what a dry run serves it with.
async fn built(platform: &str, dry_run: bool) -> Result<PathBuf, String> {
    match platform {
        "cloudflare" => cloudflare::Host::rust().await,
        "fastly" | "spin" => {
            if dry_run {
                build::host(&format!("tidegate-host-{platform}")).await?;
            }
            build::module(&format!("tidegate-guest-{platform}"), "wasm32-wasip1").await
        }
        _ => javascript::package().await.map(|_| workspace().join("adapters/npm")),
    }
}

/// A target on its platform. What it declares is the same as on the emulator.
pub struct Live {
    local: &'static dyn Target,
    url: String,
    key: String,
    platform: &'static str,
    rehearsed: bool,
}

impl Declares for Live {
    fn declared(&self) -> Declared {
        // That an emulator is a stub says nothing of the platform.
        Declared { stub: self.rehearsed.then_some(REHEARSED), ..self.local.declared() }
    }

    fn takes(&self, policy: &Policy) -> bool {
        self.local.takes(policy)
    }

    fn unverified(&self, fixture: &Fixture) -> Option<(Cause, &'static str)> {
        if fixture.locations > 1 {
            return Some((Cause::Platform, ONE_LOCATION));
        }
        if self.name() == cloudflare::KV.name() {
            return Some((Cause::Platform, UNKNOWN_ISOLATES));
        }
        self.local.unverified(fixture)
    }
}

impl Target for Live {
    fn facts(&self) -> Facts<'_> {
        Facts { about: "on the platform itself", ..self.local.facts() }
    }

    fn emulator(&self) -> Result<Emulator, String> {
        let version = if self.rehearsed { "dry run" } else { "live" };
        Ok(Emulator { name: self.platform.into(), version: version.into() })
    }

    fn start(&self) -> LocalBoxFuture<'_, Result<Running, String>> {
        let http = Http::new(std::slice::from_ref(&self.url), Version::Http1).keyed(&self.key);
        async { Ok(Running::new(http, Vec::new(), None)) }.boxed_local()
    }
}
