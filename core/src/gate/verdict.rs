//! What to do with a request.

use std::sync::Arc;

use super::responses::{Draws, Responses};
use super::{Hold, InvalidToken, OnFailure, Pending};
use crate::{Decision, Error, Millis, Rejection, ResponseFields};

/// What to do with a request.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// Pass it on.
    Pass(Pass),
    /// Do not pass it on. Send the response.
    Refuse(Refusal),
}

/// A request to pass on.
#[derive(Clone, Debug)]
pub struct Pass {
    fields: ResponseFields,
    decision: Option<Decision>,
    hold: Option<Hold>,
    error: Option<Arc<Error>>,
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
    pub fn error(&self) -> Option<&Arc<Error>> {
        self.error.as_ref()
    }
}

/// A request that is not passed on.
#[derive(Clone, Debug)]
pub struct Refusal {
    reason: Reason,
    rejection: Rejection,
}

/// Why a request is refused.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Reason {
    /// A limit denies it.
    Denied(Decision),
    /// Its sender is on the list `deny`.
    Listed,
    /// The rule asks for a challenge, whose address this is.
    Challenged(Box<str>),
    /// Its token is invalid, and the rule refuses such requests.
    InvalidToken(InvalidToken),
    /// The limiter returned an error.
    Failed(Arc<Error>),
}

impl Refusal {
    pub(super) fn forbidden() -> Self {
        Self { reason: Reason::Listed, rejection: Rejection::forbidden() }
    }

    pub(super) fn challenged(address: &str) -> Self {
        Self { reason: Reason::Challenged(address.into()), rejection: Rejection::challenged(address) }
    }

    pub(super) fn unauthorized(invalid: InvalidToken) -> Self {
        Self { reason: Reason::InvalidToken(invalid), rejection: Rejection::unauthorized() }
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

/// The verdict on a request that a limiter has decided on.
pub(super) fn decided(pending: &Pending, decision: Decision, draws: &Draws) -> Verdict {
    let (policy, Responses { format, spread }) = (pending.policy(), pending.responses);
    let later = draws.later(&decision, spread);
    match Rejection::denied(policy, later.as_ref().unwrap_or(&decision), format) {
        Some(rejection) => Verdict::Refuse(Refusal { reason: Reason::Denied(decision), rejection }),
        None => {
            let fields = ResponseFields::new(policy, &decision);
            Verdict::Pass(Pass { fields, decision: Some(decision), hold: pending.hold(), error: None })
        }
    }
}

impl Verdict {
    /// Of two verdicts, the one with fewer requests remaining.
    pub(super) fn or_fewer(self, other: Self) -> Self {
        let left = |verdict: &Self| verdict.decision().map_or(Some(0), |decision| decision.binding().remaining());
        match (left(&self), left(&other)) {
            (Some(ours), Some(theirs)) if theirs < ours => other,
            (None, Some(_)) => other,
            _ => self,
        }
    }

    /// The same, with what all rules that apply have charged.
    pub(super) fn holding(mut self, pending: &Pending) -> Self {
        if let (Self::Pass(pass), false) = (&mut self, pending.is_alone()) {
            pass.hold = pending.hold().filter(|_| pass.decision.is_some());
        }
        self
    }

    /// The verdict on a request that a limiter has not decided on because of an error. It passes only after a
    /// [failure of the store](crate::ErrorKind::is_store_failure), which no client can cause, and only if that is wanted.
    #[must_use]
    pub fn failed(on_failure: OnFailure, error: Error) -> Self {
        let (kind, error) = (error.kind(), Arc::new(error));
        if on_failure == OnFailure::Open && kind.is_store_failure() {
            let fields = ResponseFields::failed_open(kind);
            return Self::Pass(Pass { fields, decision: None, hold: None, error: Some(error) });
        }
        Self::Refuse(Refusal { reason: Reason::Failed(error), rejection: Rejection::unavailable(kind) })
    }

    /// The verdict on a request that the server is not set up to decide on: a 500.
    #[must_use]
    pub fn misconfigured(error: Error) -> Self {
        Self::Refuse(Refusal { reason: Reason::Failed(Arc::new(error)), rejection: Rejection::misconfigured() })
    }

    /// The decision. `None` if no limit applies, the sender is refused before any, or the limiter failed.
    #[must_use]
    pub const fn decision(&self) -> Option<&Decision> {
        match self {
            Self::Pass(pass) => pass.decision(),
            Self::Refuse(Refusal { reason: Reason::Denied(decision), .. }) => Some(decision),
            Self::Refuse(_) => None,
        }
    }

    /// The error of the limiter, if it has not decided.
    #[must_use]
    pub fn error(&self) -> Option<&Arc<Error>> {
        match self {
            Self::Pass(pass) => pass.error(),
            Self::Refuse(Refusal { reason: Reason::Failed(error), .. }) => Some(error),
            Self::Refuse(_) => None,
        }
    }
}
