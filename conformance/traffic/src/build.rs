use std::process::Command;

use serde::{Deserialize, Serialize};

/// A build of Tidegate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tidegate {
    /// The version of this package.
    pub version: String,
    /// The commit of the checkout, or `unknown`.
    pub commit: String,
}

impl Tidegate {
    /// This build.
    #[must_use]
    pub fn this() -> Self {
        Self { version: env!("CARGO_PKG_VERSION").into(), commit: commit() }
    }
}

fn commit() -> String {
    let git = Command::new("git").arg("-C").arg(env!("CARGO_MANIFEST_DIR")).args(["rev-parse", "HEAD"]).output();
    let told = git.ok().filter(|told| told.status.success());
    let told = told.map(|told| String::from_utf8_lossy(&told.stdout).trim().to_string());
    told.filter(|commit| !commit.is_empty()).unwrap_or_else(|| "unknown".into())
}
