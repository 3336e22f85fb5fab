//! Decisions as bytes, in answers and in rows. Integers are LEB128: seven bits a byte, low bits first.
//!
//! | part | bytes |
//! |-|-|
//! | status (2 bits), whether it is a replay, whether the wait is known | 1 |
//! | binding quota, instant, delay; the wait if it is known | 1 to 10 each |
//! | for each quota: limit, remaining + 1, time until the reset + 1; 0 for one that is unknown | 1 to 10 each |
//! | if a balance paid, which the first byte tells: its place among the quotas, the units | 1 to 10 each |

use tidegate_core::internal::leb128::{put, take};
use tidegate_core::{Decision, Error, ErrorKind, Millis, Policy, QuotaStatus, Status, UnixMillis};

const REPLAY: u8 = 4;
const WAITS: u8 = 8;
const PAID: u8 = 16;

/// Encodes a decision, without its origin: some 15 bytes for one quota.
pub(crate) fn encode(decision: &Decision) -> Vec<u8> {
    let status = match decision.status() {
        Status::Allowed => 0,
        Status::Denied => 1,
        // There are no others.
        _ => 2,
    };
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    let mut out = Vec::with_capacity(32);
    let payer = decision.quotas().iter().enumerate().find(|(_, quota)| quota.paid() > 0);
    let flags = flag(decision.is_replay(), REPLAY) | flag(payer.is_some(), PAID);
    out.push(status | flags | flag(decision.retry_after().is_some(), WAITS));
    put(&mut out, decision.binding_index() as u64);
    put(&mut out, decision.decided_at().get());
    put(&mut out, decision.delay().get());
    if let Some(wait) = decision.retry_after() {
        put(&mut out, wait.get());
    }
    let or_unknown = |value: Option<u64>| value.map_or(0, |value| value.saturating_add(1));
    for quota in decision.quotas() {
        put(&mut out, quota.limit());
        put(&mut out, or_unknown(quota.remaining()));
        put(&mut out, or_unknown(quota.reset_after().map(Millis::get)));
    }
    if let Some((place, quota)) = payer {
        put(&mut out, place as u64);
        put(&mut out, quota.paid());
    }
    out
}

/// Decodes what [`encode`] wrote of a decision by this policy, or by one of its shape. The origin is the store.
///
/// # Errors
/// [`ErrorKind::Corrupt`] for other bytes.
pub(crate) fn decode(bytes: &[u8], policy: &Policy) -> Result<Decision, Error> {
    read(bytes, policy.quotas().len()).ok_or_else(|| {
        Error::new(ErrorKind::Corrupt, "decision: the bytes are not a decision by this policy; what else writes there?")
    })
}

fn read(mut rest: &[u8], count: usize) -> Option<Decision> {
    let flags = rest.split_off_first()?;
    let status = match flags & 3 {
        0 => Status::Allowed,
        1 => Status::Denied,
        2 => Status::NeverAdmissible,
        _ => return None,
    };
    let binding = usize::try_from(take(&mut rest)?).ok()?;
    let decided_at = UnixMillis::new(take(&mut rest)?);
    let delay = Millis::new(take(&mut rest)?);
    let retry_after = match flags & WAITS {
        0 => None,
        _ => Some(Millis::new(take(&mut rest)?)),
    };
    let mut quotas = Vec::with_capacity(count);
    for _ in 0..count {
        let (limit, room, reset) = (take(&mut rest)?, take(&mut rest)?, take(&mut rest)?);
        quotas.push(QuotaStatus::new(limit, room.checked_sub(1), reset.checked_sub(1).map(Millis::new)));
    }
    if flags & PAID != 0 {
        let (place, units) = (take(&mut rest)?, take(&mut rest)?);
        let payer = quotas.get_mut(usize::try_from(place).ok()?).filter(|_| status == Status::Allowed && units > 0)?;
        *payer = payer.paying(units);
    }
    if *flags >= 2 * PAID || !rest.is_empty() {
        return None;
    }
    let wait = if status == Status::Allowed { Some(delay) } else { retry_after };
    let decision = Decision::from_parts(status, wait, quotas, binding, decided_at).ok()?;
    Some(decision.replayed(flags & REPLAY != 0))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use proptest::prelude::*;
    use tidegate_core::{ChargeId, Origin, Quota};

    use super::*;

    fn quota() -> impl Strategy<Value = Quota> {
        let numbers = prop_oneof![(1..9u64, 1..40u64, 1..9u64), (1..1_000u64, 1..1_000_000_000_000u64, 1..1_000u64)];
        (1..7u8, numbers).prop_map(|(rule, (limit, span, refill))| {
            let span = Millis::new(span);
            match rule {
                1 => Quota::fixed_window(limit, span),
                2 => Quota::sliding_window(limit, span),
                3 => Quota::sliding_log(limit, span),
                4 => Quota::token_bucket(limit, refill, span),
                5 => Quota::leaky_bucket(limit, refill, span),
                _ => Quota::concurrency(limit, span),
            }
            .unwrap()
        })
    }

    fn policy() -> impl Strategy<Value = Policy> {
        let penalty = Quota::penalty(Millis::new(7), 3, Millis::new(100)).unwrap();
        (prop::collection::vec(quota(), 1..8), any::<bool>()).prop_map(move |(mut quotas, punishes)| {
            quotas.extend(punishes.then(|| penalty.clone()));
            Policy::new("api", quotas).unwrap()
        })
    }

    fn window(limit: u64) -> Policy {
        Policy::new("api", [Quota::fixed_window(limit, Millis::new(1_000)).unwrap()]).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(3_000) })]

        #[test]
        fn a_decision_round_trips(policy in policy(), start: u64, costs in prop::collection::vec((0..20u64, 0..12u64), 1..20)) {
            let (mut state, mut now) = (policy.initial_state(), UnixMillis::new(start));
            for (number, (after, cost)) in costs.into_iter().enumerate() {
                now = now + Millis::new(after);
                let peeked = policy.peek(&state, now, cost);
                let decided = policy.decide_as(&mut state, now, cost, ChargeId::new(number as u64));
                for decision in [peeked, decided.clone().replayed(true), decided] {
                    let bytes = encode(&decision);
                    prop_assert_eq!(&decode(&bytes, &policy).unwrap(), &decision);
                    let longer = [&bytes[..], &[0]].concat();
                    for other in (0..bytes.len()).map(|end| &bytes[..end]).chain([&longer[..]]) {
                        prop_assert_eq!(decode(other, &policy).unwrap_err().kind(), ErrorKind::Corrupt);
                    }
                }
            }
        }

        #[test]
        fn any_bytes_are_a_decision_or_corrupt(policy in policy(), bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            match decode(&bytes, &policy) {
                Ok(decision) => {
                    prop_assert_eq!(decision.quotas().len(), policy.quotas().len());
                    prop_assert_eq!(decision.binding(), &decision.quotas()[decision.binding_index()]);
                }
                Err(error) => prop_assert_eq!(error.kind(), ErrorKind::Corrupt),
            }
        }
    }

    #[test]
    fn what_the_platform_does_not_report_stays_unknown_and_the_origin_is_the_store() {
        let policy = window(9);
        let native = Decision::native(false, 9, UnixMillis::MAX);
        assert_eq!(decode(&encode(&native), &policy).unwrap(), native);
        let leased = native.with_origin(Origin::Lease);
        assert_eq!(decode(&encode(&leased), &policy).unwrap().origin(), Origin::Store);
    }

    #[test]
    fn a_decision_is_by_a_quota_of_its_policy_and_has_no_unknown_flag() {
        let policy = window(1);
        let bytes = encode(&policy.decide(&mut policy.initial_state(), UnixMillis::new(0), 1));
        assert_eq!(bytes.len(), 8);
        assert!(decode(&bytes, &policy).is_ok());
        for (place, byte) in [(0, 3), (0, 16), (0, 32), (1, 1)] {
            let mut other = bytes.clone();
            other[place] = byte;
            assert_eq!(decode(&other, &policy).unwrap_err().kind(), ErrorKind::Corrupt, "{place} {byte}");
        }
    }
}
