//! The cost of decisions, failures of the store, and what is unsupported.

use crate::support::{Edge, Faults};
use pollster::block_on;
use tidegate_cloudflare::kv::Config;
use tidegate_core::{Check, ErrorKind, Key, LimiterExt, Millis, Origin, Policy, Quota, Refund, UnixMillis};
use tidegate_testing::{key, per_minute};

#[test]
fn operations_follow_the_configuration() {
    let second = Millis::from_secs(1);
    let frugal = Config::default().refresh(Millis::from_secs(30)).write_spacing(Millis::from_secs(10));
    for (config, per_second) in
        [(Config::default(), 10), (Config::default(), 100), (Config::default(), 1), (frugal, 10)]
    {
        let mut edge = Edge::with_config(1, 1, Faults::DOCUMENTED, config);
        let (policy, decisions) = (per_minute(1_000_000), 60 * per_second);
        for _ in 0..decisions {
            assert!(edge.request(0, &policy, &key(), 1));
            edge.pass(second.get() / per_second);
        }
        let most = config.operations(per_second);
        let (reads, writes) = edge.operations();
        println!("{per_second}/s: {reads} reads and {writes} writes for {decisions} decisions; {most:?}");
        // The additional write is that of the last second's count, after the last request.
        assert!(reads * 1_000 <= most.reads_per_1000_decisions * decisions);
        assert!((writes - 1) * 1_000 <= most.writes_per_1000_decisions * decisions);
        assert_eq!((edge.isolates[0].stats().reads, edge.isolates[0].stats().writes), (reads, writes));
    }
    let ten = Config::default().operations(10);
    assert!(ten.reads_per_1000_decisions <= 1_000 && ten.writes_per_1000_decisions <= 200);
}

#[test]
fn no_setting_exceeds_what_the_store_accepts() {
    assert_eq!(Config::default().write_spacing(Millis::ZERO), Config::default());
    assert_ne!(Config::default().write_spacing(Millis::from_secs(2)), Config::default());
}

#[test]
fn denials_write_nothing() {
    let mut edge = Edge::new(1, 1, Faults::default());
    let policy = per_minute(1);
    for _ in 0..100 {
        edge.request(0, &policy, &key(), 1);
        edge.pass(100);
    }
    // One request was charged, so one count was written.
    assert_eq!(edge.kv.world().writes, 1);
    assert!(edge.kv.world().reads <= 10);
}

#[test]
fn a_throttled_write_is_counted_and_retried() {
    let day = Quota::fixed_window(1_000_000, Millis::from_secs(86_400)).unwrap();
    let (policy, throttled) = (Policy::new("api", [day]).unwrap(), Faults { throttles: true, ..Faults::default() });
    let mut edge = Edge::new(8, 8, throttled);
    for _ in 0..600 {
        for place in 0..8 {
            assert!(edge.request(place, &policy, &key(), 1));
        }
        edge.pass(100);
    }
    let refused: u64 = edge.isolates.iter().map(|isolate| isolate.stats().writes_throttled).sum();
    let ((_, writes), world) = (edge.operations(), edge.kv.world().throttled);
    println!("8 isolates on one key for 60 s: {writes} writes, {refused} throttled");
    assert!(refused > 0 && refused == world);
    // The isolates leave time for each other. Without pauses there would be eight attempts per second.
    assert!(writes < 8 * 60 * 3 / 4, "{writes}");
    // Rejected writes are retried, so every isolate learns of all 4,800 requests.
    for place in (0..8).cycle().take(80) {
        edge.request(place, &policy, &key(), 0);
        edge.pass(1_000);
    }
    for place in 0..8 {
        assert_eq!(edge.remaining(place, &policy, &key()), Some(1_000_000 - 8 * 600), "isolate {place}");
    }
}

#[test]
fn a_store_that_is_down_causes_no_error_and_does_not_lift_the_limit() {
    let mut edge = Edge::new(1, 1, Faults { reads_fail: 100, writes_fail: 100, ..Faults::default() });
    let policy = per_minute(5);
    for round in 0..20 {
        let decision = edge.check(0, &policy, &key(), 1);
        assert_eq!((decision.is_allowed(), decision.origin()), (round < 5, Origin::Fallback));
        edge.flush(0);
        edge.pass(500);
    }
    let stats = edge.isolates[0].stats();
    assert!(stats.reads_failed > 0 && stats.writes_failed > 0 && stats.writes_throttled == 0);
    // The pauses between attempts grow.
    assert!(stats.writes <= 6, "{stats:?}");
    edge.kv.world().faults = Faults::default();
    edge.pass(1_000);
    assert_eq!(edge.check(0, &policy, &key(), 1).origin(), Origin::Store);
}

#[test]
fn a_foreign_value_is_counted_ignored_and_overwritten() {
    let mut edge = Edge::new(2, 1, Faults { reads_garbled: 100, ..Faults::default() });
    let policy = per_minute(5);
    assert_eq!((0..9).filter(|_| edge.request(0, &policy, &key(), 1)).count(), 5);
    assert_eq!(edge.isolates[0].stats().corrupt, 1);
    edge.kv.world().faults = Faults::default();
    assert_eq!(edge.remaining(1, &policy, &key()), Some(0));
}

#[test]
fn keys_and_times_to_live_stay_within_the_platforms_limits() {
    let mut edge = Edge::new(1, 1, Faults::default());
    let quotas = (1..=8).map(|seconds| Quota::fixed_window(1_000, Millis::from_secs(seconds)).unwrap());
    let policy = Policy::new(&"n".repeat(32), quotas).unwrap();
    let key = Key::new("k".repeat(4_000));
    edge.request(0, &policy, &key, 1);
    assert!(edge.kv.world().longest_key <= 512);
    assert!(edge.kv.world().least_ttl >= Some(Millis::from_secs(60)));
}

#[test]
fn changing_a_limit_keeps_the_used_units() {
    let mut edge = Edge::new(1, 1, Faults::default());
    assert_eq!((0..9).filter(|_| edge.request(0, &per_minute(5), &key(), 1)).count(), 5);
    assert_eq!((0..9).filter(|_| edge.request(0, &per_minute(8), &key(), 1)).count(), 3);
    assert!(!edge.request(0, &per_minute(5), &key(), 1));
}

#[test]
fn a_clock_that_steps_back_admits_no_more() {
    let edge = Edge::new(1, 1, Faults::default());
    let (policy, key) = (per_minute(5), key());
    let ask = |now| block_on(edge.limiter(0).check(Check::new(&policy, &key, now))).unwrap().is_allowed();
    let now = edge.now();
    assert_eq!((0..9).filter(|_| ask(now)).count(), 5);
    let back = UnixMillis::new(now.get() - 3_600_000);
    assert_eq!((0..9).filter(|_| ask(back)).count(), 0);
    assert!(ask(now + Millis::from_secs(60)));
}

#[test]
fn features_that_are_not_declared_are_unsupported() {
    let edge = Edge::new(1, 1, Faults::default());
    let (limiter, key, now) = (edge.limiter(0), key(), edge.now());
    let kind = |policy: &Policy| block_on(limiter.check(Check::new(policy, &key, now))).unwrap_err().kind();
    let minute = Millis::from_secs(60);
    for quota in [Quota::sliding_log(5, minute).unwrap(), Quota::leaky_bucket(5, 1, minute).unwrap()] {
        assert_eq!(kind(&Policy::new("api", [quota]).unwrap()), ErrorKind::Unsupported);
    }
    assert_eq!(kind(&per_minute(5).charge_denied(true)), ErrorKind::Unsupported);
    let policy = per_minute(5);
    let check = Check::new(&policy, &key, now);
    let unsupported = [
        block_on(limiter.check(check.idempotent("a", minute))).map(drop),
        block_on(limiter.refund(Refund::new(&policy, &key, 1, now, now))),
        block_on(limiter.reset(&policy, (&key).into())),
    ];
    for answer in unsupported {
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::Unsupported);
    }
    assert_eq!(block_on(limiter.peek(check)).unwrap().binding().remaining(), Some(5));
}
