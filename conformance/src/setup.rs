//! Sets targets up while others run: `conformance/setup.sh`, which says of each [`Group`] when it is done with it.

use std::collections::BTreeSet;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;

use crate::target::{Target, workspace};

/// A part of what the setup installs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// `redis-server` and `redis-cli`.
    Redis,
    /// What builds the npm package and runs it.
    Npm,
    /// What builds a Worker and runs it.
    Cloudflare,
    /// What builds a Spin app and runs it.
    Spin,
    /// What builds a Compute app and runs it.
    Fastly,
}

impl Group {
    /// Every group, in the order in which they are set up: the quickest first.
    pub const ALL: &[Self] = &[Self::Redis, Self::Npm, Self::Cloudflare, Self::Spin, Self::Fastly];

    /// Its name on the command line of `conformance/setup.sh`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Npm => "npm",
            Self::Cloudflare => "cloudflare",
            Self::Spin => "spin",
            Self::Fastly => "fastly",
        }
    }
}

/// A setup that is under way. Dropping it ends it.
#[derive(Debug)]
pub struct Setup {
    pending: watch::Receiver<BTreeSet<Group>>,
    _script: Option<Child>,
}

impl Setup {
    /// Asks for consent where the setup needs it, and then starts it for what these targets need. `tell` gets its lines.
    ///
    /// # Errors
    /// The script does not start, or `TIDEGATE_SETUP` is neither `yes` nor `no`.
    pub async fn start(targets: &[&dyn Target], tell: fn(&str)) -> Result<Self, String> {
        let needed: BTreeSet<Group> = targets.iter().flat_map(|target| target.needs()).copied().collect();
        if needed.is_empty() {
            return Ok(Self { pending: watch::channel(needed).1, _script: None });
        }
        let script = workspace().join("conformance/setup.sh");
        let failed = |error: std::io::Error| format!("{}: {error}", script.display());
        let names = || needed.iter().map(|group| group.name());
        let asked = Command::new(&script).arg("--ask").args(names()).status().await.map_err(failed)?;
        let consent = match asked.code() {
            Some(0) => "yes",
            Some(1) => "no",
            _ => return Err(format!("{} could not ask", script.display())),
        };
        // Nice, because what it compiles must not slow down the targets that run meanwhile.
        let mut command = Command::new("nice");
        command.args(["-n", "19"]).arg(&script).args(names()).env("TIDEGATE_SETUP", consent);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut script = command.spawn().map_err(|error| format!("nice: {error}"))?;
        let (done, pending) = watch::channel(needed.clone());
        if let Some(stdout) = script.stdout.take() {
            tokio::spawn(async move {
                let mut lines = BufReader::new(stdout).lines();
                while let Ok(Some(line)) = lines.next_line().await {
                    tell(&line);
                    done.send_modify(|pending| {
                        pending.retain(|group| line != format!("setup: {}: done", group.name()))
                    });
                }
                // However it ended, nothing more is to come: each target says for itself what it lacks.
                done.send_modify(BTreeSet::clear);
            });
        }
        Ok(Self { pending, _script: Some(script) })
    }

    /// Waits until one of these targets can be tried, and returns the first that can.
    pub async fn ready(&mut self, waiting: &[&dyn Target]) -> usize {
        let ready = |pending: &BTreeSet<Group>| {
            waiting.iter().position(|target| !target.needs().iter().any(|group| pending.contains(group)))
        };
        loop {
            if let Some(place) = ready(&self.pending.borrow_and_update()) {
                return place;
            }
            if self.pending.changed().await.is_err() {
                return 0;
            }
        }
    }
}
