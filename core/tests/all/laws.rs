//! The eight laws that every algorithm obeys, each checked with thousands of random arrival sequences.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use proptest::prelude::*;
use tidegate_core::algorithm::{
    BucketState, CalendarState, CalendarWindow, LogEntry, MAX_UNITS, SlidingState, TokenBucket, WindowState,
};
use tidegate_core::{
    Charge, ChargeId, Decision, ErrorKind, MAX_CLOCK_SKEW, Millis, Policy, PolicyState, Quota, QuotaState, Rule,
    Status, UnixMillis,
};
use tidegate_testing::NOW;

/// A request: the milliseconds since the one before it, and its cost.
type Arrival = (u64, u64);

fn quota() -> impl Strategy<Value = Quota> {
    let (limit, span) = (1..=12u64, 1..=40u64);
    prop_oneof![
        (limit.clone(), span.clone()).prop_map(|(n, w)| Quota::fixed_window(n, Millis::new(w)).unwrap()),
        (limit.clone(), span.clone()).prop_map(|(n, w)| Quota::sliding_window(n, Millis::new(w)).unwrap()),
        (limit.clone(), span.clone()).prop_map(|(n, w)| Quota::sliding_log(n, Millis::new(w)).unwrap()),
        (limit.clone(), 1..=7u64, span.clone())
            .prop_map(|(n, r, w)| Quota::token_bucket(n, r, Millis::new(w)).unwrap()),
        (limit, 1..=7u64, span).prop_map(|(n, r, w)| Quota::leaky_bucket(n, r, Millis::new(w)).unwrap()),
        calendar_window(),
    ]
}

/// Calendar windows of some minutes, one of which begins at `NOW` or near the epoch.
fn calendar_window() -> impl Strategy<Value = Quota> {
    let start = prop_oneof![(0..3u64).prop_map(|minute| 60_000 * minute), Just(NOW.get())];
    let numbers = (1..=12u64, start, 1..=3u64, 1..=3u64, 0..=12u64);
    numbers.prop_map(|(limit, start, first, next, carry_over)| {
        let (start, minutes) = (UnixMillis::new(start), |minutes| Millis::from_secs(60 * minutes));
        let window = CalendarWindow::new(limit, start, minutes(first), minutes(next), carry_over.min(limit));
        Rule::CalendarWindow(window.unwrap()).into()
    })
}

/// Quotas with the largest numbers that the constructors accept.
fn huge_quota() -> impl Strategy<Value = Quota> {
    (1..=MAX_UNITS, 0..6usize, 1..=MAX_UNITS).prop_map(|(span, algorithm, refill)| {
        let (most, span) = (MAX_UNITS / span, Millis::new(span));
        match algorithm {
            0 => Quota::fixed_window(MAX_UNITS, span),
            1 => Quota::sliding_window(MAX_UNITS, span),
            2 => Quota::sliding_log(most.min(1_000), span),
            3 => Quota::token_bucket(most, refill, span),
            4 => {
                let longest = Millis::from_secs(60 * ((1 << 20) - 1));
                let window = CalendarWindow::new(MAX_UNITS, UnixMillis::new(0), longest, longest, (1 << 32) - 1);
                window.map(|window| Rule::CalendarWindow(window).into())
            }
            _ => Quota::leaky_bucket(most, refill, span),
        }
        .unwrap()
    })
}

fn policy() -> impl Strategy<Value = Policy> {
    prop_oneof![
        3 => quota().prop_map(|quota| Policy::new("law", [quota]).unwrap()),
        1 => proptest::collection::vec(quota(), 2..=8).prop_map(|quotas| Policy::new("law", quotas).unwrap()),
        1 => huge_quota().prop_map(|quota| Policy::new("law", [quota]).unwrap()),
    ]
}

fn start() -> impl Strategy<Value = UnixMillis> {
    // Minutes, in which calendar windows begin, come soon after some of them.
    prop_oneof![0..200u64, Just(NOW.get()), 59_900..60_000u64, NOW.get() + 59_900..NOW.get() + 60_000]
        .prop_map(UnixMillis::new)
}

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let gap = prop_oneof![4 => Just(0), 10 => 0..=12u64, 2 => 0..=120u64, 1 => 0..=200_000u64];
    let cost = prop_oneof![6 => Just(1), 3 => 0..=13u64, 1 => any::<u64>()];
    proptest::collection::vec((gap, cost), 1..60)
}

fn laws() -> ProptestConfig {
    ProptestConfig { cases: 3_000, max_global_rejects: 30_000, ..ProptestConfig::default() }
}

/// Replays arrivals. Returns the decisions with their times and costs, and the final state.
fn replay(policy: &Policy, start: UnixMillis, arrivals: &[Arrival]) -> (Vec<(UnixMillis, u64, Decision)>, PolicyState) {
    let (mut state, mut now) = (policy.initial_state(), start);
    let decisions = arrivals
        .iter()
        .map(|&(gap, cost)| {
            now = now + Millis::new(gap);
            (now, cost, policy.decide(&mut state, now, cost))
        })
        .collect();
    (decisions, state)
}

/// Checks law 1 for admissions given as (time, cost): for every quota and every interval between two admissions.
fn no_interval_admits_more(policy: &Policy, admissions: &[(UnixMillis, u64)]) -> Result<(), TestCaseError> {
    for quota in policy.quotas() {
        for (i, &(first, _)) in admissions.iter().enumerate() {
            let mut units = 0;
            for &(last, cost) in &admissions[i..] {
                units += cost;
                let most = quota.rule().maximum(first, last);
                prop_assert!(units <= most, "{units} > {most} from {first} to {last} by {quota:?}");
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(laws())]

    #[test]
    fn law_1_no_interval_admits_more_than_documented(policy in policy(), start in start(), arrivals in arrivals()) {
        let (decisions, _) = replay(&policy, start, &arrivals);
        let admitted: Vec<_> =
            decisions.iter().filter(|(_, _, decision)| decision.is_allowed()).map(|&(at, cost, _)| (at, cost)).collect();
        no_interval_admits_more(&policy, &admitted)?;
    }

    /// The documented maximum is tight. Excluded are sliding windows, which reach theirs in the first two windows only,
    /// and buckets that fill up within a millisecond.
    #[test]
    fn law_1_requests_every_millisecond_reach_the_maximum(quota in quota(), start in start(), span in 0..200u64) {
        let slow = |bucket: &TokenBucket| bucket.refill() <= (bucket.capacity() - 1) * bucket.per().get();
        prop_assume!(match quota.rule() {
            Rule::TokenBucket(bucket) => slow(bucket),
            Rule::LeakyBucket(bucket) => slow(bucket.bucket()),
            Rule::SlidingWindow(_) => false,
            _ => true,
        });
        let most = quota.rule().maximum(start, start + Millis::new(span));
        let policy = Policy::new("law", [quota]).unwrap();
        let mut state = policy.initial_state();
        let mut ask = |ms| policy.decide(&mut state, start + Millis::new(ms), 1).is_allowed();
        let admitted: usize = (0..=span).map(|ms| (0..25).take_while(|_| ask(ms)).count()).sum();
        prop_assert_eq!(admitted as u64, most);
    }

    #[test]
    fn law_1_a_shaper_forwards_evenly(
        capacity in 1..=12u64, refill in 1..=7u64, per_ms in 1..=40u64, start in start(), gaps in proptest::collection::vec(0..=20u64, 1..60)
    ) {
        let policy = Policy::new("law", [Quota::leaky_bucket(capacity, refill, Millis::new(per_ms)).unwrap()]).unwrap();
        let arrivals: Vec<_> = gaps.into_iter().map(|gap| (gap, 1)).collect();
        let (decisions, _) = replay(&policy, start, &arrivals);
        let forwarded: Vec<_> = decisions
            .iter()
            .filter(|(_, _, decision)| decision.is_allowed())
            .map(|(at, _, decision)| *at + decision.delay())
            .collect();
        prop_assert!(forwarded.is_sorted());
        for (i, first) in forwarded.iter().enumerate() {
            for (count, last) in (1..).zip(&forwarded[i..]) {
                let most = (last.since(*first).get() + 1) * refill / per_ms + 1;
                prop_assert!(count <= most, "{count} > {most} from {first} to {last}");
            }
        }
    }

    #[test]
    fn law_2_admitted_exactly_at_retry_after(
        policy in policy(), charge in any::<bool>(), start in start(), arrivals in arrivals(), cost in 0..=13u64
    ) {
        let policy = policy.charge_denied(charge);
        let (decisions, state) = replay(&policy, start, &arrivals);
        let now = decisions.last().unwrap().0;
        let decision = policy.peek(&state, now, cost);
        if let Some(retry_after) = decision.retry_after() {
            prop_assert!(retry_after > Millis::ZERO);
            let wait = retry_after.get();
            prop_assume!(now.get() + wait <= UnixMillis::MAX.get());
            for waited in (0..wait.min(150)).chain(wait.saturating_sub(150)..wait) {
                let early = policy.peek(&state, now + Millis::new(waited), cost);
                prop_assert_eq!(early.status(), Status::Denied, "already admitted after {} of {} ms", waited, wait);
                prop_assert_eq!(early.retry_after(), Some(Millis::new(wait - waited)));
            }
            prop_assert!(policy.peek(&state, now + retry_after, cost).is_allowed());
        }
    }

    #[test]
    fn law_3_a_denied_request_changes_no_later_decision(policy in policy(), start in start(), arrivals in arrivals()) {
        let (decisions, state) = replay(&policy, start, &arrivals);
        let mut without = policy.initial_state();
        for (now, cost, decision) in &decisions {
            if decision.is_allowed() {
                prop_assert_eq!(&policy.decide(&mut without, *now, *cost), decision);
            } else {
                prop_assert_eq!(&policy.peek(&without, *now, *cost), decision);
            }
        }
        prop_assert_eq!(without, state);
    }

    #[test]
    fn law_4_exactly_remaining_more_requests_are_admitted(
        policy in policy(), start in start(), arrivals in arrivals(), later in 0..=50u64
    ) {
        let (decisions, mut state) = replay(&policy, start, &arrivals);
        let now = decisions.last().unwrap().0 + Millis::new(later);
        let remaining = |decision: &Decision| decision.quotas().iter().filter_map(|quota| quota.remaining()).min().unwrap();
        let mut left = remaining(&policy.peek(&state, now, 1));
        if left > 1_000 {
            // Use up all but a few units of a huge quota in a request, or two if it has carried some over.
            let most = policy.quotas().iter().map(|quota| quota.rule().limit()).min().unwrap();
            for cost in [(left - 10).min(most), (left - 10).saturating_sub(most)] {
                prop_assert!(policy.decide(&mut state, now, cost).is_allowed());
            }
            left = 10;
        }
        for used in 1..=left {
            let decision = policy.decide(&mut state, now, 1);
            prop_assert!(decision.is_allowed());
            prop_assert_eq!(remaining(&decision), left - used);
        }
        prop_assert_eq!(policy.decide(&mut state, now, 1).status(), Status::Denied);
    }

    #[test]
    fn law_5_a_cost_above_the_capacity_is_never_admissible(
        policy in policy(), charge in any::<bool>(), start in start(), arrivals in arrivals(), above in 1..=5u64
    ) {
        let policy = policy.charge_denied(charge);
        let (decisions, mut state) = replay(&policy, start, &arrivals);
        let (now, before) = (decisions.last().unwrap().0, state.clone());
        let least = policy.quotas().iter().map(|quota| quota.rule().limit()).min().unwrap();
        for cost in [least + above, u64::MAX] {
            let decision = policy.decide(&mut state, now, cost);
            prop_assert_eq!(decision.status(), Status::NeverAdmissible);
            prop_assert_eq!(decision.retry_after(), None);
            prop_assert!(cost > policy.quotas()[decision.binding_index()].rule().limit());
            prop_assert_eq!(&state, &before);
        }
    }

    #[test]
    fn law_6_a_clock_that_steps_back_admits_nothing_more_and_adds_at_most_the_step_to_a_wait(
        policy in policy(), start in start(),
        requests in proptest::collection::vec((0..=150u64, prop_oneof![4 => Just(1), 1 => 1..=13u64]), 1..60)
    ) {
        // The latest time of a charge. A denial leaves no trace, so its clock does not count.
        let (mut state, mut latest) = (policy.initial_state(), UnixMillis::default());
        let mut admitted = Vec::new();
        for (offset, cost) in requests {
            let now = start + Millis::new(offset);
            let (early, in_time) = (policy.peek(&state, now, cost), policy.peek(&state, latest.max(now), cost));
            if early.is_allowed() {
                prop_assert!(in_time.is_allowed(), "stepping back to {now} from {latest} admits what was denied");
            } else {
                let wait = in_time.retry_after().unwrap_or_default() + latest.since(now);
                prop_assert!(early.retry_after().unwrap_or_default() <= wait);
            }
            if policy.decide(&mut state, now, cost).is_allowed() {
                latest = latest.max(now);
                admitted.push((latest, cost));
            }
        }
        no_interval_admits_more(&policy, &admitted)?;
    }

    #[test]
    fn law_6_a_wrong_clock_locks_a_key_for_at_most_a_minute_longer_than_the_policy(
        quota in quota(), more in proptest::collection::vec(quota(), 0..3), charge in any::<bool>(), start in start(), cost in 1..=13u64,
        arrivals in arrivals(), ahead in prop_oneof![1..=200_000u64, Just(365 * 86_400_000)], gap in 1..=100_000u64
    ) {
        let policy = Policy::new("law", [vec![quota], more].concat()).unwrap().charge_denied(charge);
        let longest = policy.quotas().iter().map(|quota| match quota.rule() {
            Rule::CalendarWindow(rule) => rule.window().max(rule.next_window()),
            rule => rule.window(),
        });
        let longest = longest.max().unwrap();
        let bound = MAX_CLOCK_SKEW + longest + longest;
        let (_, mut state) = replay(&policy, start + Millis::new(ahead), &arrivals);
        // A host with a correct clock finds the state. The bound holds for its first request and for later ones.
        for now in [start, start + Millis::new(gap)] {
            let peeked = policy.peek(&state, now, cost);
            let decision = policy.decide(&mut state, now, cost);
            prop_assert_eq!(peeked.status(), decision.status());
            prop_assert!(decision.retry_after().unwrap_or_default() <= bound, "{:?} for {:?}", decision.retry_after(), bound);
            prop_assert!(policy.expires_after(&state, now) <= bound);
        }
        let (now, before) = (start + Millis::new(gap), state.clone());
        if let Some(wait) = policy.decide(&mut state, now, cost).retry_after() && !charge {
            prop_assert_eq!(&state, &before, "only the first decision changes the state");
            prop_assert!(policy.decide(&mut state, now + wait, cost).is_allowed());
        }
    }

    #[test]
    fn law_7_a_changed_limit_keeps_the_used_units(
        quota in quota(), other in 1..=15u64, start in start(), arrivals in arrivals(), later in 0..=50u64
    ) {
        // What is carried over is no more than the limit, so it changes, too.
        prop_assume!(!matches!(quota.rule(), Rule::CalendarWindow(rule) if rule.carry_over() > 0));
        let (before, after) = (Policy::new("law", [quota.clone()]).unwrap(), Policy::new("law", [quota.with_limit(other).unwrap()]).unwrap());
        prop_assert_eq!(before.id(), after.id());
        let (decisions, state) = replay(&before, start, &arrivals);
        let now = decisions.last().unwrap().0 + Millis::new(later);
        let remaining = |policy: &Policy| policy.peek(&state, now, 1).binding().remaining().unwrap();
        let used = before.quotas()[0].rule().limit() - remaining(&before);
        prop_assert_eq!(remaining(&after), other.saturating_sub(used));
        // Both policies can read the same state.
        prop_assert_eq!(after.decode(&before.encode(&state), now).unwrap(), state);
    }

    #[test]
    fn law_8_a_state_round_trips_through_its_encoding(
        policy in policy(), charge in any::<bool>(), start in start(), arrivals in arrivals()
    ) {
        let policy = policy.charge_denied(charge);
        let (decisions, state) = replay(&policy, start, &arrivals);
        let (bytes, now) = (policy.encode(&state), decisions.last().unwrap().0);
        prop_assert_eq!(policy.decode(&bytes, now).unwrap(), state);
        for length in 0..bytes.len() {
            prop_assert!(policy.decode(&bytes[..length], now).is_err(), "{} of {} bytes decoded", length, bytes.len());
        }
    }

    #[test]
    fn law_8_any_bytes_are_an_error_or_a_state(
        policy in policy(), mut bytes in proptest::collection::vec(any::<u8>(), 0..120), start in start()
    ) {
        // With a valid first header, decoding gets further.
        if let Some(first) = bytes.first_mut() {
            *first = policy.encode(&policy.initial_state())[0];
        }
        if let Ok(mut state) = policy.decode(&bytes, start) {
            prop_assert_eq!(policy.encode(&state), bytes);
            let _ = policy.decide(&mut state, start, 1);
            let _ = policy.expires_after(&state, start);
            policy.refund(&mut state, start, start + Millis::new(5), u64::MAX);
        }
    }

    #[test]
    fn law_8_a_flipped_bit_is_an_error_or_another_state(
        policy in policy(), start in start(), arrivals in arrivals(), at in any::<prop::sample::Index>(), bit in 0..8u8
    ) {
        let (decisions, state) = replay(&policy, start, &arrivals);
        let mut bytes = policy.encode(&state);
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        if let Ok(mut flipped) = policy.decode(&bytes, start) {
            prop_assert_ne!(&flipped, &state);
            let _ = policy.decide(&mut flipped, decisions.last().unwrap().0, 1);
        }
    }

    /// Quotas whose states are small are charged in one step each. Beside a log, whose state is not, they are asked first.
    #[test]
    fn quotas_decide_the_same_beside_a_log_that_never_denies(
        quotas in proptest::collection::vec(quota(), 1..=4),
        arrivals in proptest::collection::vec((0..200_000u64, 0..=13u64), 1..60),
    ) {
        let log = Quota::sliding_log(1_000, Millis::new(1)).unwrap();
        let alone = Policy::new("law", quotas.clone()).unwrap();
        let beside = Policy::new("law", quotas.iter().cloned().chain([log])).unwrap();
        let (mut one, mut other) = (alone.initial_state(), beside.initial_state());
        // The clock also steps back, by more than the skew that is allowed.
        for (at, cost) in arrivals {
            let now = UnixMillis::new(if at < 190_000 { at % 200 } else { at });
            let (found, expected) = (alone.decide(&mut one, now, cost), beside.decide(&mut other, now, cost));
            prop_assert_eq!(found.status(), expected.status());
            prop_assert_eq!((found.retry_after(), found.delay()), (expected.retry_after(), expected.delay()));
            prop_assert_eq!(found.binding_index(), expected.binding_index());
            prop_assert_eq!(found.quotas(), &expected.quotas()[..quotas.len()]);
            prop_assert_eq!(one.parts(), &other.parts()[..quotas.len()]);
        }
    }

    #[test]
    fn a_refund_never_leaves_more_than_the_limit(
        policy in policy(), start in start(), arrivals in arrivals(), later in 0..=60u64, cost in 0..=20u64, which in any::<prop::sample::Index>()
    ) {
        let (decisions, mut state) = replay(&policy, start, &arrivals);
        let charged_at = decisions[which.index(decisions.len())].0;
        let now = decisions.last().unwrap().0 + Millis::new(later);
        let before = policy.peek(&state, now, 1);
        policy.refund(&mut state, charged_at, now, cost);
        let after = policy.peek(&state, now, 1);
        for (before, after) in before.quotas().iter().zip(after.quotas()) {
            prop_assert!(after.remaining() >= before.remaining());
            prop_assert!(after.remaining().unwrap() <= after.limit());
            prop_assert!(after.remaining().unwrap() - before.remaining().unwrap() <= cost.saturating_add(1));
        }
        prop_assert_eq!(policy.decode(&policy.encode(&state), now).unwrap(), state);
    }

    /// A partly refunded request counts with the units that were not refunded.
    #[test]
    fn refunds_admit_no_more_than_if_the_refunded_units_had_not_been_charged(
        policy in policy(), start in start(), arrivals in arrivals(),
        refunds in proptest::collection::vec(proptest::option::of((any::<prop::sample::Index>(), 0..=13u64)), 60)
    ) {
        let (mut state, mut now) = (policy.initial_state(), start);
        let mut kept: Vec<(UnixMillis, u64)> = Vec::new();
        for ((gap, cost), refund) in arrivals.into_iter().zip(refunds) {
            now = now + Millis::new(gap);
            if policy.decide(&mut state, now, cost).is_allowed() {
                kept.push((now, cost));
            }
            if let (Some((which, back)), false) = (refund, kept.is_empty()) {
                let place = which.index(kept.len());
                let (charged_at, cost) = &mut kept[place];
                let back = back.min(*cost);
                policy.refund(&mut state, *charged_at, now, back);
                *cost -= back;
            }
        }
        no_interval_admits_more(&policy, &kept)?;
    }

    #[test]
    fn a_charged_denial_counts_like_an_admission(start in start(), limit in 1..=12u64, window in 1..=40u64) {
        let hammer = |quota: Quota| {
            let policy = Policy::new("law", [quota]).unwrap().charge_denied(true);
            let mut state = policy.initial_state();
            let end = 10 * window;
            (0..end).filter(|&ms| policy.decide(&mut state, start + Millis::new(ms), 1).is_allowed()).count() as u64
        };
        // With a request every millisecond, a log or a slow bucket never regains capacity.
        if window > limit {
            prop_assert_eq!(hammer(Quota::sliding_log(limit, Millis::new(window)).unwrap()), limit);
        }
        let slow_bucket = Quota::token_bucket(limit, 1, Millis::new(window + 1)).unwrap();
        prop_assert!(hammer(slow_bucket) <= limit + limit / window.max(1) + 1);
    }

    #[test]
    fn an_encoded_state_has_at_most_the_documented_size(quota in quota(), start in start(), arrivals in arrivals()) {
        let policy = Policy::new("law", [quota.clone()]).unwrap();
        let (_, state) = replay(&policy, start, &arrivals);
        let most = match quota.rule() {
            Rule::SlidingWindow(_) | Rule::CalendarWindow(_) => 1 + 24,
            Rule::SlidingLog(rule) => 1 + 4 + 12 * usize::try_from(rule.window().get().min(12)).unwrap(),
            _ => 1 + 16,
        };
        prop_assert!(policy.encode(&state).len() <= most);
    }
}

/// The states would lock their key for thousands of years. A request at `NOW` must get an error, not a denial.
#[test]
fn states_that_the_policy_cannot_have_written_are_corrupt() {
    const LAST: u64 = (1 << 48) - 60_000;
    let minute = Millis::from_secs(60);
    let window = |start| QuotaState::Window(WindowState { start: UnixMillis::new(start), used: 5 });
    let sliding = |start| QuotaState::Sliding(SlidingState { start: UnixMillis::new(start), previous: 5, current: 5 });
    let log = |at| QuotaState::Log(vec![LogEntry { at: UnixMillis::new(at), units: 5 }]);
    let bucket = |level, at| QuotaState::Bucket(BucketState { level, at: UnixMillis::new(at) });
    let calendar =
        |end, used, carried| QuotaState::Calendar(CalendarState { end: UnixMillis::new(end), used, carried });
    let days_30 = Millis::from_secs(30 * 86_400);
    let month = Rule::CalendarWindow(CalendarWindow::new(5, NOW, days_30, days_30, 2).unwrap());
    let entry = |units| LogEntry { at: NOW, units };
    let slots = |of: &[(u64, u64)]| {
        let slot = |&(at, cost)| Charge { id: ChargeId::NONE, at: UnixMillis::new(at), cost };
        QuotaState::Slots(of.iter().map(slot).collect())
    };
    let aligned = LAST - LAST % 60_000;
    let hostile = [
        (Quota::fixed_window(5, minute), window(aligned)),
        (Quota::sliding_window(5, minute), sliding(aligned)),
        (Quota::sliding_log(5, minute), log(LAST)),
        (Quota::token_bucket(5, 1, minute), bucket(300_000, LAST)),
        (Quota::leaky_bucket(5, 1, minute), bucket(300_000, LAST)),
        (Quota::token_bucket(5, 1, minute), bucket(MAX_UNITS, NOW.get())),
        (Quota::leaky_bucket(5, 1, minute), bucket(MAX_UNITS, NOW.get())),
        // Entries of a log are of different instants, and of at least one unit.
        (Quota::sliding_log(5, minute), QuotaState::Log(vec![entry(1), entry(1)])),
        (Quota::sliding_log(5, minute), QuotaState::Log(vec![entry(0)])),
        (Quota::concurrency(5, minute), slots(&[(LAST, 1)])),
        (Ok(month.into()), calendar(LAST, 5, 0)),
        (Ok(month.into()), calendar(NOW.get(), MAX_UNITS + 1, 0)),
        (Ok(month.into()), calendar(NOW.get(), 0, MAX_UNITS + 1)),
        (Quota::concurrency(5, minute), slots(&[(NOW.get(), 1), (NOW.get() - 1, 1)])),
        (Quota::concurrency(5, minute), slots(&[(NOW.get(), MAX_UNITS + 1)])),
    ];
    for (quota, state) in hostile {
        let policy = Policy::new("law", [quota.unwrap()]).unwrap();
        let state = PolicyState::from_parts(vec![state]);
        assert_eq!(policy.verify(&state, NOW).unwrap_err().kind(), ErrorKind::Corrupt, "{state:?}");
        assert_eq!(policy.decode(&policy.encode(&state), NOW).unwrap_err().kind(), ErrorKind::Corrupt, "{state:?}");
    }
    // States written by a clock one year ahead, and a bucket that has to drain after its limit was lowered from a
    // million.
    let year = NOW.get() + 365 * 86_400_000;
    let honest = [
        (Quota::fixed_window(5, minute), window(year - year % 60_000)),
        (Quota::sliding_window(5, minute), sliding(year - year % 60_000)),
        (Quota::sliding_log(5, minute), log(year)),
        (Quota::token_bucket(5, 1, minute), bucket(60_000 * 1_000_000, year)),
        (Quota::concurrency(5, minute), slots(&[(NOW.get(), MAX_UNITS), (NOW.get(), 1), (year, 1)])),
        (Ok(month.into()), calendar(year + 1, MAX_UNITS, MAX_UNITS)),
    ];
    for (quota, state) in honest {
        let policy = Policy::new("law", [quota.unwrap()]).unwrap();
        policy.verify(&PolicyState::from_parts(vec![state]), NOW).unwrap();
    }
}

#[test]
fn a_state_has_as_many_parts_as_its_policy_allows_and_no_instant_after_the_last() {
    let policy = |quota: Result<Quota, _>| Policy::new("law", [quota.unwrap()]).unwrap();
    let (now, minute) = (NOW, Millis::from_secs(60));
    let log = policy(Quota::sliding_log(1_000, minute));
    let slots = policy(Quota::concurrency(1_000, minute));
    let entry = |at| LogEntry { at: UnixMillis::new(at), units: 1 };
    let slot = |at| Charge { id: ChargeId::NONE, at: UnixMillis::new(at), cost: 1 };
    let entries = |count| QuotaState::Log((0..count).map(entry).collect());
    let taken = |count| QuotaState::Slots((0..count).map(slot).collect());
    for (policy, of) in [(&log, &entries as &dyn Fn(u64) -> QuotaState), (&slots, &taken)] {
        let decode = |count| policy.decode(&policy.encode(&PolicyState::from_parts(vec![of(count)])), now);
        assert!(decode(1_000).is_ok());
        let error = decode(1_001).unwrap_err().to_string();
        assert!(error.contains("1001 ") && error.contains(", 1000 at most"), "{error}");
    }
    let bucket = policy(Quota::token_bucket(5, 1, minute));
    let full = PolicyState::from_parts(vec![QuotaState::Bucket(BucketState { level: 1, at: UnixMillis::MAX })]);
    let mut bytes = bucket.encode(&full);
    assert_eq!(bucket.decode(&bytes, UnixMillis::MAX).unwrap(), full);
    bytes[9..].copy_from_slice(&(UnixMillis::MAX.get() + 1).to_le_bytes());
    assert_eq!(bucket.decode(&bytes, UnixMillis::MAX).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn an_invalid_state_is_described_in_the_error() {
    let policy = Policy::new("law", [Quota::fixed_window(5, Millis::from_secs(1)).unwrap()]).unwrap();
    let at = UnixMillis::new(1_500);
    let told = |state| policy.verify(&PolicyState::from_parts(vec![state]), at).unwrap_err().to_string();
    let misaligned = told(QuotaState::Window(WindowState { start: at, used: 3 }));
    assert!(
        misaligned.contains("3 used in a window from 1500 ms since the epoch is not a state of a fixed_window"),
        "{misaligned}"
    );
    let other = told(QuotaState::Bucket(BucketState { level: 7, at }));
    assert!(other.contains("quotas[0]: a level of 7 at 1500 ms since the epoch is not a state"), "{other}");
}

#[test]
fn states_of_another_shape_or_version_are_corrupt() {
    let bucket = Policy::new("law", [Quota::token_bucket(5, 1, Millis::new(10)).unwrap()]).unwrap();
    let window = Policy::new("law", [Quota::fixed_window(5, Millis::new(10)).unwrap()]).unwrap();
    let decode = |bytes: &[u8]| window.decode(bytes, UnixMillis::new(0));
    let error = decode(&bucket.encode(&bucket.initial_state())).unwrap_err().to_string();
    assert!(error.contains("header 0x14 where 0x11 (fixed_window, version 1) belongs"), "{error}");
    let mut newer = window.encode(&window.initial_state());
    newer[0] = 0x21;
    assert!(decode(&newer).unwrap_err().to_string().contains("header 0x21"));
    newer[0] = 0x11;
    newer.push(0);
    assert!(decode(&newer).unwrap_err().to_string().contains("1 bytes more"));
    let log = Policy::new("law", [Quota::sliding_log(5, Millis::new(10)).unwrap()]).unwrap();
    let mut long = log.encode(&log.initial_state());
    long[1..5].copy_from_slice(&1_001u32.to_le_bytes());
    long.extend([0; 12 * 1_001]);
    let error = log.decode(&long, UnixMillis::new(0)).unwrap_err().to_string();
    assert!(error.contains("1001 log entries, 1000 at most"), "{error}");
    // A misaligned window would look like one that ended long ago, and admit everything.
    let mut unaligned = window.encode(&window.initial_state());
    unaligned[1] = 5;
    assert!(decode(&unaligned).is_err());
}
