//! The response fields of a decision.

use alloc::string::{String, ToString};
use alloc::vec::{self, Vec};
use core::fmt::Write as _;

use crate::{Decision, ErrorKind, Millis, Policy, QuotaStatus, Rule};

/// The largest integer of a structured field (RFC 9651, section 3.3.1). Larger ones are clamped to it.
const INTEGER_MAX: u64 = 999_999_999_999_999;

/// The revision of the `RateLimit-Policy` and `RateLimit` fields.
///
/// ```
/// use tidegate_core::{Millis, Policy, Quota, RateLimitFields, ResponseFields, UnixMillis};
/// # fn main() -> Result<(), tidegate_core::Error> {
/// let policy = Policy::new("api", [Quota::fixed_window(100, Millis::from_secs(60))?])?;
/// let decision = policy.decide(&mut policy.initial_state(), UnixMillis::new(0), 1);
/// let fields = ResponseFields::with_revision(&policy, &decision, RateLimitFields::Draft11);
/// assert_eq!(fields.get(ResponseFields::RATELIMIT_POLICY), Some(r#""api";q=100;w=60"#));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RateLimitFields {
    /// [draft-ietf-httpapi-ratelimit-headers-11](https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-11).
    #[default]
    Draft11,
}

/// The rate limit fields of a response, for every response: allowed, denied, or an error of the application.
///
/// For the binding quota ([`Decision::binding`]):
/// - `x-ratelimit-limit`, always.
/// - `x-ratelimit-remaining`.
/// - `x-ratelimit-reset`: when the quota is completely unused, in seconds since the epoch, rounded up.
///
/// For every quota, as structured fields ([`RateLimitFields`]):
/// - `ratelimit-policy`: its name, `q` its limit, `w` its [window](crate::Rule::window) in seconds, rounded up. A concurrency
///   limit has the unit `qu="concurrent-requests"` in place of a window.
/// - `ratelimit`: its name, `r` what remains, `t` the seconds until it is completely unused, rounded up.
///
/// A penalty has no entry, because it has no limit.
///
/// For a denial: `retry-after` in whole seconds, rounded up and at least 1. A request that is
/// [`NeverAdmissible`](crate::Status::NeverAdmissible) has none, because no wait helps.
///
/// Values that the platform does not report are omitted: the field, the parameter, or, if `r` is unknown, the quota's
/// entry. The draft asks for no `t` later than `retry-after`. So on a denial, the `t` of the binding quota is at most
/// `retry-after`, and a later `t` of another quota is omitted. A [delay](Decision::delay) has no field.
///
/// ```
/// use tidegate_core::{Millis, Policy, Quota, ResponseFields, UnixMillis};
/// # fn main() -> Result<(), tidegate_core::Error> {
/// let policy = Policy::new("api", [Quota::token_bucket(10, 5, Millis::from_secs(1))?])?;
/// let (mut state, now) = (policy.initial_state(), UnixMillis::new(1_800_000_000_000));
/// let decision = policy.decide(&mut state, now, 3);
/// let fields: Vec<_> = ResponseFields::new(&policy, &decision).into_iter().collect();
/// assert_eq!(fields, [
///     ("x-ratelimit-limit", "10".to_string()),
///     ("x-ratelimit-remaining", "7".to_string()),
///     ("x-ratelimit-reset", "1800000001".to_string()),
///     ("ratelimit-policy", r#""api";q=10;w=2"#.to_string()),
///     ("ratelimit", r#""api";r=7;t=1"#.to_string()),
/// ]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseFields(Vec<(&'static str, String)>);

impl ResponseFields {
    /// The name of the field for the media type of a [`Rejection`](crate::Rejection)'s body.
    pub const CONTENT_TYPE: &'static str = "content-type";
    /// The name of the IETF field for the remaining counts.
    pub const RATELIMIT: &'static str = "ratelimit";
    /// The name of the IETF field for the quotas.
    pub const RATELIMIT_POLICY: &'static str = "ratelimit-policy";
    /// The name of the field for the wait of a denial.
    pub const RETRY_AFTER: &'static str = "retry-after";
    /// The name of the field for the limit.
    pub const X_RATELIMIT_LIMIT: &'static str = "x-ratelimit-limit";
    /// The name of the field for the remaining count.
    pub const X_RATELIMIT_REMAINING: &'static str = "x-ratelimit-remaining";
    /// The name of the field for the time at which the quota is completely unused.
    pub const X_RATELIMIT_RESET: &'static str = "x-ratelimit-reset";
    /// The name of the field that marks a request admitted after a failure of the store.
    pub const X_TIDEGATE_FAILED_OPEN: &'static str = "x-tidegate-failed-open";

    /// The fields of a decision on `policy`, with the newest revision of the IETF fields.
    #[must_use]
    pub fn new(policy: &Policy, decision: &Decision) -> Self {
        Self::with_revision(policy, decision, RateLimitFields::default())
    }

    /// The fields of a decision on `policy`, with the given revision of the IETF fields.
    #[must_use]
    pub fn with_revision(policy: &Policy, decision: &Decision, revision: RateLimitFields) -> Self {
        let mut fields = Self::default();
        let binding = &decision.quotas()[shown(policy, decision)];
        fields.push(Self::X_RATELIMIT_LIMIT, binding.limit().to_string());
        if let Some(remaining) = binding.remaining() {
            fields.push(Self::X_RATELIMIT_REMAINING, remaining.to_string());
        }
        if let Some(reset_after) = binding.reset_after() {
            let reset_at = decision.decided_at() + reset_after;
            fields.push(Self::X_RATELIMIT_RESET, reset_at.as_secs_ceil().to_string());
        }
        match revision {
            RateLimitFields::Draft11 => {
                fields.push(Self::RATELIMIT_POLICY, draft11_policy(policy));
                if let Some(limits) = draft11_limits(policy, decision) {
                    fields.push(Self::RATELIMIT, limits);
                }
            }
        }
        if let Some(secs) = retry_after_secs(decision) {
            fields.push(Self::RETRY_AFTER, secs.to_string());
        }
        fields
    }

    /// The field of a response to a request that was admitted because the store failed: `x-tidegate-failed-open` with the
    /// error's kind. There are no other fields, because the counts are unknown.
    ///
    /// ```
    /// use tidegate_core::{ErrorKind, ResponseFields};
    /// let fields = ResponseFields::failed_open(ErrorKind::Timeout);
    /// assert_eq!(fields.get(ResponseFields::X_TIDEGATE_FAILED_OPEN), Some("timeout"));
    /// ```
    #[must_use]
    pub fn failed_open(kind: ErrorKind) -> Self {
        let mut fields = Self::default();
        fields.push(Self::X_TIDEGATE_FAILED_OPEN, kind.name().to_string());
        fields
    }

    /// The value of a field by its lower-case name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(field, _)| *field == name).map(|(_, value)| value)
    }

    /// The lower-case name and the value of each field. Names are unique.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.iter().map(|(name, value)| (*name, value.as_str()))
    }

    pub(crate) fn push(&mut self, name: &'static str, value: String) {
        self.0.push((name, value));
    }
}

impl IntoIterator for ResponseFields {
    type Item = (&'static str, String);
    type IntoIter = vec::IntoIter<(&'static str, String)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// Whole seconds, at least 1, because some clients retry in a loop after a 0.
fn retry_after_secs(decision: &Decision) -> Option<u64> {
    decision.retry_after().map(|wait| seconds(wait).max(1))
}

fn seconds(span: Millis) -> u64 {
    span.as_secs_ceil().min(INTEGER_MAX)
}

/// The quota of the `x-ratelimit` fields: the binding one, or the one with the fewest remaining if that is a penalty.
fn shown(policy: &Policy, decision: &Decision) -> usize {
    let counts = |place: &usize| !matches!(policy.quotas()[*place].rule(), Rule::Penalty(_));
    let fewest = || {
        let places = (0..policy.quotas().len()).filter(counts);
        places.min_by_key(|place| decision.quotas().get(*place).and_then(QuotaStatus::remaining)).unwrap_or(0)
    };
    Some(decision.binding_index()).filter(counts).unwrap_or_else(fewest)
}

fn draft11_policy(policy: &Policy) -> String {
    let mut out = String::with_capacity(policy.quotas().len() * 48);
    for quota in policy.quotas() {
        let (limit, window) = (quota.rule().limit().min(INTEGER_MAX), seconds(quota.rule().window()));
        match quota.rule() {
            Rule::Penalty(_) => {}
            Rule::Concurrency(_) => {
                push_name(&mut out, quota.name());
                let _ = write!(out, ";q={limit};qu=\"concurrent-requests\"");
            }
            _ => {
                push_name(&mut out, quota.name());
                let _ = write!(out, ";q={limit};w={window}");
            }
        }
    }
    out
}

/// `None` if nothing is known, because an empty list has no field.
fn draft11_limits(policy: &Policy, decision: &Decision) -> Option<String> {
    let mut out = String::with_capacity(policy.quotas().len() * 48);
    for (place, (quota, status)) in policy.quotas().iter().zip(decision.quotas()).enumerate() {
        let (Some(remaining), false) = (status.remaining(), matches!(quota.rule(), Rule::Penalty(_))) else { continue };
        push_name(&mut out, quota.name());
        let _ = write!(out, ";r={}", remaining.min(INTEGER_MAX));
        let reset = status.reset_after().map(seconds);
        let reset = match (reset, retry_after_secs(decision)) {
            (Some(reset), Some(retry)) if reset > retry => (place == decision.binding_index()).then_some(retry),
            (reset, _) => reset,
        };
        if let Some(secs) = reset {
            let _ = write!(out, ";t={secs}");
        }
    }
    (!out.is_empty()).then_some(out)
}

/// Appends the next entry's name as a structured field's string. By construction, names have no quotes or backslashes.
fn push_name(out: &mut String, name: &str) {
    if !out.is_empty() {
        out.push_str(", ");
    }
    let _ = write!(out, "\"{name}\"");
}
