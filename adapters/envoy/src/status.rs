//! Verdicts as Envoy reads them.

use std::ops::Range;
use std::time::Duration;

use tidegate_core::Policy;
use tidegate_core::gate::{Joined, Verdict};

use crate::proto::{Code, DescriptorStatus, HeaderValue, RateLimit, RateLimitResponse};

/// The status of a descriptor that a rule lifts all limits from: as many as possible remain.
pub(crate) fn unlimited() -> DescriptorStatus {
    DescriptorStatus { limit_remaining: u32::MAX, ..plain(Code::Ok) }
}

/// A status without a limit.
pub(crate) fn plain(code: Code) -> DescriptorStatus {
    DescriptorStatus { code: code.into(), ..DescriptorStatus::default() }
}

/// The status of a descriptor whose quotas are at `span` of those that were decided together.
pub(crate) fn decided(Joined { pending, .. }: &Joined, verdict: &Verdict, span: &Range<usize>) -> DescriptorStatus {
    let code = if matches!(verdict, Verdict::Pass(_)) { Code::Ok } else { Code::OverLimit };
    // A decision by several rules of one path is by one of them.
    let Some(decision) = verdict.decision().filter(|_| pending.is_alone()) else { return plain(code) };
    let remaining = |place: usize| decision.quotas().get(place).and_then(|quota| quota.remaining());
    let binding = decision.binding_index();
    let is_bound = span.contains(&binding);
    // A quota with fewer remaining than the cost denies the request.
    let denies = is_bound || span.clone().any(|place| remaining(place).is_some_and(|left| left < pending.cost()));
    let code = if denies && !decision.is_allowed() { Code::OverLimit } else { Code::Ok };
    let fewest = span.clone().min_by_key(|place| remaining(*place).unwrap_or(u64::MAX));
    let place = if is_bound { binding } else { fewest.unwrap_or(binding) };
    // A store that does not tell what is left tells no limit, either.
    let (Some(left), Some(quota)) = (remaining(place), decision.quotas().get(place)) else { return plain(code) };
    DescriptorStatus {
        code: code.into(),
        current_limit: limit(pending.policy(), place, quota.limit()),
        limit_remaining: capped(left),
        duration_until_reset: quota.reset_after().and_then(|span| Duration::from_millis(span.get()).try_into().ok()),
    }
}

fn limit(policy: &Policy, place: usize, limit: u64) -> Option<RateLimit> {
    let quota = policy.quotas().get(place)?;
    let units = [1_000, 60_000, 3_600_000, 86_400_000];
    let unit = units.iter().zip(1..).find(|(unit, _)| **unit == quota.rule().window().get());
    let unit = unit.map_or(0, |(_, unit)| unit);
    Some(RateLimit { requests_per_unit: capped(limit), unit, name: quota.name().into() })
}

fn capped(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// The response to the verdicts on a request: the last of them refuses it, or all let it pass.
pub(crate) fn response(statuses: Vec<DescriptorStatus>, verdicts: &[Verdict]) -> RateLimitResponse {
    let left = |verdict: &&Verdict| verdict.decision().and_then(|decision| decision.binding().remaining());
    let (code, fields, body) = match verdicts.last() {
        Some(Verdict::Refuse(refusal)) => {
            let rejection = refusal.rejection();
            (Code::OverLimit, rejection.fields().clone(), rejection.body())
        }
        // As of several quotas, the one with the fewest remaining is told.
        _ => match verdicts.iter().min_by_key(|verdict| left(verdict).unwrap_or(u64::MAX)) {
            Some(Verdict::Pass(pass)) => (Code::Ok, pass.fields(), ""),
            _ => (Code::Ok, Default::default(), ""),
        },
    };
    let header = |(name, value): (&'static str, &str)| HeaderValue { key: name.into(), value: value.into() };
    RateLimitResponse {
        overall_code: code.into(),
        statuses,
        response_headers_to_add: fields.iter().map(header).collect(),
        raw_body: body.as_bytes().to_vec(),
    }
}
