//! The decision of a limiter.

use alloc::format;
use core::fmt;

use crate::algorithm::{Standing, Step};
use crate::small_vec::SmallVec;
use crate::{Error, ErrorKind, Millis, Policy, Quota, UnixMillis};

/// Whether a request is allowed.
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
#[non_exhaustive]
pub enum Status {
    /// The request is allowed and has been charged.
    Allowed,
    /// The request is denied now; see [`Decision::retry_after`].
    Denied,
    /// The request costs more than a quota can hold, so no wait helps. Nothing was charged.
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

    /// The answer with this status. Only an allowed request has a delay, and only a denied one a wait.
    #[inline]
    pub(crate) fn step(self, delay: Millis, retry_after: Option<Millis>) -> Step {
        match self {
            Self::Allowed => Step::Admitted { delay },
            Self::Denied => retry_after.map_or(Step::Busy, |retry_after| Step::Denied { retry_after }),
            Self::NeverAdmissible => Step::Never,
        }
    }
}

/// The component that made a decision.
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
    /// The store.
    #[default]
    Store,
    /// A local cache of denials, without asking the store.
    DenyCache,
    /// A limiter that replaces a store which does not answer.
    Fallback,
    /// A limiter in front of the store.
    Near,
    /// A part of the quota that the store lent in advance, without asking it again.
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
            Self::Near => "near",
            Self::Lease => "lease",
        }
    }
}

/// The count of one quota after a decision. A value that the platform does not report is `None`.
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
pub struct QuotaStatus(
    /// Rounded on demand, because most callers only need the status. If the unit is 0, nothing but the limit is known.
    Standing,
);

impl QuotaStatus {
    /// A count that another program tells, for stores that send or keep decisions. Without `remaining`, only the limit is known.
    ///
    /// ```
    /// use tidegate_core::{Millis, QuotaStatus};
    /// let status = QuotaStatus::new(5, Some(3), Some(Millis::from_secs(15)));
    /// assert_eq!((status.limit(), status.remaining()), (5, Some(3)));
    /// assert_eq!(status.reset_after(), Some(Millis::from_secs(15)));
    /// ```
    #[must_use]
    pub fn new(limit: u64, remaining: Option<u64>, reset_after: Option<Millis>) -> Self {
        let (used, drain) = (reset_after.unwrap_or_default().get(), u64::from(reset_after.is_some()));
        let standing = |room| Self(Standing { limit, room, unit: 1, used, drain, lag: Millis::ZERO });
        remaining.map_or(Self::unknown(limit), standing)
    }

    /// The same count of a balance that pays this much of a request, for stores that send or keep decisions.
    ///
    /// ```
    /// use tidegate_core::QuotaStatus;
    /// let status = QuotaStatus::new(1_000, Some(470), None).paying(30);
    /// assert_eq!((status.remaining(), status.paid()), (Some(470), 30));
    /// ```
    #[must_use]
    pub const fn paying(self, units: u64) -> Self {
        // Time does not replenish a balance, so it has no use for the others.
        Self(Standing { used: 0, drain: 0, lag: Millis::new(units), ..self.0 })
    }

    /// Of a key that a penalty blocks.
    pub(crate) const fn blocked(wait: Millis) -> Self {
        Self(Standing { limit: 1, room: 0, unit: 1, used: wait.get(), drain: 1, lag: Millis::ZERO })
    }

    pub(crate) const fn unknown(limit: u64) -> Self {
        Self(Standing { limit, room: 0, unit: 0, used: 0, drain: 0, lag: Millis::ZERO })
    }

    /// The most that is admitted at once.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.0.limit
    }

    /// The number of further requests of cost 1 that would be admitted at this instant. `None` for a penalty that does not
    /// block.
    #[must_use]
    pub const fn remaining(&self) -> Option<u64> {
        self.0.room.checked_div(self.0.unit)
    }

    /// How much of the cost this quota paid, if it is a [balance](crate::algorithm::Balance). 0 for all others.
    #[must_use]
    pub const fn paid(&self) -> u64 {
        if self.0.drain == 0 { self.0.lag.get() } else { 0 }
    }

    /// The time until the quota is completely unused, if no other request arrives. `None` for a concurrency limit and a balance,
    /// because nobody knows when a request ends or a grant comes.
    #[must_use]
    pub fn reset_after(&self) -> Option<Millis> {
        if self.0.drain > 0 { Some(self.0.reset_after()) } else { None }
    }
}

impl From<Standing> for QuotaStatus {
    fn from(standing: Standing) -> Self {
        Self(standing)
    }
}

/// Compares the visible values.
impl PartialEq for QuotaStatus {
    fn eq(&self, other: &Self) -> bool {
        let visible = |one: &Self| (one.limit(), one.remaining(), one.reset_after(), one.paid());
        visible(self) == visible(other)
    }
}

impl Eq for QuotaStatus {}

impl fmt::Debug for QuotaStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuotaStatus")
            .field("limit", &self.limit())
            .field("remaining", &self.remaining())
            .field("reset_after", &self.reset_after())
            .finish()
    }
}

/// The decision of a limiter: whether the request is allowed, and the count of each quota.
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
#[derive(Clone)]
pub struct Decision {
    quotas: SmallVec<QuotaStatus>,
    /// In milliseconds: the delay of an allowed request, or the wait of a denied one, or [`UNKNOWN`].
    wait: u64,
    decided_at: UnixMillis,
    /// Or [`FEWEST`]. A policy has at most eight quotas.
    binding: u8,
    status: Status,
    origin: Origin,
    replay: bool,
}

// Compilers move so many bytes without a call.
const _: () = assert!(size_of::<Decision>() <= 128);

/// The wait of a denied request that nobody knows.
const UNKNOWN: u64 = u64::MAX;

/// The binding quota is the one with the fewest remaining. To find it takes a division for each, and few callers ask.
const FEWEST: u8 = u8::MAX;

impl Decision {
    /// The decision of the store that this answer to a request makes, with a place in `quotas`, or `None` for the quota with the
    /// fewest remaining.
    #[inline]
    pub(crate) fn new(
        step: Step,
        quotas: SmallVec<QuotaStatus>,
        binding: Option<usize>,
        decided_at: UnixMillis,
    ) -> Self {
        let (status, wait) = parts(step);
        let binding = binding.and_then(|place| u8::try_from(place).ok()).unwrap_or(FEWEST);
        Self { quotas, wait, decided_at, binding, status, origin: Origin::Store, replay: false }
    }

    /// The decision of a policy of one quota.
    #[inline]
    pub(crate) fn of_one(step: Step, left: Standing, decided_at: UnixMillis) -> Self {
        Self::new(step, SmallVec::one(left.into()), Some(0), decided_at)
    }

    /// The decision on an admitted request, with counts that are not known yet.
    pub(crate) fn admitted(delay: Millis, quotas: usize, decided_at: UnixMillis) -> Self {
        Self::new(Step::Admitted { delay }, SmallVec::filled(QuotaStatus::unknown(0), quotas), None, decided_at)
    }

    pub(crate) fn quotas_mut(&mut self) -> &mut [QuotaStatus] {
        &mut self.quotas
    }

    /// The same counts with another answer.
    fn with_step(self, step: Step) -> Self {
        let (status, wait) = parts(step);
        Self { status, wait, ..self }
    }

    /// A decision that another program made, for stores that send or keep decisions. `wait` is the delay of an allowed request, or
    /// [`Decision::retry_after`] of a denied one, if it is known. `binding` is a place in `quotas`.
    ///
    /// ```
    /// use tidegate_core::{Decision, Millis, QuotaStatus, Status, UnixMillis};
    /// let (quota, wait) = (QuotaStatus::new(5, Some(0), None), Some(Millis::new(250)));
    /// let decision = Decision::from_parts(Status::Denied, wait, [quota], 0, UnixMillis::new(1_000))?;
    /// assert_eq!((decision.retry_after(), decision.binding()), (wait, &quota));
    /// # Ok::<(), tidegate_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Corrupt`](ErrorKind::Corrupt) if no quota has the place `binding`.
    pub fn from_parts(
        status: Status,
        wait: Option<Millis>,
        quotas: impl IntoIterator<Item = QuotaStatus>,
        binding: usize,
        decided_at: UnixMillis,
    ) -> Result<Self, Error> {
        let quotas: SmallVec<_> = quotas.into_iter().collect();
        if binding >= quotas.len() {
            let message =
                format!("decision: it is by quota {binding} of {}; what else writes decisions?", quotas.len());
            return Err(Error::new(ErrorKind::Corrupt, message));
        }
        Ok(Self::new(status.step(wait.unwrap_or_default(), wait), quotas, Some(binding), decided_at))
    }

    /// The decision of a platform's own limiter, which reports only yes or no.
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
        let step = if allowed { Step::Admitted { delay: Millis::ZERO } } else { Step::Busy };
        Self::new(step, SmallVec::one(QuotaStatus::unknown(limit)), Some(0), now)
    }

    /// Allowed, denied, or never admissible.
    #[must_use]
    pub const fn status(&self) -> Status {
        self.status
    }

    /// Whether the request is allowed.
    #[must_use]
    pub const fn is_allowed(&self) -> bool {
        matches!(self.status, Status::Allowed)
    }

    /// The count of each quota after this decision, in the policy's order.
    #[must_use]
    pub fn quotas(&self) -> &[QuotaStatus] {
        &self.quotas
    }

    /// The index of the binding quota in [`Decision::quotas`] and in the policy's quotas. For a denial, it is the quota with
    /// the longest wait, otherwise the one with the fewest remaining.
    #[must_use]
    pub fn binding_index(&self) -> usize {
        let remaining = |place: &usize| self.quotas[*place].remaining().unwrap_or(u64::MAX);
        match self.binding {
            FEWEST if self.quotas.len() == 1 => 0,
            FEWEST => (0..self.quotas.len()).min_by_key(remaining).unwrap_or(0),
            place => place.into(),
        }
    }

    /// The binding quota; see [`Decision::binding_index`].
    #[must_use]
    pub fn binding(&self) -> &QuotaStatus {
        &self.quotas[self.binding_index()]
    }

    /// The time until the same request is admitted, if no other arrives. It is denied at every instant before, and admitted
    /// exactly then. Only a slot that expires and [returns its cost](crate::algorithm::Concurrency::returns_cost) may admit it
    /// earlier. `None` unless denied, or if it is unknown: the platform does not report it, or a concurrency limit denies.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Millis> {
        if self.wait == UNKNOWN || !matches!(self.status, Status::Denied) { None } else { Some(Millis::new(self.wait)) }
    }

    /// How long to delay an allowed request before forwarding it. Zero unless the policy has a leaky bucket.
    #[must_use]
    pub const fn delay(&self) -> Millis {
        if self.is_allowed() { Millis::new(self.wait) } else { Millis::ZERO }
    }

    /// How much of the cost a [balance](crate::algorithm::Balance) paid; of a peek, how much it would pay. 0 unless allowed.
    #[must_use]
    pub fn from_balance(&self) -> u64 {
        self.quotas.iter().map(QuotaStatus::paid).sum()
    }

    /// Sets how much the balance at `place` paid. A request that is not allowed takes nothing.
    pub(crate) fn paid_by(self, place: usize, units: u64) -> Self {
        let units = if self.is_allowed() { units } else { 0 };
        let quotas = self.quotas.iter().enumerate();
        let quotas = quotas.map(|(at, quota)| if at == place { quota.paying(units) } else { *quota }).collect();
        Self { quotas, ..self }
    }

    /// The same with this quota as the binding one.
    pub(crate) fn bound_by(self, place: usize) -> Self {
        Self { binding: u8::try_from(place).unwrap_or(FEWEST), ..self }
    }

    /// The instant of the decision, by the clock of the limiter that made it.
    #[must_use]
    pub const fn decided_at(&self) -> UnixMillis {
        self.decided_at
    }

    /// The component that made the decision.
    #[must_use]
    pub const fn origin(&self) -> Origin {
        self.origin
    }

    /// Whether this repeats an earlier answer: to a check with the same [idempotency token](crate::Check::idempotent), or to
    /// a settlement of the same charge. Nothing was charged or returned again.
    #[must_use]
    pub const fn is_replay(&self) -> bool {
        self.replay
    }

    /// Sets whether this repeats an earlier answer.
    #[must_use]
    pub fn replayed(mut self, replay: bool) -> Self {
        self.replay = replay;
        self
    }

    /// The same counts with another status, whose wait is unknown.
    pub(crate) fn overruled(self, allowed: bool) -> Self {
        let delay = self.delay();
        self.with_step(if allowed { Step::Admitted { delay } } else { Step::Busy })
    }

    /// The same counts, denied for this long.
    pub(crate) fn denied_for(self, retry_after: Millis) -> Self {
        self.with_step(Step::Denied { retry_after })
    }

    /// A decision that a borrower makes of a key whose counts it does not know.
    pub(crate) fn without_store(policy: &Policy, wait: Option<Millis>, binding: usize, now: UnixMillis) -> Self {
        let unknown = |quota: &Quota| QuotaStatus::unknown(quota.rule().limit());
        let (step, origin) = match wait {
            Some(retry_after) => (Step::Denied { retry_after }, Origin::DenyCache),
            None => (Step::Admitted { delay: Millis::ZERO }, Origin::Lease),
        };
        Self::new(step, policy.quotas().iter().map(unknown).collect(), Some(binding), now).with_origin(origin)
    }

    /// The same denial with a longer wait.
    #[cfg(feature = "gate")]
    pub(crate) fn retry_later_by(self, span: Millis) -> Self {
        match self.retry_after() {
            Some(wait) => self.denied_for(Millis::new(wait.get().saturating_add(span.get()))),
            None => self,
        }
    }

    /// The same decision for another policy, whose counts are unknown.
    #[cfg(feature = "std")]
    pub(crate) fn without_counts(self, policy: &Policy) -> Self {
        let unknown = |quota: &Quota| QuotaStatus::unknown(quota.rule().limit());
        Self { quotas: policy.quotas().iter().map(unknown).collect(), binding: 0, ..self }
    }

    /// The same denial after some of its wait. The counts have changed since and are unknown.
    #[cfg(feature = "std")]
    pub(crate) fn recalled(&self, denied_at: UnixMillis, now: UnixMillis) -> Self {
        let elapsed = now.since(denied_at);
        let unknown = |status: &QuotaStatus| QuotaStatus::unknown(status.limit());
        let recalled =
            Self { quotas: self.quotas.iter().map(unknown).collect(), decided_at: self.decided_at + elapsed, ..*self };
        match self.retry_after() {
            Some(wait) => recalled.denied_for(Millis::new(wait.get().saturating_sub(elapsed.get()))),
            None => recalled,
        }
    }

    /// Sets the origin.
    #[must_use]
    pub fn with_origin(mut self, origin: Origin) -> Self {
        self.origin = origin;
        self
    }
}

/// The status of a decision by this answer, and its wait.
#[inline]
fn parts(step: Step) -> (Status, u64) {
    if let Step::Admitted { delay } = step { (Status::Allowed, delay.get()) } else { parts_of_denial(step) }
}

/// On its own, so that what is usual takes no jump by the kind of step.
#[inline(never)]
fn parts_of_denial(step: Step) -> (Status, u64) {
    match step {
        Step::Admitted { delay } => (Status::Allowed, delay.get()),
        Step::Denied { retry_after } => (Status::Denied, retry_after.get().min(UNKNOWN - 1)),
        Step::Busy => (Status::Denied, UNKNOWN),
        Step::Never => (Status::NeverAdmissible, 0),
    }
}

/// Compares the visible values.
impl PartialEq for Decision {
    fn eq(&self, other: &Self) -> bool {
        let rest = |one: &Self| (one.status, one.wait, one.decided_at, one.binding_index(), one.origin, one.replay);
        self.quotas == other.quotas && rest(self) == rest(other)
    }
}

impl Eq for Decision {}

impl fmt::Debug for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decision")
            .field("status", &self.status)
            .field("quotas", &self.quotas)
            .field("binding", &self.binding_index())
            .field("retry_after", &self.retry_after())
            .field("delay", &self.delay())
            .field("from_balance", &self.from_balance())
            .field("decided_at", &self.decided_at)
            .field("origin", &self.origin)
            .field("replay", &self.replay)
            .finish()
    }
}
