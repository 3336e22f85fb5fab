//! Random operations by several processes, and the same ones in memory.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tidegate_core::store::VersionedLimiter;
use tidegate_core::{
    Block, Check, Decision, Key, Limiter, LimiterExt, MemoryLimiter, Millis, Policy, Quota, Refund, UnixMillis,
};
use tidegate_postgres::Postgres;
use tidegate_testing::at;

use crate::support::Server;

#[derive(Clone, Debug)]
enum Step {
    Check(u64),
    Peek(u64),
    Refund(u64),
    Block(u64),
    Reset,
    Forward(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => prop_oneof![Just(1), 0..8u64].prop_map(Step::Check),
        1 => (0..8u64).prop_map(Step::Peek),
        1 => (1..8u64).prop_map(Step::Refund),
        1 => (0..3_000u64).prop_map(Step::Block),
        1 => Just(Step::Reset),
        3 => (1..2_000u64).prop_map(Step::Forward),
    ]
}

fn policies() -> impl Strategy<Value = Policy> {
    (1..12u64, 1..3_000u64, 0..5u8, any::<bool>()).prop_map(|(limit, ms, algorithm, charge_denied)| {
        let span = Millis::new(ms);
        let quota = match algorithm {
            0 => Quota::fixed_window(limit, span),
            1 => Quota::sliding_window(limit, span),
            2 => Quota::sliding_log(limit, span),
            3 => Quota::leaky_bucket(limit, 1, span),
            _ => Quota::token_bucket(limit, limit.div_ceil(2), span),
        };
        let day = Quota::fixed_window(40, Millis::from_secs(86_400)).unwrap();
        let block = Quota::block(Millis::from_secs(60)).unwrap();
        Policy::new("api", [quota.unwrap(), day, block]).unwrap().charge_denied(charge_denied)
    })
}

#[test]
fn decisions_are_those_of_the_memory_store() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (server, first) = runtime.block_on(Server::with_table());
    let second = server.limiter();
    let plain = VersionedLimiter::new(Postgres::new(server.config()).unwrap());
    let case = std::cell::Cell::new(0_u64);
    let histories = (policies(), prop::collection::vec((0..3usize, step()), 1..40));
    let mut runner = TestRunner::new(Config { failure_persistence: None, cases: 150, ..Config::default() });
    let ran = runner.run(&histories, |(policy, steps)| {
        // A key of its own for each case.
        case.set(case.get() + 1);
        let (memory, key) = (MemoryLimiter::new(), Key::new(format!("case-{}", case.get())));
        let mut now = at(10_000);
        for (process, step) in steps {
            if let Step::Forward(ms) = step {
                now = now + Millis::new(ms);
                continue;
            }
            runtime.block_on(async {
                let expected = apply(&memory, &step, &policy, &key, now).await;
                let decided = match process {
                    0 => apply(&first, &step, &policy, &key, now).await,
                    1 => apply(&second, &step, &policy, &key, now).await,
                    _ => apply(&plain, &step, &policy, &key, now).await,
                };
                prop_assert_eq!(decided, expected, "{:?} by {}", step, process);
                Ok(())
            })?;
        }
        Ok(())
    });
    ran.unwrap();
}

async fn apply(limiter: &impl Limiter, step: &Step, policy: &Policy, key: &Key, now: UnixMillis) -> Option<Decision> {
    match step {
        Step::Check(cost) => Some(limiter.check(Check::new(policy, key, now).cost(*cost)).await.unwrap()),
        Step::Peek(cost) => Some(limiter.peek(Check::new(policy, key, now).cost(*cost)).await.unwrap()),
        Step::Refund(cost) => {
            limiter.refund(Refund::new(policy, key, *cost, now, now)).await.unwrap();
            None
        }
        Step::Block(ms) => {
            limiter.block(Block::new(policy, key, Millis::new(*ms), now)).await.unwrap();
            None
        }
        Step::Reset => {
            limiter.reset(policy, key.into()).await.unwrap();
            None
        }
        Step::Forward(_) => None,
    }
}
