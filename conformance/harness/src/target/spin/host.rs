use super::{GUEST, HOST, MANIFEST, WASM, build};
use crate::target::checkout::workspace;
use crate::target::losing::Losing;
use crate::target::process::{self, Process};

/// An app on our host. Dropping it ends both.
#[derive(Debug)]
pub struct Host {
    pub(super) process: Process,
    pub(super) base: String,
    pub(super) losing: Losing,
}

impl Host {
    /// Builds the guest, starts it with these arguments of the host, and waits until it listens.
    ///
    /// # Errors
    /// Fails if the app does not start. If a tool is missing, the error says how to install it.
    pub async fn start(args: &[String]) -> Result<Self, String> {
        Self::start_app(GUEST, MANIFEST, args).await
    }

    /// As [`Host::start`], for the app of a package, with its manifest.
    ///
    /// # Errors
    /// As [`Host::start`].
    pub async fn start_app(package: &str, manifest: &str, args: &[String]) -> Result<Self, String> {
        Self::start_composed(None, package, manifest, args).await
    }

    /// As [`Host::start_app`], with the middleware of another package in front of the app, if there is one.
    ///
    /// # Errors
    /// As [`Host::start`].
    pub async fn start_composed(
        middleware: Option<&str>,
        package: &str,
        manifest: &str,
        args: &[String],
    ) -> Result<Self, String> {
        let module = build::module(package, WASM).await?;
        let host = build::host(HOST).await?;
        let manifest = workspace().join(manifest);
        let mut own = vec![format!("--manifest={}", manifest.display()), format!("--component={}", module.display())];
        if let Some(middleware) = middleware {
            own.push(format!("--middleware={}", build::module(middleware, WASM).await?.display()));
        }
        let (process, base) = process::guest(&host, &[own.as_slice(), args].concat()).await?;
        Ok(Self { process, base, losing: Losing::default() })
    }

    /// The address, for example `http://127.0.0.1:1234`.
    #[must_use]
    pub fn base(&self) -> &str {
        &self.base
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
