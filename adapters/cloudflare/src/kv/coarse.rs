//! Counts of the keys that an isolate has forgotten, by the networks of their clients.

use std::sync::Arc;

use tidegate_core::algorithm::{BucketState, SlidingState, WindowState};
use tidegate_core::{Millis, Policy, PolicyState, QuotaState, Rule, UnixMillis};

use crate::kv::account::{moved, window_start};
use crate::kv::bucket::level_at;
use crate::kv::table::Origin;

/// The number of groups. Networks whose hashes select the same group share a count.
const CELLS: u64 = 1_024;

/// The maximum number of policies that a group counts.
const POLICIES_MAX: usize = 64;

/// Remembers for each group of networks, and for each policy, the greatest count of any forgotten key.
///
/// A key that the isolate does not hold starts with the count of its group. So no forgotten key gets back what it has used, and
/// only keys of the same group can cause a key to be denied early.
#[derive(Default)]
pub(crate) struct Coarse {
    cells: Vec<Vec<Count>>,
}

struct Count {
    policy: Arc<Policy>,
    state: PolicyState,
}

impl Coarse {
    /// An upper bound on what a forgotten key of this origin has used. `None` if no such key was forgotten.
    pub(crate) fn of(&mut self, policy: &Policy, origin: Origin, now: UnixMillis) -> Option<PolicyState> {
        let mut of = |part| {
            let counts = self.cells.get_mut(place(part))?;
            // What a wrong clock counted must not take up the group's room until that clock's time comes.
            counts.retain_mut(|count| {
                count.policy.move_back(&mut count.state, now);
                count.policy.expires_after(&count.state, now) > Millis::ZERO
            });
            counts.iter().find(|count| count.policy.id() == policy.id()).map(|count| count.state.clone())
        };
        match (of(origin.site), of(origin.network)) {
            (Some(site), Some(network)) => Some(greatest(policy, &site, &network, now)),
            (site, network) => site.or(network),
        }
    }

    /// Remembers what a key has used. Returns `false` if the group counts too many policies already.
    #[must_use]
    pub(crate) fn remember(&mut self, part: u64, policy: &Arc<Policy>, state: &PolicyState, now: UnixMillis) -> bool {
        self.cells.resize_with(self.cells.len().max(place(part) + 1), Vec::new);
        let counts = &mut self.cells[place(part)];
        if let Some(known) = counts.iter_mut().find(|count| count.policy.id() == policy.id()) {
            policy.move_back(&mut known.state, now);
            known.state = greatest(policy, &known.state, state, now);
        } else if counts.len() < POLICIES_MAX {
            counts.push(Count { policy: Arc::clone(policy), state: state.clone() });
        } else {
            return false;
        }
        true
    }
}

#[allow(clippy::cast_possible_truncation, reason = "less than the number of cells")]
fn place(part: u64) -> usize {
    (part % CELLS) as usize
}

/// Returns a state that has used as much of each quota as the greater of two states.
fn greatest(policy: &Policy, a: &PolicyState, b: &PolicyState, now: UnixMillis) -> PolicyState {
    let quotas = policy.quotas().iter().zip(a.parts().iter().zip(b.parts()));
    let parts = quotas.map(|(quota, states)| match (quota.rule(), states) {
        (Rule::FixedWindow(rule), (QuotaState::Window(a), QuotaState::Window(b))) => {
            let current = window_start(now, rule.window());
            let used = |state: &WindowState| if state.start >= current { state.used } else { 0 };
            let start = current.max(a.start).max(b.start);
            QuotaState::Window(WindowState { start, used: used(a).max(used(b)) })
        }
        (Rule::SlidingWindow(rule), (QuotaState::Sliding(a), QuotaState::Sliding(b))) => {
            let start = window_start(now, rule.window()).max(a.start).max(b.start);
            let (a, b) = (moved(rule, a, start), moved(rule, b, start));
            QuotaState::Sliding(SlidingState { start, previous: a.0.max(b.0), current: a.1.max(b.1) })
        }
        (Rule::TokenBucket(rule), (QuotaState::Bucket(a), QuotaState::Bucket(b))) => {
            let at = a.at.max(b.at);
            QuotaState::Bucket(BucketState { level: level_at(rule, a, at).max(level_at(rule, b, at)), at })
        }
        (_, (a, _)) => a.clone(),
    });
    PolicyState::from_parts(parts.collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use proptest::prelude::*;
    use tidegate_core::Quota;

    use super::*;

    fn policy() -> Policy {
        let second = Millis::from_secs(1);
        let quotas = [
            Quota::fixed_window(9, second).unwrap().named("fixed").unwrap(),
            Quota::sliding_window(9, second).unwrap().named("sliding").unwrap(),
            Quota::token_bucket(9, 3, second).unwrap().named("bucket").unwrap(),
        ];
        Policy::new("api", quotas).unwrap()
    }

    proptest! {
        #[test]
        fn the_greatest_of_two_states_admits_no_more_than_either(
            charges in prop::collection::vec((0..900u64, 1..4u64, any::<bool>()), 1..12), later in 0..2_500u64,
        ) {
            let policy = policy();
            let (mut now, mut states) = (UnixMillis::new(1_800_000_000_000), [policy.initial_state(), policy.initial_state()]);
            for (gap_ms, cost, first) in charges {
                now = now + Millis::new(gap_ms);
                let _ = policy.decide(&mut states[usize::from(first)], now, cost);
            }
            let both = greatest(&policy, &states[0], &states[1], now);
            policy.verify(&both, now).unwrap();
            let now = now + Millis::new(later);
            let left = |state: &PolicyState| {
                policy.peek(state, now, 1).quotas().iter().map(|quota| quota.remaining().unwrap()).collect::<Vec<_>>()
            };
            let lefts = left(&both).into_iter().zip(left(&states[0]).into_iter().zip(left(&states[1])));
            for (place, (both, (one, other))) in lefts.enumerate() {
                prop_assert!(both <= one.min(other));
                // A sliding window takes the greater previous count of one state, and the greater current count of the other.
                let is_sliding = place == 1;
                prop_assert!(is_sliding || later > 0 || both == one.min(other));
            }
        }
    }

    #[test]
    fn a_clock_a_year_ahead_locks_a_group_for_a_minute_beyond_the_policy_at_most() {
        let (policy, mut coarse, now) = (Arc::new(policy()), Coarse::default(), UnixMillis::new(1_800_000_000_000));
        let mut state = policy.initial_state();
        assert!(policy.decide(&mut state, now + Millis::from_secs(365 * 86_400), 9).is_allowed());
        let origin = Origin { site: 5, network: 6 };
        assert!(coarse.remember(6, &policy, &state, now));
        assert!(coarse.of(&policy, origin, now).is_some_and(|count| !policy.peek(&count, now, 9).is_allowed()));
        // A request by another policy moves it back, too.
        let other = Policy::new("other", [Quota::fixed_window(9, Millis::from_secs(1)).unwrap()]).unwrap();
        assert!(coarse.remember(6, &policy, &state, now));
        assert_eq!(coarse.of(&other, origin, now), None);
        assert_eq!(coarse.of(&other, origin, now + Millis::from_secs(64)), None);
        assert!(coarse.cells[6].is_empty(), "the group has its room back");
    }

    #[test]
    fn a_group_counts_policies_separately_up_to_a_maximum() {
        let (mut coarse, now) = (Coarse::default(), UnixMillis::new(1_800_000_000_000));
        let origin = Origin { site: 5, network: 6 };
        for number in 0..=POLICIES_MAX {
            let quota = Quota::fixed_window(9, Millis::from_secs(60)).unwrap();
            let policy = Arc::new(Policy::new(&format!("p{number}"), [quota]).unwrap());
            let mut state = policy.initial_state();
            assert!(policy.decide(&mut state, now, 3).is_allowed());
            assert_eq!(coarse.of(&policy, origin, now), None);
            assert_eq!(coarse.remember(6, &policy, &state, now), number < POLICIES_MAX);
            assert_eq!(coarse.of(&policy, origin, now), (number < POLICIES_MAX).then_some(state));
        }
        let policy = policy();
        assert_eq!(coarse.of(&policy, origin, now + Millis::from_secs(60)), None);
        assert!(coarse.cells[6].is_empty(), "the counts expire with the window");
    }
}
