//! Balances: random histories of grants, requests and settlements get the same answers as from the reference, whenever an object is
//! evicted. And what its rows last for.

use crate::support::{Rig, virtual_time};
use pollster::block_on;
use proptest::prelude::*;
use tidegate_cloudflare::durable_objects::DurableObjects;
use tidegate_core::{
    Check, Error, ErrorKind, Grant, Key, Limiter, LimiterExt, MemoryLimiter, Millis, Policy, Quota, Settle,
};
use tidegate_testing::{NOW, balances};

const HOUR: Millis = Millis::from_secs(3_600);

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases()) })]

    #[test]
    fn an_object_grants_and_spends_as_the_reference_does(
        (mut policy, steps) in balances::history(), evictions in prop::collection::vec(any::<bool>(), 60)
    ) {
        let (rig, memory) = (Rig::default(), MemoryLimiter::with_shards(4));
        let limiter = DurableObjects::with_config(&rig, virtual_time()).limiter();
        prop_assume!(limiter.capabilities().supports_policy(&policy).is_ok());
        let mut now = NOW;
        for (place, (step, evict)) in steps.iter().zip(evictions).enumerate() {
            now = balances::clock(now, step);
            if evict {
                rig.evict();
            }
            let told = block_on(balances::take(&limiter, &policy, step, now, ""));
            let expected = block_on(balances::take(&memory, &policy, step, now, ""));
            prop_assert_eq!(told, expected, "step {}, {:?}, at {:?}, of {:?}", place, step, now, policy);
            policy = balances::policy_after(policy, step);
        }
    }
}

fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(3_000)
}

#[test]
fn a_sweep_removes_what_has_expired_and_no_money() -> Result<(), Error> {
    block_on(async {
        let rig = Rig::default();
        rig.set_clock(NOW);
        let limiter = DurableObjects::with_config(&rig, virtual_time()).limiter();
        let policy = Policy::new("api", [Quota::balance(1_000)?])?;
        let key = Key::new("user:1");
        limiter.grant(Grant::new(&policy, &key, 50, "order", NOW)).await?;
        let check = Check::new(&policy, &key, NOW).cost(20).idempotent("request", HOUR);
        assert_eq!(limiter.check(check).await?.from_balance(), 20);
        assert_eq!(rig.sum(|rows| rows.rows.len() as u64), 3);
        // The first answer, and then the token of the grant.
        rig.set_clock(NOW + HOUR + HOUR);
        assert_eq!(rig.sum(|rows| rows.rows.len() as u64), 2);
        let later = NOW + Millis::from_secs(200 * 86_400);
        rig.set_clock(later);
        assert_eq!(rig.sum(|rows| rows.rows.len() as u64), 1);
        assert_eq!(limiter.peek(Check::new(&policy, &key, later).cost(0)).await?.binding().remaining(), Some(30));
        Ok(())
    })
}

#[test]
fn a_grant_whose_row_cannot_be_read_is_not_made_and_a_reset_leaves_a_balance_that_cannot() -> Result<(), Error> {
    block_on(async {
        let rig = Rig::default();
        let limiter = DurableObjects::with_config(&rig, virtual_time()).limiter();
        let (policy, key) = (Policy::new("api", [Quota::balance(1_000)?])?, Key::new("user:1"));
        let order = Grant::new(&policy, &key, 50, "order", NOW);
        limiter.grant(order).await?;
        rig.edit(|rows| {
            for (name, row) in &mut rows.rows {
                if name.starts_with("grant:") {
                    row.value[0] = 1;
                }
            }
        });
        assert_eq!(limiter.grant(order).await.unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(limiter.peek(Check::new(&policy, &key, NOW).cost(0)).await?.binding().remaining(), Some(50));
        rig.edit(|rows| rows.rows.values_mut().for_each(|row| row.value.truncate(3)));
        let rows = rig.sum(|rows| rows.rows.len() as u64);
        limiter.reset(&policy, (&key).into()).await?;
        assert_eq!(rig.sum(|rows| rows.rows.len() as u64), rows);
        let settle = Settle::new(&policy, &key, "request", 1, NOW);
        assert_eq!(limiter.settle(settle).await.unwrap_err().kind(), ErrorKind::UnknownCharge);
        Ok(())
    })
}
