//! A limiter whose store is down.

#![allow(unreachable_pub, missing_docs, reason = "each test binary uses its part of this")]

use tidegate_core::{Capabilities, Check, Decision, Error, ErrorKind, Key, Limiter, Policy, Refund};

#[derive(Debug)]
pub struct Broken;

impl Broken {
    fn error() -> Error {
        Error::new(ErrorKind::Unavailable, "the inside of this must not reach a client")
    }
}

impl Limiter for Broken {
    fn capabilities(&self) -> Capabilities {
        Capabilities { algorithms: &["token_bucket"], ..Capabilities::EXACT }
    }

    async fn check(&self, _: Check<'_>) -> Result<Decision, Error> {
        Err(Self::error())
    }

    async fn peek(&self, _: Check<'_>) -> Result<Decision, Error> {
        Err(Self::error())
    }

    async fn refund(&self, _: Refund<'_>) -> Result<(), Error> {
        Err(Self::error())
    }

    async fn reset(&self, _: &Policy, _: &Key) -> Result<(), Error> {
        Err(Self::error())
    }
}
