//! Several requests that pass together or not at all.

use std::ops::Range;
use std::sync::Arc;

use super::rules::placed;
use super::{Gate, OnFailure, Pending, State, Verdict};
use crate::{Dimensions, Limiter, LimiterExt, Policy, Settle, UnixMillis};

/// Of several requests that pass together or not at all, those that a store decides on in one step; see [`Gate::join`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Joined {
    /// What is decided. Its policy has the quotas of these requests, in their order.
    pub pending: Pending,
    /// The number that the caller has given to each request, and the places of its quotas.
    pub parts: Vec<(usize, Range<usize>)>,
}

impl<'s> Gate<'s> {
    /// Joins what is pending of several requests that pass together or not at all, for [`Gate::decide_each`], so that a store is asked as
    /// few times as possible.
    ///
    /// Requests are joined if one store can decide by all their limits in one step, at the same cost, and by one key for each
    /// dimension. One whose limit has a [lease](super::Rules#leases) is decided alone and after the others, and so is one that has a
    /// [token](Pending::set_token) or the limits of several rules. A limit with a proposal in the table `stores` is decided alone, too.
    ///
    /// ```
    /// use tidegate_core::gate::{Gate, Prepared, Request, Rules, Verdict};
    /// use tidegate_core::{ClientIpSource, Key, MemoryLimiter, Platform, UnixMillis};
    /// # fn main() -> Result<(), tidegate_core::Error> {
    /// # pollster::block_on(async {
    /// let rules = Rules::parse("rules.json", r#"{
    ///     "dimensions": ["number"],
    ///     "limits": {
    ///         "ads": { "quotas": [{ "algorithm": "fixed_window", "limit": 1, "window_ms": 60000, "by": "number" }] },
    ///         "all": { "quotas": [{ "algorithm": "fixed_window", "limit": 9, "window_ms": 60000, "by": "number" }] }
    ///     },
    ///     "rules": [{ "path": "/ads", "limits": ["ads"] }, { "path": "/all", "limits": ["all"] }]
    /// }"#)?;
    /// let gate = Gate::new(rules, MemoryLimiter::new(), ClientIpSource::new(Platform::Direct))?;
    /// let (headers, number): ([(&str, &str); 0], _) = ([], Key::new("555"));
    /// let (keys, clock) = ([("number", &number)], || UnixMillis::new(0));
    /// let pending = |path| match gate.prepare(&Request::new("", path, &headers, clock()).keys(&keys)) {
    ///     Prepared::Pending(pending) => pending,
    ///     Prepared::Decided(_) => unreachable!(),
    /// };
    /// for left in [Some(8), None] {
    ///     let joined = gate.join([(7, pending("/ads")), (8, pending("/all"))]);
    ///     assert_eq!(joined[0].parts, [(7, 0..1), (8, 1..2)]);
    ///     match &gate.decide_each(&joined, &clock).await[..] {
    ///         [Verdict::Pass(pass)] => assert_eq!(pass.decision().unwrap().quotas()[1].remaining(), left),
    ///         _ => assert_eq!(left, None), // The second request is over `ads`, so that `all` is not charged, either.
    ///     }
    /// }
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    pub fn join(&self, pending: impl IntoIterator<Item = (usize, Pending)>) -> Vec<Joined> {
        let state = self.state();
        let mut joined: Vec<Joined> = Vec::new();
        for (number, next) in pending {
            let count = next.policy().quotas().len();
            match joined.iter_mut().find_map(|one| state.add(&mut one.pending, &next).then_some(one)) {
                Some(one) => {
                    let end = one.pending.policy().quotas().len();
                    one.parts.push((number, end - count..end));
                }
                None => joined.push(Joined { pending: next, parts: Vec::from([(number, 0..count)]) }),
            }
        }
        // What is lent cannot be returned to the store at once.
        joined.sort_by_key(|one| one.pending.has_lease());
        joined
    }

    /// Decides on requests that pass together or not at all, one after another, until one is refused: there is a verdict for each that was
    /// decided, and only the last one may be a refusal. What was charged before it is returned where it has a
    /// [token](Pending::set_token), each of which must be of its own, and otherwise stays charged.
    pub async fn decide_each(&self, joined: &[Joined], clock: &(dyn Fn() -> UnixMillis + Sync)) -> Vec<Verdict> {
        let state = self.state();
        let mut verdicts = Vec::with_capacity(joined.len());
        for (place, Joined { pending, .. }) in joined.iter().enumerate() {
            verdicts.push(self.decide_by(&state, pending, clock).await);
            if matches!(verdicts.last(), Some(Verdict::Refuse(_))) {
                self.give_back(&state, joined[..place].iter().flat_map(|one| one.pending.all()), clock).await;
                break;
            }
        }
        verdicts
    }

    /// Returns what was charged with a token.
    pub(super) async fn give_back<'p>(
        &self,
        state: &State<'s>,
        charged: impl Iterator<Item = &'p Pending>,
        clock: &(dyn Fn() -> UnixMillis + Sync),
    ) {
        for charged in charged {
            let now = clock();
            let policy = charged.hold.policy.at(now);
            let settle = Settle::new(&policy, charged.hold.keys.as_keys(), "", 0, now);
            if let Ok(token) = charged.hold.token() {
                let _ = state.asked[charged.hold.terms.store].settle(Settle { token, ..settle }).await;
            }
        }
    }
}

impl State<'_> {
    /// Adds to a request another one, if a store decides on both in one step. Otherwise, it returns false.
    fn add(&self, one: &mut Pending, other: &Pending) -> bool {
        let asked = &self.asked[one.hold.terms.store];
        let fits = |pending: &Pending| {
            let is_plain = pending.is_alone() && !pending.has_lease() && pending.hold.token.is_none();
            is_plain && !asked.has_proposal(pending.policy().name())
        };
        let is_of_one = one.hold.terms.store == other.hold.terms.store && one.cost() == other.cost();
        if !is_of_one || !fits(one) || !fits(other) {
            return false;
        }
        let keys = one.hold.keys.and(one.policy(), &other.hold.keys, other.policy());
        let (Some(keys), Ok(policy)) = (keys, Policy::join([one.policy(), other.policy()])) else { return false };
        let (can, policy) = (asked.capabilities(), Arc::new(policy));
        let policy = if can.dimensions == Dimensions::Grouped { placed(policy) } else { policy };
        let suits = asked.rules().map_or(Ok(()), |rules| rules.suits(&policy));
        if can.supports_policy(&policy).and(suits).is_err() {
            return false;
        }
        (one.hold.policy, one.hold.keys) = (policy, keys);
        let (terms, others) = (Arc::make_mut(&mut one.hold.terms), &other.hold.terms);
        if others.on_failure == OnFailure::Closed {
            terms.on_failure = OnFailure::Closed;
        }
        terms.settle_within = terms.settle_within.max(others.settle_within);
        terms.estimates |= others.estimates;
        terms.warns |= others.warns;
        terms.needs_token |= others.needs_token;
        one.settles_later |= other.settles_later;
        true
    }
}
