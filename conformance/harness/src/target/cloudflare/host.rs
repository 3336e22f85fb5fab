use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tokio::sync::Mutex;

use super::{GUEST, GUEST_JS, build, bundle};
use crate::target::checkout::workspace;
use crate::target::process::{self, Process};

/// The guest's Worker on workerd, started by `hosts/cloudflare/serve.mjs`. Dropping it also ends workerd.
#[derive(Debug)]
pub struct Host {
    process: Process,
    addresses: Vec<String>,
}

/// The Workers built so far, by folder. Two builds of one would overwrite each other's files.
static BUILT: Mutex<BTreeMap<String, PathBuf>> = Mutex::const_new(BTreeMap::new());

impl Host {
    /// Builds the Worker, starts it in test mode, and waits until all isolates answer. `args` are passed to
    /// `serve.mjs`.
    ///
    /// # Errors
    /// Fails if the Worker does not start. If a tool is missing, the error says how to install it.
    pub async fn start(args: &[String]) -> Result<Self, String> {
        Self::serve(GUEST, &Self::rust().await?, args).await
    }

    /// Builds another Worker, whose folder in the workspace this is, and starts it.
    ///
    /// # Errors
    /// As [`Host::start`].
    pub async fn start_app(folder: &str, args: &[String]) -> Result<Self, String> {
        Self::serve(folder, &Self::built(folder, build(folder, &[])).await?, args).await
    }

    /// As [`Host::start`], for the guest with the npm package.
    pub(super) async fn start_javascript(args: &[String]) -> Result<Self, String> {
        Self::serve(GUEST_JS, &Self::javascript().await?, args).await
    }

    /// As [`Host::start`], for both guests: the first isolate, which has the objects, runs one of them, and the others the other.
    ///
    /// # Errors
    /// As [`Host::start`].
    pub async fn start_both(javascript_has_objects: bool, args: &[String]) -> Result<Self, String> {
        let (rust, javascript) = (Self::rust().await?, Self::javascript().await?);
        let (first, others) = if javascript_has_objects { (javascript, rust) } else { (rust, javascript) };
        Self::serve(GUEST, &first, &[args, &[format!("--others={}", others.display())]].concat()).await
    }

    /// Builds the guest in Rust, with the routes of the suite.
    pub(in crate::target) async fn rust() -> Result<PathBuf, String> {
        Self::built(GUEST, build(GUEST, &["--features", "suite"])).await
    }

    async fn javascript() -> Result<PathBuf, String> {
        Self::built(GUEST_JS, bundle()).await
    }

    async fn serve(folder: &str, built: &Path, args: &[String]) -> Result<Self, String> {
        let serve = workspace().join("conformance/hosts/cloudflare/serve.mjs").display().to_string();
        let guest = workspace().join(folder);
        let own = [serve, format!("--guest={}", guest.display()), format!("--built={}", built.display())];
        let (process, addresses) = process::guest("node".as_ref(), &[own.as_slice(), args].concat()).await?;
        Ok(Self { process, addresses: addresses.split_whitespace().map(ToString::to_string).collect() })
    }

    /// Builds a Worker, unless this process has done so.
    async fn built(folder: &str, build: impl Future<Output = Result<PathBuf, String>>) -> Result<PathBuf, String> {
        let mut all = BUILT.lock().await;
        if let Some(built) = all.get(folder) {
            return Ok(built.clone());
        }
        Ok(all.entry(folder.to_string()).or_insert(build.await?).clone())
    }

    /// The address of each isolate, for example `http://127.0.0.1:1234`.
    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        self.addresses.iter().map(String::as_str)
    }

    /// The process of `serve.mjs`.
    pub(super) const fn process(&self) -> &Process {
        &self.process
    }

    /// Sends a command to `serve.mjs`, and waits for the answer.
    ///
    /// # Errors
    /// Fails if there is no answer, or if it is not JSON.
    pub async fn tell(&self, word: &str) -> Result<Value, String> {
        let answer = self.process.tell(word).await?;
        serde_json::from_str(&answer).map_err(|error| format!("{word}: {error}: {answer}"))
    }

    /// What the Worker has logged.
    ///
    /// # Errors
    /// Fails if its log cannot be read.
    pub fn log(&self) -> Result<String, String> {
        self.process.log()
    }

    /// Stops the Worker, and waits until it has ended.
    pub async fn stop(self) {
        self.process.stop().await;
    }
}
