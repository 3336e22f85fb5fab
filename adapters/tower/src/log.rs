//! What the layer logs.

use std::sync::atomic::{AtomicBool, Ordering};

use tidegate_core::gate::LogLimit;
use tidegate_core::{ErrorKind, UnixMillis};

/// Logs errors: of checks and of settlements, each at most once a second for each kind.
#[derive(Debug, Default)]
pub(crate) struct Log {
    checks: LogLimit,
    settlements: LogLimit,
    is_told_of_peers: AtomicBool,
}

impl Log {
    /// Of a request that was `admitted` or `rejected`.
    pub(crate) fn undecided(&self, policy: &str, kind: ErrorKind, outcome: &'static str, now: UnixMillis) {
        warn(&self.checks, policy, kind, outcome, now);
    }

    /// Of the first request whose connection has no address.
    pub(crate) fn without_peer(&self) {
        if !self.is_told_of_peers.swap(true, Ordering::Relaxed) {
            tracing::error!(
                target: "tidegate",
                "no address of the connection: requests that count by their address get a 500. Serve the router with \
                 into_make_service_with_connect_info::<SocketAddr>(), or have RateLimitLayer::with_peer find what the server stores"
            );
        }
    }

    /// Of a charge that was not settled, or a slot that was not given back.
    pub(crate) fn unsettled(&self, policy: &str, kind: ErrorKind, outcome: &'static str, now: UnixMillis) {
        warn(&self.settlements, policy, kind, outcome, now);
    }
}

/// An error's message and its source stay out of the log: a store may put an address or a credential into them.
fn warn(limit: &LogLimit, policy: &str, kind: ErrorKind, outcome: &'static str, now: UnixMillis) {
    if let Some(suppressed) = limit.admit(kind, now) {
        tracing::warn!(target: "tidegate", policy, kind = kind.name(), outcome, suppressed, "rate limiter failed");
    }
}
