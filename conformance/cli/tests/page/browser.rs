use std::net::TcpListener;
use std::process::Stdio;
use std::time::Duration;

use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use super::Result;

/// A browser, and the driver that controls it.
pub(super) struct Browser {
    pub(super) client: Client,
    _driver: Child,
    _profile: TempDir,
}

impl Browser {
    pub(super) async fn start() -> Result<Self> {
        Self::with(json!({})).await
    }

    /// A browser with more options of chromedriver.
    pub(super) async fn with(mut options: Value) -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut driver = Command::new("chromedriver");
        let driver = driver.arg(format!("--port={port}")).stdout(Stdio::null()).kill_on_drop(true).spawn();
        let driver = driver.map_err(|error| format!("chromedriver: {error}; run conformance/setup.sh tests"))?;
        let profile = tempfile::tempdir()?;
        // Root cannot use the sandbox, and the only page is this test's own.
        let data = format!("--user-data-dir={}", profile.path().display());
        let args = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", &data];
        options["args"] = json!(args);
        let wanted = json!({ "goog:chromeOptions": options });
        let Value::Object(wanted) = wanted else { return Err("no capabilities".into()) };
        let address = format!("http://127.0.0.1:{port}");
        for _ in 0..120 {
            let mut builder = ClientBuilder::new(HttpConnector::new());
            match builder.capabilities(wanted.clone()).connect(&address).await {
                Ok(client) => return Ok(Self { client, _driver: driver, _profile: profile }),
                Err(fantoccini::error::NewSessionError::NotW3C(said)) => {
                    return Err(format!("no session: {said}").into());
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(250)).await,
            }
        }
        Err("chromedriver does not answer".into())
    }

    pub(super) async fn value(&self, script: &str) -> Result<Value> {
        Ok(self.client.execute(&format!("return {script}"), Vec::new()).await?)
    }

    /// The visible text, on one line.
    pub(super) async fn text(&self, selector: &str) -> Result<String> {
        let text = self.client.find(Locator::Css(selector)).await?.text().await?;
        Ok(text.split_whitespace().collect::<Vec<_>>().join(" "))
    }

    pub(super) async fn click(&self, selector: &str) -> Result<()> {
        Ok(self.client.find(Locator::Css(selector)).await?.click().await?)
    }
}
