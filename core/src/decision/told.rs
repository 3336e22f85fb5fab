//! A decision in numbers, which pass the boundary between two programs.

use alloc::vec::Vec;

use super::{Decision, Origin, QuotaStatus, Status};
use crate::{Error, ErrorKind, Millis, Policy, UnixMillis};

/// What another program says of its decision.
#[derive(Clone, Debug)]
pub struct Told {
    /// The status.
    pub status: Status,
    /// The place of the binding quota.
    pub binding: usize,
    /// [`Decision::retry_after`].
    pub retry_after: Option<Millis>,
    /// [`Decision::delay`].
    pub delay: Millis,
    /// [`Decision::decided_at`].
    pub decided_at: UnixMillis,
    /// The component that decided.
    pub origin: Origin,
    /// [`Decision::is_replay`].
    pub replay: bool,
    /// The limit of each quota, what remains, and the time until its reset in milliseconds.
    pub quotas: Vec<(u64, Option<u64>, Option<u64>)>,
}

impl Told {
    /// The decision, which is one by this policy.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if it is not.
    pub fn decision(self, policy: &Policy) -> Result<Decision, Error> {
        let Self { status, binding, retry_after, delay, decided_at, origin, replay, quotas } = self;
        if quotas.len() != policy.quotas().len() || binding >= quotas.len() {
            return Err(Error::new(ErrorKind::Corrupt, "decision: it is not one by this policy"));
        }
        let quota = |(limit, remaining, reset)| QuotaStatus::told(limit, remaining, reset);
        let quotas = quotas.into_iter().map(quota).collect();
        Ok(Decision { status, quotas, binding, retry_after, delay, decided_at, origin, replay })
    }
}
