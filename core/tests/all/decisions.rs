//! When two decisions are equal, and what makes one of parts.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use tidegate_core::{Decision, ErrorKind, Millis, Origin, Quota, QuotaStatus, Status, UnixMillis};
use tidegate_testing::policy;

#[test]
fn decisions_are_equal_if_all_that_is_visible_is() {
    let policy = |limit| policy(Quota::fixed_window(limit, Millis::new(1_000)));
    let of = |limit, costs: &[u64], ms| {
        let (policy, now) = (policy(limit), UnixMillis::new(ms));
        let mut state = policy.initial_state();
        costs.iter().map(|cost| policy.decide(&mut state, now, *cost)).last().unwrap()
    };
    let one = of(9, &[1], 0);
    assert_eq!(one, of(9, &[1], 0));
    for other in
        [of(9, &[2], 0), of(8, &[1], 0), of(9, &[1], 1), of(9, &[9, 1], 0), one.clone().with_origin(Origin::Lease)]
    {
        assert_ne!(one, other);
    }
    assert_ne!(one.quotas(), of(9, &[2], 0).quotas());
}

#[test]
fn a_decision_has_a_binding_quota_and_only_the_wait_of_its_status() {
    let now = UnixMillis::new(7);
    let of = |status, wait, quotas: &[QuotaStatus], binding| {
        Decision::from_parts(status, wait, quotas.iter().copied(), binding, now)
    };
    let (quota, wait) = (QuotaStatus::new(5, Some(1), None), Some(Millis::new(20)));
    for (quotas, binding) in [(&[][..], 0), (&[quota], 1), (&[quota, quota], usize::MAX)] {
        assert_eq!(of(Status::Allowed, wait, quotas, binding).unwrap_err().kind(), ErrorKind::Corrupt);
    }
    for (status, delay, retry_after) in
        [(Status::Allowed, 20, None), (Status::Denied, 0, wait), (Status::NeverAdmissible, 0, None)]
    {
        let made = of(status, wait, &[quota], 0).unwrap();
        assert_eq!((made.status(), made.delay(), made.retry_after()), (status, Millis::new(delay), retry_after));
        assert_eq!((made.decided_at(), made.origin(), made.is_replay()), (now, Origin::Store, false));
    }
    assert_eq!(of(Status::Denied, None, &[quota], 0).unwrap().retry_after(), None);
    assert_eq!(QuotaStatus::new(5, None, wait).reset_after(), None);
}
