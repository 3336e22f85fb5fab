//! What to do with a request.

use std::sync::Arc;

use super::{OnFailure, Rule};
use crate::dimension::OwnKeys;
use crate::{BodyFormat, Decision, Error, Millis, Policy, Rejection, ResponseFields};

/// What to do with a request.
#[derive(Debug)]
#[non_exhaustive]
pub enum Verdict {
    /// Pass it on.
    Pass(Pass),
    /// Do not pass it on. Send the response.
    Refuse(Refusal),
}

/// A request to pass on.
#[derive(Debug)]
pub struct Pass {
    fields: ResponseFields,
    decision: Option<Decision>,
    hold: Option<Hold>,
    error: Option<Error>,
}

impl Pass {
    pub(super) fn unlimited() -> Self {
        Self { fields: ResponseFields::default(), decision: None, hold: None, error: None }
    }

    /// The fields to add to the response.
    #[must_use]
    pub const fn fields(&self) -> &ResponseFields {
        &self.fields
    }

    /// The decision. `None` if no limit applies, or if the store failed.
    #[must_use]
    pub const fn decision(&self) -> Option<&Decision> {
        self.decision.as_ref()
    }

    /// How long to wait before passing the request on; see [`Decision::delay`].
    #[must_use]
    pub fn delay(&self) -> Millis {
        self.decision.as_ref().map_or(Millis::ZERO, Decision::delay)
    }

    /// What was charged under the request's [token](super::Request::token), to be [settled](super::Gate::settle) or
    /// [released](super::Gate::release).
    #[must_use]
    pub const fn hold(&self) -> Option<&Hold> {
        self.hold.as_ref()
    }

    /// The failure of the store, if the request passes because the rule [opens](OnFailure::Open).
    #[must_use]
    pub const fn error(&self) -> Option<&Error> {
        self.error.as_ref()
    }
}

/// A request that is not passed on.
#[derive(Debug)]
pub struct Refusal {
    reason: Reason,
    rejection: Rejection,
}

/// Why a request is refused.
#[derive(Debug)]
#[non_exhaustive]
pub enum Reason {
    /// A limit denies it.
    Denied(Decision),
    /// Its sender is on the list `deny`.
    Listed,
    /// The limiter returned an error.
    Failed(Error),
}

impl Refusal {
    pub(super) fn forbidden() -> Self {
        Self { reason: Reason::Listed, rejection: Rejection::forbidden() }
    }

    /// The response to send.
    #[must_use]
    pub const fn rejection(&self) -> &Rejection {
        &self.rejection
    }

    /// Why.
    #[must_use]
    pub const fn reason(&self) -> &Reason {
        &self.reason
    }

    /// The response to send, for building a platform's response.
    #[must_use]
    pub fn into_rejection(self) -> Rejection {
        self.rejection
    }
}

/// What a request was charged under its token.
#[derive(Clone, Debug)]
pub struct Hold {
    /// The place of the store.
    pub(super) store: usize,
    pub(super) policy: Arc<Policy>,
    pub(super) keys: OwnKeys,
    pub(super) token: Box<str>,
}

/// The verdict on a request that a limiter has decided on.
pub(super) fn decided(policy: &Policy, decision: Decision, hold: Option<Hold>) -> Verdict {
    match Rejection::denied(policy, &decision, BodyFormat::Json) {
        Some(rejection) => Verdict::Refuse(Refusal { reason: Reason::Denied(decision), rejection }),
        None => {
            let fields = ResponseFields::new(policy, &decision);
            Verdict::Pass(Pass { fields, decision: Some(decision), hold, error: None })
        }
    }
}

/// The verdict after an error. A client can cause every error that is not a failure of the store.
pub(super) fn failed(rule: &Rule, error: Error) -> Verdict {
    let kind = error.kind();
    if rule.on_failure == OnFailure::Open && kind.is_store_failure() {
        let fields = ResponseFields::failed_open(kind);
        return Verdict::Pass(Pass { fields, decision: None, hold: None, error: Some(error) });
    }
    Verdict::Refuse(Refusal { reason: Reason::Failed(error), rejection: Rejection::unavailable(kind) })
}
