//! The store over a binding whose failures the tests control.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::HashMap;
use std::sync::Mutex;

use pollster::block_on;
use tidegate_cloudflare::rate_limit::{Binding, RateLimit, RateLimitLimiter};
use tidegate_core::{
    Accuracy, Check, Error, ErrorKind, Key, Limiter, LimiterExt, Load, Millis, Policy, Quota, Refund, Status,
};
use tidegate_testing::{MINUTE, NOW, key, per_minute};

/// The counts of one location, in a window that never ends.
#[derive(Default)]
struct Location {
    limit: u64,
    counts: Mutex<HashMap<String, u64>>,
    down: bool,
}

impl Binding for &Location {
    async fn limit(&self, key: &str) -> Result<bool, Error> {
        if self.down {
            return Err(Error::new(ErrorKind::Unavailable, "down"));
        }
        let mut counts = self.counts.lock().unwrap();
        let count = counts.entry(key.to_owned()).or_default();
        *count += 1;
        Ok(*count <= self.limit)
    }
}

fn location(limit: u64) -> Location {
    Location { limit, ..Location::default() }
}

fn limiter(location: &Location) -> RateLimitLimiter<&Location> {
    RateLimit::new(location, location.limit, MINUTE).unwrap().limiter()
}

#[test]
fn a_decision_contains_only_what_the_platform_reports() {
    let (location, policy, key) = (location(2), per_minute(2), key());
    let limiter = limiter(&location);
    let decisions: Vec<_> = (0..3).map(|_| block_on(limiter.check(Check::new(&policy, &key, NOW))).unwrap()).collect();
    assert_eq!(
        decisions.iter().map(|it| it.status()).collect::<Vec<_>>(),
        [Status::Allowed, Status::Allowed, Status::Denied]
    );
    for decision in decisions {
        assert_eq!(decision.binding().limit(), 2);
        assert_eq!(decision.binding().remaining(), None);
        assert_eq!(decision.binding().reset_after(), None);
        assert_eq!(decision.retry_after(), None);
    }
    assert_eq!(location.counts.lock().unwrap().keys().collect::<Vec<_>>(), ["tg1:api:fw60000:ip:192.0.2.1"]);
}

#[test]
fn locations_together_admit_at_most_the_declared_ceiling() {
    let (locations, policy, key) = ([location(5), location(5), location(5)], per_minute(5), Key::new("k"));
    let mut admitted = 0;
    for location in &locations {
        let limiter = limiter(location);
        let allowed = |_: &u32| block_on(limiter.check(Check::new(&policy, &key, NOW))).unwrap().is_allowed();
        admitted += (0..50).filter(allowed).count() as u64;
    }
    let accuracy = limiter(&locations[0]).capabilities().accuracy;
    assert!(matches!(accuracy, Accuracy::PerLocation));
    assert_eq!(admitted, accuracy.ceiling(Load { limit: 5, quota: 5, in_flight: 50, locations: 3 }));
}

#[test]
fn only_the_platforms_periods_are_accepted() {
    let location = location(1);
    for seconds in [10, 60] {
        RateLimit::new(&location, 1, Millis::from_secs(seconds)).unwrap();
    }
    for ms in [0, 1, 9_999, 10_001, 30_000, 3_600_000] {
        let error = RateLimit::new(&location, 1, Millis::new(ms)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("use 10 s or 60 s, or use `durable_objects`"), "{error}");
    }
    assert_eq!(RateLimit::new(&location, 0, MINUTE).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn a_different_policy_is_unsupported_and_not_counted() {
    let (location, key) = (location(5), Key::new("k"));
    let limiter = limiter(&location);
    let minute = || Quota::fixed_window(5, MINUTE).unwrap();
    let others = [
        vec![Quota::fixed_window(6, MINUTE).unwrap()],
        vec![Quota::fixed_window(5, Millis::from_secs(10)).unwrap()],
        vec![Quota::sliding_window(5, MINUTE).unwrap()],
        vec![Quota::token_bucket(5, 5, MINUTE).unwrap()],
        vec![minute(), Quota::fixed_window(5, Millis::from_secs(10)).unwrap()],
    ];
    for quotas in others {
        let policy = Policy::new("api", quotas).unwrap();
        let error = block_on(limiter.check(Check::new(&policy, &key, NOW))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    }
    let policy = Policy::new("api", [minute()]).unwrap();
    let check = Check::new(&policy, &key, NOW);
    let charging = policy.clone().charge_denied(true);
    for refused in [check.cost(2), check.idempotent("a", MINUTE), Check::new(&charging, &key, NOW)] {
        assert_eq!(block_on(limiter.check(refused)).unwrap_err().kind(), ErrorKind::Unsupported);
    }
    assert_eq!(block_on(limiter.peek(check)).unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(block_on(limiter.reset(&policy, (&key).into())).unwrap_err().kind(), ErrorKind::Unsupported);
    let refund = Refund::new(&policy, &key, 1, NOW, NOW);
    assert_eq!(block_on(limiter.refund(refund)).unwrap_err().kind(), ErrorKind::Unsupported);
    assert!(location.counts.lock().unwrap().is_empty());
}

#[test]
fn a_failing_binding_is_an_error_and_not_a_denial() {
    let location = Location { down: true, ..location(5) };
    let (policy, key) = (per_minute(5), Key::new("k"));
    let error = block_on(limiter(&location).check(Check::new(&policy, &key, NOW))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}
