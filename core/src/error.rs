//! The error type of limiters, policies and configuration.

use alloc::borrow::Cow;
use alloc::boxed::Box;
#[cfg(any(feature = "lending", feature = "std"))]
use alloc::sync::Arc;
use core::error::Error as StdError;
use core::fmt;

/// The kind of an error, by which a caller chooses how to react.
///
/// An error is never a denial. A caller may let requests pass while the store is down (fail open), but only for the
/// kinds that [`ErrorKind::is_store_failure`] names: a client can cause any of the others.
///
/// ```
/// use tidegate_core::{Error, ErrorKind};
/// let error = Error::new(ErrorKind::Timeout, "no answer within 50 ms");
/// assert!(error.kind().is_store_failure());
/// assert!(!ErrorKind::Contended.is_store_failure());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A policy, quota or configuration value is invalid. The message says what to write instead.
    Invalid,
    /// The store cannot be reached.
    Unavailable,
    /// The store did not answer in time. The request may have been charged.
    Timeout,
    /// The store is up, but too many requests compete for the same key, or for the store. Nothing was charged unless the
    /// message says so. A call whose deadline passes while the store answers ends with this kind, not with
    /// [`Timeout`](Self::Timeout).
    Contended,
    /// The store holds or returned something that Tidegate did not write. Nothing was charged.
    Corrupt,
    /// The store refused the call: bad credentials, no permission, out of memory.
    Refused,
    /// The adapter does not declare support for the requested feature.
    Unsupported,
    /// The idempotency token belongs to a charge of another cost. Nothing was charged.
    TokenReused,
    /// No charge is remembered under this policy, key and token: there was none, or its time to live has passed. Nothing
    /// was charged or returned.
    UnknownCharge,
}

impl ErrorKind {
    /// Every kind.
    pub const ALL: [Self; 9] = [
        Self::Invalid,
        Self::Unavailable,
        Self::Timeout,
        Self::Contended,
        Self::Corrupt,
        Self::Refused,
        Self::Unsupported,
        Self::TokenReused,
        Self::UnknownCharge,
    ];

    /// A stable name in snake case, for logs, metrics and reports.
    ///
    /// ```
    /// assert_eq!(tidegate_core::ErrorKind::Contended.name(), "contended");
    /// ```
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Unavailable => "unavailable",
            Self::Timeout => "timeout",
            Self::Contended => "contended",
            Self::Corrupt => "corrupt",
            Self::Refused => "refused",
            Self::Unsupported => "unsupported",
            Self::TokenReused => "token_reused",
            Self::UnknownCharge => "unknown_charge",
        }
    }

    /// Whether the store failed, as opposed to the request, its key or its cost: the only errors on which a caller may
    /// fail open.
    ///
    /// True for [`Unavailable`](Self::Unavailable) and [`Timeout`](Self::Timeout). A client can cause the others on
    /// purpose, with a malformed cost for instance, or by sending so many requests that they contend for one key.
    ///
    /// ```
    /// use tidegate_core::ErrorKind;
    /// assert!(ErrorKind::Timeout.is_store_failure());
    /// assert!(!ErrorKind::Contended.is_store_failure());
    /// ```
    #[must_use]
    pub const fn is_store_failure(self) -> bool {
        matches!(self, Self::Unavailable | Self::Timeout)
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An error with its [`ErrorKind`], a message that says what to do, and the platform's own error as its source.
///
/// ```
/// use tidegate_core::{ErrorKind, Millis, Quota};
/// let error = Quota::fixed_window(0, Millis::from_secs(60)).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Invalid);
/// assert_eq!(error.to_string(), "limit: 0 is out of range; write a whole number from 1 to 2251799813685248");
/// ```
pub struct Error(Box<Failure>);

/// Boxed to keep every `Result` small.
struct Failure {
    kind: ErrorKind,
    message: Cow<'static, str>,
    source: Option<Box<dyn StdError + Send + Sync>>,
    advice: Option<&'static str>,
}

impl Error {
    /// An error with a kind and a message.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self::of(kind, message.into())
    }

    #[cold]
    fn of(kind: ErrorKind, message: Cow<'static, str>) -> Self {
        Self(Box::new(Failure { kind, message, source: None, advice: None }))
    }

    /// Sets the error that caused this one.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Sets what the operator must change, which the message says, too. It is a fixed text, so a log may have it where the message may
    /// contain what a store or a client has written.
    ///
    /// ```
    /// use tidegate_core::{Error, ErrorKind};
    /// let error = Error::new(ErrorKind::Refused, "no bucket: …").with_advice("create the bucket with `app setup`");
    /// assert_eq!(error.advice(), Some("create the bucket with `app setup`"));
    /// ```
    #[must_use]
    pub fn with_advice(mut self, advice: &'static str) -> Self {
        self.0.advice = Some(advice);
        self
    }

    /// What the operator must change, if that is known.
    #[must_use]
    pub const fn advice(&self) -> Option<&'static str> {
        self.0.advice
    }

    /// The kind of the error.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The error of a check whose token belongs to a charge of another cost.
    #[must_use]
    pub fn token_reused() -> Self {
        Self::new(
            ErrorKind::TokenReused,
            "this idempotency token belongs to a charge of another cost; use one token for each request",
        )
    }

    /// The error of a settlement whose charge is not remembered.
    #[must_use]
    pub fn unknown_charge() -> Self {
        Self::new(
            ErrorKind::UnknownCharge,
            "no charge is remembered under this policy, key and token; settle within the token's time to live",
        )
    }

    /// One call's error of several that have failed together.
    #[cfg(any(feature = "lending", feature = "std"))]
    pub(crate) fn shared(error: &Arc<Self>) -> Self {
        let mut shared = Self::new(error.kind(), error.0.message.clone());
        shared.0.advice = error.0.advice;
        shared.with_source(Arc::clone(error))
    }

    pub(crate) fn invalid(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind(), self.0.message)?;
        match &self.0.source {
            Some(source) => write!(f, " ({source})"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}
