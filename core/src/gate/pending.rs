//! A request between its rule and its decision.

use std::sync::Arc;

use super::responses::Responses;
use super::{OnFailure, Verdict};
use crate::dimension::OwnKeys;
use crate::{Error, ErrorKind, Key, Millis, Policy, UnixMillis};

/// What [`Gate::prepare`](super::Gate::prepare) finds.
#[derive(Debug)]
pub enum Prepared {
    /// The request needs no store: it is not limited, or its sender is on a list.
    Decided(Verdict),
    /// A store has to decide.
    Pending(Pending),
}

/// A request that a store has to [decide](super::Gate::decide) on.
#[derive(Debug)]
pub struct Pending {
    pub(super) rule: Arc<str>,
    pub(super) hold: Hold,
    pub(super) cost: u64,
    pub(super) on_failure: OnFailure,
    pub(super) settle_within: Millis,
    pub(super) responses: Responses,
    pub(super) now: UnixMillis,
}

impl Pending {
    /// Whether the request counts by an address that nobody knows. All such requests share one key.
    #[must_use]
    pub fn lacks_address(&self) -> bool {
        self.hold.keys.any(|key| *key == Key::missing_ip())
    }

    /// The name of the rule.
    #[must_use]
    pub fn rule(&self) -> &str {
        &self.rule
    }

    /// The policy, whose quotas are those of all limits that apply.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.hold.policy
    }

    /// Sets the token under which the request is charged; see [`Request::token`](super::Request::token).
    pub fn set_token(&mut self, token: impl Into<Box<str>>) {
        self.hold.token = Some(token.into());
    }

    /// Sets the cost.
    pub const fn set_cost(&mut self, cost: u64) {
        self.cost = cost;
    }

    /// What the request is charged if it is admitted. `None` without a token.
    #[must_use]
    pub fn hold(&self) -> Option<Hold> {
        self.hold.token.is_some().then(|| self.hold.clone())
    }
}

/// What a request is charged under its token, to be [settled](super::Gate::settle) or [released](super::Gate::release).
#[derive(Clone, Debug)]
pub struct Hold {
    /// The place of the store.
    pub(super) store: usize,
    pub(super) policy: Arc<Policy>,
    pub(super) keys: OwnKeys,
    pub(super) token: Option<Box<str>>,
}

impl Hold {
    /// The policy.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    pub(super) fn token(&self) -> Result<&str, Error> {
        let missing = || Error::new(ErrorKind::UnknownCharge, "the request has no token, which names the charge");
        self.token.as_deref().ok_or_else(missing)
    }
}
