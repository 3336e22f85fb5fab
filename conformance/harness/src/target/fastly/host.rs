use std::path::Path;

use tokio::process::Command;

use super::{WASI, build};
use crate::target::losing::Losing;
use crate::target::process::Process;

/// An app on Viceroy, in one PoP or several. Dropping it ends all of them.
#[derive(Debug)]
pub struct Host {
    pub(super) process: Process,
    addresses: Vec<String>,
    pub(super) losing: Losing,
}

impl Host {
    /// Builds the guest, starts it with a manifest and these arguments of the host, and waits until all PoPs listen.
    ///
    /// # Errors
    /// Fails if the app does not start. If a tool is missing, the error says how to install it.
    pub async fn start(manifest: &Path, args: &[&str]) -> Result<Self, String> {
        Self::start_app("tidegate-guest-fastly", manifest, args).await
    }

    /// As [`Host::start`], for the app of a package.
    ///
    /// # Errors
    /// As [`Host::start`].
    pub async fn start_app(package: &str, manifest: &Path, args: &[&str]) -> Result<Self, String> {
        let host = build::host("tidegate-host-fastly").await?;
        let app = build::module(package, WASI).await?;
        let mut command = Command::new(host);
        command.arg(format!("--guest={}", app.display())).arg(format!("--manifest={}", manifest.display())).args(args);
        let process = Process::spawn(command)?;
        let addresses = process.first_line().await.map_err(|error| format!("tidegate-host-fastly: {error}"))?;
        let addresses = addresses.split_whitespace().map(ToString::to_string).collect();
        Ok(Self { process, addresses, losing: Losing::default() })
    }

    /// The address of each PoP, for example `http://127.0.0.1:1234`.
    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        self.addresses.iter().map(String::as_str)
    }

    /// Sends a command to the host, and waits for the answer.
    ///
    /// # Errors
    /// Fails if there is no answer.
    pub async fn tell(&self, word: &str) -> Result<String, String> {
        self.process.tell(word).await
    }

    /// What the app and its host have logged.
    ///
    /// # Errors
    /// Fails if the log cannot be read.
    pub fn log(&self) -> Result<String, String> {
        self.process.log()
    }

    /// Stops the host, and waits until it has ended.
    pub async fn stop(self) {
        self.process.stop().await;
    }
}
