//! The response in place of the application's: to a denied request, and where the store could not answer.

use alloc::string::{String, ToString};
use core::fmt::Write as _;

use crate::{Decision, ErrorKind, Policy, QuotaStatus, ResponseFields, Status};

/// The form of a denial's body.
///
/// ```
/// use tidegate_core::BodyFormat;
/// assert_eq!(BodyFormat::Problem.media_type(), "application/problem+json");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BodyFormat {
    /// Small JSON: `error`, `policy`, `quota` (the one that bound), and where it is known `retry_after_ms`.
    #[default]
    Json,
    /// A problem (RFC 9457) of the type [quota-exceeded](https://iana.org/assignments/http-problem-types#quota-exceeded).
    Problem,
}

impl BodyFormat {
    /// The media type, as `content-type` shows it.
    #[must_use]
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Problem => "application/problem+json",
        }
    }
}

/// A whole response in place of the application's: a status code, fields and a body.
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
    /// The 429 (Too Many Requests) that tells a client of a denial, with [`ResponseFields`] and a `content-type`.
    /// `None` where the decision is to let the request go on.
    ///
    /// The JSON body's `error` is `rate_limited`, or `never_admissible` where the request costs more than the quota can
    /// ever hold. The problem's `violated-policies` are the quota that bound and all that have nothing remaining.
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
        let error = match decision.status() {
            Status::Allowed => return None,
            Status::Denied => "rate_limited",
            Status::NeverAdmissible => "never_admissible",
        };
        let body = match format {
            BodyFormat::Json => json(error, policy, decision),
            BodyFormat::Problem => problem(policy, decision),
        };
        Some(Self::new(429, ResponseFields::new(policy, decision), format, body))
    }

    /// The 503 (Service Unavailable) for a request that was not decided on, because the limiter failed and the
    /// application would rather refuse than let it go on.
    ///
    /// It is not a 429: the client did nothing wrong, and is told no limit and no time to retry after. The body names the
    /// kind of the error and nothing else of it, for a message may tell of the inside.
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

    fn new(status_code: u16, mut fields: ResponseFields, format: BodyFormat, body: String) -> Self {
        fields.push(ResponseFields::CONTENT_TYPE, format.media_type().to_string());
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

    /// The status code, the fields and the body, to build a platform's response of.
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

// The names of policies, quotas and errors hold nothing that JSON escapes, by construction.

fn json(error: &str, policy: &Policy, decision: &Decision) -> String {
    let mut out = String::with_capacity(128);
    let _ = write!(out, r#"{{"error":"{error}","policy":"{}""#, policy.name());
    if let Some(quota) = policy.quotas().get(decision.binding_index()) {
        let _ = write!(out, r#","quota":"{}""#, quota.name());
    }
    if let Some(wait) = decision.retry_after() {
        let _ = write!(out, r#","retry_after_ms":{}"#, wait.get());
    }
    out.push('}');
    out
}

fn problem(policy: &Policy, decision: &Decision) -> String {
    let mut out = String::with_capacity(256);
    out.push_str(concat!(
        r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","#,
        r#""title":"Request cannot be satisfied as assigned quota has been exceeded","#,
        r#""status":429,"violated-policies":["#,
    ));
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
