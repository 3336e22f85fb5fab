//! A limiter and a server that the tests share.

#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test binary uses its part of this")]

pub mod log;
pub mod server;

use tidegate_core::gate::{Gate, OnFailure, Rules};
use tidegate_core::{
    Capabilities, Check, ClientIpSource, Decision, Error, ErrorKind, Keys, Limiter, Platform, Policy, Refund, Settle,
};

/// A gate with one policy for all requests, which come through Vercel.
pub fn gate(limiter: impl Limiter + 'static, policy: Policy, on_failure: OnFailure) -> Result<Gate<'static>, Error> {
    Gate::new(Rules::all(policy, on_failure), limiter, ClientIpSource::new(Platform::Vercel))
}

/// A limiter that answers every call with an error of this kind.
#[derive(Debug)]
pub struct Failing(pub ErrorKind);

impl Failing {
    /// Part of the error's message; it must reach neither a client nor a log.
    pub const SECRET: &str = "token=hunter2";

    fn error(&self) -> Error {
        Error::new(self.0, Self::SECRET)
    }
}

impl Limiter for Failing {
    fn capabilities(&self) -> Capabilities {
        Capabilities::EXACT.algorithms(&["token_bucket", "sliding_log"])
    }

    async fn check(&self, _: Check<'_>) -> Result<Decision, Error> {
        Err(self.error())
    }

    async fn peek(&self, _: Check<'_>) -> Result<Decision, Error> {
        Err(self.error())
    }

    async fn refund(&self, _: Refund<'_>) -> Result<(), Error> {
        Err(self.error())
    }

    async fn settle(&self, _: Settle<'_>) -> Result<Decision, Error> {
        Err(self.error())
    }

    async fn reset(&self, _: &Policy, _: Keys<'_>) -> Result<(), Error> {
        Err(self.error())
    }
}
