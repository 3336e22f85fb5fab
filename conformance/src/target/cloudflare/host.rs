use std::path::PathBuf;

use serde_json::Value;
use tokio::sync::OnceCell;

use super::{Tools, build, guest};
use crate::target::build::workspace;
use crate::target::process::{self, Process};

/// The guest's Worker on workerd, started by `hosts/cloudflare/serve.mjs`. Dropping it ends workerd, too.
#[derive(Debug)]
pub struct Host {
    process: Process,
    addresses: Vec<String>,
}

/// The Worker, built once in a process.
static BUILT: OnceCell<Result<PathBuf, String>> = OnceCell::const_new();

impl Host {
    /// Builds the Worker, starts it in test mode, and waits until all its isolates answer. The arguments are those of
    /// `serve.mjs`.
    ///
    /// # Errors
    /// A tool that is missing, with how to install it, and whatever else keeps the Worker from starting.
    pub async fn start(args: &[String]) -> Result<Self, String> {
        let built = BUILT.get_or_init(|| async { build(&Tools::find()?).await }).await.clone()?;
        let serve = workspace().join("conformance/hosts/cloudflare/serve.mjs").display().to_string();
        let own = [serve, format!("--guest={}", guest().display()), format!("--built={}", built.display())];
        let (process, addresses) = process::guest("node".as_ref(), &[own.as_slice(), args].concat()).await?;
        Ok(Self { process, addresses: addresses.split_whitespace().map(ToString::to_string).collect() })
    }

    /// Where each isolate answers, as in `http://127.0.0.1:1234`.
    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        self.addresses.iter().map(String::as_str)
    }

    /// Sends one of the words that `serve.mjs` knows, and waits for the answer.
    ///
    /// # Errors
    /// There is no answer, or it is not JSON.
    pub async fn tell(&self, word: &str) -> Result<Value, String> {
        let answer = self.process.tell(word).await?;
        serde_json::from_str(&answer).map_err(|error| format!("{word}: {error}: {answer}"))
    }

    /// Ends it, and waits until it has.
    pub async fn stop(self) {
        self.process.stop().await;
    }
}
