//! Compares objects with the reference: random policies, random histories, evictions at any point. Every answer must be
//! the same, and no more rows may be written than documented.

use std::num::NonZero;

use crate::support::{Rig, virtual_time};
use pollster::block_on;
use proptest::prelude::*;
use tidegate_cloudflare::durable_objects::{DurableObjects, Placement};
use tidegate_core::{Check, Error, Key, LimiterExt, MAX_CLOCK_SKEW, MemoryLimiter, Millis, Refund, Settle, UnixMillis};
use tidegate_testing::{History, LAST, Plausibility, Step, Steps, history};

/// Replays a history on objects and on the reference. `sweeping`: the objects' clock follows the history, and alarms fire.
fn replay(history: &History, placement: Placement, sweeping: bool) -> Result<(), TestCaseError> {
    let (rig, memory, key) = (Rig::default(), MemoryLimiter::with_shards(1), Key::new("user:1"));
    let limiter = DurableObjects::with_config(&rig, virtual_time().placement(placement)).limiter();
    let mut quotas = history.quotas.clone();
    let mut policy = history.policy(&quotas);
    let mut now = UnixMillis::new(history.start_ms).min(LAST);
    let mut charged_at = vec![now];
    let mut plausibility = Plausibility::new(now);
    if sweeping {
        rig.set_clock(now);
    }
    for (place, step) in history.steps.iter().enumerate() {
        let about = || format!("step {place}, {step:?}, at {now:?}, of {policy:?}");
        let written = rig.rows_written();
        plausibility.observe(&policy, now);
        let corrupt = |error: &Error| plausibility.explains(error, &policy, now);
        // A denial moves a state that lies too far ahead back, and writes it.
        let mut due = u64::from(plausibility.ahead_of(now) > MAX_CLOCK_SKEW);
        match step {
            Step::Check(cost) => {
                let check = Check::new(&policy, &key, now).cost(cost.of(&policy));
                let decided = match block_on(limiter.check(check)) {
                    Err(error) if corrupt(&error) => return Ok(()),
                    decided => decided.unwrap(),
                };
                prop_assert_eq!(&decided, &memory.decide(check).unwrap(), "{}", about());
                charged_at.push(now);
                due = due.max(u64::from(decided.is_allowed() || policy.charges_denied()));
            }
            Step::Once(token, cost, ttl) => {
                let token = token.to_string();
                let check = Check::new(&policy, &key, now).cost(cost.of(&policy)).idempotent(&token, Millis::new(*ttl));
                let decided = match block_on(limiter.check(check)) {
                    Err(error) if corrupt(&error) => return Ok(()),
                    decided => decided.map_err(|error| error.kind()),
                };
                let expected = memory.decide(check).map_err(|error| error.kind());
                prop_assert_eq!(&decided, &expected, "{}", about());
                due = due.max(u64::from(policy.charges_denied()));
                if expected.is_ok_and(|first| first.is_allowed() && !first.is_replay()) {
                    due = 1 + u64::from(check.cost > 0);
                }
            }
            Step::Settle(token, cost) => {
                let token = token.to_string();
                let settle = Settle::new(&policy, &key, &token, cost.of(&policy), now);
                let settled = match block_on(limiter.settle(settle)) {
                    Err(error) if corrupt(&error) => return Ok(()),
                    settled => settled.map_err(|error| error.kind()),
                };
                let expected = block_on(memory.settle(settle)).map_err(|error| error.kind());
                prop_assert_eq!(&settled, &expected, "{}", about());
                plausibility.observe_debt(&policy);
                due = due.max(u64::from(expected.is_ok_and(|settled| !settled.is_replay())) * 2);
            }
            Step::Peek(cost) => {
                let check = Check::new(&policy, &key, now).cost(cost.of(&policy));
                let decided = match block_on(limiter.peek(check)) {
                    Err(error) if corrupt(&error) => return Ok(()),
                    decided => decided.unwrap(),
                };
                prop_assert_eq!(&decided, &block_on(memory.peek(check)).unwrap(), "{}", about());
            }
            Step::Refund(ago, cost) => {
                let then = charged_at[charged_at.len().saturating_sub(ago + 1)];
                let refund = Refund::new(&policy, &key, cost.of(&policy), then, now);
                match block_on(limiter.refund(refund)) {
                    Err(error) if corrupt(&error) => return Ok(()),
                    refunded => refunded.unwrap(),
                }
                block_on(memory.refund(refund)).unwrap();
                due = 1;
            }
            Step::Reset => {
                block_on(limiter.reset(&policy, (&key).into())).unwrap();
                block_on(memory.reset(&policy, (&key).into())).unwrap();
                due = 1;
            }
            Step::Forward(span) => {
                now = (now + Millis::new(*span)).min(LAST);
                if sweeping {
                    rig.set_clock(now);
                    // Expired rows are removed.
                    due = 5;
                }
            }
            Step::Back(span) => now = UnixMillis::new(now.get().saturating_sub(*span)),
            Step::Limits(limit, refill) => {
                quotas.iter_mut().for_each(|numbers| numbers.change(*limit, *refill));
                policy = history.policy(&quotas);
            }
            Step::Evict => rig.evict(),
        }
        let rows = rig.rows_written() - written;
        prop_assert!(
            rows <= due,
            "{rows} rows were written, {due} at most are due; step {place}, {step:?}, of {policy:?}"
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases()) })]

    #[test]
    fn an_object_decides_as_the_reference_does(history in history(Steps { changes: true, evictions: true })) {
        replay(&history, Placement::PerKey, false)?;
    }

    #[test]
    fn the_removal_of_expired_rows_changes_no_decision(history in history(Steps { changes: false, evictions: true })) {
        replay(&history, Placement::Shards(NonZero::new(3).unwrap()), true)?;
    }
}

fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(2_000)
}
