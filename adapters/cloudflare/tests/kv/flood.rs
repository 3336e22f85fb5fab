//! Floods of more keys than an isolate holds: the time per request, and which clients are limited.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::support::{Edge, Faults, Truth, faults, policies};
use proptest::prelude::*;
use tidegate_cloudflare::kv::{Config, DRIFT};
use tidegate_core::{Key, Load, Millis, Policy, Quota};
use tidegate_testing::policy;

fn daily(limit: u64) -> Policy {
    policy(Quota::fixed_window(limit, Millis::from_secs(86_400)))
}

/// One of the /64 prefixes of a /48.
fn prefix(site: &str, number: u64) -> Key {
    Key::new(format!("ip:{site}:{number:x}::/64"))
}

fn flooded(keys_max: usize) -> Edge {
    Edge::with_config(1, 1, Faults::default(), Config::default().keys_max(keys_max).unwrap())
}

fn admits(edge: &mut Edge, policy: &Policy, key: &Key) -> bool {
    edge.request(0, policy, key, 1)
}

/// How many of `count` requests of a key are admitted.
fn admitted(edge: &mut Edge, policy: &Policy, key: &Key, count: u64) -> u64 {
    (0..count).map(|_| u64::from(admits(edge, policy, key))).sum()
}

/// The processor time that this thread has used. The wall clock would also measure what else the machine does.
fn processor_time(begun: Instant) -> Duration {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = schedstat.split(' ').next().and_then(|nanos| nanos.parse().ok());
    nanos.map_or_else(|| begun.elapsed(), Duration::from_nanos)
}

#[test]
fn a_request_takes_no_longer_when_the_isolate_is_full() {
    let mut edge = Edge::new(1, 1, Faults::default());
    let (policy, begun, mut means) = (daily(2), Instant::now(), Vec::new());
    for (phase, requests) in [("up to", 20_000u32), ("at", 10_000), ("beyond", 10_000)] {
        let (start, forgotten, mut denied) = (processor_time(begun), edge.isolates[0].stats().keys_forgotten, 0);
        let mut times = Vec::new();
        for number in 0..requests {
            let key = prefix(&format!("2001:db8:{}", phase.len()), u64::from(number));
            let arrived = Instant::now();
            denied += u64::from(!edge.request(0, &policy, &key, 1));
            times.push(arrived.elapsed());
        }
        let mean = (processor_time(begun) - start) / requests;
        times.sort_unstable();
        let (most, worst) = (times[times.len() * 999 / 1_000], times[times.len() - 1]);
        let forgotten = edge.isolates[0].stats().keys_forgotten - forgotten;
        println!(
            "{phase} capacity: mean {mean:?}, 99.9 % within {most:?}, worst {worst:?}; {forgotten} forgotten, {denied} denied"
        );
        means.push(mean);
    }
    assert!(edge.isolates[0].stats().keys <= 20_000);
    // When each request scanned all keys, it took 200 times as long.
    assert!(means[1..].iter().all(|mean| *mean < 10 * means[0]), "{means:?}");
}

#[test]
fn a_client_that_rotates_its_prefixes_gains_nothing_and_locks_out_no_other_client() {
    const LIMIT: u64 = 5;
    let (mut edge, policy) = (flooded(640), daily(LIMIT));
    let mut spent: HashMap<u64, u64> = HashMap::new();
    // These clients have used a part of the limit before the flood. Afterwards they have the rest left.
    let earlier: Vec<_> = (0..50).map(|number| Key::new(format!("ip:198.{number}.100.7"))).collect();
    for key in &earlier {
        assert_eq!(admitted(&mut edge, &policy, key, 3), 3);
    }
    let mut newcomers = 0;
    for round in 0..12_000u64 {
        let number = round % 3_000;
        if admits(&mut edge, &policy, &prefix("2001:db8:1", number)) {
            *spent.entry(number).or_default() += 1;
        }
        // During the flood, new clients arrive from other networks and from the same provider.
        if round % 400 == 0 {
            newcomers += 1;
            for key in [format!("ip:{}.7.0.1", round / 400), format!("ip:2001:db8:{:x}:1::/64", 2 + round / 400)] {
                assert_eq!(admitted(&mut edge, &policy, &Key::new(&key), LIMIT + 1), LIMIT, "{key}, round {round}");
            }
        }
    }
    for key in &earlier {
        assert_eq!(admitted(&mut edge, &policy, key, LIMIT), LIMIT - 3, "{key}");
    }
    let (most, total) = (spent.values().max().unwrap(), spent.values().sum::<u64>());
    let stats = edge.isolates[0].stats();
    println!("a /48 rotates 3,000 prefixes, 640 keys held: {total} admitted of 12,000, {most} of one prefix");
    println!("{newcomers} newcomers each from other networks and the same provider: all admitted in full; {stats:?}");
    assert!(*most <= LIMIT && stats.keys <= 640);
    // By now the client is denied at no cost: the isolate reads, writes and forgets nothing.
    let before = edge.operations();
    for number in 0..1_000 {
        assert!(!admits(&mut edge, &policy, &prefix("2001:db8:1", 10_000 + number)));
    }
    assert_eq!(edge.operations(), before);
    assert_eq!(edge.isolates[0].stats().keys_forgotten, stats.keys_forgotten);
    // The next day the client has its limit again.
    edge.pass(86_400_000);
    assert_eq!(admitted(&mut edge, &policy, &prefix("2001:db8:1", 10_000), LIMIT + 1), LIMIT);
}

#[test]
fn a_client_that_rotates_whole_sites_locks_out_its_own_network_only() {
    const LIMIT: u64 = 5;
    let (mut edge, policy) = (flooded(640), daily(LIMIT));
    for round in 0..20_000u64 {
        let site = format!("2001:db8:{:x}", round % 60_000);
        admits(&mut edge, &policy, &prefix(&site, 1));
    }
    assert!(!admits(&mut edge, &policy, &prefix("2001:db8:ffff", 1)));
    let others = 2_000;
    let locked_out =
        (0..others).filter(|number| !admits(&mut edge, &policy, &prefix(&format!("2a00:{number:x}:1"), 1))).count();
    println!("a /32 rotates 20,000 sites: {locked_out} of {others} newcomers from other networks are locked out");
    // One network in 1,024 shares the group of the flooding network.
    assert!(locked_out <= 10, "{locked_out}");
}

#[test]
fn a_flood_from_everywhere_costs_newcomers_little() {
    const LIMIT: u64 = 100;
    let (mut edge, policy) = (flooded(640), daily(LIMIT));
    // Ten times as many clients as the isolate holds make three requests each.
    for number in 0..6_400u64 {
        let key = Key::new(format!("ip:{:x}:{:x}:1:1::/64", 0x2000 + number / 1_000, number));
        assert_eq!(admitted(&mut edge, &policy, &key, 3), 3, "{key}");
    }
    let left: Vec<_> =
        (0..100).map(|number| edge.remaining(0, &policy, &Key::new(format!("ip:{number}.1.0.1"))).unwrap()).collect();
    let least = left.iter().min().unwrap();
    println!("6,400 clients, 640 held: a newcomer of a limit of {LIMIT} has {least} left at least");
    assert!(*least >= LIMIT - 30, "{left:?}");
}

#[test]
fn keys_whose_windows_have_ended_are_evicted_first() {
    let (mut edge, policy) = (flooded(64), policy(Quota::fixed_window(1, Millis::from_secs(1))));
    for number in 0..2_000u64 {
        assert!(admits(&mut edge, &policy, &Key::new(format!("sub:{number}"))));
        edge.pass(100);
    }
    assert_eq!(edge.isolates[0].stats().keys_forgotten, 0);
}

#[derive(Clone, Debug)]
struct Step {
    gap_ms: u64,
    isolate: usize,
    key: u64,
    burst: u64,
    cost: u64,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let gap = prop_oneof![3 => 0u64..50, 2 => 50u64..1_500, 1 => 1_500u64..30_000];
    let step = (gap, 0usize..3, 0u64..14, 1u64..5, prop_oneof![4 => Just(1u64), 1 => 1u64..4]);
    let step = step.prop_map(|(gap_ms, isolate, key, burst, cost)| Step { gap_ms, isolate, key, burst, cost });
    prop::collection::vec(step, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(400), ..ProptestConfig::default() })]

    /// However few keys an isolate holds, it admits no request that the reference denies. It denies a key only if the
    /// keys of its network together have used the limit.
    #[test]
    fn each_key_stays_within_the_limit_and_only_its_own_network_denies_it(
        policy in policies(), faults in faults(), steps in steps(), isolates in 1usize..4, keys_max in 1usize..5,
    ) {
        let mut edge = Edge::with_config(isolates, isolates, faults, Config::default().keys_max(keys_max).unwrap());
        let mut references: HashMap<_, _> = HashMap::new();
        let mut of_key: HashMap<u64, Vec<_>> = HashMap::new();
        let mut of_network = Truth::default();
        for step in steps {
            edge.pass(step.gap_ms);
            let (place, now) = (step.isolate % isolates, edge.now());
            let key = prefix(&format!("2001:db8:{}", step.key % 3), step.key);
            for _ in 0..step.burst {
                let admits = of_network.admits(&policy, now, step.cost);
                let allowed = edge.request(place, &policy, &key, step.cost);
                prop_assert!(allowed || !admits, "denied early at {now}");
                if allowed {
                    let reference = references.entry((place, step.key)).or_insert_with(|| policy.initial_state());
                    prop_assert!(policy.decide(reference, now, step.cost).is_allowed());
                    of_network.charge(now, step.cost);
                    of_key.entry(step.key).or_default().push((now, step.cost));
                }
            }
            for quota in policy.quotas() {
                for charges in of_key.values() {
                    let mut units = 0;
                    for &(at, cost) in charges.iter().rev() {
                        units += cost;
                        let limit = quota.rule().maximum(at, now);
                        let load = Load { limit, quota: limit, in_flight: 1, locations: isolates as u64 };
                        prop_assert!(units <= DRIFT.ceiling.of(load), "{units} from {at} on, of {load:?}");
                    }
                }
            }
        }
        for isolate in &edge.isolates {
            prop_assert!(isolate.stats().keys <= keys_max as u64);
        }
    }
}
