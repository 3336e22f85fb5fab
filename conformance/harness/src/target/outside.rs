//! A limiter from outside this repository, known only by its declaration.

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use hyper::Uri;

use tidegate_conformance::declared::{Declared, Declares};
use tidegate_conformance::report::Emulator;

use super::{Facts, Running, Target};
use crate::http::{Http, Version};

/// Servers that speak the guests' protocol.
#[derive(Debug)]
pub struct Outside {
    name: String,
    declared: Declared,
    urls: Vec<String>,
}

impl Outside {
    /// Servers that speak the guests' protocol and share one store.
    ///
    /// # Errors
    /// Fails if a URL does not start with `http://` or `https://`, or if a server does not answer.
    pub async fn at(urls: &[String], declared: Declared) -> Result<Self, String> {
        let urls: Vec<String> = urls.iter().map(|url| url.trim_end_matches('/').to_string()).collect();
        for url in &urls {
            let parsed: Result<Uri, _> = url.parse();
            if !parsed.is_ok_and(|uri| {
                matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty())
            }) {
                return Err(format!(
                    "--url {url:?} is not an http:// or https:// URL; write one like http://127.0.0.1:8080"
                ));
            }
        }
        Http::new(&urls, Version::Http1).warm_up().await.map_err(|error| format!("--url: {error}"))?;
        Ok(Self { name: urls.join(","), declared, urls })
    }
}

impl Declares for Outside {
    fn declared(&self) -> Declared {
        self.declared
    }
}

impl Target for Outside {
    fn facts(&self) -> Facts<'_> {
        Facts::new(&self.name, "a limiter from outside this repository")
    }

    fn emulator(&self) -> Result<Emulator, String> {
        Ok(Emulator { name: self.name.clone(), version: "unknown".into() })
    }

    fn start(&self) -> LocalBoxFuture<'_, Result<Running, String>> {
        async { Ok(Running::new(Http::new(&self.urls, Version::Http1), Vec::new(), None)) }.boxed_local()
    }
}
