//! A limiter and a server that the tests share.

#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test binary uses its part of this")]

pub mod log;
pub mod server;

use tidegate_core::gate::{Gate, OnFailure, Rules};
use tidegate_core::{Capabilities, ClientIpSource, Error, ErrorKind, Limiter, Platform, Policy, limiter_fn};

/// A gate with one policy for all requests, which come through Vercel.
pub fn gate(limiter: impl Limiter + 'static, policy: Policy, on_failure: OnFailure) -> Result<Gate<'static>, Error> {
    Gate::new(Rules::all(policy, on_failure), limiter, ClientIpSource::new(Platform::Vercel))
}

/// Part of the message of [`failing`]; it must reach neither a client nor a log.
pub const SECRET: &str = "token=hunter2";

/// A limiter that answers every call with an error of this kind.
pub fn failing(kind: ErrorKind) -> impl Limiter {
    let can = Capabilities::EXACT.algorithms(&["token_bucket", "sliding_log"]);
    limiter_fn(can, move |_| Err(Error::new(kind, SECRET)))
}
