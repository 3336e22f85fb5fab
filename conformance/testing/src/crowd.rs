//! Histories of several users and tenants, with policies of several dimensions, concurrency limits, penalties and blocks.

use proptest::prelude::*;
use tidegate_core::algorithm::Concurrency;
use tidegate_core::{
    Block, Check, Error, Key, Limiter, LimiterExt, Millis, Policy, Quota, Refund, Rule, Settle, UnixMillis,
};

/// A policy, and what happens to its keys.
#[derive(Clone, Debug)]
pub struct Crowd {
    /// The policy. Its dimensions are some of `user`, `tenant` and the one without a name.
    pub policy: Policy,
    /// The steps.
    pub moves: Vec<(Who, Move)>,
}

/// One of two users of one of two tenants.
#[derive(Clone, Copy, Debug)]
pub struct Who {
    user: u8,
    tenant: u8,
}

/// A step of a history.
#[derive(Clone, Copy, Debug)]
pub enum Move {
    /// A check, with one of four tokens.
    Check(u64, u8),
    /// A check without a token.
    Plain(u64),
    /// A peek.
    Peek(u64),
    /// A settlement of the charge with one of the four tokens; `None` releases it.
    Settle(u8, Option<u64>),
    /// A refund of what was charged this many milliseconds ago.
    Refund(u64, u64),
    /// A reset.
    Reset,
    /// A block for this many milliseconds, or its end.
    Block(u64),
    /// Time passes, in milliseconds.
    Forward(u64),
    /// The clock steps back, in milliseconds.
    Back(u64),
    /// The store's process loses its memory.
    Evict,
}

fn quota() -> impl Strategy<Value = Quota> {
    let (limit, span) = (1..=6u64, (1..=40u64).prop_map(|span| Millis::new(50 * span)));
    let rule = prop_oneof![
        (limit.clone(), span.clone()).prop_map(|(n, w)| Quota::fixed_window(n, w)),
        (limit.clone(), span.clone()).prop_map(|(n, w)| Quota::sliding_window(n, w)),
        (limit.clone(), span.clone()).prop_map(|(n, w)| Quota::sliding_log(n, w)),
        (limit.clone(), 1..=5u64, span.clone()).prop_map(|(n, r, w)| Quota::token_bucket(n, r, w)),
        (limit.clone(), 1..=5u64, span.clone()).prop_map(|(n, r, w)| Quota::leaky_bucket(n, r, w)),
        (limit, span.clone(), any::<bool>()).prop_map(|(n, lifetime, returns)| {
            Ok(Rule::Concurrency(Concurrency::new(n, lifetime)?.returns_cost(returns)).into())
        }),
        (span, 1..=4u64, 1..=30u64)
            .prop_map(|(base, factor, times)| { Quota::penalty(base, factor, Millis::new(base.get() * times)) }),
        (1..=2_000u64).prop_map(|cap| Quota::block(Millis::new(cap))),
    ];
    (rule, 0..3usize).prop_map(|(quota, dimension)| match dimension {
        0 => quota.unwrap(),
        1 => quota.unwrap().by("user").unwrap(),
        _ => quota.unwrap().by("tenant").unwrap(),
    })
}

fn policy() -> impl Strategy<Value = Policy> {
    let quotas = prop::collection::vec(quota(), 1..=6);
    (quotas, any::<bool>()).prop_filter_map("quotas that do not fit together", |(quotas, charge_denied)| {
        let policy = Policy::new("crowd", quotas).ok()?.charge_denied(charge_denied);
        match policy.dimensions() {
            [_] => Some(policy),
            dimensions => {
                let group = dimensions[dimensions.len() / 2].name().to_owned();
                policy.group_by(&group).ok()
            }
        }
    })
}

/// Histories of a crowd.
pub fn crowd() -> impl Strategy<Value = Crowd> {
    let who = (0..2u8, 0..2u8).prop_map(|(user, tenant)| Who { user, tenant });
    let cost = || prop_oneof![6 => Just(1u64), 1 => Just(0), 3 => 1..=7u64];
    let span = || prop_oneof![4 => 0..60u64, 3 => 0..1_500u64, 1 => 0..200_000u64];
    let step = prop_oneof![
        10 => (cost(), 0..4u8).prop_map(|(cost, token)| Move::Check(cost, token)),
        6 => cost().prop_map(Move::Plain),
        1 => cost().prop_map(Move::Peek),
        5 => (0..4u8, prop::option::of(0..20u64)).prop_map(|(token, cost)| Move::Settle(token, cost)),
        1 => (span(), cost()).prop_map(|(ago, cost)| Move::Refund(ago, cost)),
        1 => Just(Move::Reset),
        2 => prop_oneof![1 => Just(0), 3 => 1..3_000u64, 1 => any::<u64>()].prop_map(Move::Block),
        6 => span().prop_map(Move::Forward),
        1 => span().prop_map(Move::Back),
        1 => Just(Move::Evict),
    ];
    (policy(), prop::collection::vec((who, step), 1..60)).prop_map(|(policy, moves)| Crowd { policy, moves })
}

/// The answer of a limiter to a step, in a form that can be compared.
pub type Told = Result<Option<tidegate_core::Decision>, tidegate_core::ErrorKind>;

/// Makes one step. `prefix` begins every key.
pub async fn take(limiter: &impl Limiter, policy: &Policy, step: (Who, Move), now: UnixMillis, prefix: &str) -> Told {
    let (Who { user, tenant }, step) = step;
    let (user, tenant) = (Key::new(format!("{prefix}user:{user}")), Key::new(format!("{prefix}tenant:{tenant}")));
    let keys = [("user", &user), ("tenant", &tenant), ("", &tenant)];
    let (token, forever) = (|token: u8| format!("token-{token}"), Millis::new(1 << 45));
    let told = |answer: Result<tidegate_core::Decision, Error>| answer.map(Some).map_err(|error| error.kind());
    let done = |answer: Result<(), Error>| answer.map(|()| None).map_err(|error| error.kind());
    match step {
        Move::Check(cost, number) => {
            let token = token(number);
            told(limiter.check(Check::new(policy, &keys, now).cost(cost).idempotent(&token, forever)).await)
        }
        Move::Plain(cost) => told(limiter.check(Check::new(policy, &keys, now).cost(cost)).await),
        Move::Peek(cost) => {
            told(limiter.peek(Check::new(policy, &keys, now).cost(cost).idempotent("peek", forever)).await)
        }
        Move::Settle(number, cost) => {
            let token = token(number);
            let settle = match cost {
                Some(cost) => Settle::new(policy, &keys, &token, cost, now),
                None => Settle::release(policy, &keys, &token, now),
            };
            told(limiter.settle(settle).await)
        }
        Move::Refund(ago, cost) => {
            let charged_at = UnixMillis::new(now.get().saturating_sub(ago));
            done(limiter.refund(Refund::new(policy, &keys, cost, charged_at, now)).await)
        }
        Move::Reset => done(limiter.reset(policy, (&keys).into()).await),
        Move::Block(span) => done(limiter.block(Block::new(policy, &keys, Millis::new(span), now)).await),
        Move::Forward(_) | Move::Back(_) | Move::Evict => Ok(None),
    }
}

/// The clock after a step.
#[must_use]
pub fn clock(now: UnixMillis, step: Move) -> UnixMillis {
    match step {
        Move::Forward(span) => now + Millis::new(span),
        Move::Back(span) => UnixMillis::new(now.get().saturating_sub(span)),
        _ => now,
    }
}
