//! The ceiling and the floor, over random traffic and whatever the store does.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use proptest::prelude::*;
use support::{Edge, Faults, START};
use tidegate_cloudflare_kv::DRIFT;
use tidegate_core::{Key, Load, Millis, Policy, Quota, UnixMillis};

/// Policies of small numbers, so that limits are met and windows end.
fn policies() -> impl Strategy<Value = Policy> {
    let windows = (1u64..12, prop::sample::select(vec![500u64, 3_000, 20_000]));
    let quota = prop_oneof![
        windows.clone().prop_map(|(limit, ms)| Quota::fixed_window(limit, Millis::new(ms)).unwrap()),
        windows.prop_map(|(limit, ms)| Quota::sliding_window(limit, Millis::new(ms)).unwrap()),
        (1u64..12, 1u64..6, prop::sample::select(vec![300u64, 1_000, 10_000]))
            .prop_map(|(capacity, refill, ms)| Quota::token_bucket(capacity, refill, Millis::new(ms)).unwrap()),
    ];
    prop::collection::vec(quota, 1..3).prop_map(|quotas| Policy::new("p", quotas).unwrap())
}

fn faults() -> impl Strategy<Value = Faults> {
    let rate = || prop_oneof![2 => Just(0u64), 1 => 0u64..101];
    let spans = (prop::sample::select(vec![0u64, 700, 60_000]), prop::sample::select(vec![0u64, 900, 60_000]));
    (spans, any::<bool>(), rate(), rate(), rate(), rate()).prop_map(
        |((replication_ms, cache_ms), throttles, reads_fail, writes_fail, writes_lost, reads_garbled)| Faults {
            replication_ms,
            cache_ms,
            throttles,
            reads_fail,
            writes_fail,
            writes_lost,
            reads_garbled,
        },
    )
}

#[derive(Clone, Debug)]
struct Step {
    gap_ms: u64,
    isolate: usize,
    burst: u64,
    cost: u64,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let gap = prop_oneof![3 => 0u64..200, 2 => 200u64..3_000, 1 => 3_000u64..70_000];
    let step = (gap, 0usize..8, 1u64..9, prop_oneof![4 => Just(1u64), 1 => 1u64..4]);
    prop::collection::vec(step.prop_map(|(gap_ms, isolate, burst, cost)| Step { gap_ms, isolate, burst, cost }), 1..60)
}

/// What was admitted, and whether the policy's formulas, without any bound on a count, admit one more.
struct Truth(Vec<(UnixMillis, u64)>);

impl Truth {
    fn admits(&self, policy: &Policy, now: UnixMillis, cost: u64) -> bool {
        policy.quotas().iter().all(|quota| {
            use tidegate_core::Rule;
            let limit = quota.rule().limit();
            match quota.rule() {
                Rule::FixedWindow(rule) => self.in_window(now, rule.window().get(), 0) + cost <= limit,
                Rule::SlidingWindow(rule) => {
                    let window = rule.window().get();
                    let left = window - now.get() % window;
                    let counted = self.in_window(now, window, 1) * left + self.in_window(now, window, 0) * window;
                    counted + cost * window <= limit * window
                }
                Rule::TokenBucket(rule) => {
                    let (mut level, mut at) = (0u64, START);
                    for (then, charged) in self.0.iter().copied().chain([(now, cost)]) {
                        level = level.saturating_sub(then.since(at).get() * rule.refill()) + charged * rule.per().get();
                        at = then;
                    }
                    level <= limit * rule.per().get()
                }
                _ => unreachable!("no other algorithm is drawn"),
            }
        })
    }

    fn in_window(&self, now: UnixMillis, window: u64, back: u64) -> u64 {
        let wanted = (now.get() / window).checked_sub(back);
        self.0.iter().filter(|(at, _)| Some(at.get() / window) == wanted).map(|(_, cost)| cost).sum()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(400), ..ProptestConfig::default() })]

    /// Each isolate's admitted requests are ones that the reference admits in a row; so all together are at most as many
    /// times the algorithm's maximum as there are isolates, in every interval.
    #[test]
    fn no_isolate_admits_more_than_the_limit(
        policy in policies(), faults in faults(), steps in steps(), isolates in 1usize..6, locations in 1usize..4,
    ) {
        let mut edge = Edge::new(isolates, locations, faults);
        let key = Key::new("ip:192.0.2.1");
        let mut references = vec![policy.initial_state(); isolates];
        let mut admitted = Truth(Vec::new());
        for step in steps {
            edge.pass(step.gap_ms);
            let place = step.isolate % isolates;
            for _ in 0..step.burst {
                let now = edge.now();
                if edge.request(place, &policy, &key, step.cost) {
                    prop_assert!(policy.decide(&mut references[place], now, step.cost).is_allowed());
                    admitted.0.push((now, step.cost));
                }
            }
            for quota in policy.quotas() {
                let mut units = 0;
                for &(at, cost) in admitted.0.iter().rev() {
                    units += cost;
                    let limit = quota.rule().maximum(at, edge.now());
                    let load = Load { limit, in_flight: step.burst, locations: isolates as u64 };
                    prop_assert!(units <= (DRIFT.ceiling)(load), "{units} from {at} on, of {load:?}");
                }
            }
        }
        let least = edge.kv.world().least_spacing;
        prop_assert!(least.is_none_or(|least| least >= Millis::from_secs(1)), "a key was written again after {least:?}");
    }

    /// What the count of everything that was admitted, anywhere, admits, is admitted: nobody is denied early.
    #[test]
    fn nobody_is_denied_what_the_true_count_admits(
        policy in policies(), faults in faults(), steps in steps(), isolates in 1usize..6, locations in 1usize..4,
    ) {
        let mut edge = Edge::new(isolates, locations, faults);
        let key = Key::new("ip:192.0.2.1");
        let mut truth = Truth(Vec::new());
        for step in steps {
            edge.pass(step.gap_ms);
            for _ in 0..step.burst {
                let now = edge.now();
                let admits = truth.admits(&policy, now, step.cost);
                let allowed = edge.request(step.isolate % isolates, &policy, &key, step.cost);
                prop_assert!(allowed || !admits, "denied early at {now}");
                if allowed {
                    truth.0.push((now, step.cost));
                }
            }
        }
    }

    /// One isolate is the reference: the same decisions, to the field.
    #[test]
    fn a_lone_isolate_decides_as_the_reference(policy in policies(), faults in faults(), steps in steps()) {
        let mut edge = Edge::new(1, 1, faults);
        let key = Key::new("ip:192.0.2.1");
        let mut state = policy.initial_state();
        for step in steps {
            edge.pass(step.gap_ms);
            for _ in 0..step.burst {
                let now = edge.now();
                let decision = edge.check(0, &policy, &key, step.cost);
                let expected = policy.decide(&mut state, now, step.cost).with_origin(decision.origin());
                prop_assert_eq!(decision, expected);
                edge.flush(0);
            }
        }
    }
}
