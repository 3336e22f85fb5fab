//! What a limiter answers.

use core::fmt;

use crate::algorithm::Standing;
use crate::few::Few;
use crate::{Millis, UnixMillis};

/// Whether the request may go on.
///
/// ```
/// use tidegate_core::{Millis, Policy, Quota, Status, UnixMillis};
/// # fn main() -> Result<(), tidegate_core::Error> {
/// let policy = Policy::new("api", [Quota::fixed_window(5, Millis::from_secs(1))?])?;
/// let ask = |cost| policy.decide(&mut policy.initial_state(), UnixMillis::new(0), cost).status();
/// assert_eq!([ask(5), ask(6)], [Status::Allowed, Status::NeverAdmissible]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// It may, and has been charged.
    Allowed,
    /// Not now; see [`Decision::retry_after`].
    Denied,
    /// Never: it costs more than a quota can ever hold. There is no time to retry after, and nothing was charged.
    NeverAdmissible,
}

impl Status {
    /// A stable name in snake case, for logs, metrics and reports.
    ///
    /// ```
    /// assert_eq!(tidegate_core::Status::NeverAdmissible.name(), "never_admissible");
    /// ```
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::NeverAdmissible => "never_admissible",
        }
    }
}

/// Where a decision was made.
///
/// ```
/// use tidegate_core::{Decision, Origin, UnixMillis};
/// let decision = Decision::native(true, 100, UnixMillis::new(0));
/// assert_eq!(decision.origin(), Origin::Store);
/// assert_eq!(decision.with_origin(Origin::Fallback).origin(), Origin::Fallback);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Origin {
    /// The store that counts.
    #[default]
    Store,
    /// A local cache of denials; the store was not asked.
    DenyCache,
    /// A limiter that stood in for a store that did not answer.
    Fallback,
    /// A part of the quota that the store had lent; it was not asked.
    Lease,
}

impl Origin {
    /// A stable name in snake case, for logs, metrics and reports.
    ///
    /// ```
    /// assert_eq!(tidegate_core::Origin::DenyCache.name(), "deny_cache");
    /// ```
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::DenyCache => "deny_cache",
            Self::Fallback => "fallback",
            Self::Lease => "lease",
        }
    }
}

/// One quota's count after a decision. What a platform does not tell is `None`, never invented.
///
/// ```
/// use tidegate_core::{Millis, Policy, Quota, UnixMillis};
/// # fn main() -> Result<(), tidegate_core::Error> {
/// let policy = Policy::new("api", [Quota::fixed_window(5, Millis::from_secs(60))?])?;
/// let decision = policy.decide(&mut policy.initial_state(), UnixMillis::new(45_000), 2);
/// let status = decision.binding();
/// assert_eq!((status.limit(), status.remaining()), (5, Some(3)));
/// assert_eq!(status.reset_after(), Some(Millis::from_secs(15)));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy)]
pub struct QuotaStatus {
    limit: u64,
    /// Rounded when it is asked for: most callers of a limiter only want a yes or a no.
    standing: Option<Standing>,
}

impl QuotaStatus {
    /// The most that is ever admitted at once.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// How many more requests of cost 1 would be admitted at this instant.
    #[must_use]
    pub fn remaining(&self) -> Option<u64> {
        self.standing.map(|standing| standing.remaining())
    }

    /// How long until the quota is wholly unused again, if nothing else arrives.
    #[must_use]
    pub fn reset_after(&self) -> Option<Millis> {
        self.standing.map(|standing| standing.reset_after())
    }
}

impl From<Standing> for QuotaStatus {
    fn from(standing: Standing) -> Self {
        Self { limit: standing.limit, standing: Some(standing) }
    }
}

/// Two that show the same are the same.
impl PartialEq for QuotaStatus {
    fn eq(&self, other: &Self) -> bool {
        (self.limit, self.remaining(), self.reset_after()) == (other.limit, other.remaining(), other.reset_after())
    }
}

impl Eq for QuotaStatus {}

impl fmt::Debug for QuotaStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuotaStatus")
            .field("limit", &self.limit)
            .field("remaining", &self.remaining())
            .field("reset_after", &self.reset_after())
            .finish()
    }
}

/// What a limiter answers: may the request go on, and how does each quota of its policy stand.
///
/// ```
/// use tidegate_core::{Millis, Policy, PolicyState, Quota, Status, UnixMillis};
/// # fn main() -> Result<(), tidegate_core::Error> {
/// let policy = Policy::new("api", [Quota::token_bucket(2, 1, Millis::from_secs(1))?])?;
/// let now = UnixMillis::new(1_800_000_000_000);
/// let mut state = policy.initial_state();
/// let first = policy.decide(&mut state, now, 2);
/// assert!(first.is_allowed());
/// assert_eq!(first.binding().remaining(), Some(0));
/// let second = policy.decide(&mut state, now, 1);
/// assert_eq!(second.status(), Status::Denied);
/// assert_eq!(second.retry_after(), Some(Millis::new(1_000)));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub(crate) status: Status,
    pub(crate) quotas: Few<QuotaStatus>,
    pub(crate) binding: usize,
    pub(crate) retry_after: Option<Millis>,
    pub(crate) delay: Millis,
    pub(crate) decided_at: UnixMillis,
    pub(crate) origin: Origin,
}

impl Decision {
    /// The answer of a platform's own limiter, which says yes or no and nothing else.
    ///
    /// ```
    /// use tidegate_core::{Decision, UnixMillis};
    /// let decision = Decision::native(false, 100, UnixMillis::new(0));
    /// assert!(!decision.is_allowed());
    /// assert_eq!(decision.binding().remaining(), None);
    /// assert_eq!(decision.retry_after(), None);
    /// ```
    #[must_use]
    pub fn native(allowed: bool, limit: u64, now: UnixMillis) -> Self {
        Self {
            status: if allowed { Status::Allowed } else { Status::Denied },
            quotas: Few::One(QuotaStatus { limit, standing: None }),
            binding: 0,
            retry_after: None,
            delay: Millis::ZERO,
            decided_at: now,
            origin: Origin::Store,
        }
    }

    /// Allowed, denied, or never admissible.
    #[must_use]
    pub const fn status(&self) -> Status {
        self.status
    }

    /// Whether the request may go on.
    #[must_use]
    pub const fn is_allowed(&self) -> bool {
        matches!(self.status, Status::Allowed)
    }

    /// Each quota's count after this decision, in the policy's order.
    #[must_use]
    pub fn quotas(&self) -> &[QuotaStatus] {
        &self.quotas
    }

    /// Which quota bound, as an index into [`Decision::quotas`] and the policy's quotas: of a denial the one with the
    /// longest wait, else the one with the fewest remaining.
    #[must_use]
    pub const fn binding_index(&self) -> usize {
        self.binding
    }

    /// The quota that bound; see [`Decision::binding_index`].
    #[must_use]
    pub fn binding(&self) -> &QuotaStatus {
        &self.quotas[self.binding]
    }

    /// How long until the same request is admitted, if nothing else arrives: denied at every instant before, admitted
    /// exactly then. `None` unless denied, and where the platform does not tell.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Millis> {
        self.retry_after
    }

    /// How long to hold an allowed request before forwarding it. Zero unless a leaky bucket shapes the traffic.
    #[must_use]
    pub const fn delay(&self) -> Millis {
        self.delay
    }

    /// The instant the decision was made at, by the clock that made it.
    #[must_use]
    pub const fn decided_at(&self) -> UnixMillis {
        self.decided_at
    }

    /// Where the decision was made.
    #[must_use]
    pub const fn origin(&self) -> Origin {
        self.origin
    }

    /// The same counts with another answer, of which no wait is known.
    pub(crate) fn overruled(mut self, allowed: bool) -> Self {
        self.status = if allowed { Status::Allowed } else { Status::Denied };
        self.retry_after = None;
        self
    }

    /// The same denial when some of its wait is over. The counts have changed since, and nobody knows to what.
    #[cfg(feature = "std")]
    pub(crate) fn recalled(&self, denied_at: UnixMillis, now: UnixMillis) -> Self {
        let elapsed = now.since(denied_at);
        let unknown = |status: &QuotaStatus| QuotaStatus { limit: status.limit, standing: None };
        Self {
            quotas: self.quotas.iter().map(unknown).collect(),
            retry_after: self.retry_after.map(|wait| Millis::new(wait.get().saturating_sub(elapsed.get()))),
            decided_at: self.decided_at + elapsed,
            ..self.clone()
        }
    }

    /// The same decision, made elsewhere.
    #[must_use]
    pub fn with_origin(mut self, origin: Origin) -> Self {
        self.origin = origin;
        self
    }
}
