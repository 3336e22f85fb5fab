//! What to do with a request.

use std::sync::Arc;

use super::pending::Terms;
use super::responses::{Draws, Responses};
use super::{Hold, InvalidToken, Notice, OnFailure, Pending};
use crate::{Decision, Error, ExtraFields, Millis, Origin, Policy, Quota, Rejection, ResponseFields, Rule, Status};

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
    decided: Option<(Arc<Policy>, Decision)>,
    extra: ExtraFields,
    /// Boxed, because most requests have none, and a verdict is moved more often than it is made.
    hold: Option<Box<Hold>>,
    error: Option<Arc<Error>>,
    notice: Option<Box<Notice>>,
    level: Option<u8>,
}

impl Pass {
    pub(super) const fn unlimited() -> Self {
        Self { decided: None, extra: ExtraFields::NONE, hold: None, error: None, notice: None, level: None }
    }

    /// A request that a limiter has admitted.
    #[inline]
    pub(super) fn admitted(terms: &Terms, policy: &Arc<Policy>, hold: Option<Box<Hold>>, decision: Decision) -> Self {
        let level = if terms.warns { policy.level(&decision) } else { None };
        let decided = Some((Arc::clone(policy), decision));
        Self { decided, extra: terms.responses.extra, hold, error: None, notice: None, level }
    }

    /// The fields to add to the response. They are written anew by each call.
    #[must_use]
    pub fn fields(&self) -> ResponseFields {
        match (&self.decided, &self.error) {
            (Some((policy, decision)), _) => ResponseFields::with(policy, decision, self.extra),
            (None, Some(error)) => ResponseFields::failed_open(error.kind()),
            (None, None) => ResponseFields::default(),
        }
    }

    /// The decision. `None` if no limit applies, or if the store failed.
    #[must_use]
    pub fn decision(&self) -> Option<&Decision> {
        self.decided.as_ref().map(|(_, decision)| decision)
    }

    /// How long to wait before passing the request on; see [`Decision::delay`].
    #[must_use]
    pub fn delay(&self) -> Millis {
        self.decision().map_or(Millis::ZERO, Decision::delay)
    }

    /// What was charged under the request's [token](super::Request::token), to be [settled](super::Gate::settle) or
    /// [released](super::Gate::release).
    #[must_use]
    pub fn hold(&self) -> Option<&Hold> {
        self.hold.as_deref()
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
    /// Boxed, so that a pass is not as large.
    rejection: Box<Rejection>,
    notice: Option<Box<Notice>>,
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
    fn new(reason: Reason, rejection: Rejection) -> Self {
        Self { reason, rejection: Box::new(rejection), notice: None }
    }

    pub(super) fn forbidden() -> Self {
        Self::new(Reason::Listed, Rejection::forbidden())
    }

    pub(super) fn challenged(address: &str) -> Self {
        Self::new(Reason::Challenged(address.into()), Rejection::challenged(address))
    }

    pub(super) fn unauthorized(invalid: InvalidToken) -> Self {
        Self::new(Reason::InvalidToken(invalid), Rejection::unauthorized())
    }

    /// A limiter has failed, and nothing opens.
    pub(super) fn failed(error: Error) -> Self {
        let kind = error.kind();
        Self::new(Reason::Failed(Arc::new(error)), Rejection::unavailable(kind))
    }

    pub(super) fn misconfigured(error: Error) -> Self {
        Self::new(Reason::Failed(Arc::new(error)), Rejection::misconfigured())
    }

    /// The response to send.
    #[must_use]
    pub fn rejection(&self) -> &Rejection {
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
        *self.rejection
    }
}

/// The verdict on a request that a limiter has decided on.
pub(super) fn decided(pending: &Pending, decision: Decision, draws: &Draws) -> Verdict {
    let refusal = if decision.is_allowed() { None } else { denied(pending, &decision, draws) };
    match refusal {
        Some(refusal) => Verdict::Refuse(refusal),
        None => {
            let (Hold { terms, policy, .. }, hold) = (&pending.hold, pending.hold().map(Box::new));
            Verdict::Pass(Pass::admitted(terms, policy, hold, decision))
        }
    }
}

fn denied(pending: &Pending, decision: &Decision, draws: &Draws) -> Option<Refusal> {
    let (policy, responses) = (pending.policy(), pending.hold.terms.responses);
    let Responses { format, spread, extra, payment_required } = responses;
    let later = draws.later(decision, spread);
    let status = if payment_required && lacks_credits(policy, decision) { 402 } else { 429 };
    let rejection = Rejection::denied_as(status, policy, later.as_ref().unwrap_or(decision), format, extra)?;
    Some(Refusal::new(Reason::Denied(decision.clone()), rejection))
}

/// Whether a grant would admit the request. Without the store, nobody knows.
fn lacks_credits(policy: &Policy, decision: &Decision) -> bool {
    let binding = policy.quotas().get(decision.binding_index()).map(Quota::rule);
    let is_denied = decision.status() == Status::Denied && decision.origin() != Origin::Fallback;
    is_denied && matches!(binding, Some(Rule::Balance(_)))
}

impl Verdict {
    /// Of two verdicts, the one with fewer requests remaining.
    pub(super) fn or_fewer(self, other: Self) -> Self {
        let left = |verdict: &Self| verdict.decision().map_or(Some(0), |decision| decision.binding().remaining());
        let highest = self.level().max(other.level());
        let mut fewer = match (left(&self), left(&other)) {
            (Some(ours), Some(theirs)) if theirs < ours => other,
            (None, Some(_)) => other,
            _ => self,
        };
        if let Self::Pass(Pass { level, .. }) = &mut fewer {
            *level = highest;
        }
        fewer
    }

    /// The same, with what all rules that apply have charged.
    pub(super) fn holding(mut self, pending: &Pending) -> Self {
        if let Self::Pass(pass) = &mut self {
            pass.hold = pending.hold().filter(|_| pass.decided.is_some()).map(Box::new);
        }
        self
    }

    pub(super) fn with_notice(mut self, notice: Notice) -> Self {
        let (Self::Pass(Pass { notice: told, .. }) | Self::Refuse(Refusal { notice: told, .. })) = &mut self;
        *told = Some(Box::new(notice));
        self
    }

    /// What to log, which may be about an earlier request. `None` if the gate's events [go to a log](super::Gate::logs).
    #[must_use]
    pub fn notice(&self) -> Option<&Notice> {
        let (Self::Pass(Pass { notice, .. }) | Self::Refuse(Refusal { notice, .. })) = self;
        notice.as_deref()
    }

    /// The verdict on a request that a limiter has not decided on because of an error. It passes only after a
    /// [failure of the store](crate::ErrorKind::is_store_failure), which no client can cause, and only if that is wanted.
    #[must_use]
    pub fn failed(on_failure: OnFailure, error: Error) -> Self {
        if on_failure == OnFailure::Open && error.kind().is_store_failure() {
            return Self::Pass(Pass { error: Some(Arc::new(error)), ..Pass::unlimited() });
        }
        Self::Refuse(Refusal::failed(error))
    }

    /// The verdict on a request that the server is not set up to decide on: a 500.
    #[must_use]
    pub fn misconfigured(error: Error) -> Self {
        Self::Refuse(Refusal::misconfigured(error))
    }

    /// The highest part of a limit that the sender has reached, in percent, of those at which the rules [warn](crate::Quota::warn_at): so an
    /// application may answer with a cheaper model, or show a banner. 100 if a limit denies the request. `None` below all parts, and if no
    /// store has decided; see [`Policy::level`].
    ///
    /// ```
    /// use tidegate_core::gate::{Gate, Request, Rules};
    /// use tidegate_core::{ClientIpSource, MemoryLimiter, Platform, UnixMillis};
    /// # fn main() -> Result<(), tidegate_core::Error> {
    /// let rules = Rules::parse("rules.json", r#"{
    ///     "limits": { "api": { "quotas": [{ "algorithm": "fixed_window", "limit": 2, "window_ms": 60000, "warn_at": [50, 100] }] } },
    ///     "rules": [{ "limits": ["api"] }]
    /// }"#)?;
    /// let gate = Gate::new(rules, MemoryLimiter::new(), ClientIpSource::new(Platform::Vercel))?;
    /// let headers = [("x-vercel-forwarded-for", "192.0.2.1")];
    /// let request = Request::new("GET", "/", &headers, UnixMillis::new(0));
    /// let levels = [(); 3].map(|()| pollster::block_on(gate.check(&request)).level());
    /// assert_eq!(levels, [Some(50), Some(100), Some(100)]);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn level(&self) -> Option<u8> {
        match self {
            Self::Pass(Pass { level, .. }) => *level,
            Self::Refuse(Refusal { reason: Reason::Denied(_), .. }) => Some(100),
            Self::Refuse(_) => None,
        }
    }

    /// The decision. `None` if no limit applies, the sender is refused before any, or the limiter failed.
    #[must_use]
    pub fn decision(&self) -> Option<&Decision> {
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
