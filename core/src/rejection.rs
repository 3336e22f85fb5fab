//! Responses to requests that are not forwarded: denials and failures.

use alloc::string::String;
use core::fmt::Write as _;

use crate::headers::Field;
use crate::{Decision, ErrorKind, ExtraFields, Origin, Policy, Quota, QuotaStatus, ResponseFields, Rule, Status};

/// The format of a denial's body.
///
/// ```
/// use tidegate_core::BodyFormat;
/// assert_eq!(BodyFormat::Problem.media_type(), "application/problem+json");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BodyFormat {
    /// A small JSON object: `error`, `policy`, `quota` (the binding one) and, if known, `retry_after_ms`.
    #[default]
    Json,
    /// A problem document (RFC 9457) of a type of
    /// [draft-ietf-httpapi-ratelimit-headers-11](https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-11#section-5):
    /// `abnormal-usage-detected` if a [penalty](crate::Rule::Penalty) denies, `temporary-reduced-capacity` if a
    /// [fallback](crate::Origin::Fallback) does, and `quota-exceeded` otherwise. The status is 429 for each.
    Problem,
}

impl BodyFormat {
    /// The media type, for the field `content-type`.
    #[must_use]
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Problem => "application/problem+json",
        }
    }
}

/// A complete response to a request that is not forwarded: a status code, fields and a body.
///
/// ```
/// use tidegate_core::{BodyFormat, Millis, Policy, Quota, Rejection, ResponseFields, UnixMillis};
/// # fn main() -> Result<(), tidegate_core::Error> {
/// let policy = Policy::new("api", [Quota::token_bucket(1, 1, Millis::new(1_200))?.named("burst")?])?;
/// let (mut state, now) = (policy.initial_state(), UnixMillis::new(1_800_000_000_000));
/// let allowed = policy.decide(&mut state, now, 1);
/// assert_eq!(Rejection::denied(&policy, &allowed, BodyFormat::Json), None);
///
/// let denied = policy.decide(&mut state, now, 1);
/// let rejection = Rejection::denied(&policy, &denied, BodyFormat::Json).unwrap();
/// assert_eq!(rejection.status_code(), 429);
/// assert_eq!(rejection.fields().get(ResponseFields::RETRY_AFTER), Some("2"));
/// let body = r#"{"error":"rate_limited","policy":"api","quota":"burst","retry_after_ms":1200}"#;
/// assert_eq!(rejection.body(), body);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    status_code: u16,
    fields: ResponseFields,
    body: String,
}

impl Rejection {
    /// The 429 (Too Many Requests) for a denial, with [`ResponseFields`] and a `content-type`. `None` if the request is
    /// allowed.
    ///
    /// The `error` of the JSON body is `rate_limited`, or `never_admissible` if the request costs more than the quota can
    /// hold. The `violated-policies` of the problem are the binding quota and all that have nothing remaining.
    ///
    /// ```
    /// use tidegate_core::{BodyFormat, Millis, Policy, Quota, Rejection, UnixMillis};
    /// # fn main() -> Result<(), tidegate_core::Error> {
    /// let policy = Policy::new("api", [Quota::fixed_window(10, Millis::from_secs(60))?])?;
    /// let decision = policy.decide(&mut policy.initial_state(), UnixMillis::new(0), 11);
    /// let rejection = Rejection::denied(&policy, &decision, BodyFormat::Json).unwrap();
    /// assert_eq!(rejection.body(), r#"{"error":"never_admissible","policy":"api","quota":"api"}"#);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn denied(policy: &Policy, decision: &Decision, format: BodyFormat) -> Option<Self> {
        Self::denied_with(policy, decision, format, ExtraFields::NONE)
    }

    /// The same with further fields, as [`ResponseFields::with`].
    #[must_use]
    pub fn denied_with(policy: &Policy, decision: &Decision, format: BodyFormat, extra: ExtraFields) -> Option<Self> {
        Self::denied_as(429, policy, decision, format, extra)
    }

    /// The same with another status code.
    pub(crate) fn denied_as(
        status: u16,
        policy: &Policy,
        decision: &Decision,
        format: BodyFormat,
        extra: ExtraFields,
    ) -> Option<Self> {
        let error = match decision.status() {
            Status::Allowed => return None,
            Status::Denied => "rate_limited",
            Status::NeverAdmissible => "never_admissible",
        };
        let body = match format {
            BodyFormat::Json => json(error, policy, decision),
            BodyFormat::Problem => problem(status, policy, decision),
        };
        Some(Self::new(status, ResponseFields::with(policy, decision, extra), format, body))
    }

    /// The 503 (Service Unavailable) for a request that the limiter did not decide on because of an error.
    ///
    /// It has no limit and no `retry-after`, unlike a 429. The body has the kind of the error and not its message, which may
    /// contain internal details.
    ///
    /// ```
    /// use tidegate_core::{ErrorKind, Rejection};
    /// let rejection = Rejection::unavailable(ErrorKind::Timeout);
    /// assert_eq!(rejection.status_code(), 503);
    /// assert_eq!(rejection.body(), r#"{"error":"limiter_unavailable","kind":"timeout"}"#);
    /// ```
    #[must_use]
    pub fn unavailable(kind: ErrorKind) -> Self {
        let mut body = String::with_capacity(64);
        let _ = write!(body, r#"{{"error":"limiter_unavailable","kind":"{}"}}"#, kind.name());
        Self::new(503, ResponseFields::default(), BodyFormat::Json, body)
    }

    /// The 500 (Internal Server Error) for a request that the limiter cannot decide on because the server is set up wrongly.
    #[cfg(feature = "gate")]
    pub(crate) fn misconfigured() -> Self {
        Self::new(500, ResponseFields::default(), BodyFormat::Json, r#"{"error":"limiter_misconfigured"}"#.into())
    }

    /// The 403 (Forbidden) for a sender that a list denies.
    #[cfg(feature = "gate")]
    pub(crate) fn forbidden() -> Self {
        Self::new(403, ResponseFields::default(), BodyFormat::Json, r#"{"error":"forbidden"}"#.into())
    }

    /// The 403 (Forbidden) for a request that has to pass a challenge first. The address needs no escapes.
    #[cfg(feature = "gate")]
    pub(crate) fn challenged(address: &str) -> Self {
        let body = [r#"{"error":"challenge","url":""#, address, r#""}"#].concat();
        Self::new(403, ResponseFields::default(), BodyFormat::Json, body)
    }

    /// The 401 (Unauthorized) for an invalid token, with the challenge of RFC 6750, section 3.
    #[cfg(feature = "gate")]
    pub(crate) fn unauthorized() -> Self {
        let mut fields = ResponseFields::default();
        fields.push(Field::WwwAuthenticate, r#"Bearer error="invalid_token""#);
        Self::new(401, fields, BodyFormat::Json, r#"{"error":"invalid_token"}"#.into())
    }

    fn new(status_code: u16, mut fields: ResponseFields, format: BodyFormat, body: String) -> Self {
        fields.push(Field::ContentType, format.media_type());
        Self { status_code, fields, body }
    }

    /// The status code.
    #[must_use]
    pub const fn status_code(&self) -> u16 {
        self.status_code
    }

    /// The fields, `content-type` among them.
    #[must_use]
    pub const fn fields(&self) -> &ResponseFields {
        &self.fields
    }

    /// The body, in UTF-8.
    #[must_use]
    pub const fn body(&self) -> &str {
        self.body.as_str()
    }

    /// The status code, the fields and the body, for building a platform's response.
    ///
    /// ```
    /// use tidegate_core::{ErrorKind, Rejection};
    /// let (status_code, fields, body) = Rejection::unavailable(ErrorKind::Unavailable).into_parts();
    /// assert_eq!(status_code, 503);
    /// assert_eq!(fields.get("content-type"), Some("application/json"));
    /// assert!(body.starts_with('{'));
    /// ```
    #[must_use]
    pub fn into_parts(self) -> (u16, ResponseFields, String) {
        (self.status_code, self.fields, self.body)
    }
}

// By construction, the names of policies, quotas and errors need no escapes in JSON.

fn json(error: &str, policy: &Policy, decision: &Decision) -> String {
    let mut out = String::with_capacity(128);
    out.extend([r#"{"error":""#, error, r#"","policy":""#, policy.name(), "\""]);
    if let Some(quota) = policy.quotas().get(decision.binding_index()) {
        out.extend([r#","quota":""#, quota.name(), "\""]);
    }
    if let Some(wait) = decision.retry_after() {
        out.extend([r#","retry_after_ms":"#, itoa::Buffer::new().format(wait.get())]);
    }
    out.push('}');
    out
}

fn problem(status: u16, policy: &Policy, decision: &Decision) -> String {
    let mut out = String::with_capacity(256);
    let binding = policy.quotas().get(decision.binding_index());
    let (kind, title) = match (binding.map(Quota::rule), decision.origin()) {
        (Some(Rule::Penalty(_)), _) => {
            ("abnormal-usage-detected", "Request not satisfied due to detection of abnormal request pattern")
        }
        (_, Origin::Fallback) => {
            ("temporary-reduced-capacity", "Request cannot be satisfied due to temporary server capacity constraints")
        }
        _ => ("quota-exceeded", "Request cannot be satisfied as assigned quota has been exceeded"),
    };
    let _ = write!(
        out,
        r#"{{"type":"https://iana.org/assignments/http-problem-types#{kind}","title":"{title}","status":{status},"violated-policies":["#,
    );
    let exceeded =
        |place: usize, status: &QuotaStatus| place == decision.binding_index() || status.remaining() == Some(0);
    let mut comma = "";
    for (place, (quota, status)) in policy.quotas().iter().zip(decision.quotas()).enumerate() {
        if exceeded(place, status) {
            let _ = write!(out, r#"{comma}"{}""#, quota.name());
            comma = ",";
        }
    }
    out.push_str("]}");
    out
}
