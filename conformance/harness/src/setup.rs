//! Runs `conformance/setup.sh` in the background. The script reports when each [`Group`] is done, so that its targets
//! can run.

use std::collections::BTreeSet;
use std::io::{IsTerminal as _, stderr};
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;

use crate::target::{Group, Target, alone, told, workspace};

/// A running setup. Dropping it stops the setup.
#[derive(Debug)]
pub struct Setup {
    pending: watch::Receiver<BTreeSet<Group>>,
    _script: Option<Child>,
    /// Other runs in this checkout wait for it.
    _lock: Option<std::fs::File>,
}

impl Setup {
    /// Asks for consent if necessary, and starts the setup of all groups that the targets need. Each line of its output
    /// is passed to `tell`.
    ///
    /// # Errors
    /// Fails if the script does not start, or if `TIDEGATE_SETUP` is neither `yes` nor `no`.
    pub async fn start(targets: &[&dyn Target], tell: fn(&str)) -> Result<Self, String> {
        let needed: BTreeSet<Group> = targets.iter().flat_map(|target| target.facts().needs).copied().collect();
        if needed.is_empty() {
            return Ok(Self { pending: watch::channel(needed).1, _script: None, _lock: None });
        }
        let script = workspace().join("conformance/setup.sh");
        let failed = |error: std::io::Error| format!("{}: {error}", script.display());
        let names = || needed.iter().map(|group| group.name());
        let mut ask = Command::new(&script);
        ask.arg("--ask").args(names());
        if !stderr().is_terminal() {
            ask.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        let asked = ask.spawn().map_err(failed)?.wait_with_output().await.map_err(failed)?;
        let answer = [asked.stdout, asked.stderr].concat();
        String::from_utf8_lossy(&answer).lines().for_each(tell);
        let consent = match asked.status.code() {
            Some(0) => "yes",
            Some(1) => "no",
            _ => return Err(format!("{} could not ask for consent", script.display())),
        };
        let lock = alone("setup").await?;
        // The setup runs at low priority, so that its builds do not slow down the targets that run meanwhile.
        let mut command = Command::new("nice");
        command.args(["-n", "19"]).arg(&script).args(names()).env("TIDEGATE_SETUP", consent);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut script = command.spawn().map_err(|error| format!("nice: {error}"))?;
        let (done, pending) = watch::channel(needed.clone());
        if let Some(stderr) = script.stderr.take() {
            tokio::spawn(told(stderr, tell));
        }
        if let Some(stdout) = script.stdout.take() {
            tokio::spawn(async move {
                let mut lines = BufReader::new(stdout).lines();
                while let Ok(Some(line)) = lines.next_line().await {
                    tell(&line);
                    done.send_modify(|pending| {
                        pending.retain(|group| line != format!("setup: {}: done", group.name()))
                    });
                }
                // The setup has ended. If something is missing, each target reports it.
                done.send_modify(BTreeSet::clear);
            });
        }
        Ok(Self { pending, _script: Some(script), _lock: Some(lock) })
    }

    /// Waits until the setup of one of these targets is done, and returns the index of the first such target.
    pub async fn ready(&mut self, waiting: &[&dyn Target]) -> usize {
        let ready = |pending: &BTreeSet<Group>| {
            waiting.iter().position(|target| !target.facts().needs.iter().any(|group| pending.contains(group)))
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
