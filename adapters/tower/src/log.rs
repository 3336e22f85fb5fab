//! What the layer logs besides the notices of its gate.

use tidegate_core::gate::LogLimit;
use tidegate_core::{ErrorKind, UnixMillis};

/// Logs errors, each at most once a second for each kind.
#[derive(Debug, Default)]
pub(crate) struct Log {
    settlements: LogLimit,
    peers: LogLimit,
}

impl Log {
    /// Of a request whose connection has no address.
    pub(crate) fn without_peer(&self, now: UnixMillis) {
        if self.peers.admit(ErrorKind::Invalid, now).is_some() {
            tracing::error!(
                target: "tidegate",
                "no address of the connection: requests that count by their address get a 500. Serve the router with \
                 into_make_service_with_connect_info::<SocketAddr>(), or have RateLimitLayer::with_peer find what the server stores"
            );
        }
    }

    /// Of a charge that was not settled, or a slot that was not given back. An error's message and its source stay out of the log: a
    /// store may put an address or a credential into them.
    pub(crate) fn unsettled(&self, policy: &str, kind: ErrorKind, outcome: &'static str, now: UnixMillis) {
        if let Some(suppressed) = self.settlements.admit(kind, now) {
            tracing::warn!(target: "tidegate", policy, kind = kind.name(), outcome, suppressed, "rate limiter failed");
        }
    }
}
