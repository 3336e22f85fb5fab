//! The response fields of a decision.

use alloc::boxed::Box;
use alloc::string::String;
use core::ops::Range;

use crate::{Decision, ErrorKind, Millis, Origin, Policy, Quota, QuotaStatus, Rule};

/// The largest integer of a structured field (RFC 9651, section 3.3.1). Larger ones are clamped to it.
const INTEGER_MAX: u64 = 999_999_999_999_999;

/// Fields that a response has beside the usual ones.
///
/// ```
/// use tidegate_core::{ExtraFields, Millis, Policy, Quota, ResponseFields, UnixMillis};
/// # fn main() -> Result<(), tidegate_core::Error> {
/// let policy = Policy::new("api", [Quota::token_bucket(1, 1, Millis::new(1_200))?])?;
/// let (mut state, now) = (policy.initial_state(), UnixMillis::new(0));
/// let _ = policy.decide(&mut state, now, 1);
/// let denied = policy.decide(&mut state, now, 1);
/// let fields = ResponseFields::with(&policy, &denied, ExtraFields::NONE.draft_6().retry_after_ms());
/// assert_eq!(fields.get(ResponseFields::RATELIMIT_RESET), Some("2"));
/// assert_eq!(fields.get(ResponseFields::RETRY_AFTER), Some("2"));
/// assert_eq!(fields.get(ResponseFields::RETRY_AFTER_MS), Some("1200"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ExtraFields {
    pub(crate) draft_6: bool,
    pub(crate) retry_after_ms: bool,
}

impl ExtraFields {
    /// The usual fields only.
    pub const NONE: Self = Self { draft_6: false, retry_after_ms: false };

    /// `ratelimit-limit`, `ratelimit-remaining` and `ratelimit-reset` of
    /// [draft-ietf-httpapi-ratelimit-headers-06](https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-06).
    #[must_use]
    pub const fn draft_6(self) -> Self {
        Self { draft_6: true, ..self }
    }

    /// For a denial, `retry-after-ms`: the wait of `retry-after` in milliseconds. The client libraries of OpenAI and Anthropic read it
    /// first.
    #[must_use]
    pub const fn retry_after_ms(self) -> Self {
        Self { retry_after_ms: true, ..self }
    }
}

/// The rate limit fields of a response, for every response: allowed, denied, or an error of the application.
///
/// For the binding quota ([`Decision::binding`]):
/// - `x-ratelimit-limit`, always.
/// - `x-ratelimit-remaining`.
/// - `x-ratelimit-reset`: when the quota is completely unused, in seconds since the epoch, rounded up.
///
/// For the same quota, with [`ExtraFields::draft_6`]: `ratelimit-limit`, `ratelimit-remaining`, and `ratelimit-reset`, the seconds
/// until it is completely unused, rounded up, and at most `retry-after`. `ratelimit-policy` is that of draft 11, which has the
/// same name.
///
/// For every quota, as the structured fields of
/// [draft-ietf-httpapi-ratelimit-headers-11](https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-11):
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
/// let fields = ResponseFields::new(&policy, &decision);
/// assert_eq!(fields.iter().collect::<Vec<_>>(), [
///     ("x-ratelimit-limit", "10"),
///     ("x-ratelimit-remaining", "7"),
///     ("x-ratelimit-reset", "1800000001"),
///     ("ratelimit-policy", r#""api";q=10;w=2"#),
///     ("ratelimit", r#""api";r=7;t=1"#),
/// ]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseFields {
    /// How many fields there are.
    count: u8,
    names: [Field; Field::COUNT],
    /// Where the value of each field ends in `text`, which is a few hundred bytes at most.
    ends: [u16; Field::COUNT],
    text: String,
}

/// A field of a response, in the order of [`ResponseFields::NAMES`]. None occurs twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Field {
    #[default]
    Limit,
    Remaining,
    Reset,
    RateLimitPolicy,
    RateLimit,
    Draft6Limit,
    Draft6Remaining,
    Draft6Reset,
    RetryAfter,
    RetryAfterMs,
    Origin,
    FailedOpen,
    ContentType,
    #[cfg(feature = "gate")]
    WwwAuthenticate,
}

impl Field {
    const COUNT: usize = ResponseFields::NAMES.len();

    const fn name(self) -> &'static str {
        ResponseFields::NAMES[self as usize]
    }
}

impl ResponseFields {
    /// The name of the field for the media type of a [`Rejection`](crate::Rejection)'s body.
    pub const CONTENT_TYPE: &'static str = "content-type";
    /// The name of the field for the challenge of a 401.
    pub const WWW_AUTHENTICATE: &'static str = "www-authenticate";
    /// The name of the IETF field for the remaining counts.
    pub const RATELIMIT: &'static str = "ratelimit";
    /// The name of the IETF field for the quotas.
    pub const RATELIMIT_POLICY: &'static str = "ratelimit-policy";
    /// The name of draft 6's field for the limit.
    pub const RATELIMIT_LIMIT: &'static str = "ratelimit-limit";
    /// The name of draft 6's field for the remaining count.
    pub const RATELIMIT_REMAINING: &'static str = "ratelimit-remaining";
    /// The name of draft 6's field for the time until the quota is completely unused.
    pub const RATELIMIT_RESET: &'static str = "ratelimit-reset";
    /// The name of the field for the wait of a denial.
    pub const RETRY_AFTER: &'static str = "retry-after";
    /// The name of the field for the wait of a denial in milliseconds.
    pub const RETRY_AFTER_MS: &'static str = "retry-after-ms";
    /// The name of the field for the limit.
    pub const X_RATELIMIT_LIMIT: &'static str = "x-ratelimit-limit";
    /// The name of the field for the remaining count.
    pub const X_RATELIMIT_REMAINING: &'static str = "x-ratelimit-remaining";
    /// The name of the field for the time at which the quota is completely unused.
    pub const X_RATELIMIT_RESET: &'static str = "x-ratelimit-reset";
    /// The name of the field that says which component made the decision, if that is not the usual one: `fallback`.
    pub const X_TIDEGATE_ORIGIN: &'static str = "x-tidegate-origin";
    /// The name of the field that marks a request admitted after a failure of the store.
    pub const X_TIDEGATE_FAILED_OPEN: &'static str = "x-tidegate-failed-open";

    /// The names of all fields.
    pub const NAMES: [&'static str; 14] = [
        Self::X_RATELIMIT_LIMIT,
        Self::X_RATELIMIT_REMAINING,
        Self::X_RATELIMIT_RESET,
        Self::RATELIMIT_POLICY,
        Self::RATELIMIT,
        Self::RATELIMIT_LIMIT,
        Self::RATELIMIT_REMAINING,
        Self::RATELIMIT_RESET,
        Self::RETRY_AFTER,
        Self::RETRY_AFTER_MS,
        Self::X_TIDEGATE_ORIGIN,
        Self::X_TIDEGATE_FAILED_OPEN,
        Self::CONTENT_TYPE,
        Self::WWW_AUTHENTICATE,
    ];

    /// The usual fields of a decision on `policy`.
    #[must_use]
    pub fn new(policy: &Policy, decision: &Decision) -> Self {
        Self::with(policy, decision, ExtraFields::NONE)
    }

    /// The usual fields of a decision on `policy`, and further ones.
    #[must_use]
    pub fn with(policy: &Policy, decision: &Decision, extra: ExtraFields) -> Self {
        let mut fields = Self { text: String::with_capacity(128), ..Self::default() };
        let (shown, retry) = (shown(policy, decision), retry_after_secs(decision));
        if let Some(shown) = shown {
            fields.push_number(Field::Limit, shown.limit());
            if let Some(remaining) = shown.remaining() {
                fields.push_number(Field::Remaining, remaining);
            }
            if let Some(reset_after) = shown.reset_after() {
                let reset_at = decision.decided_at() + reset_after;
                fields.push_number(Field::Reset, reset_at.as_secs_ceil());
            }
        }
        push_policy(&mut fields.text, policy, decision);
        fields.end(Field::RateLimitPolicy);
        push_limits(&mut fields.text, policy, decision, retry);
        fields.end(Field::RateLimit);
        if extra.draft_6
            && let Some(shown) = shown
        {
            fields.push_draft_6(shown, retry);
        }
        if let Some(secs) = retry {
            fields.push_number(Field::RetryAfter, secs);
        }
        if let Some(wait) = decision.retry_after().filter(|_| extra.retry_after_ms) {
            fields.push_number(Field::RetryAfterMs, wait.get().clamp(1, INTEGER_MAX));
        }
        if decision.origin() == Origin::Fallback {
            fields.push(Field::Origin, Origin::Fallback.name());
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
        fields.push(Field::FailedOpen, kind.name());
        fields
    }

    /// The value of a field by its lower-case name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(field, _)| *field == name).map(|(_, value)| value)
    }

    /// The lower-case name and the value of each field. Names are unique.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.spans().map(|(field, span)| (field.name(), self.text.get(span).unwrap_or_default()))
    }

    /// All values, one after another, and for each field the place of its name in [`NAMES`](Self::NAMES) and where its value is, for a host
    /// that has the names in a type of its own and whose fields can share memory.
    ///
    /// ```
    /// use tidegate_core::{ErrorKind, ResponseFields};
    /// let (text, mut fields) = ResponseFields::failed_open(ErrorKind::Timeout).into_text();
    /// assert_eq!(fields.next(), Some((11, 0..7)));
    /// assert_eq!(ResponseFields::NAMES[11], "x-tidegate-failed-open");
    /// assert_eq!(text, "timeout");
    /// ```
    pub fn into_text(self) -> (String, impl Iterator<Item = (usize, Range<usize>)>) {
        let spans = self.spans().map(|(field, span)| (field as usize, span));
        (self.text, spans)
    }

    fn spans(&self) -> impl Iterator<Item = (Field, Range<usize>)> + use<> {
        let mut start = 0;
        self.names.into_iter().zip(self.ends).take(usize::from(self.count)).map(move |(field, end)| {
            let span = start..usize::from(end);
            start = span.end;
            (field, span)
        })
    }

    pub(crate) fn push(&mut self, field: Field, value: &str) {
        self.text.push_str(value);
        self.end(field);
    }

    fn push_draft_6(&mut self, shown: &QuotaStatus, retry: Option<u64>) {
        self.push_number(Field::Draft6Limit, shown.limit().min(INTEGER_MAX));
        if let Some(remaining) = shown.remaining() {
            self.push_number(Field::Draft6Remaining, remaining.min(INTEGER_MAX));
        }
        if let Some(reset) = shown.reset_after().map(seconds) {
            self.push_number(Field::Draft6Reset, retry.map_or(reset, |retry| reset.min(retry)));
        }
    }

    fn push_number(&mut self, field: Field, value: u64) {
        self.push(field, itoa::Buffer::new().format(value));
    }

    /// Makes what was written since the last field the value of this one, unless that is nothing: an empty list has no field.
    fn end(&mut self, field: Field) {
        let place = usize::from(self.count);
        let start = place.checked_sub(1).map_or(0, |last| self.ends[last]);
        let end = u16::try_from(self.text.len()).unwrap_or(u16::MAX);
        if end > start && place < Field::COUNT {
            (self.names[place], self.ends[place]) = (field, end);
            self.count += 1;
        }
    }
}

/// Whole seconds, at least 1, because some clients retry in a loop after a 0.
fn retry_after_secs(decision: &Decision) -> Option<u64> {
    decision.retry_after().map(|wait| seconds(wait).max(1))
}

fn seconds(span: Millis) -> u64 {
    span.as_secs_ceil().min(INTEGER_MAX)
}

/// The quota of the `x-ratelimit` fields: the binding one, or the one with the fewest remaining if that is a penalty. `None` if
/// there are only penalties.
fn shown<'a>(policy: &Policy, decision: &'a Decision) -> Option<&'a QuotaStatus> {
    let counts = |place: &usize| !matches!(policy.quotas()[*place].rule(), Rule::Penalty(_));
    let fewest = || {
        let places = (0..policy.quotas().len()).filter(counts);
        places.min_by_key(|place| decision.quotas().get(*place).and_then(QuotaStatus::remaining))
    };
    decision.quotas().get(Some(decision.binding_index()).filter(counts).or_else(fewest)?)
}

/// Appends the value of `ratelimit-policy`, with the limits of the decision: a fallback has lower ones.
fn push_policy(out: &mut String, policy: &Policy, decision: &Decision) {
    let limits = decision.quotas().iter().map(QuotaStatus::limit);
    match policy.quotas().iter().map(|quota| quota.rule().limit()).eq(limits.clone()) {
        true => out.push_str(policy.field()),
        false => push_quotas(out, policy.quotas().iter().zip(limits)),
    }
}

/// The value of `ratelimit-policy` for a policy of these quotas.
pub(crate) fn policy_field(quotas: &[Quota]) -> Box<str> {
    let mut out = String::new();
    push_quotas(&mut out, quotas.iter().map(|quota| (quota, quota.rule().limit())));
    out.into()
}

fn push_quotas<'q>(out: &mut String, quotas: impl Iterator<Item = (&'q Quota, u64)>) {
    let start = out.len();
    for (quota, limit) in quotas {
        let rule = quota.rule();
        if matches!(rule, Rule::Penalty(_)) {
            continue;
        }
        push_name(out, start, quota.name());
        push_parameter(out, ";q=", limit.min(INTEGER_MAX));
        if matches!(rule, Rule::Concurrency(_)) {
            out.push_str(";qu=\"concurrent-requests\"");
        } else if !matches!(rule, Rule::Balance(_)) {
            push_parameter(out, ";w=", seconds(rule.window()));
        }
    }
}

/// Appends the value of `ratelimit`: nothing if nothing is known.
fn push_limits(out: &mut String, policy: &Policy, decision: &Decision, retry: Option<u64>) {
    let start = out.len();
    for (place, (quota, status)) in policy.quotas().iter().zip(decision.quotas()).enumerate() {
        let (Some(remaining), false) = (status.remaining(), matches!(quota.rule(), Rule::Penalty(_))) else { continue };
        push_name(out, start, quota.name());
        push_parameter(out, ";r=", remaining.min(INTEGER_MAX));
        let reset = status.reset_after().map(seconds);
        let reset = match (reset, retry) {
            (Some(reset), Some(retry)) if reset > retry => (place == decision.binding_index()).then_some(retry),
            (reset, _) => reset,
        };
        if let Some(secs) = reset {
            push_parameter(out, ";t=", secs);
        }
    }
}

/// Appends the next entry's name as a structured field's string, to a list that began at `start`. By construction, names have
/// no quotes or backslashes.
fn push_name(out: &mut String, start: usize, name: &str) {
    if out.len() > start {
        out.push_str(", ");
    }
    out.push('"');
    out.push_str(name);
    out.push('"');
}

fn push_parameter(out: &mut String, name: &str, value: u64) {
    out.push_str(name);
    out.push_str(itoa::Buffer::new().format(value));
}
