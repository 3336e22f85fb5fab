//! Bounds on the rows, the time and the memory that a client or a wrong clock can cost.

use std::num::NonZero;

use crate::support::{PAGE_ROWS, Rig, virtual_time};
use pollster::block_on;
use tidegate_cloudflare::durable_objects::{Config, DurableObjects, DurableObjectsLimiter, Leases, Placement, Sweep};
use tidegate_core::{Check, Key, LimiterExt, Millis, Policy, Quota};
use tidegate_testing::{MINUTE, NOW, at, per_minute, policy};

const YEAR: Millis = Millis::from_secs(365 * 86_400);

#[test]
fn a_token_that_is_not_charged_writes_no_row() {
    let policy = per_minute(1);
    for policy in [policy.clone(), policy.charge_denied(true)] {
        let (rig, key) = (Rig::default(), Key::new("user:1"));
        let limiter = DurableObjects::new(&rig).limiter();
        rig.set_clock(at(0));
        let (mut admitted, mut free) = (0, 0);
        for number in 0..20_000 {
            let token = number.to_string();
            let check = Check::new(&policy, &key, at(0)).idempotent(&token, MINUTE);
            admitted += u64::from(block_on(limiter.check(check)).unwrap().is_allowed());
            let token = format!("free-{number}");
            let check = Check::new(&policy, &key, at(0)).idempotent(&token, MINUTE).cost(0);
            free += u64::from(block_on(limiter.check(check)).unwrap().is_allowed());
        }
        assert_eq!(admitted, 1);
        assert_eq!(free, 20_000);
        assert_eq!((rig.sum(|rows| rows.rows.len() as u64), rig.rows_written()), (2, 2));
    }
}

#[test]
fn a_caller_whose_clock_is_a_year_ahead_locks_no_key_and_keeps_no_row() {
    let hour = Millis::from_secs(3_600);
    let quotas = [
        Quota::fixed_window(5, hour).unwrap(),
        Quota::sliding_window(5, hour).unwrap(),
        Quota::sliding_log(5, hour).unwrap(),
        Quota::token_bucket(5, 1, hour).unwrap(),
        Quota::leaky_bucket(5, 1, hour).unwrap(),
    ];
    for quota in quotas {
        let policy = Policy::new("api", [quota]).unwrap();
        let (rig, key) = (Rig::default(), Key::new("user:1"));
        let limiter = DurableObjects::with_config(&rig, Config::default()).limiter();
        rig.set_clock(at(0));
        let token = Check::new(&policy, &key, at(0) + YEAR).cost(5).idempotent("request-1", MINUTE);
        assert!(block_on(limiter.check(token)).unwrap().is_allowed());
        let denied = block_on(limiter.check(Check::new(&policy, &key, at(0)).cost(5))).unwrap();
        let wait = denied.retry_after().unwrap();
        let most = Millis::new(5 * hour.get()) + MINUTE;
        assert!(wait <= most, "{wait}");
        rig.each(|_, rows| {
            for row in rows.rows.values() {
                assert!(row.expires <= at(0) + Millis::new(6 * hour.get()) + MINUTE, "{}", row.expires);
            }
        });
        rig.set_clock(at(0) + wait);
        assert!(block_on(limiter.check(Check::new(&policy, &key, at(0) + wait).cost(5))).unwrap().is_allowed());
    }
}

#[test]
fn the_same_token_is_admitted_and_charged_once_after_a_denial() {
    let (rig, key) = (Rig::default(), Key::new("user:1"));
    let policy = policy(Quota::fixed_window(2, Millis::from_secs(1)));
    let limiter = DurableObjects::new(&rig).limiter();
    let ask = |ms, token: Option<&str>| {
        rig.set_clock(at(ms));
        let check = Check::new(&policy, &key, at(ms));
        block_on(limiter.check(token.map_or(check, |token| check.idempotent(token, MINUTE)))).unwrap()
    };
    assert!(ask(0, None).is_allowed() && ask(0, None).is_allowed());
    let denied = ask(400, Some("request-1"));
    assert_eq!(denied.retry_after(), Some(Millis::new(600)));
    assert!(!ask(999, Some("request-1")).is_allowed());
    for ms in [1_000, 1_200, 50_000] {
        let admitted = ask(ms, Some("request-1"));
        assert_eq!((admitted.is_allowed(), admitted.decided_at()), (true, at(1_000)));
    }
    assert_eq!(ask(50_000, None).binding().remaining(), Some(1));
}

/// A lease holds the level of its bucket until it ends, so a wrong end would hold it for as long.
#[test]
fn a_lease_that_a_wrong_clock_granted_ends_within_two_minutes() {
    let policy = policy(Quota::token_bucket(100, 100, Millis::from_secs(1)));
    let (rig, key) = (Rig::default(), Key::new("user:1"));
    let leases = Leases::new(DurableObjects::new(&rig), NonZero::new(60).unwrap(), MINUTE).unwrap();
    // The object's clock is a year ahead while it lends half of the bucket, and is then set right.
    rig.set_clock(at(0) + YEAR);
    let ahead = Check::new(&policy, &key, at(0));
    while rig.sum(|rows| rows.rows.values().map(|row| row.leased.len() as u64).sum()) == 0 {
        assert!(block_on(leases.check(ahead)).unwrap().is_allowed());
    }
    rig.edit(|rows| {
        // The core bounds the state in the same way; here the bound of the leases alone is tested.
        for row in rows.rows.values_mut() {
            row.value[9..17].copy_from_slice(&NOW.get().to_le_bytes());
        }
    });
    let limiter = DurableObjects::new(&rig).limiter();
    rig.set_clock(at(0));
    assert!(block_on(limiter.check(Check::new(&policy, &key, at(0)))).unwrap().is_allowed());
    rig.set_clock(at(121_000));
    let right = Check::new(&policy, &key, at(121_000)).cost(100);
    assert!(block_on(limiter.check(right)).unwrap().is_allowed(), "the bucket has drained");
}

fn limiter(rig: &Rig) -> DurableObjectsLimiter<&Rig> {
    let shard = Config::default().placement(Placement::Shards(NonZero::new(1).unwrap()));
    DurableObjects::with_config(rig, shard).limiter()
}

#[test]
fn a_sweep_reads_pages_and_calls_are_answered_between_them() {
    let window = |secs| policy(Quota::fixed_window(5, Millis::from_secs(secs)));
    let (short, long, rig) = (window(1), window(86_400), Rig::default());
    let limiter = limiter(&rig);
    let check = |policy: &Policy, key: &str, ms: u64| {
        block_on(limiter.check(Check::new(policy, &Key::new(key), at(ms)))).unwrap().binding().remaining()
    };
    rig.set_clock(at(0));
    for number in 0..20 * PAGE_ROWS {
        check(if number % 2 == 0 { &short } else { &long }, &format!("user:{number}"), 0);
    }
    let clock = at(60_000);
    let sweep = || rig.with_object(|counter| counter.sweep(clock)).unwrap();
    let rows = || rig.sum(|rows| rows.rows.len() as u64);
    let before = rows();
    assert_eq!(sweep(), Sweep::More);
    assert!(before - rows() <= PAGE_ROWS as u64);
    // A row that was swept, one that will be, and a new one that expires before all others.
    assert_eq!(check(&long, "user:1", 0), Some(3));
    assert_eq!(check(&long, "user:1999", 0), Some(3));
    assert_eq!(check(&short, "another", 0), Some(4));
    let alarms = rig.sum(|rows| rows.alarms_set);
    while sweep() == Sweep::More {}
    assert_eq!(rig.sum(|rows| rows.pages), 21);
    assert_eq!(rows(), 10 * PAGE_ROWS as u64 + 1);
    assert_eq!(rig.sum(|rows| rows.alarms_set), alarms + 1);
    // The pause between two sweeps is a minute, and longer for more rows.
    rig.each(|_, rows| assert_eq!(rows.alarm, Some(clock + MINUTE)));
}

#[test]
fn the_pause_between_sweeps_grows_with_the_rows_that_remain() {
    let policy = policy(Quota::fixed_window(5, Millis::from_secs(86_400)));
    let rig = Rig::default();
    let limiter = limiter(&rig);
    rig.set_clock(at(0));
    for number in 0..100_000 {
        block_on(limiter.check(Check::new(&policy, &Key::new(format!("user:{number}")), at(0)))).unwrap();
    }
    // A row that expires soon does not wake the object before the pause has passed.
    let soon = Policy::new("soon", [Quota::fixed_window(5, Millis::from_secs(1)).unwrap()]).unwrap();
    let key = Key::new("user:1");
    let check = Check::new(&soon, &key, at(0));
    block_on(limiter.check(check)).unwrap();
    rig.set_clock(at(60_000));
    block_on(limiter.check(check)).unwrap();
    rig.each(|_, rows| assert!(rows.alarm.is_some_and(|alarm| alarm >= at(160_000)), "{:?}", rows.alarm));
}

#[test]
fn the_callers_clock_decides_if_configured() {
    let policy = per_minute(1);
    let (rig, key) = (Rig::default(), Key::new("user:1"));
    let limiter = DurableObjects::with_config(&rig, virtual_time()).limiter();
    for minute in 0..3 {
        let now = at(60_000 * minute);
        let decision = block_on(limiter.check(Check::new(&policy, &key, now))).unwrap();
        assert_eq!((decision.is_allowed(), decision.decided_at()), (true, now));
    }
}
