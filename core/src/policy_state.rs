//! A policy's state, and the step in which all its quotas decide.

mod payment;
mod rule;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

use self::payment::Split;
pub(crate) use self::rule::{admits_all, charge_all};

use crate::algorithm::{
    BalanceState, BucketState, CalendarState, LogEntry, Lot, PenaltyState, SlidingState, Step, WindowState,
};
use crate::decision::{Decision, Status};
use crate::limiter::ChargeId;
use crate::policy::Policy;
use crate::quota::Rule;
use crate::{Millis, UnixMillis};

/// One quota's state.
///
/// ```
/// use tidegate_core::algorithm::BucketState;
/// use tidegate_core::{Millis, Policy, Quota, QuotaState, UnixMillis};
/// # fn main() -> Result<(), tidegate_core::Error> {
/// let policy = Policy::new("api", [Quota::token_bucket(10, 5, Millis::from_secs(1))?])?;
/// let mut state = policy.initial_state();
/// policy.decide(&mut state, UnixMillis::new(0), 3);
/// let used = QuotaState::Bucket(BucketState { level: 3_000, at: UnixMillis::new(0) });
/// assert_eq!(state.parts(), [used]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum QuotaState {
    /// A fixed window.
    Window(WindowState),
    /// A sliding window.
    Sliding(SlidingState),
    /// A sliding log: its entries, oldest first.
    Log(Vec<LogEntry>),
    /// A token bucket or a leaky bucket.
    Bucket(BucketState),
    /// A concurrency limit: the charges that hold its slots, oldest first, of at most [`MAX_UNITS`](crate::algorithm::MAX_UNITS) each.
    Slots(Vec<Charge>),
    /// A penalty.
    Penalty(PenaltyState),
    /// A calendar window.
    Calendar(CalendarState),
    /// A balance.
    Balance(BalanceState),
}

/// The states of a policy's quotas, in the policy's order. Stored as bytes by [`Policy::encode`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PolicyState(pub(crate) Box<[QuotaState]>);

impl PolicyState {
    /// Creates a state from its parts, for stores with their own encoding. [`Policy::verify`] checks whether it fits a policy.
    ///
    /// ```
    /// use tidegate_core::algorithm::WindowState;
    /// use tidegate_core::{Millis, Policy, PolicyState, Quota, QuotaState, UnixMillis};
    /// # fn main() -> Result<(), tidegate_core::Error> {
    /// let policy = Policy::new("api", [Quota::fixed_window(5, Millis::from_secs(1))?])?;
    /// let kept = WindowState { start: UnixMillis::new(2_000), used: 4 };
    /// let state = PolicyState::from_parts(vec![QuotaState::Window(kept)]);
    /// let now = UnixMillis::new(2_100);
    /// policy.verify(&state, now)?;
    /// assert_eq!(policy.peek(&state, now, 1).binding().remaining(), Some(1));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn from_parts(parts: Vec<QuotaState>) -> Self {
        Self(parts.into())
    }

    #[cfg(feature = "std")]
    pub(crate) fn of_one(part: QuotaState) -> Self {
        Self(Box::new([part]))
    }

    /// Each quota's state, in the policy's order.
    #[must_use]
    pub fn parts(&self) -> &[QuotaState] {
        &self.0
    }
}

/// What a request was charged. It may hold a slot of a [concurrency limit](crate::algorithm::Concurrency).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Charge {
    /// Its identity, by which it holds slots.
    pub id: ChargeId,
    /// The instant of the charge.
    pub at: UnixMillis,
    /// What was charged.
    pub cost: u64,
}

/// The combined answer of all quotas to one request.
struct Answer {
    status: Status,
    /// The quota with the longest wait, if any denies.
    binding: Option<usize>,
    /// `None` if it is unknown.
    retry_after: Option<Millis>,
    delay: Millis,
}

impl Answer {
    const ALLOWED: Self =
        Self { status: Status::Allowed, binding: None, retry_after: Some(Millis::ZERO), delay: Millis::ZERO };
}

impl Policy {
    /// The state of a key without requests.
    ///
    /// ```
    /// use tidegate_core::{Millis, Policy, Quota, UnixMillis};
    /// # fn main() -> Result<(), tidegate_core::Error> {
    /// let policy = Policy::new("api", [Quota::fixed_window(5, Millis::from_secs(1))?])?;
    /// assert_eq!(policy.peek(&policy.initial_state(), UnixMillis::new(0), 1).binding().remaining(), Some(5));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn initial_state(&self) -> PolicyState {
        PolicyState(self.quotas().iter().map(|quota| quota.rule().initial_state()).collect())
    }

    /// Decides on a request of `cost` at `now`, and charges all quotas if all of them admit it.
    ///
    /// A denied request leaves the state as it is, unless the policy [charges denials](Policy::charge_denied) or has a
    /// penalty, a slot has expired whose cost is returned, or the state lies more than
    /// [`MAX_CLOCK_SKEW`](crate::MAX_CLOCK_SKEW) ahead of `now`, to which it is then moved back. A store must keep the state
    /// whenever it has changed.
    ///
    /// A `cost` of 0 charges nothing and is admitted unless a quota is over its limit.
    ///
    /// A slot of a concurrency limit that this takes cannot be given back: see [`Policy::decide_as`].
    ///
    /// ```
    /// use tidegate_core::{Millis, Policy, Quota, UnixMillis};
    /// # fn main() -> Result<(), tidegate_core::Error> {
    /// let policy = Policy::new("api", [
    ///     Quota::fixed_window(3, Millis::from_secs(1))?.named("burst")?,
    ///     Quota::fixed_window(1, Millis::from_secs(60))?.named("sustained")?,
    /// ])?;
    /// let (mut state, now) = (policy.initial_state(), UnixMillis::new(0));
    /// assert!(policy.decide(&mut state, now, 1).is_allowed());
    /// let denied = policy.decide(&mut state, now, 1);
    /// assert_eq!(policy.quotas()[denied.binding_index()].name(), "sustained");
    /// // The other quota was not charged.
    /// assert_eq!(denied.quotas()[0].remaining(), Some(2));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    // For size, WebAssembly has this function once, without the short path for a policy of one quota.
    #[cfg_attr(not(target_arch = "wasm32"), inline)]
    pub fn decide(&self, state: &mut PolicyState, now: UnixMillis, cost: u64) -> Decision {
        if !cfg!(target_arch = "wasm32")
            && let (Some(rule), [state]) = (self.single_rule(), &mut state.0[..])
        {
            let (step, left) = rule.step_alone(state, now, cost);
            return Decision::of_one(step, left, now);
        }
        self.decide_as(state, now, cost, ChargeId::NONE)
    }

    /// Decides as [`Policy::decide`] does, on the request of a charge. The slots that it takes belong to this charge.
    #[must_use]
    pub fn decide_as(&self, state: &mut PolicyState, now: UnixMillis, cost: u64, id: ChargeId) -> Decision {
        if !cfg!(target_arch = "wasm32")
            && self.is_counted_alone()
            && let Some(delay) = admits_all(self.quotas(), &mut state.0, now, cost)
        {
            let mut decision = Decision::admitted(delay, self.quotas().len(), now);
            charge_all(self.quotas(), &mut state.0, now, cost, decision.quotas_mut());
            return decision;
        }
        self.move_back(state, now);
        self.return_expired(state, now);
        let split = self.split(state, now, cost);
        let mut answer = self.ask(state, now, cost, split);
        let charged_denial = self.charges_denied() && answer.status == Status::Denied;
        let punished = answer.status == Status::Denied && self.punish(state, now, cost);
        if answer.status == Status::Allowed || charged_denial {
            for (place, (quota, state)) in self.quotas().iter().zip(state.0.iter_mut()).enumerate() {
                // A denied request does not run: it holds no slot, and takes nothing from a balance.
                if !(charged_denial && matches!(quota.rule(), Rule::Concurrency(_) | Rule::Balance(_))) {
                    quota.rule().charge(state, now, Split::part(split, place, cost), id);
                }
            }
        }
        if charged_denial || punished {
            // The wait includes what was just charged, and the block.
            answer = self.ask(state, now, cost, self.split(state, now, cost));
        }
        self.explain(state, now, &answer, split)
    }

    /// Counts a violation in each dimension that denies the request. Returns whether there was one.
    fn punish(&self, state: &mut PolicyState, now: UnixMillis, cost: u64) -> bool {
        let (mut punished, split) = (false, self.split(state, now, cost));
        for dimension in self.dimensions() {
            let Some(last) = dimension.quotas().last() else { continue };
            let Rule::Penalty(rule) = self.quotas()[last].rule() else { continue };
            let mut counted = dimension.quotas().filter(|place| *place != last);
            let is_denied =
                counted.any(|place| !matches!(self.ask_part(place, state, now, cost, split), Step::Admitted { .. }));
            let Some(QuotaState::Penalty(penalty)) = state.0.get_mut(last) else { continue };
            if is_denied {
                let before = *penalty;
                rule.violate(penalty, now);
                punished |= *penalty != before;
            }
        }
        punished
    }

    /// Returns the cost of requests whose slots have expired to the other quotas, if the policy says so.
    fn return_expired(&self, state: &mut PolicyState, now: UnixMillis) {
        let ([first, quotas @ ..], [slots, states @ ..]) = (self.quotas(), &mut state.0[..]) else { return };
        let (Rule::Concurrency(rule), QuotaState::Slots(slots)) = (first.rule(), slots) else { return };
        if !rule.returns() {
            return;
        }
        for slot in rule.expired(slots, now) {
            for (quota, state) in quotas.iter().zip(states.iter_mut()) {
                quota.rule().refund(state, slot.at, now, slot.cost);
            }
        }
        rule.expire(slots, now);
    }

    /// The answer of [`Policy::decide`], without a charge: `remaining` is the room before the request.
    #[must_use]
    pub fn peek(&self, state: &PolicyState, now: UnixMillis, cost: u64) -> Decision {
        let mut state = state.clone();
        self.move_back(&mut state, now);
        self.return_expired(&mut state, now);
        let split = self.split(&state, now, cost);
        self.explain(&state, now, &self.ask(&state, now, cost, split), split)
    }

    /// Returns `cost` that was charged at `charged_at` to each quota, less what time has replenished since. A window that
    /// has passed takes no refund, and no quota falls below unused. A balance takes none, either: only
    /// [`Policy::settle_paid`] knows what it paid.
    ///
    /// ```
    /// use tidegate_core::{Millis, Policy, Quota, UnixMillis};
    /// # fn main() -> Result<(), tidegate_core::Error> {
    /// let policy = Policy::new("api", [Quota::fixed_window(5, Millis::from_secs(1))?])?;
    /// let (mut state, then) = (policy.initial_state(), UnixMillis::new(900));
    /// policy.decide(&mut state, then, 5);
    /// let now = UnixMillis::new(950);
    /// policy.refund(&mut state, then, now, 2);
    /// assert_eq!(policy.peek(&state, now, 1).binding().remaining(), Some(2));
    /// # Ok(())
    /// # }
    /// ```
    pub fn refund(&self, state: &mut PolicyState, charged_at: UnixMillis, now: UnixMillis, cost: u64) {
        self.move_back(state, now);
        for (quota, state) in self.quotas().iter().zip(state.0.iter_mut()) {
            quota.rule().refund(state, charged_at, now, cost);
        }
    }

    /// Corrects a charge to its `actual` cost, and gives back its slots. If it cost less, the difference is refunded as
    /// by [`Policy::refund`]. If it cost more, the difference is charged at `now`, also beyond the limit: as a debt, which
    /// denies all requests until time has repaid it.
    ///
    /// All that is charged in an interval is at most [`Rule::maximum`](crate::Rule::maximum) plus what was overdrawn in it.
    /// Nothing is admitted during a debt. So the debt is never more than the number of requests in flight times the largest
    /// difference between an actual cost and its estimate.
    ///
    /// ```
    /// use tidegate_core::{Charge, ChargeId, Millis, Policy, Quota, UnixMillis};
    /// # fn main() -> Result<(), tidegate_core::Error> {
    /// let policy = Policy::new("tokens", [Quota::token_bucket(100, 10, Millis::from_secs(1))?])?;
    /// let (mut state, then) = (policy.initial_state(), UnixMillis::new(0));
    /// assert!(policy.decide(&mut state, then, 60).is_allowed());
    /// policy.settle(&mut state, &Charge { id: ChargeId::NONE, at: then, cost: 60 }, then, 130);
    /// // A debt of 30 tokens takes 3 seconds, and a request of one token 100 ms more.
    /// assert_eq!(policy.peek(&state, then, 1).retry_after(), Some(Millis::new(3_100)));
    /// # Ok(())
    /// # }
    /// ```
    pub fn settle(&self, state: &mut PolicyState, charge: &Charge, now: UnixMillis, actual: u64) {
        self.settle_paid(state, charge, &[], now, actual);
    }

    /// The same of a charge of which a [balance](crate::algorithm::Balance) paid a part: `paid` is what [`Policy::paid`] returned.
    ///
    /// What the request cost less goes back to the balance first, up to what it paid, to the lots that paid it: nothing expires later
    /// than it would have, and what has expired since is lost. What it cost more is charged as a request is: to the quota
    /// that the balance covers as far as it admits it, then to the balance. The rest is the balance's debt.
    pub fn settle_paid(&self, state: &mut PolicyState, charge: &Charge, paid: &[Lot], now: UnixMillis, actual: u64) {
        self.move_back(state, now);
        self.return_expired(state, now);
        let mut charged = charge.cost;
        for (quota, state) in self.quotas().iter().zip(state.0.iter_mut()) {
            if let (Rule::Concurrency(rule), QuotaState::Slots(slots)) = (quota.rule(), state)
                && rule.release(slots, charge.id, now).is_none()
                && rule.returns()
            {
                // The cost was returned when the slot expired.
                charged = 0;
            }
        }
        if actual <= charged {
            return self.give_back(state, charge.at, paid, now, charged - actual);
        }
        self.overdraw_all(state, now, actual - charged);
    }

    /// Charges units that were admitted already, also beyond the limit.
    pub(crate) fn overdraw(&self, state: &mut PolicyState, now: UnixMillis, units: u64) {
        if units == 0 {
            return;
        }
        self.move_back(state, now);
        self.overdraw_all(state, now, units);
    }

    /// Blocks a key by hand: every [penalty](crate::algorithm::Penalty) of the policy denies its requests until `span` after `now`,
    /// or its cap if that is shorter. This replaces a block that there is, also by a shorter one, and a span of zero ends it. What
    /// the key has used stays, and so do its violations: the next one blocks for as long as it would have.
    ///
    /// Does nothing if the policy has no penalty; see [`Policy::has_blocks`].
    ///
    /// ```
    /// use tidegate_core::{Millis, Policy, Quota, UnixMillis};
    /// # fn main() -> Result<(), tidegate_core::Error> {
    /// let policy = Policy::new("api", [
    ///     Quota::fixed_window(100, Millis::from_secs(60))?,
    ///     Quota::block(Millis::from_secs(86_400))?,
    /// ])?;
    /// let (mut state, now) = (policy.initial_state(), UnixMillis::new(0));
    /// policy.block(&mut state, now, Millis::from_secs(3_600));
    /// assert_eq!(policy.decide(&mut state, now, 1).retry_after(), Some(Millis::from_secs(3_600)));
    /// policy.block(&mut state, now, Millis::ZERO);
    /// assert!(policy.decide(&mut state, now, 1).is_allowed());
    /// # Ok(())
    /// # }
    /// ```
    pub fn block(&self, state: &mut PolicyState, now: UnixMillis, span: Millis) {
        self.move_back(state, now);
        for (quota, state) in self.quotas().iter().zip(state.0.iter_mut()) {
            if let (Rule::Penalty(rule), QuotaState::Penalty(state)) = (quota.rule(), state) {
                rule.block(state, now, span);
            }
        }
    }

    /// The time until every quota is unused, if nothing else arrives. A store must keep the state that long, and remove it
    /// afterwards; see the [contract of stores](crate::store#contract).
    ///
    /// ```
    /// use tidegate_core::{Millis, Policy, Quota, UnixMillis};
    /// # fn main() -> Result<(), tidegate_core::Error> {
    /// let policy = Policy::new("api", [Quota::token_bucket(10, 5, Millis::from_secs(1))?])?;
    /// let (mut state, now) = (policy.initial_state(), UnixMillis::new(0));
    /// policy.decide(&mut state, now, 3);
    /// assert_eq!(policy.expires_after(&state, now), Millis::new(600));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn expires_after(&self, state: &PolicyState, now: UnixMillis) -> Millis {
        self.part_expires_after(0..self.quotas().len(), state, now)
    }

    /// The same of some of the quotas.
    pub(crate) fn part_expires_after(&self, part: Range<usize>, state: &PolicyState, now: UnixMillis) -> Millis {
        let quotas = self.quotas().iter().zip(&state.0).skip(part.start).take(part.len());
        quotas.map(|(quota, state)| quota.rule().standing(state, now).reset_after()).max().unwrap_or_default()
    }

    /// Undoes the effect of a wrong clock: afterwards, no part of the state lies more than
    /// [`MAX_CLOCK_SKEW`](crate::MAX_CLOCK_SKEW) ahead of `now`. [`Policy::decide`] and [`Policy::refund`] do this themselves.
    /// Only a store that decides on a copy of its state needs it, because it would otherwise find the same state at each
    /// request, and deny until the wrong clock's time comes.
    ///
    /// ```
    /// use tidegate_core::{MAX_CLOCK_SKEW, Millis, Policy, Quota, UnixMillis};
    /// # fn main() -> Result<(), tidegate_core::Error> {
    /// let second = Millis::from_secs(1);
    /// let policy = Policy::new("api", [Quota::token_bucket(1, 1, second)?])?;
    /// let (mut state, now) = (policy.initial_state(), UnixMillis::new(0));
    /// // This clock is a year ahead.
    /// policy.decide(&mut state, now + Millis::from_secs(365 * 86_400), 1);
    /// policy.move_back(&mut state, now);
    /// assert_eq!(policy.peek(&state, now, 1).retry_after(), Some(MAX_CLOCK_SKEW + second));
    /// # Ok(())
    /// # }
    /// ```
    pub fn move_back(&self, state: &mut PolicyState, now: UnixMillis) {
        for (quota, state) in self.quotas().iter().zip(state.0.iter_mut()) {
            quota.rule().move_back(state, now);
        }
    }

    /// The rule of a policy that has only one and does not charge denials.
    #[inline]
    pub(crate) fn single_rule(&self) -> Option<&Rule> {
        match self.quotas() {
            [quota] => match quota.rule() {
                Rule::Concurrency(_) | Rule::Penalty(_) | Rule::Balance(_) => None,
                rule if !self.charges_denied() => Some(rule),
                _ => None,
            },
            _ => None,
        }
    }

    /// The same, if its state is a few numbers.
    #[cfg(feature = "std")]
    #[inline]
    pub(crate) fn small_rule(&self) -> Option<&Rule> {
        let [quota] = self.quotas() else { return None };
        let is_small = matches!(quota.rule(), Rule::TokenBucket(_) | Rule::LeakyBucket(_) | Rule::FixedWindow(_));
        if is_small && !self.charges_denied() { Some(quota.rule()) } else { None }
    }

    /// Whether what a quota makes of an admitted request depends on its own state only.
    pub(crate) const fn is_counted_alone(&self) -> bool {
        !self.has_slots() && !self.has_balance()
    }

    #[inline]
    fn ask(&self, state: &PolicyState, now: UnixMillis, cost: u64, split: Option<Split>) -> Answer {
        let mut answer = Answer::ALLOWED;
        for place in 0..self.quotas().len() {
            match self.ask_part(place, state, now, cost, split) {
                Step::Admitted { delay } => answer.delay = answer.delay.max(delay),
                Step::Denied { retry_after } if answer.status != Status::NeverAdmissible => {
                    answer.status = Status::Denied;
                    // An unknown wait counts as the longest.
                    if answer.binding.is_none() || answer.retry_after.is_some_and(|longest| retry_after > longest) {
                        answer.binding = Some(place);
                        answer.retry_after = Some(retry_after);
                    }
                }
                Step::Denied { .. } => {}
                Step::Busy if answer.status != Status::NeverAdmissible => {
                    answer.status = Status::Denied;
                    if answer.retry_after.is_some() {
                        answer.binding = Some(place);
                    }
                    answer.retry_after = None;
                }
                Step::Busy => {}
                Step::Never => {
                    if answer.status != Status::NeverAdmissible {
                        answer.binding = Some(place);
                    }
                    answer.status = Status::NeverAdmissible;
                }
            }
        }
        answer
    }

    fn explain(&self, state: &PolicyState, now: UnixMillis, answer: &Answer, split: Option<Split>) -> Decision {
        let quotas = self.quotas().iter().zip(state.0.iter());
        let quotas = quotas.map(|(quota, state)| quota.rule().status(state, now)).collect();
        let decision = Decision::new(answer.status.step(answer.delay, answer.retry_after), quotas, answer.binding, now);
        match split {
            Some(split) => self.told(decision, split, answer.binding),
            None => decision,
        }
    }
}
