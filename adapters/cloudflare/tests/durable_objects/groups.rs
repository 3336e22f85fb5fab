//! Groups: one object for all keys of a group, and which of their rows are written. Concurrency limits and penalties, whose
//! rows are no different.

use std::num::NonZero;

use crate::support::{Rig, virtual_time};
use pollster::block_on;
use tidegate_cloudflare::durable_objects::{Config, DurableObjects, Leases, Placement};
use tidegate_core::{
    Block, Check, Decision, Dimensions, ErrorKind, Key, Keys, Limiter, LimiterExt, Millis, Policy, Quota, Refund, Rule,
    Settle,
};
use tidegate_testing::{MINUTE, SECOND, at};

/// Five requests a minute for each user, twenty for each tenant.
fn policy() -> Policy {
    let user = Quota::fixed_window(5, MINUTE).unwrap().by("user").unwrap();
    let tenant = Quota::fixed_window(20, MINUTE).unwrap().by("tenant").unwrap();
    Policy::new("api", [user, tenant]).unwrap()
}

fn grouped() -> Policy {
    policy().group_by("tenant").unwrap()
}

struct Keyring([Key; 4]);

impl Keyring {
    fn new() -> Self {
        Self(["user:alice", "user:bob", "tenant:acme", "tenant:hooli"].map(Key::new))
    }

    fn alice_of_acme(&self) -> [(&str, &Key); 2] {
        [("user", &self.0[0]), ("tenant", &self.0[2])]
    }

    fn bob_of_acme(&self) -> [(&str, &Key); 2] {
        [("user", &self.0[1]), ("tenant", &self.0[2])]
    }

    fn alice_of_hooli(&self) -> [(&str, &Key); 2] {
        [("user", &self.0[0]), ("tenant", &self.0[3])]
    }
}

fn remaining(decision: &Decision) -> Vec<Option<u64>> {
    decision.quotas().iter().map(tidegate_core::QuotaStatus::remaining).collect()
}

#[test]
fn a_group_has_one_object_and_a_denied_user_charges_no_row() {
    let (rig, policy, keys) = (Rig::default(), grouped(), Keyring::new());
    let limiter = DurableObjects::new(&rig).limiter();
    assert_eq!(limiter.capabilities().dimensions, Dimensions::Grouped);
    let (alice, bob, other) = (keys.alice_of_acme(), keys.bob_of_acme(), keys.alice_of_hooli());
    let ask =
        |keys: &[(&str, &Key)], cost| block_on(limiter.check(Check::new(&policy, keys, at(0)).cost(cost))).unwrap();
    assert_eq!(remaining(&ask(&alice, 5)), [Some(0), Some(15)]);
    assert_eq!(rig.rows_written(), 2);
    for _ in 0..100 {
        let denied = ask(&alice, 1);
        assert_eq!((denied.is_allowed(), denied.binding_index()), (false, 0));
    }
    assert_eq!(rig.rows_written(), 2, "a denial writes nothing");
    assert_eq!(remaining(&ask(&bob, 1)), [Some(4), Some(14)]);
    assert_eq!(rig.rows_written(), 4);
    // A user is counted for each tenant.
    assert_eq!(remaining(&ask(&other, 1)), [Some(4), Some(19)]);
    let mut objects = Vec::new();
    rig.each(|name, rows| objects.push((name.to_owned(), rows.rows.keys().cloned().collect::<Vec<_>>())));
    objects.sort();
    let acme = "tg1:api@tenant:fw60000:tenant:acme";
    let hooli = "tg1:api@tenant:fw60000:tenant:hooli";
    let user = |tenant: &str, name: &str| format!("{tenant}|api@user:fw60000:user:{name}");
    let expected = [
        (acme.to_owned(), vec![acme.to_owned(), user(acme, "alice"), user(acme, "bob")]),
        (hooli.to_owned(), vec![hooli.to_owned(), user(hooli, "alice")]),
    ];
    assert_eq!(objects, expected);
    // A refund and a reset write each row once.
    block_on(limiter.refund(Refund::new(&policy, &bob, 1, at(0), at(0)))).unwrap();
    assert_eq!(rig.rows_written(), 8);
    block_on(limiter.reset(&policy, Keys::from(&bob))).unwrap();
    assert_eq!(rig.rows_written(), 10);
    assert_eq!(remaining(&ask(&alice, 0)), [Some(0), Some(20)]);
}

#[test]
fn a_block_writes_the_row_of_the_key_that_is_blocked() {
    let quotas = [
        Quota::fixed_window(5, MINUTE).unwrap().by("user").unwrap(),
        Quota::block(MINUTE).unwrap().by("user").unwrap(),
        Quota::fixed_window(20, MINUTE).unwrap().by("tenant").unwrap(),
    ];
    let policy = Policy::new("api", quotas).unwrap().group_by("tenant").unwrap();
    let (rig, keys) = (Rig::default(), Keyring::new());
    let limiter = DurableObjects::with_config(&rig, virtual_time()).limiter();
    let leases = Leases::new(DurableObjects::with_config(&rig, virtual_time()), NonZero::new(9).unwrap(), SECOND);
    let leases = leases.unwrap();
    let (alice, bob) = (keys.alice_of_acme(), keys.bob_of_acme());
    let left =
        |keys: &[(&str, &Key)], ms| block_on(limiter.check(Check::new(&policy, keys, at(ms)))).unwrap().retry_after();
    let block = |span| block_on(leases.block(Block::new(&policy, &alice, span, at(0)))).unwrap();
    assert!(leases.capabilities().block && limiter.capabilities().block);
    block(SECOND);
    assert_eq!(rig.rows_written(), 1);
    assert_eq!(left(&alice, 999), Some(Millis::new(1)));
    assert_eq!(rig.rows_written(), 1, "a denial writes nothing");
    rig.evict();
    assert_eq!((left(&alice, 999), left(&bob, 999)), (Some(Millis::new(1)), None));
    assert_eq!(rig.rows_written(), 3);
    block(Millis::ZERO);
    block(Millis::ZERO);
    assert_eq!(rig.rows_written(), 4, "what is over is not written again");
    assert_eq!(left(&alice, 999), None);
}

#[test]
fn all_rows_of_a_group_are_in_its_shard() {
    let (rig, policy, keys) = (Rig::default(), grouped(), Keyring::new());
    let four = Config::default().placement(Placement::Shards(NonZero::new(4).unwrap()));
    let limiter = DurableObjects::with_config(&rig, four).limiter();
    for keys in [keys.alice_of_acme(), keys.bob_of_acme()] {
        assert!(block_on(limiter.check(Check::new(&policy, &keys, at(0)))).unwrap().is_allowed());
    }
    let mut rows = Vec::new();
    rig.each(|_, object| rows.push(object.rows.len()));
    assert_eq!(rows, [3]);
}

#[test]
fn several_dimensions_without_a_group_are_unsupported_before_any_call() {
    let (rig, policy, keys) = (Rig::default(), policy(), Keyring::new());
    let (limiter, alice) = (DurableObjects::new(&rig).limiter(), keys.alice_of_acme());
    let check = Check::new(&policy, &alice, at(0));
    let blocked = policy.quotas().iter().cloned().chain([Quota::block(MINUTE).unwrap().by("user").unwrap()]);
    let blocking = Policy::new("api", blocked).unwrap();
    let leases = Leases::new(DurableObjects::new(&rig), NonZero::new(10).unwrap(), SECOND).unwrap();
    let refused = [
        block_on(limiter.check(check)).unwrap_err(),
        block_on(limiter.peek(check)).unwrap_err(),
        block_on(limiter.refund(Refund::new(&policy, &alice, 1, at(0), at(0)))).unwrap_err(),
        block_on(limiter.settle(Settle::new(&policy, &alice, "request-1", 1, at(0)))).unwrap_err(),
        block_on(limiter.reset(&policy, Keys::from(&alice))).unwrap_err(),
        block_on(limiter.block(Block::end(&blocking, &alice, at(0)))).unwrap_err(),
        block_on(leases.check(check)).unwrap_err(),
    ];
    for error in refused {
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("group_by"), "{error}");
    }
    let (grouped, user) = (grouped(), [("user", &keys.0[0])]);
    let missing = block_on(limiter.check(Check::new(&grouped, &user, at(0)))).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::Invalid);
    assert_eq!(rig.calls(), 0);
}

#[test]
fn another_users_same_token_is_another_charge() {
    let (rig, policy, keys) = (Rig::default(), grouped(), Keyring::new());
    let limiter = DurableObjects::new(&rig).limiter();
    let (alice, bob) = (keys.alice_of_acme(), keys.bob_of_acme());
    let once = |keys: &[(&str, &Key)]| {
        block_on(limiter.check(Check::new(&policy, keys, at(0)).idempotent("request-1", MINUTE))).unwrap()
    };
    let first = once(&alice);
    assert_eq!((remaining(&first), rig.rows_written()), (vec![Some(4), Some(19)], 3));
    rig.evict();
    assert_eq!(once(&alice), first.clone().replayed(true));
    assert_eq!(rig.rows_written(), 3, "a retry writes nothing");
    let other = once(&bob);
    assert_eq!((other.is_replay(), remaining(&other)), (false, vec![Some(4), Some(18)]));
    let settled = block_on(limiter.settle(Settle::new(&policy, &alice, "request-1", 0, at(0)))).unwrap();
    assert_eq!((settled.is_replay(), remaining(&settled)), (false, vec![Some(5), Some(19)]));
    let settled = block_on(limiter.settle(Settle::new(&policy, &bob, "request-1", 3, at(0)))).unwrap();
    assert_eq!((settled.is_replay(), remaining(&settled)), (false, vec![Some(2), Some(17)]));
    assert!(block_on(limiter.settle(Settle::release(&policy, &bob, "request-1", at(0)))).unwrap().is_replay());
}

#[test]
fn a_check_with_one_row_writes_one_row_at_most_whatever_its_rule() {
    let rules = [
        Quota::fixed_window(3, MINUTE).unwrap(),
        Quota::sliding_window(3, MINUTE).unwrap(),
        Quota::sliding_log(3, MINUTE).unwrap(),
        Quota::token_bucket(3, 1, MINUTE).unwrap(),
        Quota::leaky_bucket(3, 1, MINUTE).unwrap(),
    ];
    let penalty = Quota::penalty(SECOND, 2, MINUTE).unwrap();
    let (all, by_tenant) = (Policy::new("all", rules.clone()).unwrap(), rules[0].clone().by("tenant").unwrap());
    let mut policies = vec![all, Policy::new("api", [by_tenant]).unwrap().group_by("tenant").unwrap()];
    for rule in rules {
        policies.push(Policy::new("api", [rule.clone(), penalty.clone()]).unwrap());
        policies.push(Policy::new("api", [rule]).unwrap());
    }
    for policy in &policies {
        let (rig, key) = (Rig::default(), Key::new("user:1"));
        let keys = [("tenant", &key)];
        let keys = if policy.group().is_some() { Keys::from(&keys) } else { Keys::from(&key) };
        let limiter = DurableObjects::new(&rig).limiter();
        for request in 0..10 {
            let written = rig.rows_written();
            let decision = block_on(limiter.check(Check::new(policy, keys, at(0)))).unwrap();
            assert_eq!(decision.is_allowed(), request < 3);
            // The first denial is a violation. During the block there is none.
            let writes =
                request < 3 || request == 3 && matches!(policy.quotas().last().unwrap().rule(), Rule::Penalty(_));
            assert_eq!(rig.rows_written() - written, u64::from(writes), "request {request} of {policy:?}");
        }
    }
}

#[test]
fn a_slot_is_given_back_once_and_survives_an_eviction() {
    let policy = Policy::new("api", [Quota::concurrency(2, MINUTE).unwrap()]).unwrap();
    let (rig, key) = (Rig::default(), Key::new("user:1"));
    let limiter = DurableObjects::new(&rig).limiter();
    // The store remembers the charge for as long as the slot may be held.
    let ask = |token: &str| {
        rig.evict();
        block_on(limiter.check(Check::new(&policy, &key, at(0)).idempotent(token, SECOND))).unwrap()
    };
    assert!(ask("request-1").is_allowed() && ask("request-2").is_allowed());
    assert_eq!(rig.rows_written(), 4);
    let denied = ask("request-3");
    assert_eq!((denied.is_allowed(), denied.retry_after(), rig.rows_written()), (false, None, 4));
    assert!(ask("request-1").is_replay());
    let release = |token: &str, ms| {
        rig.evict();
        block_on(limiter.settle(Settle::release(&policy, &key, token, at(ms))))
    };
    rig.set_clock(at(30_000));
    assert_eq!(remaining(&release("request-1", 30_000).unwrap()), [Some(1)]);
    assert!(release("request-1", 30_000).unwrap().is_replay());
    assert_eq!(release("request-3", 30_000).unwrap_err().kind(), ErrorKind::UnknownCharge);
    assert_eq!(rig.rows_written(), 6);
    let without_a_token = Check::new(&policy, &key, at(30_000));
    assert_eq!(block_on(limiter.check(without_a_token)).unwrap_err().kind(), ErrorKind::Invalid);
    // The other slot expires with its lifetime.
    rig.set_clock(at(60_000));
    assert_eq!(remaining(&ask("request-4")), [Some(1)]);
}

/// A policy that gets a second dimension keeps its rows, and what was lent of them.
#[test]
fn a_group_honours_what_was_lent_of_its_own_row() {
    for quota in [Quota::fixed_window(100, MINUTE).unwrap(), Quota::token_bucket(100, 100, SECOND).unwrap()] {
        let tenant = quota.by("tenant").unwrap();
        let before = Policy::new("api", [tenant.clone()]).unwrap();
        let user = Quota::fixed_window(1_000, MINUTE).unwrap().by("user").unwrap();
        let after = Policy::new("api", [tenant, user]).unwrap().group_by("tenant").unwrap();
        let (rig, keys) = (Rig::default(), Keyring::new());
        let alice = keys.alice_of_acme();
        rig.set_clock(at(0));
        let leases = Leases::new(DurableObjects::new(&rig), NonZero::new(40).unwrap(), Millis::from_secs(10)).unwrap();
        let leased = |ms| block_on(leases.check(Check::new(&before, &alice, at(ms)))).unwrap();
        // Leases of 1, 2, 4 and 8, of which the last is not spent.
        let lent = (0..13).filter(|_| leased(0).is_allowed()).count();
        assert_eq!(lent, 13);
        let limiter = DurableObjects::new(&rig).limiter();
        let ask = |ms| {
            rig.set_clock(at(ms));
            block_on(limiter.check(Check::new(&after, &alice, at(ms)))).unwrap().is_allowed()
        };
        assert!(ask(500));
        let by_group = (0..200).filter(|_| ask(900)).count();
        let by_lease = (0..200).filter(|_| leased(900).is_allowed()).count();
        assert!(by_lease > 0, "the rest of the lease");
        // A bucket has drained what was spent meanwhile, and not what is lent.
        assert!(by_group + by_lease <= 100, "{by_group} + {by_lease}");
    }
}
