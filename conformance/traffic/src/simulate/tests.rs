//! The simulation held to published figures, and to itself.

use std::sync::Arc;

use tidegate_conformance::operation::Operation;
use tidegate_core::{Millis, Policy, Quota, Rule};

use super::{Assumed, Faults, Flood, Outcome, Places, Setup, Traffic, designs, simulate};

fn setup(quota: Quota, places: &[&str], traffic: Traffic) -> Setup {
    Setup {
        policy: Policy::new("simulated", [quota]).expect("a policy"),
        traffic,
        places: Arc::new(Places::named(places.iter().copied()).expect("known places")),
        isolates: 2,
        isolate_seconds: 3_600,
        assumed: Assumed::default(),
        faults: Faults::default(),
        seed: 1,
    }
}

fn window(limit: u64, seconds: u64) -> Quota {
    Quota::fixed_window(limit, Millis::from_secs(seconds)).expect("a quota")
}

/// One client that sends from all places.
const fn one_client(rate: f64, roaming: usize, seconds: u32) -> Traffic {
    Traffic { clients: 1, rate, skew: 0.0, roaming, seconds, flood: None }
}

fn run(setup: &Setup, name: &str, parameter: &str) -> Outcome {
    let all = designs(1);
    let design = all.iter().find(|design| design.name == name && design.parameter == parameter).expect("a design");
    simulate(setup, design).expect("a run")
}

/// Cloudflare: the limits are "local to the Cloudflare location"
/// (<https://developers.cloudflare.com/workers/runtime-apis/bindings/rate-limit/>). So three locations admit 180 of 60.
#[test]
fn three_locations_of_the_binding_admit_three_times_the_limit() {
    let mut setup = setup(window(60, 60), &["iad", "fra", "sin"], one_client(50.0, 3, 55));
    setup.assumed.binding_sync_us = 0;
    let outcome = run(&setup, "rate-limit-binding", "");
    assert_eq!((outcome.exact, outcome.admitted, outcome.over, outcome.worst), (60, 180, 120, 180));
    assert_eq!((outcome.round_trips, outcome.p99_ms), (0.0, 0.0));
    // Machines of a location that hear of each other late admit some more.
    setup.assumed.binding_sync_us = 2_000_000;
    let outcome = run(&setup, "rate-limit-binding", "");
    assert!((181..=300).contains(&outcome.admitted), "{outcome:?}");
    assert_eq!(run(&setup, "durable-object", "").admitted, 60);
}

/// A location hint or a jurisdiction keeps objects in one place, so clients elsewhere wait for the way there.
#[test]
fn objects_at_a_place_make_clients_elsewhere_wait() {
    let traffic = Traffic { clients: 200, rate: 100.0, skew: 0.0, roaming: 1, seconds: 20, flood: None };
    let mut setup = setup(window(1_000, 60), &["iad", "fra", "sin"], traffic);
    // Each client is at one place, and so is the object that it calls first.
    let near = run(&setup, "durable-object", "");
    assert!(near.p99_ms < 10.0, "{near:?}");
    let [iad, fra, sin] = [0, 1, 2].map(|place| setup.places.rtt_us(place, 1));
    setup.assumed.object_at = Some(1);
    let at_fra = run(&setup, "durable-object", "");
    // A third of the clients are at each place: half of the requests wait for the second longest way, and the slowest for the longest.
    let ms = |us: u64| us as f64 / 1_000.0;
    assert!((ms(iad)..ms(iad) * 1.2 + 5.0).contains(&at_fra.p50_ms), "{at_fra:?}");
    assert!((ms(sin)..ms(sin) * 1.2 + 5.0).contains(&at_fra.p99_ms), "{at_fra:?}");
    assert!(fra < 2_000 && at_fra.admitted == near.admitted, "{at_fra:?}");
    // Servers are at the first place, whatever is said of objects.
    assert_eq!(run(&setup, "redis", "").p99_ms, {
        setup.assumed.object_at = None;
        run(&setup, "redis", "").p99_ms
    });
}

/// A key of Workers KV takes one write a second (<https://developers.cloudflare.com/kv/platform/limits/>), so a counter reaches 60 in a
/// minute at most, and a limit of 100 denies nobody.
#[test]
fn a_counter_in_workers_kv_cannot_count_to_a_hundred_in_a_minute() {
    let mut setup = setup(window(100, 60), &["iad", "fra"], one_client(20.0, 2, 60));
    let outcome = run(&setup, "kv-counter", "");
    assert_eq!((outcome.admitted, outcome.exact), (outcome.offered, 100));
    // A limit of 30 is reached at last, at one place, long after 30 requests.
    setup.policy = Policy::new("simulated", [window(30, 60)]).expect("a policy");
    setup.places = Arc::new(Places::named(["iad"]).expect("a place"));
    setup.traffic.roaming = 1;
    let denies = run(&setup, "kv-counter", "");
    assert!((300..900).contains(&denies.admitted), "{denies:?}");
}

/// Counts that are reported every 100 ms exceed a limit by some percent (Databricks: about 5 %). A lease never does.
#[test]
fn reports_every_100_ms_exceed_the_limit_by_some_percent_and_leases_do_not() {
    let traffic = Traffic { clients: 5, rate: 1_000.0, skew: 0.0, roaming: 1, seconds: 15, flood: None };
    let setup = setup(window(100, 1), &["iad"], traffic);
    let reported = run(&setup, "synchronized", "every 100 ms");
    assert!((6.0..14.0).contains(&reported.overshoot_percent()), "{}", reported.overshoot_percent());
    assert!(reported.overshoot_percent() < run(&setup, "synchronized", "every 1000 ms").overshoot_percent());
    for design in ["durable-object-leased", "redis-leased"] {
        let leased = run(&setup, design, "slice 10");
        assert_eq!(leased.over, 0);
        assert!(leased.round_trips < 1.0, "{design}: {}", leased.round_trips);
    }
}

/// A script call that lends costs no more commands than one that decides, and there are far fewer of them.
#[test]
fn loans_of_upstash_cost_a_fraction_of_its_decisions() {
    let setup = setup(window(1_000, 60), &["iad", "fra"], one_client(10.0, 2, 120));
    let (each, leased) = (run(&setup, "upstash", ""), run(&setup, "upstash-leased", "slice 50"));
    assert_eq!((leased.over, leased.under, leased.exact), (0, 0, each.exact));
    assert_eq!((each.round_trips, each.usd_per_million), (1.0, Some(8.0)));
    let calls = leased.operations[&Operation::ScriptCall];
    assert!(calls < 0.2 && leased.operations[&Operation::RedisCommand] <= 4.0 * calls + 0.001, "{leased:?}");
}

/// Each client is new to each isolate once, and until an isolate knows it, nothing but the store can decide.
#[test]
fn the_first_requests_in_an_isolate_are_those_that_wait() {
    let traffic = Traffic { clients: 20, rate: 500.0, skew: 0.0, roaming: 1, seconds: 20, flood: None };
    let mut setup = setup(window(1_000_000, 60), &["iad", "fra"], traffic);
    let leased = run(&setup, "redis-leased", "slice 50");
    // Two isolates at the one place of each client.
    let all = leased.offered as f64;
    assert!((leased.first.percent - 100.0 * 40.0 / all).abs() < 0.001, "{leased:?}");
    assert!(leased.p50_ms == 0.0 && leased.first.p50_ms > 1.0 && leased.first.p99_ms > 85.0, "{leased:?}");
    assert!(leased.p99_ms <= leased.p999_ms && leased.p999_ms > 85.0, "{leased:?}");
    // Where each request asks the store, new ones wait as long as the others.
    let asks = run(&setup, "redis", "");
    assert!(asks.first.percent == leased.first.percent && (asks.first.p99_ms - asks.p99_ms).abs() < 5.0, "{asks:?}");
    // An isolate that takes the place of another knows nobody.
    setup.isolate_seconds = 4;
    let renewed = run(&setup, "redis-leased", "slice 50");
    assert!(renewed.first.percent > 3.0 * leased.first.percent, "{renewed:?}");
}

/// A grace admits the first units of a key at once, and each isolate admits at most so many more than the limit.
#[test]
fn a_grace_spares_new_clients_the_wait_and_exceeds_a_limit_by_its_bound_at_most() {
    let traffic = Traffic { clients: 2_000, rate: 500.0, skew: 0.8, roaming: 1, seconds: 60, flood: None };
    let mut setup = setup(window(100, 60), &["iad", "fra"], traffic);
    let (leased, graced) = (run(&setup, "redis-leased", "slice 50"), run(&setup, "redis-leased-grace", "of 1"));
    assert!(leased.first.p50_ms > 1.0 && graced.first.p99_ms == 0.0 && graced.p50_ms == 0.0, "{graced:?}");
    // What several keys have to tell travels together, and each has its own command.
    assert!(graced.trips < 0.8 * leased.trips && graced.billed.commands > 8.0 * graced.trips, "{graced:?}");
    // Over REST, the script is one command for all.
    let rest = run(&setup, "upstash-leased-grace", "of 1");
    let saved = graced.billed.commands - rest.billed.commands;
    assert!(
        rest.trips == graced.trips && (saved - (graced.billed.commands / 4.0 - graced.trips)).abs() < 0.1,
        "{rest:?}"
    );
    let objects = run(&setup, "durable-object-leased-grace", "of 1");
    assert_eq!((objects.first.p99_ms, objects.billed.requests), (0.0, objects.trips));
    // What keys of one object have to tell is one request.
    let shard = run(&setup, "durable-object-leased-grace", "shards 1");
    assert!(shard.billed.requests == shard.trips && shard.trips < 0.5 * objects.trips, "{shard:?}");
    // Each of four isolates may meet a client before it knows that the client is at its limit, and then admits one more.
    setup.traffic = one_client(100.0, 2, 60);
    setup.policy = Policy::new("simulated", [window(10, 60)]).expect("a policy");
    for (design, lends) in
        [("redis-leased-grace", "redis-leased"), ("durable-object-leased-grace", "durable-object-leased")]
    {
        let (with, without) = (run(&setup, design, "of 1"), run(&setup, lends, "slice 50"));
        assert_eq!(setup.borrowers(), 4);
        assert!(without.over == 0 && (10..=10 + setup.borrowers()).contains(&with.worst), "{with:?}");
    }
    // One that lives for a quarter of the window has five, at most, within it.
    assert_eq!(Setup { isolate_seconds: 15, ..setup.clone() }.borrowers(), 20);
    // A store that does not answer ends the grace.
    setup.faults.outages = std::iter::once(0..70).collect();
    let failed = run(&setup, "redis-leased-grace", "of 1");
    assert!(failed.admitted <= 4, "{failed:?}");
}

/// A trip is what the network carries. Its commands are billed whether they travel together or not.
#[test]
fn reports_of_several_keys_at_once_are_one_trip_and_as_many_commands() {
    let traffic = Traffic { clients: 50, rate: 2_000.0, skew: 0.0, roaming: 1, seconds: 10, flood: None };
    let mut setup = setup(window(1_000_000, 60), &["iad"], traffic);
    let together = run(&setup, "synchronized", "every 1000 ms");
    setup.assumed.pipelines = false;
    let apart = run(&setup, "synchronized", "every 1000 ms");
    assert_eq!((together.billed, together.p99_ms), (apart.billed, apart.p99_ms));
    assert_eq!((together.trips, apart.trips), (together.round_trips, apart.round_trips));
    assert!((apart.trips * 2.0 - apart.billed.commands).abs() < 0.002, "{apart:?}");
    assert!(together.trips < 0.7 * apart.trips, "{together:?} {apart:?}");
    // Requests of one key at once are calls of their own.
    setup.assumed.pipelines = true;
    setup.traffic =
        Traffic { clients: 1, rate: 1.0, flood: Some(Flood { requests: 100, every_ms: 10_000 }), ..traffic };
    let flooded = run(&setup, "redis-leased", "slice 1");
    assert!(flooded.trips > 0.8, "{flooded:?}");
}

/// A row costs one to write, and when nobody needs it any more, one for the alarm and one to remove it.
#[test]
fn rows_of_objects_are_billed_when_they_are_written_and_when_they_are_removed() {
    let traffic = Traffic { clients: 1_000, rate: 100.0, skew: 0.0, roaming: 1, seconds: 10, flood: None };
    let objects = run(&setup(window(1_000_000, 60), &["iad"], traffic), "durable-object", "");
    // Each object is new once: it reads a row that is not there, and what it has written is removed in the end.
    let keys = objects.operations[&Operation::AlarmSet];
    assert!((0.5..0.8).contains(&keys), "{objects:?}");
    let close = |a: f64, b: f64| (a - b).abs() < 0.002;
    assert!(close(objects.operations[&Operation::RowWritten], 1.0 + keys), "{objects:?}");
    assert!(close(objects.billed.rows_written, 1.0 + 2.0 * keys), "{objects:?}");
    assert!(close(objects.billed.rows_read, 2.0 * keys) && objects.billed.requests == 1.0, "{objects:?}");
    assert_eq!((objects.billed.commands, objects.trips), (0.0, 1.0));
}

#[test]
fn a_client_that_sends_ten_times_its_limit_at_once_is_held_to_it_by_exact_designs() {
    let flood = Some(Flood { requests: 500, every_ms: 20_000 });
    let traffic = Traffic { clients: 5, rate: 20.0, skew: 0.0, roaming: 3, seconds: 40, flood };
    let setup = setup(window(50, 60), &["iad", "fra", "sin"], traffic);
    for (design, parameter) in [("durable-object", ""), ("redis", ""), ("redis-leased", "slice 10")] {
        let outcome = run(&setup, design, parameter);
        assert_eq!((outcome.over, outcome.worst), (0, 50), "{outcome:?}");
    }
    // Each of six isolates counts alone.
    assert_eq!(run(&setup, "memory", "").worst, 300);
}

#[test]
fn exact_designs_are_exact_and_bounds_hold() {
    let second = Millis::from_secs(1);
    let quotas = [
        window(50, 10),
        Quota::token_bucket(20, 5, second).expect("a quota"),
        Quota::sliding_window(50, Millis::from_secs(10)).expect("a quota"),
        Quota::sliding_log(50, Millis::from_secs(10)).expect("a quota"),
    ];
    for quota in quotas {
        let traffic = Traffic { clients: 10, rate: 200.0, skew: 1.0, roaming: 3, seconds: 25, flood: None };
        let mut setup = setup(quota, &["iad", "fra", "sin"], traffic);
        // Isolates end while they hold leases.
        setup.isolate_seconds = 5;
        for design in designs(0).iter().filter(|design| design.takes(&setup.policy).is_ok()) {
            let outcome = simulate(&setup, design).expect("a run");
            if design.is_strict(3 * setup.isolates) {
                assert_eq!(outcome.over, 0, "{outcome:?}");
            }
            if design.name == "per-location" {
                // A bucket admits its capacity of 20, and what flows back in the time that it takes to fill.
                let at_each = match setup.policy.quotas()[0].rule() {
                    Rule::TokenBucket(_) => 40,
                    Rule::SlidingWindow(_) => 99,
                    _ => 50,
                };
                assert!(outcome.worst <= 3 * at_each && outcome.over > 0, "{outcome:?}");
            }
            assert!(outcome.admitted <= outcome.offered && outcome.exact <= outcome.offered);
        }
    }
}

#[test]
fn what_never_exceeds_a_limit_is_as_the_adapters_declare() {
    let mut strict: Vec<&str> =
        designs(1).iter().filter(|design| design.is_strict(2)).map(|design| design.name).collect();
    strict.dedup();
    let objects = ["durable-object", "durable-object-deny-cache"];
    let servers = ["redis", "redis-deny-cache", "upstash", "upstash-deny-cache"];
    let leased = ["durable-object-leased", "redis-leased", "upstash-leased"];
    assert_eq!(strict, [&objects[..], &servers, &leased].concat());
    // The memory of one process is all there is.
    assert!(designs(0).iter().any(|design| design.name == "memory" && design.is_strict(1)));
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_one_does_not() {
    let mut setup = setup(
        window(50, 10),
        &["iad", "fra"],
        Traffic { clients: 9, rate: 300.0, skew: 1.0, roaming: 2, seconds: 30, flood: None },
    );
    let all =
        |setup: &Setup| designs(1).iter().map(|design| simulate(setup, design).expect("a run")).collect::<Vec<_>>();
    let first = all(&setup);
    assert_eq!(all(&setup), first);
    setup.seed = 2;
    assert!(all(&setup).iter().zip(first).all(|(other, first)| *other != first));
}

/// A compare-and-swap that always wins loses counts.
#[test]
fn a_store_that_does_not_compare_admits_more() {
    let mut setup = setup(window(100, 60), &["iad"], one_client(3_000.0, 1, 5));
    setup.isolates = 8;
    let compares = run(&setup, "fastly-kv", "");
    setup.assumed.swaps_compare = false;
    let overwrites = run(&setup, "fastly-kv", "");
    assert_eq!((compares.over, compares.admitted), (0, 100), "{compares:?}");
    assert!(overwrites.over > 20, "{overwrites:?}");
}

#[test]
fn replicas_that_hear_of_each_other_late_admit_the_limit_at_each_place() {
    let mut setup = setup(window(100, 60), &["iad", "fra", "sin"], one_client(60.0, 3, 55));
    for (design, slow, quick) in [("fastly-kv", 300..=400, 100..=110), ("akamai-kv", 300..=700, 100..=150)] {
        setup.assumed.fastly_replication_us = 100_000_000;
        setup.assumed.akamai_replication_us = 100_000_000;
        let admitted = run(&setup, design, "").admitted;
        assert!(slow.contains(&admitted), "{design}: {admitted}");
        setup.assumed.fastly_replication_us = 1_000;
        setup.assumed.akamai_replication_us = 1_000;
        let admitted = run(&setup, design, "").admitted;
        assert!(quick.contains(&admitted), "{design}: {admitted}");
    }
}

#[test]
fn an_outage_is_an_error_or_a_share_of_the_limit() {
    let mut setup = setup(window(100, 10), &["iad", "fra"], one_client(100.0, 2, 40));
    setup.faults.outages = std::iter::once(10..20).collect();
    let failed = run(&setup, "upstash", "");
    // Three windows of four, and what was decided before the outage reached the window's end.
    assert!(failed.over == 0 && (300..310).contains(&failed.admitted), "{failed:?}");
    let errors: u64 = failed.errors.values().sum();
    assert!((900..1_100).contains(&errors), "{failed:?}");
    // Two isolates at each of two places admit a tenth each, and wait only until their breakers open. Some ask again only after the
    // outage, so the window after it has their share, too. The documented bound is 100 + 4 x 10.
    let replaced = run(&setup, "upstash-fallback", "");
    assert!(replaced.errors.is_empty() && replaced.worst <= 140, "{replaced:?}");
    assert!((340..=390).contains(&replaced.admitted), "{replaced:?}");
    assert!(replaced.round_trips < 0.8, "{replaced:?}");
}

/// A lost answer may have been a charge: then fewer are admitted, and never more.
#[test]
fn lost_messages_and_wrong_clocks_never_make_exact_designs_exceed_the_limit() {
    let mut setup = setup(window(50, 10), &["iad", "fra", "sin"], one_client(50.0, 3, 60));
    setup.faults = Faults { loss: 0.05, clock_skew_ms: 3_000, outages: Vec::new() };
    let leased = ["durable-object-leased", "redis-leased", "upstash-leased"];
    for design in ["durable-object", "durable-object-deny-cache", "redis", "upstash"].into_iter().chain(leased) {
        let parameter = if leased.contains(&design) { "slice 10" } else { "" };
        let outcome = run(&setup, design, parameter);
        assert!(outcome.over == 0 && outcome.under > 0 && !outcome.errors.is_empty(), "{outcome:?}");
    }
    // Clocks that are off by as long as a message takes are no excess either.
    setup.places = Arc::new(Places::named(["iad"]).expect("a place"));
    setup.traffic = Traffic { roaming: 1, rate: 20_000.0, seconds: 5, ..setup.traffic };
    setup.policy = Policy::new("simulated", [window(100, 1)]).expect("a policy");
    setup.faults = Faults { clock_skew_ms: 1, ..Faults::default() };
    assert_eq!(run(&setup, "redis", "").over, 0);
}

#[test]
fn wrong_clocks_change_what_is_counted_by_them() {
    let mut setup = setup(window(50, 10), &["iad", "fra", "sin"], one_client(50.0, 3, 60));
    let right = run(&setup, "akamai-kv", "");
    setup.faults.clock_skew_ms = 3_000;
    let wrong = run(&setup, "akamai-kv", "");
    assert!(wrong.over > right.over, "{} {}", wrong.over, right.over);
}

/// A world without the effects that make stores inexact must show it.
#[test]
fn a_world_without_delays_makes_inexact_designs_better() {
    let mut setup = setup(window(100, 60), &["iad", "fra", "sin"], one_client(20.0, 3, 120));
    let (counter, isolates) = (run(&setup, "kv-counter", ""), run(&setup, "workers-kv", "refresh 1 s"));
    setup.assumed = Assumed { kv_replication_us: 0, kv_cache_us: 0, kv_spacing_us: 0, kv_hot_us: 0, ..setup.assumed };
    setup.places = Arc::new(Places::from_csv(",a,b,c\na,0,0,0\nb,0,0,0\nc,0,0,0\n").expect("a matrix"));
    let (ideal_counter, ideal_isolates) = (run(&setup, "kv-counter", ""), run(&setup, "workers-kv", "refresh 1 s"));
    assert!(counter.over > 10 * ideal_counter.over.max(1), "{} {}", counter.over, ideal_counter.over);
    assert!(isolates.over > ideal_isolates.over, "{} {}", isolates.over, ideal_isolates.over);

    // A slow object: the requests of one key wait for each other.
    let mut busy = setup.clone();
    busy.assumed.object_us = 30_000;
    assert!(run(&busy, "durable-object", "").p99_ms > 5.0 * run(&setup, "durable-object", "").p99_ms);
    // So slow that its queue overflows, which is an error and no admission.
    busy.assumed.object_us = 2_000_000;
    assert!(run(&busy, "durable-object", "").errors.contains_key("contended"));
}
