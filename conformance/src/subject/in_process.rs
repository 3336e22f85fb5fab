use bytes::Bytes;
use tidegate_core::Limiter;
use tidegate_guest_protocol::{Reply, Route, serve};

use super::{Place, Subject};
use crate::fixture::Disturb;

/// A limiter in this process.
///
/// A burst's requests are futures on one thread, so they interleave wherever the limiter awaits.
#[derive(Debug)]
pub struct InProcess<L> {
    limiter: L,
}

impl<L: Limiter> InProcess<L> {
    /// Wraps a limiter.
    pub const fn new(limiter: L) -> Self {
        Self { limiter }
    }
}

impl<L: Limiter> Subject for InProcess<L> {
    async fn send(&self, route: Route, body: Bytes, _: Place) -> Result<Reply, String> {
        Ok(serve(&self.limiter, route, &body).await)
    }

    /// Does nothing, because there is no store to disturb.
    async fn disturb(&self, _: Disturb) -> Result<(), String> {
        Ok(())
    }
}
