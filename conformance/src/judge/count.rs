//! The part of a fixture that one count sees: the checks for one key under one policy.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use tidegate_core::{MAX_CLOCK_SKEW, Policy, PolicyState, Rule, UnixMillis};

use crate::fixture::{Disturb, Fixture, Op, Step};
use crate::replay::{ABORTED, Replay};

/// The bursts of checks for one count, from one reset to the next.
#[derive(Default)]
pub(super) struct Count<'a> {
    /// All keys together.
    pub(super) keys: String,
    /// A step with these keys.
    first: Option<&'a Step>,
    pub(super) bursts: Vec<Burst<'a>>,
    /// Units refunded since the last burst.
    given_back: u64,
    /// Whether a charge is settled, the key blocked or units granted, so that the counts do not follow from the checks alone.
    intervenes: bool,
}

/// What was charged under a token.
#[derive(Default)]
struct Charge {
    until_ms: u64,
    /// When the slots of the charge expire and its cost is returned, if the policy says so.
    returned_at_ms: Option<u64>,
    /// The units that a settlement can return: none after the first one, and none after the slots have expired.
    cost: u64,
}

/// A grant, which is made once while its token is remembered. A reset does not undo it.
struct Grant<'a> {
    token: (&'a str, String, String),
    step: &'a Step,
    until_ms: u64,
}

impl Grant<'_> {
    /// Whether the requests of a step may spend its units. A balance has one of their keys.
    fn is_to(&self, policy: &Policy, step: &Step) -> bool {
        self.token.0 == policy.name() && self.step.shares_a_key_with(step)
    }
}

/// The checks of one step.
pub(super) struct Burst<'a> {
    /// The place of the step in the fixture.
    pub(super) step: usize,
    pub(super) policy: &'a Policy,
    pub(super) at: UnixMillis,
    pub(super) location: u64,
    /// The number of evictions before.
    pub(super) evictions: u64,
    /// How often those that ask the store were killed before.
    pub(super) kills: u64,
    /// Which of the borrowers at each place it may have reached: others take their places when they are killed, or end with a store
    /// that restarts in the same process.
    pub(super) lives: RangeInclusive<u64>,
    pub(super) cost: u64,
    pub(super) offered: u64,
    /// How many requests can be charged. Requests with the same token are charged once; a repeated token is not
    /// charged.
    pub(super) chargeable: u64,
    /// How many requests the reference admits.
    pub(super) exact: u64,
    /// How many requests were admitted.
    pub(super) admitted: u64,
    /// How many requests were aborted. They may be charged.
    pub(super) aborted: u64,
    /// How many were answered with an error, and may have been charged.
    pub(super) failed: u64,
    /// Units refunded since the previous burst.
    pub(super) given_back: u64,
    /// Units granted to the balance so far.
    pub(super) granted: u64,
}

impl Burst<'_> {
    /// The units charged, assuming that exactly the admitted requests were charged.
    pub(super) fn units(&self) -> u64 {
        self.admitted.min(self.chargeable).saturating_mul(self.cost)
    }
}

/// Splits a fixture into its counts: one for each combination of keys under each policy. A reset
/// starts new counts for all combinations that have one of its keys.
pub(super) fn of<'a>(fixture: &'a Fixture, reference: &Replay, found: &Replay) -> Vec<Count<'a>> {
    let mut counts: Vec<Count<'a>> = Vec::new();
    let mut current: BTreeMap<(&str, String), usize> = BTreeMap::new();
    let mut charges: BTreeMap<(&str, String, String), Charge> = BTreeMap::new();
    let mut grants: Vec<Grant<'_>> = Vec::new();
    let (mut evictions, mut kills, mut life) = (0, 0, 0);
    for (place, step, policy) in fixture.steps_with_policy() {
        evictions += u64::from(step.disturb == Some(Disturb::Evict));
        kills += u64::from(step.disturb == Some(Disturb::Kill));
        let first_life = life;
        life += u64::from(matches!(step.disturb, Some(Disturb::Kill | Disturb::Restart)));
        let keys = step.keys_in_words();
        let name = (policy.id(), keys.clone());
        let now_ms = fixture.instant(step.at_ms);
        if step.op == Op::Reset {
            let resets = |count: usize| counts[count].first.is_some_and(|first| first.shares_a_key_with(step));
            current.retain(|(id, _), count| *id != policy.id() || !resets(*count));
            continue;
        }
        let count = *current.entry(name).or_insert_with(|| {
            counts.push(Count { keys: keys.clone(), first: Some(step), ..Count::default() });
            counts.len() - 1
        });
        let count = &mut counts[count];
        let of_count = charges.iter_mut().filter(|((id, of, _), _)| *id == policy.id() && *of == keys);
        for (_, charge) in of_count.filter(|(_, charge)| charge.returned_at_ms.is_some_and(|at_ms| at_ms <= now_ms)) {
            count.given_back = count.given_back.saturating_add(std::mem::take(&mut charge.cost));
        }
        let tokens = step.tokens().into_iter().map(|token| (policy.id(), keys.clone(), token));
        match step.op {
            Op::Check | Op::Settle | Op::Release | Op::Grant if step.is_refused() => {}
            Op::Settle | Op::Release => {
                for token in tokens {
                    let charged = charges.get_mut(&token).map_or(0, |charge| std::mem::take(&mut charge.cost));
                    let actual = if step.op == Op::Settle { step.cost } else { charged };
                    count.given_back = count.given_back.saturating_add(charged.saturating_sub(actual));
                }
                count.intervenes = true;
            }
            Op::Grant => {
                let until_ms = now_ms.saturating_add(step.remembered_ms(policy).unwrap_or_default());
                // Another plan of the limit has the same balance.
                for (_, keys, token) in tokens {
                    let token = (policy.name(), keys, token);
                    if !grants.iter().any(|grant| grant.token == token && now_ms < grant.until_ms) {
                        grants.push(Grant { token, step, until_ms });
                    }
                }
                count.intervenes = true;
            }
            Op::Block => count.intervenes = true,
            Op::Refund => count.given_back = count.given_back.saturating_add(step.cost),
            Op::Check => {
                let chargeable = step.remembered_ms(policy).map_or(step.burst, |ttl_ms| {
                    let mut first = 0;
                    for token in tokens {
                        let charge = charges.entry(token).or_default();
                        if now_ms < charge.until_ms {
                            continue;
                        }
                        first += 1;
                        let returned_at_ms = returned_after_ms(policy).map(|ms| now_ms.saturating_add(ms));
                        *charge = Charge { until_ms: now_ms.saturating_add(ttl_ms), returned_at_ms, cost: step.cost };
                    }
                    first
                });
                let allowed =
                    |replay: &Replay| replay.steps[place].iter().filter(|one| one.is_allowed()).count() as u64;
                count.bursts.push(Burst {
                    step: place,
                    policy,
                    at: UnixMillis::new(now_ms),
                    location: step.location,
                    evictions,
                    kills,
                    lives: first_life..=life,
                    cost: step.cost,
                    offered: step.burst,
                    chargeable,
                    exact: allowed(reference),
                    admitted: allowed(found),
                    failed: found.steps[place].iter().filter(|one| one.error().is_some()).count() as u64,
                    aborted: found.steps[place].iter().filter(|one| one.error() == Some(ABORTED)).count() as u64,
                    given_back: std::mem::take(&mut count.given_back),
                    granted: grants.iter().filter(|grant| grant.is_to(policy, step)).map(|grant| grant.step.cost).sum(),
                });
            }
            Op::Peek | Op::Reset => {}
        }
    }
    counts
}

/// How long after a charge its cost is returned, if nobody settles it.
fn returned_after_ms(policy: &Policy) -> Option<u64> {
    policy.quotas().iter().find_map(|quota| match quota.rule() {
        Rule::Concurrency(rule) if rule.returns() => Some(rule.lifetime().get()),
        _ => None,
    })
}

impl Count<'_> {
    /// Whether admitting as early as possible admits the most: whether, by every instant, no limiter that keeps to the
    /// limit can have admitted more than an exact one.
    ///
    /// This holds if there is one quota, all requests cost the same, nothing is refunded or settled and time never goes
    /// back. Otherwise, a limiter that denies some requests may have room for more of the later ones.
    pub(super) fn earliest_is_most(&self) -> bool {
        let bursts = &self.bursts;
        !self.intervenes
            && bursts
                .iter()
                .all(|one| one.policy.quotas().len() == 1 && one.given_back == 0 && one.cost == bursts[0].cost)
            && bursts.is_sorted_by_key(|one| one.at)
    }

    /// Replaces the instant of each burst by the one that a single limiter uses. After an admission, its time does not
    /// go back. Counts from a clock that was more than [`MAX_CLOCK_SKEW`] ahead are moved back to that bound.
    pub(super) fn never_go_back(&mut self) {
        let mut latest = UnixMillis::default();
        for place in 0..self.bursts.len() {
            let (earlier, from_here) = self.bursts.split_at_mut(place);
            let burst = &mut from_here[0];
            let bound = burst.at + MAX_CLOCK_SKEW;
            earlier.iter_mut().for_each(|one| one.at = one.at.min(bound));
            latest = latest.min(bound);
            burst.at = burst.at.max(latest);
            if burst.units() > 0 {
                latest = burst.at;
            }
        }
    }
}

/// The requests of bursts that an exact limiter admits by the end of each. With `apart`, each location has its own limiter, and
/// the one that admits the most counts.
pub(super) fn exact(bursts: &[Burst<'_>], limit: impl Fn(u64) -> u64, apart: bool) -> Vec<u64> {
    let mut by_location: BTreeMap<u64, (PolicyState, u64)> = BTreeMap::new();
    let mut most = 0;
    let admitted = bursts.iter().map(|burst| {
        let quotas = burst.policy.quotas().iter().map(|quota| quota.with_limit(limit(quota.rule().limit())));
        let policy = quotas.collect::<Result<Vec<_>, _>>().and_then(|quotas| Policy::new(burst.policy.name(), quotas));
        // A limit of 0 is not a valid policy, and admits nothing.
        let Ok(policy) = policy else { return most };
        let policy = policy.charge_denied(burst.policy.charges_denied());
        let location = if apart { burst.location } else { 0 };
        let (state, sum) = by_location.entry(location).or_insert_with(|| (policy.initial_state(), 0));
        let allowed = |_: &u64| policy.decide(state, burst.at, burst.cost).is_allowed();
        *sum += (0..burst.chargeable).filter(allowed).count() as u64;
        most = most.max(*sum);
        most
    });
    admitted.collect()
}
