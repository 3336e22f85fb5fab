//! An app with routes behind a gate, which a test attacks with requests as a hostile client writes them.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde_json::Value;
use tidegate_core::{Capabilities, Error, ErrorKind, Limiter, MaybeSend, MaybeSync, Operation, Reply};

/// The variable or the setting with the app's rules as JSON. With it, a guest is this app and nothing else.
pub const ROUTED_RULES: &str = "TIDEGATE_ROUTED_RULES";

/// The field of a response that names the route whose handler has run.
pub const RAN: &str = "tidegate-ran";

/// The field of a response that names the limits that were charged, separated by spaces.
///
/// A gate may decide on several policies one after another, and the response fields are those of one.
pub const CHARGED: &str = "tidegate-charged";

/// The name of what has no route of its own.
pub const ALL: &str = "all";

/// The routes of the app, in their order: for each rule with a path, its first limit as the name, and the path.
///
/// # Errors
/// [`ErrorKind::Invalid`] if the rules are not JSON.
pub fn routes(rules: &str) -> Result<Vec<(String, String)>, Error> {
    let rules: Value = serde_json::from_str(rules)
        .map_err(|error| Error::new(ErrorKind::Invalid, format!("{ROUTED_RULES}: {error}; write rules as JSON")))?;
    let route = |rule: &Value| Some((rule["limits"][0].as_str()?.to_string(), rule["path"].as_str()?.to_string()));
    Ok(rules["rules"].as_array().into_iter().flatten().filter_map(route).collect())
}

/// A limiter, and what is told the name of each limit that it checks.
pub struct Told<L, F> {
    limiter: L,
    tell: F,
}

impl<L, F: Fn(&str)> Told<L, F> {
    /// Tells `tell` what `limiter` checks.
    pub const fn new(limiter: L, tell: F) -> Self {
        Self { limiter, tell }
    }
}

impl<L: Limiter, F: Fn(&str) + MaybeSend + MaybeSync> Limiter for Told<L, F> {
    fn capabilities(&self) -> Capabilities {
        self.limiter.capabilities()
    }

    async fn apply(&self, operation: Operation<'_>) -> Result<Reply, Error> {
        if let Operation::Check(check) = operation {
            check.policy.quotas().iter().for_each(|quota| (self.tell)(quota.name()));
        }
        self.limiter.apply(operation).await
    }
}
