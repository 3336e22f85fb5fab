//! Compares objects with the reference: policies of several dimensions with all rules, and histories of several keys.

use std::num::NonZero;

use crate::support::{Rig, virtual_time};
use pollster::block_on;
use proptest::prelude::*;
use tidegate_cloudflare::durable_objects::{DurableObjects, Placement};
use tidegate_core::{
    Block, Check, Key, LimiterExt, MAX_CLOCK_SKEW, MemoryLimiter, Millis, Policy, Quota, Refund, Rule, Settle,
    UnixMillis,
};
use tidegate_testing::NOW;

/// The dimensions, and two keys of each.
const DIMENSIONS: [(&str, [&str; 2]); 3] =
    [("user", ["user:alice", "user:bob"]), ("tenant", ["tenant:acme", "tenant:hooli"]), ("route", ["/a", "/b"])];

/// Which key of each dimension a request has: a bit for each.
type Who = usize;

#[derive(Clone, Debug)]
enum Step {
    /// A check, with a token and its time to live, if it has one or needs one.
    Check(Who, u64, Option<(u8, u64)>),
    Peek(Who, u64),
    Settle(Who, u8, Option<u64>),
    /// Of what was charged this many checks ago.
    Refund(Who, usize, u64),
    Reset(Who),
    /// For this many milliseconds, or the end of a block.
    Block(Who, u64),
    Forward(u64),
    Back(u64),
    /// A change of the limit of every quota.
    Limits(u64),
    Evict,
}

#[derive(Clone, Debug)]
struct Story {
    policy: Policy,
    start_ms: u64,
    steps: Vec<Step>,
}

/// A quota of the dimension.
fn quota(dimension: &'static str) -> impl Strategy<Value = Quota> {
    let span = prop_oneof![3 => 1..60u64, 1 => 1_000..90_000u64];
    (0..7u8, 1..9u64, span, 1..9u64).prop_map(move |(rule, limit, span, refill)| {
        let span = Millis::new(span);
        let quota = match rule {
            0 => Quota::fixed_window(limit, span),
            1 => Quota::sliding_window(limit, span),
            2 => Quota::sliding_log(limit, span),
            3 => Quota::token_bucket(limit, refill, span),
            4 => Quota::leaky_bucket(limit, refill, span),
            _ => Quota::concurrency(limit.div_ceil(2), span),
        };
        quota.unwrap().by(dimension).unwrap()
    })
}

/// The quotas of a dimension, perhaps with a penalty or a block.
fn dimension(name: &'static str) -> impl Strategy<Value = Vec<Quota>> {
    let penalty = prop::option::weighted(0.4, (0..60u64, 1..4u64, 1..90u64));
    (prop::collection::vec(quota(name), 1..3), penalty).prop_map(move |(mut quotas, penalty)| {
        if let Some((base, factor, more)) = penalty {
            let cap = Millis::new(base + more);
            let penalty = if base < 15 { Quota::block(cap) } else { Quota::penalty(Millis::new(base), factor, cap) };
            quotas.push(penalty.unwrap().by(name).unwrap());
        }
        quotas
    })
}

fn policy() -> impl Strategy<Value = Policy> {
    let dimensions = DIMENSIONS.map(|(name, _)| dimension(name));
    (dimensions, 1..=3usize, 0..3usize, any::<bool>(), any::<bool>()).prop_map(
        |(dimensions, count, group, charge_denied, returns_cost)| {
            let mut quotas: Vec<Quota> =
                dimensions.into_iter().take(count).flatten().take(Policy::MAX_QUOTAS).collect();
            let slots = |quota: &Quota| matches!(quota.rule(), Rule::Concurrency(_));
            if let (true, Some(place)) = (returns_cost && count == 1, quotas.iter().position(slots))
                && let Rule::Concurrency(rule) = quotas[place].rule()
            {
                let dimension = quotas[place].dimension().to_owned();
                quotas[place] = Quota::from(Rule::Concurrency(rule.returns_cost(true))).by(&dimension).unwrap();
            }
            let policy = Policy::new("api", quotas).unwrap().charge_denied(charge_denied);
            policy.group_by(DIMENSIONS[group % count].0).unwrap()
        },
    )
}

fn step(changes: bool) -> impl Strategy<Value = Step> {
    let cost = || prop_oneof![6 => Just(1), 3 => 0..9u64, 1 => any::<u64>()];
    let span = || prop_oneof![4 => 0..30u64, 2 => 0..100_000u64];
    let token = || (any::<u8>(), prop_oneof![0..100u64, 0..100_000u64]);
    let who = 0..8usize;
    let changes = u32::from(changes);
    prop_oneof![
        12 => (who.clone(), cost(), prop::option::of(token())).prop_map(|(who, cost, token)| Step::Check(who, cost, token)),
        2 => (who.clone(), cost()).prop_map(|(who, cost)| Step::Peek(who, cost)),
        4 => (who.clone(), any::<u8>(), prop::option::of(cost())).prop_map(|(who, token, cost)| Step::Settle(who, token, cost)),
        2 => (who.clone(), 0..6usize, cost()).prop_map(|(who, ago, cost)| Step::Refund(who, ago, cost)),
        1 => who.clone().prop_map(Step::Reset),
        2 => (who, prop_oneof![1 => Just(0), 3 => 1..90u64, 1 => any::<u64>()]).prop_map(|(who, span)| Step::Block(who, span)),
        6 => span().prop_map(Step::Forward),
        1 => Just(Step::Evict),
        2 * changes => span().prop_map(Step::Back),
        changes => (1..9u64).prop_map(Step::Limits),
    ]
}

fn story(changes: bool) -> impl Strategy<Value = Story> {
    let start = prop_oneof![0..100u64, Just(NOW.get())];
    (policy(), start, prop::collection::vec(step(changes), 1..60)).prop_map(|(policy, start_ms, steps)| Story {
        policy,
        start_ms,
        steps,
    })
}

/// The same policy with other limits.
fn with_limits(policy: &Policy, limit: u64) -> Policy {
    let quotas = policy.quotas().iter().map(|quota| quota.with_limit(limit).unwrap());
    let changed = Policy::new(policy.name(), quotas).unwrap().charge_denied(policy.charges_denied());
    changed.group_by(policy.group().unwrap().name()).unwrap()
}

impl Story {
    /// So few that the reference never has to forget one.
    fn token(&self, token: u8) -> String {
        (usize::from(token) % (16 >> self.policy.dimensions().len())).to_string()
    }

    /// Plays the story on objects and on the reference. `sweeping`: the objects' clock follows it, and alarms fire.
    fn play(&self, placement: Placement, sweeping: bool) -> Result<(), TestCaseError> {
        let (rig, memory) = (Rig::default(), MemoryLimiter::with_shards(1));
        let limiter = DurableObjects::with_config(&rig, virtual_time().placement(placement)).limiter();
        let keys = DIMENSIONS.map(|(_, keys)| keys.map(Key::new));
        let of = |who: Who| [0, 1, 2].map(|place| (DIMENSIONS[place].0, &keys[place][who >> place & 1]));
        let mut policy = self.policy.clone();
        let rows = policy.dimensions().len() as u64;
        let mut now = UnixMillis::new(self.start_ms);
        let (mut latest, mut charged_at) = (now, vec![now]);
        if sweeping {
            rig.set_clock(now);
        }
        for (place, step) in self.steps.iter().enumerate() {
            let about = || format!("step {place}, {step:?}, at {now:?}, of {policy:?}");
            let written = rig.rows_written();
            latest = latest.max(now);
            let due = match step {
                Step::Check(who, cost, token) => {
                    let (keys, needed) = (of(*who), policy.has_slots().then_some((0, 0)));
                    let named = token.or(needed).map(|(token, ttl)| (self.token(token), Millis::new(ttl)));
                    let check = Check::new(&policy, &keys, now).cost(*cost);
                    let check = named.iter().fold(check, |check, (token, ttl)| check.idempotent(token, *ttl));
                    let decided = block_on(limiter.check(check)).map_err(|error| error.kind());
                    let expected = memory.decide(check).map_err(|error| error.kind());
                    prop_assert_eq!(&decided, &expected, "{}", about());
                    charged_at.push(now);
                    match expected {
                        Ok(first) if first.is_replay() => 0,
                        Ok(first) if first.is_allowed() => rows + u64::from(named.is_some() && *cost > 0),
                        Ok(_) if denials_write(&policy) || latest.since(now) > MAX_CLOCK_SKEW => rows,
                        _ => 0,
                    }
                }
                Step::Peek(who, cost) => {
                    let keys = of(*who);
                    let check = Check::new(&policy, &keys, now).cost(*cost).idempotent("any", Millis::ZERO);
                    let decided = block_on(limiter.peek(check)).unwrap();
                    prop_assert_eq!(&decided, &block_on(memory.peek(check)).unwrap(), "{}", about());
                    0
                }
                Step::Settle(who, token, cost) => {
                    let (keys, token) = (of(*who), self.token(*token));
                    let release = Settle::release(&policy, &keys, &token, now);
                    let settle = cost.map_or(release, |cost| Settle::new(&policy, &keys, &token, cost, now));
                    let settled = block_on(limiter.settle(settle)).map_err(|error| error.kind());
                    let expected = block_on(memory.settle(settle)).map_err(|error| error.kind());
                    prop_assert_eq!(&settled, &expected, "{}", about());
                    if expected.is_ok_and(|settled| !settled.is_replay()) { rows + 1 } else { 0 }
                }
                Step::Refund(who, ago, cost) => {
                    let keys = of(*who);
                    let then = charged_at[charged_at.len().saturating_sub(ago + 1)];
                    let refund = Refund::new(&policy, &keys, *cost, then, now);
                    block_on(limiter.refund(refund)).unwrap();
                    block_on(memory.refund(refund)).unwrap();
                    rows
                }
                Step::Reset(who) => {
                    let keys = of(*who);
                    block_on(limiter.reset(&policy, (&keys).into())).unwrap();
                    block_on(memory.reset(&policy, (&keys).into())).unwrap();
                    rows
                }
                Step::Block(who, span) => {
                    let keys = of(*who);
                    let block = Block::new(&policy, &keys, Millis::new(*span), now);
                    let blocked = block_on(limiter.block(block)).map_err(|error| error.kind());
                    prop_assert_eq!(
                        blocked,
                        block_on(memory.block(block)).map_err(|error| error.kind()),
                        "{}",
                        about()
                    );
                    rows
                }
                Step::Forward(span) => {
                    now = now + Millis::new(*span);
                    if sweeping {
                        // Expired rows are removed.
                        rig.set_clock(now);
                    }
                    u64::MAX
                }
                Step::Back(span) => {
                    now = UnixMillis::new(now.get().saturating_sub(*span));
                    0
                }
                Step::Limits(limit) => {
                    policy = with_limits(&policy, *limit);
                    0
                }
                Step::Evict => {
                    rig.evict();
                    0
                }
            };
            let rows = rig.rows_written() - written;
            prop_assert!(rows <= due, "{rows} rows were written, {due} are due; {place}, {step:?}, of {policy:?}");
        }
        Ok(())
    }
}

fn denials_write(policy: &Policy) -> bool {
    let changes = |quota: &Quota| match quota.rule() {
        Rule::Penalty(_) => true,
        Rule::Concurrency(rule) => rule.returns(),
        _ => false,
    };
    policy.charges_denied() || policy.quotas().iter().any(changes)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases()) })]

    #[test]
    fn an_object_decides_on_several_rows_as_the_reference_does(story in story(true)) {
        story.play(Placement::PerKey, false)?;
    }

    #[test]
    fn the_removal_of_expired_rows_of_several_changes_no_decision(story in story(false)) {
        story.play(Placement::Shards(NonZero::new(2).unwrap()), true)?;
    }
}

fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(2_000)
}
