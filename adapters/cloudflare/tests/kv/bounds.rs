//! The ceiling and the floor under random traffic and random failures of the store.

use crate::support::{Edge, Faults, Truth, faults, policies};
use proptest::prelude::*;
use tidegate_cloudflare::kv::DRIFT;
use tidegate_core::{Load, Millis, Policy, Quota};
use tidegate_testing::{in_every_order, key};

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

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(400), ..ProptestConfig::default() })]

    /// The reference implementation admits every request that an isolate admits. So all isolates together admit at most
    /// `limit x isolates` in every interval.
    #[test]
    fn no_isolate_admits_more_than_the_limit(
        policy in policies(), faults in faults(), steps in steps(), isolates in 1usize..6, locations in 1usize..4,
    ) {
        let mut edge = Edge::new(isolates, locations, faults);
        let key = key();
        let mut references = vec![policy.initial_state(); isolates];
        let mut admitted = Vec::new();
        for step in steps {
            edge.pass(step.gap_ms);
            let place = step.isolate % isolates;
            for _ in 0..step.burst {
                let now = edge.now();
                if edge.request(place, &policy, &key, step.cost) {
                    prop_assert!(policy.decide(&mut references[place], now, step.cost).is_allowed());
                    admitted.push((now, step.cost));
                }
            }
            for quota in policy.quotas() {
                let mut units = 0;
                for &(at, cost) in admitted.iter().rev() {
                    units += cost;
                    let limit = quota.rule().maximum(at, edge.now());
                    let load = Load { limit, quota: limit, in_flight: step.burst, locations: isolates as u64 };
                    prop_assert!(units <= DRIFT.ceiling.of(load), "{units} from {at} on, of {load:?}");
                }
            }
        }
        let least = edge.kv.world().least_spacing;
        prop_assert!(least.is_none_or(|least| least >= Millis::from_secs(1)), "a key was written again after {least:?}");
    }

    /// A request is admitted if the count of everything that all isolates have admitted still admits it.
    #[test]
    fn no_request_is_denied_that_the_true_count_admits(
        policy in policies(), faults in faults(), steps in steps(), isolates in 1usize..6, locations in 1usize..4,
    ) {
        let mut edge = Edge::new(isolates, locations, faults);
        let key = key();
        let mut truth = Truth::default();
        for step in steps {
            edge.pass(step.gap_ms);
            for _ in 0..step.burst {
                let now = edge.now();
                let admits = truth.admits(&policy, now, step.cost);
                let allowed = edge.request(step.isolate % isolates, &policy, &key, step.cost);
                prop_assert!(allowed || !admits, "denied early at {now}");
                if allowed {
                    truth.charge(now, step.cost);
                }
            }
        }
    }

    /// A single isolate returns exactly the decisions of the reference implementation.
    #[test]
    fn a_single_isolate_decides_as_the_reference_does(policy in policies(), faults in faults(), steps in steps()) {
        let mut edge = Edge::new(1, 1, faults);
        let key = key();
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

/// What happens in a story that is checked exhaustively.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A request at an isolate.
    Ask(usize),
    /// Time passes, and writes that are due happen.
    Pass(u64),
}

/// Two isolates, and all stories of six events: requests at either, and waits around the times at which isolates write,
/// namespaces throttle, and windows end.
#[test]
fn in_every_order_of_events_two_isolates_stay_within_their_bounds() {
    const EVENTS: [Event; 5] = [Event::Ask(0), Event::Ask(1), Event::Pass(400), Event::Pass(1_100), Event::Pass(3_000)];
    let seen_late = Faults { replication_ms: 700, cache_ms: 900, throttles: true, ..Faults::default() };
    let window = || Quota::fixed_window(2, Millis::from_secs(3)).unwrap();
    let bucket = || Quota::token_bucket(2, 1, Millis::from_secs(1)).unwrap();
    let key = key();
    let at_once = Faults::default();
    for (quota, faults) in [(window(), at_once), (window(), seen_late), (bucket(), at_once), (bucket(), seen_late)] {
        let policy = Policy::new("p", [quota]).unwrap();
        let stories = in_every_order(|choose| {
            let mut edge = Edge::new(2, 2, faults);
            let mut references = [policy.initial_state(), policy.initial_state()];
            let (mut truth, mut story) = (Truth::default(), Vec::new());
            for _ in 0..6 {
                let event = EVENTS[choose(EVENTS.len())];
                story.push(event);
                let place = match event {
                    Event::Pass(ms) => {
                        edge.pass(ms);
                        continue;
                    }
                    Event::Ask(place) => place,
                };
                let (now, due) = (edge.now(), truth.admits(&policy, edge.now(), 1));
                let allowed = edge.request(place, &policy, &key, 1);
                assert!(allowed || !due, "denied too early: {story:?}, {faults:?}");
                if allowed {
                    truth.charge(now, 1);
                    let within = policy.decide(&mut references[place], now, 1).is_allowed();
                    assert!(within, "an isolate admitted more than the limit: {story:?}, {faults:?}");
                }
            }
        });
        assert_eq!(stories, 5_u64.pow(6));
    }
}
