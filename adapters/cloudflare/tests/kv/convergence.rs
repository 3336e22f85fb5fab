//! If KV works, isolates learn each other's counts.

use crate::support::{Edge, Faults};
use pollster::block_on;
use tidegate_cloudflare::kv::DRIFT;
use tidegate_core::store::BestEffortLimiter;
use tidegate_core::{Check, LimiterExt, Load, Millis, Policy, Quota};
use tidegate_testing::{key, per_minute, policy, together};

/// How many requests are admitted if each isolate gets one every `gap_ms`.
fn admitted(edge: &mut Edge, policy: &Policy, seconds: u64, gap_ms: u64) -> u64 {
    let isolates = edge.isolates.len();
    let mut admitted = 0;
    for _ in 0..seconds * 1_000 / gap_ms {
        for place in 0..isolates {
            admitted += u64::from(edge.request(place, policy, &key(), 1));
        }
        edge.pass(gap_ms);
    }
    admitted
}

#[test]
fn isolates_that_see_each_others_writes_stay_near_the_limit() {
    let policy = per_minute(300);
    // First all isolates together are offered 600 requests, twice the limit. Then each is offered twice the limit.
    for (isolates, gap_ms, most) in [(2, 200, 330), (4, 400, 360), (8, 800, 420), (2, 100, 400), (8, 100, 2_400)] {
        let mut edge = Edge::new(isolates, isolates, Faults { throttles: true, ..Faults::default() });
        let admitted = admitted(&mut edge, &policy, 60, gap_ms);
        let ceiling = DRIFT.ceiling.of(Load { limit: 300, quota: 300, in_flight: 1, locations: isolates as u64 });
        println!("fixed_window 300/60 s, {isolates} isolates, each every {gap_ms} ms: {admitted}, ceiling {ceiling}");
        assert!((300..=most).contains(&admitted), "{isolates} isolates: {admitted}");
    }
}

#[test]
fn a_sliding_window_admits_fewer_in_its_second_window() {
    let policy = policy(Quota::sliding_window(100, Millis::from_secs(60)));
    let mut edge = Edge::new(4, 4, Faults { throttles: true, ..Faults::default() });
    let first = admitted(&mut edge, &policy, 60, 500);
    let second = admitted(&mut edge, &policy, 60, 500);
    println!("sliding_window 100/60 s, 4 isolates at 2/s: {first}, then {second}");
    assert!((100..150).contains(&first) && (50..=125).contains(&second), "{first}, {second}");
}

#[test]
fn a_bucket_of_many_isolates_refills_as_one() {
    let policy = policy(Quota::token_bucket(40, 5, Millis::from_secs(1)));
    let exact = 40 + 5 * 120;
    let mut alone = Edge::new(4, 4, Faults { reads_fail: 100, ..Faults::default() });
    let mut edge = Edge::new(4, 4, Faults { throttles: true, ..Faults::default() });
    let (apart, merged) = (admitted(&mut alone, &policy, 120, 100), admitted(&mut edge, &policy, 120, 100));
    println!("token_bucket 40 + 5/s for 120 s, 4 isolates at 10/s: {merged}; exact {exact}, KV down {apart}");
    assert!((exact..exact * 5 / 4).contains(&merged), "{merged}");
    assert!((4 * exact - 40..=4 * exact).contains(&apart), "{apart}");
}

#[test]
fn isolates_on_kv_as_documented_stay_bounded() {
    for (limit, minutes, cache_s, most) in
        [(300, 5, 30, 500), (300, 5, 60, 600), (3_000, 60, 30, 3_600), (3_000, 60, 60, 3_600)]
    {
        let policy = policy(Quota::sliding_window(limit, Millis::from_secs(60 * minutes)));
        let mut edge = Edge::new(4, 4, Faults { cache_ms: 1_000 * cache_s, ..Faults::DOCUMENTED });
        // Four isolates are offered twice the limit in a window.
        let admitted = admitted(&mut edge, &policy, 60 * minutes, 2_000);
        println!(
            "sliding_window {limit}/{minutes} min, 4 isolates, writes 60 s late, cacheTtl {cache_s} s: {admitted}"
        );
        assert!((limit..=most).contains(&admitted), "{admitted}");
    }
}

#[test]
fn an_entry_overwritten_by_another_isolate_is_written_again() {
    let policy = policy(Quota::fixed_window(100, Millis::from_secs(600)));
    // Sixteen isolates read nothing and write at once. Of the entries in each value, only the last one stays.
    let mut edge = Edge::new(16, 16, Faults::default());
    for place in 0..16 {
        edge.check(place, &policy, &key(), 2);
    }
    for place in 0..16 {
        edge.flush(place);
    }
    for place in (0..16).cycle().take(160) {
        edge.pass(1_000);
        edge.request(place, &policy, &key(), 0);
    }
    for place in 0..16 {
        assert_eq!(edge.remaining(place, &policy, &key()), Some(68), "isolate {place}");
    }
}

#[test]
fn a_count_after_a_write_is_written_without_another_request() {
    let policy = policy(Quota::fixed_window(100, Millis::from_secs(600)));
    let mut edge = Edge::new(2, 2, Faults::default());
    for _ in 0..40 {
        assert!(edge.request(0, &policy, &key(), 1));
    }
    edge.pass(2_000);
    assert_eq!(edge.operations().1, 2);
    assert_eq!(edge.remaining(1, &policy, &key()), Some(60));
}

/// For comparison: a counter that gets, decides and puts.
#[test]
fn a_get_decide_put_counter_admits_the_whole_burst() {
    let policy = per_minute(10);
    let edge = Edge::new(1, 1, Faults::default());
    let (key, now) = (key(), edge.now());
    let check = Check::new(&policy, &key, now);
    let burst = |count: usize, plain: bool| {
        let edge = Edge::new(1, 1, Faults::default());
        let (counter, limiter) = (BestEffortLimiter::new(edge.kv.clone()), edge.limiter(0));
        let answers: Vec<bool> = if plain {
            together((0..count).map(|_| counter.check(check))).into_iter().map(|it| it.unwrap().is_allowed()).collect()
        } else {
            together((0..count).map(|_| limiter.check(check))).into_iter().map(|it| it.unwrap().is_allowed()).collect()
        };
        answers.into_iter().filter(|allowed| *allowed).count()
    };
    assert_eq!(burst(200, true), 200, "limit 10, 200 in flight: a plain counter admits them all");
    assert_eq!(burst(200, false), 10);
    // With Cloudflare's throttling, the second put within a second is an error.
    let edge = Edge::new(1, 1, Faults::DOCUMENTED);
    let counter = BestEffortLimiter::new(edge.kv.clone());
    assert!(block_on(counter.check(check)).is_ok());
    assert!(block_on(counter.check(check)).is_err());
}

/// A denial keeps what it moved back. Otherwise, every later request would be denied until the wrong clock's time comes.
#[test]
fn a_clock_a_year_ahead_locks_a_key_for_a_minute_beyond_the_policy_at_most() {
    let (minute, year) = (Millis::from_secs(60), Millis::from_secs(365 * 86_400));
    for quota in [Quota::fixed_window(5, minute), Quota::sliding_window(5, minute), Quota::token_bucket(5, 5, minute)] {
        let policy = policy(quota);
        let edge = Edge::new(1, 1, Faults::default());
        let ask = |now| block_on(edge.limiter(0).check(Check::new(&policy, &key(), now))).unwrap().is_allowed();
        let now = edge.now();
        assert_eq!((0..9).filter(|_| ask(now + year)).count(), 5, "{policy:?}");
        // Clients retry every second.
        let first = (0..=600).find(|second| ask(now + Millis::from_secs(*second))).expect("the key is locked");
        assert!(Millis::from_secs(first) <= minute + minute + minute, "{first} s: {policy:?}");
    }
}
