//! Random histories of balances: grants, requests and settlements, with all that may be beside a balance.

use crate::NOW;
use proptest::prelude::*;
use tidegate_core::{
    Check, Decision, Error, ErrorKind, Grant, Key, Keys, Limiter, LimiterExt, Millis, Policy, Quota, Rule, Settle,
    UnixMillis,
};

const HOUR: Millis = Millis::from_secs(3_600);

/// A step of a history.
#[derive(Clone, Debug)]
pub enum Step {
    /// The clock goes forward.
    Wait(u64),
    /// The clock goes back.
    Back(u64),
    /// Token, units, and after how many milliseconds they expire: 0 if they do not, 1 if they have.
    Grant(u8, u64, u64),
    /// Token, if any, and cost.
    Check(Option<u8>, u64),
    /// Cost.
    Peek(u64),
    /// Token and cost. `None` to release.
    Settle(u8, Option<u64>),
    /// Of the counts, which leaves the balance.
    Reset,
    /// The other quotas change, which leaves the balance.
    Plan(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let token = || 0..6u8;
    prop_oneof![
        3 => (0..60u64).prop_map(Step::Wait),
        // A window of a calendar lasts for minutes.
        1 => (30_000..65_000u64).prop_map(Step::Wait),
        1 => (0..60u64).prop_map(Step::Back),
        4 => (0..40u8, 1..30u64, prop_oneof![3 => Just(0), 1 => Just(1), 6 => 2..150u64, 2 => 30_000..200_000u64])
            .prop_map(|(token, units, lasts)| Step::Grant(token, units, lasts)),
        6 => (proptest::option::of(token()), 0..20u64).prop_map(|(token, cost)| Step::Check(token, cost)),
        1 => (0..90u64).prop_map(Step::Peek),
        4 => (token(), proptest::option::of(0..40u64)).prop_map(|(token, cost)| Step::Settle(token, cost)),
        1 => Just(Step::Reset),
        1 => (0..3u8).prop_map(Step::Plan),
    ]
}

/// A policy with a balance, beside all that may be beside it.
pub fn policy() -> impl Strategy<Value = Policy> {
    let included = prop_oneof![
        Just(None),
        (1..8u64, 0..9u64, 0..3u64, 1..4u64).prop_map(|(limit, carry_over, since, first)| {
            let (start, length_end) = (NOW.get() / 60_000 - since, 1 << 20);
            let last = carry_over.min(limit) * length_end + 60;
            Some(Quota::from_parameters(8, [limit, start * length_end + first, last]).unwrap())
        }),
        (1..8u64, 1..50u64).prop_map(|(n, w)| Some(Quota::fixed_window(n, Millis::new(w)).unwrap())),
        (1..8u64, 1..4u64, 1..50u64).prop_map(|(n, r, w)| Some(Quota::token_bucket(n, r, Millis::new(w)).unwrap())),
    ];
    let beside = proptest::collection::vec(0..7u8, 0..3);
    (included, beside, 20..80u64, any::<bool>(), 0..3u8).prop_map(
        |(included, beside, max, charge_denied, dimensions)| {
            let user = |quota: Quota| if dimensions > 0 { quota.by("user").unwrap() } else { quota };
            let other = |quota: Quota| if dimensions > 0 { quota.by("tenant").unwrap() } else { quota };
            let ms = Millis::new;
            let mut quotas: Vec<Quota> = beside
                .iter()
                .map(|kind| match kind {
                    0 => other(Quota::sliding_window(15, ms(40)).unwrap()),
                    1 => user(Quota::sliding_log(20, ms(30)).unwrap()),
                    2 => other(Quota::leaky_bucket(20, 3, ms(5)).unwrap()),
                    3 => user(Quota::concurrency(3, ms(100)).unwrap()),
                    4 => other(Quota::token_bucket(25, 2, ms(7)).unwrap()),
                    6 => other(calendar_window()),
                    _ => user(Quota::fixed_window(40, ms(90)).unwrap()),
                })
                .collect();
            let own = Quota::balance(max).unwrap();
            let own = if included.is_some() { own.covers_excess().unwrap() } else { own };
            quotas.extend(included.map(user));
            quotas.push(user(own));
            if beside.contains(&5) {
                quotas.push(user(Quota::penalty(ms(4), 2, ms(30)).unwrap()));
            }
            let policy = Policy::new("api", quotas).unwrap().charge_denied(charge_denied);
            if dimensions == 2 { policy.group_by("user").unwrap() } else { policy }
        },
    )
}

/// A window of a calendar that ends where histories begin, and the next one.
fn calendar_window() -> Quota {
    let (minutes, length_end, carry_over) = (NOW.get() / 60_000, 1 << 20, 3);
    Quota::from_parameters(8, [12, (minutes - 5) * length_end + 5, carry_over * length_end + 60]).unwrap()
}

/// A policy and what happens to it.
pub fn history() -> impl Strategy<Value = (Policy, Vec<Step>)> {
    (policy(), prop::collection::vec(step(), 1..60))
}

/// The policy after a step.
pub fn policy_after(policy: Policy, step: &Step) -> Policy {
    let Step::Plan(nth) = step else { return policy };
    let changed = |quota: &Quota| {
        let (rule, limit) = (quota.rule(), quota.rule().limit());
        let changed = match rule {
            Rule::FixedWindow(rule) if *nth == 0 => Quota::token_bucket(limit, 2, rule.window()).unwrap(),
            Rule::FixedWindow(rule) => Quota::fixed_window(limit, rule.window() + Millis::new(1)).unwrap(),
            Rule::TokenBucket(rule) if *nth == 0 => Quota::fixed_window(rule.capacity(), rule.per()).unwrap(),
            Rule::TokenBucket(rule) => {
                Quota::token_bucket(rule.capacity(), rule.refill(), rule.per() + Millis::new(1)).unwrap()
            }
            Rule::SlidingLog(rule) if *nth == 1 => Quota::sliding_window(limit, rule.window()).unwrap(),
            rule => Quota::from(*rule),
        };
        if quota.dimension().is_empty() { changed } else { changed.by(quota.dimension()).unwrap() }
    };
    let quotas = policy.quotas().iter().map(changed);
    let after = Policy::new(policy.name(), quotas).unwrap().charge_denied(policy.charges_denied());
    match policy.group() {
        Some(group) => after.group_by(group.name()).unwrap(),
        None => after,
    }
}

/// The clock after a step.
pub fn clock(now: UnixMillis, step: &Step) -> UnixMillis {
    match step {
        Step::Wait(ms) => now + Millis::new(*ms),
        Step::Back(ms) => UnixMillis::new(now.get() - ms),
        _ => now,
    }
}

/// What a limiter answered: a decision, nothing, or an error.
pub type Told = Result<Option<Decision>, (ErrorKind, String)>;

/// Makes one step. `prefix` begins every key.
pub async fn take(limiter: &impl Limiter, policy: &Policy, step: &Step, now: UnixMillis, prefix: &str) -> Told {
    let (user, tenant) = (Key::new(format!("{prefix}user")), Key::new(format!("{prefix}tenant")));
    let several = [("user", &user), ("tenant", &tenant)];
    let keys = if policy.dimensions()[0].name().is_empty() { Keys::from(&user) } else { Keys::from(&several) };
    let told = |error: Error| (error.kind(), error.to_string());
    match step {
        Step::Wait(_) | Step::Back(_) => Ok(None),
        Step::Grant(token, units, lasts) => {
            let token = format!("grant-{token}");
            let grant = Grant::new(policy, keys, *units, &token, now);
            let grant = match lasts {
                0 => grant,
                1 => grant.expires(now),
                lasts => grant.expires(now + Millis::new(*lasts)),
            };
            limiter.grant(grant).await.map(Some).map_err(told)
        }
        Step::Check(token, cost) => {
            let token = token.map(|token| format!("check-{token}"));
            let check = Check::new(policy, keys, now).cost(*cost);
            let check = match &token {
                Some(token) => check.idempotent(token, HOUR),
                None if policy.has_slots() => return Ok(None),
                None => check,
            };
            limiter.check(check).await.map(Some).map_err(told)
        }
        Step::Peek(cost) => limiter.peek(Check::new(policy, keys, now).cost(*cost)).await.map(Some).map_err(told),
        Step::Settle(token, cost) => {
            let token = format!("check-{token}");
            let settle = match cost {
                Some(cost) => Settle::new(policy, keys, &token, *cost, now),
                None => Settle::release(policy, keys, &token, now),
            };
            limiter.settle(settle).await.map(Some).map_err(told)
        }
        Step::Plan(_) => {
            let plan = policy_after(policy.clone(), step);
            let mut left = Vec::new();
            for policy in [policy, &plan] {
                let place = policy.quotas().iter().position(|quota| matches!(quota.rule(), Rule::Balance(_)));
                let peeked = limiter.peek(Check::new(policy, keys, now).cost(0)).await.map_err(told)?;
                left.push(place.and_then(|place| peeked.quotas()[place].remaining()));
            }
            assert_eq!(left[0], left[1], "the balance of {policy:?}, and of {plan:?}");
            Ok(None)
        }
        Step::Reset => limiter.reset(policy, keys).await.map(|()| None).map_err(told),
    }
}
