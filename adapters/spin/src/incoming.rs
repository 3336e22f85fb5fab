//! What a gate reads of a request.

use tidegate_core::UnixMillis;
use tidegate_core::gate::Request as GateRequest;

/// What a gate reads of a request, for an app that knows more of it than its platform.
///
/// ```
/// # #[cfg(all(target_arch = "wasm32", feature = "spin-sdk"))] mod app {
/// # use spin_sdk::http::{IncomingRequest, Response};
/// # use tidegate_core::gate::{Gate, Pass};
/// # use tidegate_spin::{Incoming, outcome};
/// # async fn check(gate: &Gate<'_>, request: &IncomingRequest) -> Result<Pass, Response> {
/// let incoming = Incoming::new(request);
/// outcome(gate.check(&incoming.asked().tier("staff").cost(5)).await)
/// # }
/// # }
/// ```
pub struct Incoming {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) host: Option<String>,
    // Spin adds the client's address after any field of the same name that the client sent. So all are kept, in their order.
    pub(crate) fields: Vec<(String, Vec<u8>)>,
}

impl Incoming {
    /// Reads a request of an SDK, or of `wasi:http@0.3.0`.
    #[must_use]
    pub fn new(request: impl Into<Self>) -> Self {
        request.into()
    }

    /// The request as the gate sees it, now.
    #[must_use]
    pub fn asked(&self) -> GateRequest<'_> {
        let asked = GateRequest::new(&self.method, &self.path, &self.fields, UnixMillis::now()).clock(&UnixMillis::now);
        match &self.host {
            Some(host) => asked.with_host(host),
            None => asked,
        }
    }
}
