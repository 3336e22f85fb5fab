//! The Edge Rate Limiting adapter, over a model of what Fastly documents.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use pollster::block_on;
use tidegate_core::{
    Accuracy, Check, Error, ErrorKind, Key, Limiter, LimiterExt, Load, Millis, Policy, Quota, Refund, Status,
};
use tidegate_fastly::erl::{Erl, ErlLimiter, Rates, Window};
use tidegate_testing::{MINUTE, NOW, key};

const TEN_SECONDS: Millis = Millis::from_secs(10);

/// One PoP: a rate counter and a penalty box, with a clock that the test advances.
///
/// Per <https://www.fastly.com/documentation/reference/vcl/functions/rate-limiting/ratelimit-check-rate/>, a check
/// counts the request, then compares the average rate per second over the window. A client above the limit is put into
/// the penalty box. The check returns whether the client is in the box. An entry has at most 256 bytes. The rest of a
/// penalty is rounded up to whole minutes, so the shortest lasts two
/// (<https://docs.fastly.com/products/edge-rate-limiting>).
#[derive(Default)]
struct Pop {
    now: Mutex<Duration>,
    counted: Mutex<HashMap<String, Vec<Duration>>>,
    penalties: Mutex<HashMap<String, Duration>>,
    down: bool,
}

impl Pop {
    fn pass(&self, seconds: u64) {
        *self.now.lock().unwrap() += Duration::from_secs(seconds);
    }
}

impl Rates for &Pop {
    fn check_rate(&self, entry: &str, per_second: u32, window: Window, penalty: Duration) -> Result<bool, Error> {
        if self.down {
            return Err(Error::new(ErrorKind::Unavailable, "down"));
        }
        assert!(entry.len() <= 256, "EINVAL");
        let now = *self.now.lock().unwrap();
        let (mut counted, mut penalties) = (self.counted.lock().unwrap(), self.penalties.lock().unwrap());
        let times = counted.entry(entry.into()).or_default();
        times.retain(|time| now - *time < Duration::from_secs(window.seconds()));
        times.push(now);
        if times.len() as u64 > u64::from(per_second) * window.seconds() {
            let until = (now + penalty).as_secs().next_multiple_of(60) + 60;
            penalties.insert(entry.into(), Duration::from_secs(until));
        }
        Ok(penalties.get(entry).is_some_and(|until| now < *until))
    }
}

fn limiter(pop: &Pop) -> ErlLimiter<&Pop> {
    Erl::new(pop, 100, TEN_SECONDS, MINUTE).unwrap().limiter()
}

fn policy() -> Policy {
    Policy::new("api", [Quota::sliding_window(100, TEN_SECONDS).unwrap()]).unwrap()
}

fn admitted(pop: &Pop, offered: u64) -> u64 {
    let (limiter, policy, key) = (limiter(pop), policy(), key());
    let allowed = |_: &u64| block_on(limiter.check(Check::new(&policy, &key, NOW))).unwrap().is_allowed();
    (0..offered).filter(allowed).count() as u64
}

#[test]
fn a_window_admits_its_limit_in_a_burst_and_when_spread_out() {
    assert_eq!(admitted(&Pop::default(), 150), 100);

    let pop = Pop::default();
    let each_second: u64 = (0..60)
        .map(|_| {
            let each = admitted(&pop, 10);
            pop.pass(1);
            each
        })
        .sum();
    assert_eq!(each_second, 600);
}

#[test]
fn exceeding_the_limit_blocks_for_the_penalty_and_further_requests_extend_it() {
    let pop = Pop::default();
    assert_eq!(admitted(&pop, 101), 100);
    // The window has ended, but the penalty has not.
    pop.pass(30);
    assert_eq!(admitted(&pop, 1), 0);
    pop.pass(120);
    assert_eq!(admitted(&pop, 1), 1);

    let pop = Pop::default();
    admitted(&pop, 101);
    for _ in 0..100 {
        pop.pass(10);
        assert_eq!(admitted(&pop, 101), 0);
    }
    pop.pass(180);
    assert_eq!(admitted(&pop, 1), 1);
}

#[test]
fn each_pop_admits_the_limit_up_to_the_declared_ceiling() {
    let pops = [Pop::default(), Pop::default(), Pop::default()];
    let all: u64 = pops.iter().map(|pop| admitted(pop, 500)).sum();
    let accuracy = limiter(&pops[0]).capabilities().accuracy;
    assert!(matches!(accuracy, Accuracy::PerLocation));
    assert_eq!(all, accuracy.ceiling(Load { limit: 100, quota: 100, in_flight: 500, locations: 3 }));
}

#[test]
fn a_decision_has_only_what_the_platform_reports() {
    let (pop, policy, key) = (Pop::default(), policy(), key());
    let limiter = limiter(&pop);
    let decisions: Vec<_> =
        (0..101).map(|_| block_on(limiter.check(Check::new(&policy, &key, NOW))).unwrap()).collect();
    assert_eq!((decisions[99].status(), decisions[100].status()), (Status::Allowed, Status::Denied));
    for decision in decisions {
        assert_eq!((decision.binding().limit(), decision.binding().remaining()), (100, None));
        assert_eq!((decision.binding().reset_after(), decision.retry_after()), (None, None));
    }
    assert_eq!(pop.counted.lock().unwrap().keys().collect::<Vec<_>>(), ["tg1:api:sw10000:ip:192.0.2.1"]);
}

#[test]
fn the_longest_key_fits_into_an_entry() {
    let (pop, key) = (Pop::default(), Key::new("x".repeat(10_000)));
    let policy = Policy::new(&"p".repeat(32), [Quota::sliding_window(600, MINUTE).unwrap()]).unwrap();
    let limiter = Erl::new(&pop, 600, MINUTE, MINUTE).unwrap().limiter();
    assert!(block_on(limiter.check(Check::new(&policy, &key, NOW))).unwrap().is_allowed());
}

#[test]
fn an_unsupported_parameter_is_rejected_with_a_suggestion() {
    let pop = Pop::default();
    let new = |limit, window_ms, penalty_ms| {
        Erl::new(&pop, limit, Millis::new(window_ms), Millis::new(penalty_ms)).map(drop).map_err(|error| {
            assert_eq!(error.kind(), ErrorKind::Invalid);
            error.to_string()
        })
    };
    for (limit, window_ms) in [(10, 1_000), (100, 10_000), (600, 60_000), (12_340, 10_000)] {
        assert_eq!(new(limit, window_ms, 60_000), Ok(()));
        assert_eq!(new(limit, window_ms, 3_600_000), Ok(()));
    }
    for window_ms in [0, 1, 999, 1_001, 30_000, 3_600_000] {
        let error = new(100, window_ms, 60_000).unwrap_err();
        assert!(error.ends_with("write 1 s, 10 s or 60 s, or use Kv for any other window"), "{error}");
    }
    for (limit, window_ms, right) in [
        (0, 1_000, "write a multiple of 1 from 10 to 70000000"),
        (9, 1_000, "write a multiple of 1 from 10 to 70000000"),
        (70_000_001, 1_000, "write a multiple of 1 from 10 to 70000000"),
        (90, 10_000, "write a multiple of 10 from 100 to 700000000"),
        (105, 10_000, "cannot count 105 in 10 s; write a multiple of 10"),
        (u64::MAX, 60_000, "write a multiple of 60 from 600 to 4200000000"),
    ] {
        let error = new(limit, window_ms, 60_000).unwrap_err();
        assert!(error.contains(right) && error.ends_with("or use Kv for any other limit"), "{error}");
    }
    for penalty_ms in [0, 59_999, 60_001, 90_000, 3_660_000, u64::MAX] {
        let error = new(100, 10_000, penalty_ms).unwrap_err();
        assert!(error.ends_with("write whole minutes from 60 s to 3600 s"), "{error}");
    }
}

#[test]
fn a_different_policy_is_unsupported_and_not_counted() {
    let (pop, key) = (Pop::default(), Key::new("k"));
    let limiter = limiter(&pop);
    let others = [
        vec![Quota::sliding_window(110, TEN_SECONDS).unwrap()],
        vec![Quota::sliding_window(100, Millis::from_secs(1)).unwrap()],
        vec![Quota::fixed_window(100, TEN_SECONDS).unwrap()],
        vec![Quota::token_bucket(100, 100, TEN_SECONDS).unwrap()],
        vec![Quota::sliding_window(100, TEN_SECONDS).unwrap(), Quota::sliding_window(600, MINUTE).unwrap()],
    ];
    for quotas in others {
        let policy = Policy::new("api", quotas).unwrap();
        let error = block_on(limiter.check(Check::new(&policy, &key, NOW))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    }
    let policy = policy();
    let check = Check::new(&policy, &key, NOW);
    let charging = policy.clone().charge_denied(true);
    for refused in [check.cost(2), check.idempotent("a", MINUTE), Check::new(&charging, &key, NOW)] {
        assert_eq!(block_on(limiter.check(refused)).unwrap_err().kind(), ErrorKind::Unsupported);
    }
    assert_eq!(block_on(limiter.peek(check)).unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(block_on(limiter.reset(&policy, (&key).into())).unwrap_err().kind(), ErrorKind::Unsupported);
    let refund = Refund::new(&policy, &key, 1, NOW, NOW);
    assert_eq!(block_on(limiter.refund(refund)).unwrap_err().kind(), ErrorKind::Unsupported);
    assert!(pop.counted.lock().unwrap().is_empty());
}

#[test]
fn a_platform_failure_is_an_error_and_not_a_denial() {
    let (pop, policy, key) = (Pop { down: true, ..Pop::default() }, policy(), Key::new("k"));
    let error = block_on(limiter(&pop).check(Check::new(&policy, &key, NOW))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}
