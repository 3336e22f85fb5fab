//! A gate and a server that the tests share.

#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test binary uses its part of this")]

pub mod server;

use tidegate_core::gate::{Gate, OnFailure, Rules};
use tidegate_core::{ClientIpSource, Error, Limiter, Platform, Policy};

/// A gate with one policy for all requests, which come through Vercel.
pub fn gate(limiter: impl Limiter + 'static, policy: Policy, on_failure: OnFailure) -> Result<Gate<'static>, Error> {
    Gate::new(Rules::all(policy, on_failure), limiter, ClientIpSource::new(Platform::Vercel))
}
