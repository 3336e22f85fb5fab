//! Decisions over several keys in memory are those of one policy on the states of these keys.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::HashMap;

use proptest::prelude::*;
use tidegate_core::{ChargeId, Check, Key, MemoryLimiter, Millis, Policy, PolicyState, Quota, QuotaState};
use tidegate_testing::NOW;

const DIMENSIONS: [&str; 3] = ["ip", "user", "tenant"];

/// The keys of each dimension.
const KEYS: usize = 16;

fn quota() -> impl Strategy<Value = Quota> {
    let span = Millis::from_secs(10);
    (0..7_u8, 1..6_u64, 0..3_usize).prop_map(move |(algorithm, limit, dimension)| {
        let quota = match algorithm {
            0 => Quota::fixed_window(limit, span),
            1 => Quota::sliding_window(limit, span),
            2 => Quota::sliding_log(limit, span),
            3 => Quota::leaky_bucket(limit, 1, span),
            4 => Quota::penalty(span, 2, Millis::from_secs(60)),
            _ => Quota::token_bucket(limit, 1, span),
        };
        quota.and_then(|quota| quota.by(DIMENSIONS[dimension])).unwrap()
    })
}

/// Of several dimensions. A penalty needs a quota that it punishes.
fn policy() -> impl Strategy<Value = Policy> {
    (prop::collection::vec(quota(), 2..6), any::<bool>()).prop_filter_map("no such policy", |(quotas, charges)| {
        let named = quotas.into_iter().enumerate().map(|(nth, quota)| quota.named(&format!("q{nth}")));
        let policy = Policy::new("api", named.collect::<Result<Vec<_>, _>>().ok()?).ok()?;
        Some(policy.charge_denied(charges)).filter(|policy| policy.dimensions().len() > 1)
    })
}

/// What a request is: how much later it comes, what it costs, and the key of each dimension.
fn request() -> impl Strategy<Value = (u64, u64, [usize; 3])> {
    (prop_oneof![Just(0_u64), 0..3_000_u64, 0..70_000_u64], 0..4_u64, prop::array::uniform3(chosen()))
}

/// Mostly one of two keys. The others make the tables so large that what has expired is removed.
fn chosen() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 0..2_usize, 1 => 2..KEYS]
}

proptest! {
    #[test]
    fn decisions_are_those_of_the_policy(policy in policy(), requests in prop::collection::vec(request(), 1..60)) {
        let memory = MemoryLimiter::with_shards(1);
        let keys: Vec<_> = (0..KEYS).map(|nth| Key::new(format!("key:{nth}"))).collect();
        let mut rows: HashMap<(&str, usize), Vec<QuotaState>> = HashMap::new();
        let (mut now, unused) = (NOW, policy.initial_state());
        for (later, cost, chosen) in requests {
            now = now + Millis::new(later);
            let given = [0, 1, 2].map(|nth| (DIMENSIONS[nth], &keys[chosen[nth]]));
            let key_of = |name: &str| DIMENSIONS.iter().position(|known| *known == name).map_or(0, |nth| chosen[nth]);
            let parts = policy.dimensions().iter().flat_map(|dimension| {
                let known = rows.get(&(dimension.name(), key_of(dimension.name())));
                known.map_or_else(|| unused.parts()[dimension.quotas()].to_vec(), Clone::clone)
            });
            let mut state = PolicyState::from_parts(parts.collect());
            let decision = policy.decide_as(&mut state, now, cost, ChargeId::NONE);
            for dimension in policy.dimensions() {
                rows.insert((dimension.name(), key_of(dimension.name())), state.parts()[dimension.quotas()].to_vec());
            }
            prop_assert_eq!(memory.decide(Check::new(&policy, &given, now).cost(cost)).unwrap(), decision);
        }
    }
}

/// A row that has expired is found, and could be removed when the next row of the request is looked for.
#[test]
fn an_expired_row_is_charged() {
    let limiter = MemoryLimiter::with_shards(1);
    let quota = |limit, by: &str| Quota::fixed_window(limit, Millis::from_secs(10)).unwrap().by(by).unwrap();
    let policy = Policy::new("api", [quota(1, "user"), quota(100, "tenant")]).unwrap();
    let is_admitted = |key: &Key, now| {
        let given = [("user", key), ("tenant", key)];
        limiter.decide(Check::new(&policy, &given, now)).unwrap().is_allowed()
    };
    // Other keys in each round, so that they are at other places of the table.
    for round in 0..100 {
        let now = NOW + Millis::from_secs(7_200 * round);
        let keys: Vec<_> = (0..20).map(|nth| Key::new(format!("key:{round}:{nth}"))).collect();
        assert!(keys.iter().all(|key| is_admitted(key, now)));
        let later = now + Millis::from_secs(3_600);
        for key in &keys {
            assert!(is_admitted(key, later), "{key:?}");
            assert!(!is_admitted(key, later), "{key:?} was not charged");
        }
    }
}
