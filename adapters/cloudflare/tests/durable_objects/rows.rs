//! Which rows are written, when they are removed, and what survives an eviction.

use std::num::NonZero;

use crate::support::{Loss, Rig, virtual_time};
use pollster::block_on;
use tidegate_cloudflare::durable_objects::{Config, DurableObjects, Placement};
use tidegate_core::{Check, ErrorKind, Key, LimiterExt, Millis, Policy, Quota, Refund, UnixMillis};
use tidegate_testing::{at, per_minute, policy};

/// Sets the objects' clock, and checks.
fn check(rig: &Rig, policy: &Policy, key: &Key, ms: u64) -> bool {
    rig.set_clock(at(ms));
    block_on(DurableObjects::new(rig).limiter().check(Check::new(policy, key, at(ms)))).unwrap().is_allowed()
}

#[test]
fn an_admitted_request_writes_one_row_and_a_denied_one_none() {
    let (rig, policy, key) = (Rig::default(), per_minute(5), Key::new("user:1"));
    let limiter = DurableObjects::new(&rig).limiter();
    for request in 1..=50 {
        assert_eq!(check(&rig, &policy, &key, request), request <= 5);
        assert_eq!(rig.rows_written(), request.min(5));
        block_on(limiter.peek(Check::new(&policy, &key, at(request)))).unwrap();
    }
    assert_eq!(rig.sum(|rows| rows.alarms_set), 1);
    assert_eq!(rig.sum(|rows| rows.loads.get()), 1, "read once, then in memory");
    block_on(limiter.refund(Refund::new(&policy, &key, 1, at(1), at(60)))).unwrap();
    assert_eq!(rig.rows_written(), 6);
    block_on(limiter.reset(&policy, (&key).into())).unwrap();
    assert_eq!(rig.rows_written(), 7);
    assert_eq!(rig.sum(|rows| rows.rows.len() as u64), 0);
}

#[test]
fn one_alarm_removes_a_key_that_is_not_used_again() {
    let (rig, policy, key) = (Rig::default(), per_minute(5), Key::new("user:1"));
    assert!(check(&rig, &policy, &key, 0));
    rig.each(|_, rows| assert_eq!(rows.alarm, Some(at(60_000))));
    rig.set_clock(at(59_999));
    assert_eq!(rig.sum(|rows| rows.rows.len() as u64), 1);
    rig.set_clock(at(60_000));
    assert_eq!(rig.sum(|rows| rows.rows.len() as u64), 0);
    rig.each(|_, rows| assert_eq!((rows.alarm, rows.alarms_set), (None, 1)));
}

#[test]
fn traffic_that_never_ends_sets_an_alarm_a_minute() {
    let policy = policy(Quota::token_bucket(10, 100, Millis::from_secs(1)));
    let (rig, key) = (Rig::default(), Key::new("user:1"));
    for second in 0..3_600 {
        assert!(check(&rig, &policy, &key, second * 1_000));
    }
    assert_eq!(rig.sum(|rows| rows.alarms_set), 60);
}

#[test]
fn rows_that_expire_soon_do_not_wait_for_an_alarm_that_is_due_late() {
    let daily = Policy::new("daily", [Quota::fixed_window(1_000, Millis::from_secs(86_400)).unwrap()]).unwrap();
    let (rig, key) = (Rig::default(), Key::new("user:1"));
    let limiter = DurableObjects::new(&rig).limiter();
    for second in 0..600_u64 {
        rig.set_clock(at(second * 1_000));
        let token = format!("request-{second}");
        let once = Check::new(&daily, &key, at(second * 1_000)).idempotent(&token, Millis::from_secs(30));
        assert!(block_on(limiter.check(once)).unwrap().is_allowed());
    }
    // The state, the tokens of half a minute, and those of the minute until the alarm.
    assert!(rig.sum(|rows| rows.rows.len() as u64) <= 92);
    assert!(rig.sum(|rows| rows.alarms_set) <= 12, "{}", rig.sum(|rows| rows.alarms_set));
}

/// A pending alarm stays unless a row would wait for it more than twice as long as necessary: a new one costs a row.
#[test]
fn an_alarm_is_moved_only_for_rows_that_expire_much_sooner() {
    let (rig, key) = (Rig::default(), Key::new("user:1"));
    let limiter = DurableObjects::new(&rig).limiter();
    let policy = policy(Quota::token_bucket(1, 1, Millis::from_secs(1_000)));
    rig.set_clock(at(0));
    let write = |token: &str, seconds| {
        let once = Check::new(&policy, &key, at(0)).idempotent(token, Millis::from_secs(seconds));
        assert!(block_on(limiter.check(once)).unwrap().is_allowed());
        let mut found = None;
        rig.each(|_, rows| found = rows.alarm.map(|alarm| (alarm.since(at(0)), rows.alarms_set)));
        found.unwrap()
    };
    let reset = || block_on(limiter.reset(&policy, (&key).into())).unwrap();
    assert_eq!(write("a", 1_000), (Millis::from_secs(1_000), 1));
    reset();
    // The alarm is twice as late as the token's row expires, and then later than that.
    assert_eq!(write("b", 500), (Millis::from_secs(1_000), 1));
    reset();
    assert_eq!(write("c", 499), (Millis::from_secs(499), 2));
}

#[test]
fn counts_and_first_answers_survive_an_eviction() {
    let (rig, policy, key) = (Rig::default(), per_minute(5), Key::new("user:1"));
    let limiter = DurableObjects::new(&rig).limiter();
    let once = Check::new(&policy, &key, at(0)).idempotent("request-1", Millis::from_secs(60));
    let first = block_on(limiter.check(once)).unwrap();
    assert_eq!(rig.rows_written(), 2);
    for request in 0..10 {
        rig.evict();
        assert_eq!(check(&rig, &policy, &key, 1), request < 4);
        rig.evict();
        let again = block_on(limiter.check(once)).unwrap();
        assert!(again.is_replay());
        assert_eq!((again.quotas(), again.decided_at()), (first.quotas(), first.decided_at()));
    }
    assert_eq!(rig.rows_written(), 6, "a retry writes nothing");
    assert_eq!(rig.sum(|rows| rows.alarms_set), 1, "an eviction does not forget the alarm");
}

#[test]
fn a_retry_whose_first_answer_was_lost_is_charged_once() {
    let (rig, policy, key) = (Rig::default(), per_minute(5), Key::new("user:1"));
    let limiter = DurableObjects::new(&rig).limiter();
    let once = Check::new(&policy, &key, at(0)).cost(5).idempotent("request-1", Millis::from_secs(60));
    rig.lose(Loss::Answers);
    assert_eq!(block_on(limiter.check(once)).unwrap_err().kind(), ErrorKind::Timeout);
    rig.lose(Loss::None);
    assert!(block_on(limiter.check(once)).unwrap().is_allowed());
    assert!(!check(&rig, &policy, &key, 1));
}

#[test]
fn a_request_that_cannot_be_written_is_neither_admitted_nor_counted() {
    let (rig, policy, key) = (Rig::default(), per_minute(5), Key::new("user:1"));
    let limiter = DurableObjects::new(&rig).limiter();
    assert!(check(&rig, &policy, &key, 0));
    rig.edit(|rows| rows.full = true);
    let ask = || block_on(limiter.check(Check::new(&policy, &key, at(1)).cost(4)));
    assert_eq!(ask().unwrap_err().kind(), ErrorKind::Refused);
    assert_eq!(ask().unwrap_err().kind(), ErrorKind::Refused);
    rig.edit(|rows| rows.full = false);
    assert!(ask().unwrap().is_allowed());
}

#[test]
fn a_corrupt_row_is_an_error_and_is_left_unchanged() {
    let (rig, policy, key) = (Rig::default(), per_minute(5), Key::new("user:1"));
    let limiter = DurableObjects::new(&rig).limiter();
    let once = Check::new(&policy, &key, at(0)).idempotent("request-1", Millis::from_secs(60));
    block_on(limiter.check(once)).unwrap();
    let spoils: [fn(&mut tidegate_cloudflare::durable_objects::Row); 3] =
        [|row| row.value = b"nonsense".to_vec(), |row| row.value.truncate(9), |row| row.leased = vec![1, 2, 3]];
    for spoil in spoils {
        rig.edit(|rows| rows.rows.values_mut().for_each(spoil));
        let written = rig.rows_written();
        let plain = Check::new(&policy, &key, at(1));
        assert_eq!(block_on(limiter.check(plain)).unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(block_on(limiter.peek(plain)).unwrap_err().kind(), ErrorKind::Corrupt);
        let refund = Refund::new(&policy, &key, 1, at(0), at(1));
        assert_eq!(block_on(limiter.refund(refund)).unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(rig.rows_written(), written);
    }
    assert_eq!(block_on(limiter.check(once)).unwrap_err().kind(), ErrorKind::Corrupt);
    block_on(limiter.reset(&policy, (&key).into())).unwrap();
    assert!(check(&rig, &policy, &key, 1));
}

#[test]
fn a_reset_removes_a_row_that_is_no_row_and_none_of_a_storage_that_fails() {
    let (rig, policy, key) = (Rig::default(), per_minute(5), Key::new("user:1"));
    let limiter = DurableObjects::new(&rig).limiter();
    let reset = || block_on(limiter.reset(&policy, (&key).into())).map_err(|error| error.kind());
    let rows = || rig.sum(|rows| rows.rows.len() as u64);
    (0..5).for_each(|_| assert!(check(&rig, &policy, &key, 0)));
    rig.edit(|rows| rows.unreadable = Some(ErrorKind::Unavailable));
    assert_eq!((reset(), rows()), (Err(ErrorKind::Unavailable), 1));
    rig.edit(|rows| rows.unreadable = Some(ErrorKind::Corrupt));
    assert_eq!((reset(), rows()), (Ok(()), 0));
    rig.edit(|rows| rows.unreadable = None);
    assert!(check(&rig, &policy, &key, 0));
}

#[test]
fn keys_of_one_shard_share_an_object_and_nothing_else() {
    let (rig, policy) = (Rig::default(), per_minute(5));
    let config = Config::default().placement(Placement::Shards(NonZero::new(4).unwrap()));
    let limiter = DurableObjects::with_config(&rig, config).limiter();
    rig.set_clock(at(0));
    for number in 0..100 {
        let key = Key::new(format!("user:{number}"));
        let admitted =
            (0..8).filter(|_| block_on(limiter.check(Check::new(&policy, &key, at(0)))).unwrap().is_allowed());
        assert_eq!(admitted.count(), 5);
    }
    let mut objects = 0;
    rig.each(|_, rows| {
        objects += 1;
        assert_eq!(rows.alarms_set, 1);
    });
    assert_eq!(objects, 4);
}

#[test]
fn by_default_the_callers_clock_is_not_read() {
    let (rig, policy, key) = (Rig::default(), per_minute(5), Key::new("user:1"));
    let limiter = DurableObjects::new(&rig).limiter();
    rig.set_clock(at(0));
    for caller in 0..10 {
        let decision = block_on(limiter.check(Check::new(&policy, &key, at(caller * 1_000_000)))).unwrap();
        assert_eq!((decision.is_allowed(), decision.decided_at()), (caller < 5, at(0)));
    }
}

#[test]
fn rows_are_kept_for_the_least_time_while_virtual_time_stands_still() {
    let (rig, policy, key) = (Rig::default(), per_minute(5), Key::new("user:1"));
    let limiter = DurableObjects::with_config(&rig, virtual_time().min_ttl(Millis::from_secs(3_600))).limiter();
    rig.set_clock(at(0));
    block_on(limiter.check(Check::new(&policy, &key, UnixMillis::new(7)).cost(5))).unwrap();
    rig.set_clock(at(3_599_999));
    assert!(!block_on(limiter.check(Check::new(&policy, &key, UnixMillis::new(8)))).unwrap().is_allowed());
    rig.set_clock(at(3_600_000));
    assert_eq!(rig.sum(|rows| rows.rows.len() as u64), 0);
}
