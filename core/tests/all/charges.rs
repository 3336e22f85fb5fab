//! The laws of settlements, concurrency limits, penalties and dimensions, each checked with thousands of random histories.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use proptest::prelude::*;
use tidegate_core::algorithm::{Concurrency, MAX_UNITS, TokenBucket};
use tidegate_core::{
    Charge, ChargeId, Decision, Millis, Policy, PolicyState, Quota, QuotaState, Rule, Status, UnixMillis,
};
use tidegate_testing::{NOW, at, policy};

fn counting() -> impl Strategy<Value = Quota> {
    let (limit, span) = (1..=12u64, (1..=40u64).prop_map(Millis::new));
    prop_oneof![
        (limit.clone(), span.clone()).prop_map(|(n, w)| Quota::fixed_window(n, w)),
        (limit.clone(), span.clone()).prop_map(|(n, w)| Quota::sliding_window(n, w)),
        (limit.clone(), span.clone()).prop_map(|(n, w)| Quota::sliding_log(n, w)),
        (limit.clone(), 1..=7u64, span.clone()).prop_map(|(n, r, w)| Quota::token_bucket(n, r, w)),
        (limit, 1..=7u64, span).prop_map(|(n, r, w)| Quota::leaky_bucket(n, r, w)),
    ]
    .prop_map(Result::unwrap)
}

fn laws() -> ProptestConfig {
    ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() }
}

/// A request of an estimated cost: the milliseconds since the one before it, the estimate, how long it takes, and what it costs.
type Estimated = (u64, u64, u64, u64);

/// What was charged at an instant.
type Units = (UnixMillis, u64);

/// Replays requests that are settled when they end. Returns what they were charged on admission, less what was returned; what
/// was overdrawn; and the final state and time.
fn settled(policy: &Policy, requests: &[Estimated]) -> (Vec<Units>, Vec<Units>, PolicyState, UnixMillis) {
    let (mut state, mut now) = (policy.initial_state(), NOW);
    let mut in_flight: Vec<(UnixMillis, Charge, u64)> = Vec::new();
    let (mut kept, mut overdrawn) = (Vec::new(), Vec::new());
    let mut end = |state: &mut PolicyState, in_flight: &mut Vec<(UnixMillis, Charge, u64)>, until: UnixMillis| {
        in_flight.sort_by_key(|(ends, ..)| *ends);
        while let Some((ends, charge, actual)) = in_flight.first().copied().filter(|(ends, ..)| *ends <= until) {
            in_flight.remove(0);
            policy.settle(state, &charge, ends, actual);
            kept.push((charge.at, charge.cost.min(actual)));
            overdrawn.push((ends, actual.saturating_sub(charge.cost)));
        }
    };
    for &(gap, estimate, lasts, actual) in requests {
        now = now + Millis::new(gap);
        end(&mut state, &mut in_flight, now);
        if policy.decide(&mut state, now, estimate).is_allowed() {
            let charge = Charge { id: ChargeId::NONE, at: now, cost: estimate };
            in_flight.push((now + Millis::new(lasts), charge, actual));
        }
    }
    let last = in_flight.iter().map(|(ends, ..)| *ends).max().unwrap_or(now);
    end(&mut state, &mut in_flight, last);
    kept.sort_unstable();
    (kept, overdrawn, state, last)
}

fn requests() -> impl Strategy<Value = Vec<Estimated>> {
    prop::collection::vec((0..=12u64, 1..=12u64, 0..=30u64, 0..=30u64), 1..40)
}

proptest! {
    #![proptest_config(laws())]

    /// What is admitted is at most the documented maximum, however much was overdrawn.
    #[test]
    fn estimates_that_are_settled_admit_at_most_the_maximum(quota in counting(), requests in requests()) {
        let policy = Policy::new("law", [quota]).unwrap();
        let (kept, ..) = settled(&policy, &requests);
        for (place, (first, _)) in kept.iter().enumerate() {
            let mut units = 0;
            for (last, cost) in &kept[place..] {
                units += cost;
                let most = policy.quotas()[0].rule().maximum(*first, *last);
                prop_assert!(units <= most, "{} > {} from {} to {}", units, most, first, last);
            }
        }
    }

    /// Over-admission does not accumulate in a bucket: in any interval that ends now, all that was charged is at most the
    /// maximum plus the debt.
    #[test]
    fn a_bucket_repays_its_debt(capacity in 1..=12u64, refill in 1..=7u64, per in 1..=40u64, requests in requests()) {
        let policy = Policy::new("law", [Quota::token_bucket(capacity, refill, Millis::new(per)).unwrap()]).unwrap();
        let (kept, overdrawn, state, last) = settled(&policy, &requests);
        let [QuotaState::Bucket(bucket)] = state.parts() else { unreachable!("the policy has one bucket") };
        let level = bucket.level.saturating_sub(last.since(bucket.at).get() * refill);
        let debt = level.saturating_sub(capacity * per).div_ceil(per);
        for (first, _) in &kept {
            let since = |units: &[Units]| units.iter().filter(|(at, _)| at >= first).map(|(_, cost)| cost).sum::<u64>();
            let (charged, most) = (since(&kept) + since(&overdrawn), policy.quotas()[0].rule().maximum(*first, last));
            prop_assert!(charged <= most + debt, "{} > {} + {} from {} to {}", charged, most, debt, first, last);
        }
    }

    #[test]
    fn nothing_is_admitted_during_a_debt(quota in counting(), excess in 1..=30u64, later in 0..=80u64) {
        let policy = Policy::new("law", [quota]).unwrap();
        let (mut state, limit) = (policy.initial_state(), policy.quotas()[0].rule().limit());
        prop_assert!(policy.decide(&mut state, NOW, limit).is_allowed());
        policy.settle(&mut state, &Charge { id: ChargeId::NONE, at: NOW, cost: limit }, NOW, limit + excess);
        let (now, free) = (at(later), policy.peek(&state, at(later), 0));
        if let Some(wait) = free.retry_after() {
            prop_assert_eq!(policy.peek(&state, now, 1).status(), Status::Denied);
            let repaid = now + wait;
            prop_assert!(policy.peek(&state, repaid, 0).is_allowed());
            prop_assert!(!policy.peek(&state, UnixMillis::new(repaid.get() - 1), 0).is_allowed());
        }
    }

    #[test]
    fn a_settlement_to_what_was_charged_changes_no_decision(quota in counting(), requests in requests()) {
        let policy = Policy::new("law", [quota]).unwrap();
        let (mut state, mut now) = (policy.initial_state(), NOW);
        for (gap, cost, ..) in requests {
            now = now + Millis::new(gap);
            if policy.decide(&mut state, now, cost).is_allowed() {
                let before = policy.peek(&state, now, 1);
                policy.settle(&mut state, &Charge { id: ChargeId::NONE, at: now, cost }, now, cost);
                prop_assert_eq!(policy.peek(&state, now, 1), before);
            }
        }
    }

    /// A list of holders is the model.
    #[test]
    fn at_most_the_limit_is_in_flight(
        limit in 1..=4u64, lifetime in 1..=60u64,
        steps in prop::collection::vec((0..=20u64, prop::option::of(0..=60usize)), 1..80)
    ) {
        let lifetime = Millis::new(lifetime);
        let policy = Policy::new("law", [Quota::concurrency(limit, lifetime).unwrap()]).unwrap();
        let (mut state, mut now) = (policy.initial_state(), NOW);
        let (mut holders, mut given): (Vec<Charge>, Vec<Charge>) = (Vec::new(), Vec::new());
        for (nth, (gap, ends)) in steps.into_iter().enumerate() {
            now = now + Millis::new(gap);
            holders.retain(|holder| now.since(holder.at) < lifetime);
            if let Some(which) = ends.filter(|_| !given.is_empty()) {
                // Also of a holder that has ended already, or whose slot has expired.
                let charge = given[which % given.len()];
                policy.settle(&mut state, &charge, now, charge.cost);
                holders.retain(|holder| holder.id != charge.id);
            }
            let id = ChargeId::of(&nth.to_string());
            let decision = policy.decide_as(&mut state, now, 1, id);
            prop_assert_eq!(decision.is_allowed(), (holders.len() as u64) < limit, "{} in flight", holders.len());
            prop_assert_eq!(decision.retry_after(), None);
            if decision.is_allowed() {
                let charge = Charge { id, at: now, cost: 1 };
                holders.push(charge);
                given.push(charge);
            }
            prop_assert_eq!(decision.binding().remaining(), Some(limit - holders.len() as u64));
        }
    }

    /// If the policy says so, dead holders are charged nothing: what they used comes back as by a refund.
    #[test]
    fn the_cost_of_dead_holders_is_returned(limit in 2..=4u64, lifetime in 1..=60u64, cost in 1..=20u64) {
        let (lifetime, minute) = (Millis::new(lifetime), Millis::from_secs(60));
        let slots = returning_slots(limit, lifetime);
        let policy = Policy::new("law", [Quota::fixed_window(100, minute).unwrap(), slots]).unwrap();
        let mut state = policy.initial_state();
        prop_assert!(policy.decide_as(&mut state, NOW, cost, ChargeId::of("dies")).is_allowed());
        prop_assert!(policy.decide_as(&mut state, NOW, cost, ChargeId::of("lives")).is_allowed());
        policy.settle(&mut state, &Charge { id: ChargeId::of("lives"), at: NOW, cost }, NOW, cost);
        let window = |now| {
            let peeked = policy.peek(&state, now, 0);
            let place = policy.quotas().iter().position(|quota| matches!(quota.rule(), Rule::FixedWindow(_))).unwrap();
            peeked.quotas()[place].remaining()
        };
        let early = at(lifetime.get() - 1);
        prop_assert_eq!((window(early), window(NOW + lifetime)), (Some(100 - 2 * cost), Some(100 - cost)));
        // A holder that was only late is charged in full, because its estimate was returned.
        policy.settle(&mut state, &Charge { id: ChargeId::of("dies"), at: NOW, cost }, NOW + lifetime, cost);
        prop_assert_eq!(policy.peek(&state, NOW + lifetime, 0).quotas()[1].remaining(), Some(100 - 2 * cost));
    }

    #[test]
    fn a_penalty_is_never_longer_than_its_cap_and_no_clock_extends_it(
        base in 1..=50u64, factor in 1..=5u64, times in 1..=40u64,
        requests in prop::collection::vec((0..=200u64, 0..=100u64), 1..60)
    ) {
        let (base, cap) = (Millis::new(base), Millis::new(base * times));
        let policy =
            Policy::new("law", [Quota::fixed_window(2, Millis::new(20)).unwrap(), Quota::penalty(base, factor, cap).unwrap()]).unwrap();
        let (mut state, mut now, mut violated) = (policy.initial_state(), NOW, false);
        let until = |state: &PolicyState| match state.parts() {
            [_, QuotaState::Penalty(state)] => state.until,
            _ => unreachable!("the policy has a penalty"),
        };
        for (forward, back) in requests {
            now = UnixMillis::new((now + Millis::new(forward)).get() - back);
            let before = (policy.peek(&state, now, 1), until(&state));
            let decision = policy.decide(&mut state, now, 1);
            if let Some(wait) = decision.retry_after() {
                let block = decision.quotas()[1].reset_after().unwrap_or_default();
                prop_assert!(block <= cap.min(wait), "a block of {:?}", block);
                if !violated {
                    prop_assert!(until(&state) <= now + base, "the first violation costs at most the base");
                    violated = true;
                }
            }
            let blocked = before.0.quotas()[1].remaining() == Some(0);
            if decision.is_allowed() || blocked {
                prop_assert!(until(&state) <= before.1, "only a violation moves the end of a block");
            }
        }
    }

    /// The quotas of each dimension decide as a policy of their own would, and one of them denies for all.
    #[test]
    fn dimensions_decide_together_or_not_at_all(
        users in prop::collection::vec(counting(), 1..=3), tenants in prop::collection::vec(counting(), 1..=3),
        requests in prop::collection::vec((0..=30u64, 0..=13u64), 1..40)
    ) {
        let by = |quotas: &[Quota], dimension: &str| -> Vec<Quota> {
            quotas.iter().enumerate().map(|(nth, quota)| {
                quota.clone().by(dimension).unwrap().named(&format!("{dimension}-{nth}")).unwrap()
            }).collect()
        };
        let (users, tenants) = (by(&users, "user"), by(&tenants, "tenant"));
        let both = Policy::new("law", [users.clone(), tenants.clone()].concat()).unwrap();
        let apart = [Policy::new("law", users).unwrap(), Policy::new("law", tenants).unwrap()];
        let mut states = apart.each_ref().map(Policy::initial_state);
        let (mut state, mut now) = (both.initial_state(), NOW);
        for (gap, cost) in requests {
            now = now + Millis::new(gap);
            let decision = both.decide(&mut state, now, cost);
            let alone: Vec<Decision> = apart.iter().zip(&states).map(|(policy, state)| policy.peek(state, now, cost)).collect();
            prop_assert_eq!(decision.is_allowed(), alone.iter().all(Decision::is_allowed));
            if decision.is_allowed() {
                for (policy, state) in apart.iter().zip(&mut states) {
                    prop_assert!(policy.decide(state, now, cost).is_allowed());
                }
            } else {
                let denies = both.quotas()[decision.binding_index()].dimension();
                let place = usize::from(denies == "tenant");
                prop_assert!(!alone[place].is_allowed(), "{} does not deny", denies);
            }
            let parts = states.iter().flat_map(PolicyState::parts).cloned().collect();
            prop_assert_eq!(&state, &PolicyState::from_parts(parts));
        }
    }
}

fn returning_slots(limit: u64, lifetime: Millis) -> Quota {
    let slots = tidegate_core::algorithm::Concurrency::new(limit, lifetime).unwrap().returns_cost(true);
    Rule::Concurrency(slots).into()
}

#[test]
fn what_cannot_work_is_rejected() {
    let second = Millis::from_secs(1);
    let window = || Quota::fixed_window(1, second).unwrap();
    let penalty = || Quota::penalty(second, 2, second).unwrap();
    let said = |policy: Result<Policy, tidegate_core::Error>| policy.unwrap_err().to_string();
    assert!(said(Policy::new("api", [penalty()])).contains("its dimension has none"));
    let elsewhere = said(Policy::new("api", [window().by("user").unwrap(), penalty().by("tenant").unwrap()]));
    assert!(elsewhere.contains("quotas[1]"), "{elsewhere}");
    assert!(said(Policy::new("api", [window(), penalty(), penalty()])).contains("has a penalty already"));
    let returning = || returning_slots(1, second);
    assert!(said(Policy::new("api", [returning(), returning()])).contains("quotas[1].returns_cost"));
    let elsewhere = said(Policy::new("api", [returning(), window().by("user").unwrap()]));
    assert!(elsewhere.contains("quotas[0].returns_cost"), "{elsewhere}");
    assert!(said(Policy::new("api", [window()]).unwrap().group_by("tenant")).contains("no quota counts by \"tenant\""));
    for (error, start) in [
        (Quota::concurrency(0, second), "limit: 0"),
        (Quota::concurrency(1_001, second), "limit: 1001"),
        (Quota::concurrency(1, Millis::ZERO), "lifetime_ms: 0"),
        (Quota::penalty(Millis::ZERO, 2, second), "base_ms: 0"),
        (Quota::penalty(second, 0, second), "factor: 0"),
        (Quota::penalty(second, 2, Millis::new(999)), "cap_ms: 999"),
        (window().by("a b"), "by: \"a b\""),
    ] {
        let said = error.unwrap_err().to_string();
        assert!(said.starts_with(start), "{said}");
    }
}

#[test]
fn slots_that_have_expired_are_forgotten_and_do_not_hide_others() {
    let limit = Concurrency::new(3, Millis::new(15)).unwrap();
    let (mut state, id, at) = (Vec::new(), ChargeId::of, UnixMillis::new);
    for (name, taken) in [("first", 0), ("second", 10), ("third", 12)] {
        limit.take(&mut state, id(name), at(taken), 1);
    }
    // The first has expired, but nobody has taken a slot since.
    assert_eq!(limit.release(&mut state, id("first"), at(16)), None);
    assert_eq!(limit.release(&mut state, id("third"), at(16)).unwrap().at, at(12));
    limit.take(&mut state, id("fourth"), at(16), 1);
    assert_eq!(state.iter().map(|slot| slot.at).collect::<Vec<_>>(), [at(10), at(16)]);
}

#[test]
fn a_debt_beyond_a_year_of_the_refill_is_forgiven() {
    let policy = policy(Quota::token_bucket(10, 1, Millis::from_secs(1)));
    let (mut state, year) = (policy.initial_state(), Millis::from_secs(31_536_000));
    assert_eq!(TokenBucket::MAX_DEBT, year);
    policy.settle(&mut state, &Charge { id: ChargeId::NONE, at: NOW, cost: 0 }, NOW, MAX_UNITS);
    let wait = policy.peek(&state, NOW, 1).retry_after().unwrap();
    assert_eq!(wait, Millis::new(year.get() + 1_000));
}
