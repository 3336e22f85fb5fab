//! The transport of requests and answers.

use std::error::Error as StdError;
use std::future::Future;

use tidegate_core::{MaybeSend, MaybeSync, Millis};

/// Carries a command to the database's REST endpoint and returns the answer. Natively this is `reqwest`, elsewhere the
/// host's own HTTP client.
///
/// A request is a `POST` to the database's URL, with the fields `authorization: Bearer <token>` and
/// `content-type: application/json`. It follows no redirect and uses no cache. If an answer has the field
/// `upstash-sync-token`, the next request has to send it, so that it sees the writes of this one on every replica.
///
/// ```
/// use tidegate_redis::{
///     Check, Key, LimiterExt, Millis, NoAnswer, Policy, Quota, Response, Rest, RestConfig, Transport, UnixMillis,
/// };
///
/// /// An endpoint that admits every request, as if it were the first of its key.
/// struct Admits;
///
/// impl Transport for Admits {
///     type Deadline = ();
///
///     fn deadline(&self, _: Millis) {}
///
///     async fn post(&self, command: String, _: &()) -> Result<Response, NoAnswer> {
///         assert!(command.starts_with(r#"["EVAL","#));
///         Ok(Response { status: 200, body: br#"{"result":"a@1800000000000 1 "}"#.to_vec() })
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tidegate_core::Error> {
/// let config = RestConfig::new("https://eu1-quick-fox-1.upstash.io", "AXm3secret");
/// let limiter = Rest::over(Admits, config)?.limiter();
/// let policy = Policy::new("api", [Quota::fixed_window(10, Millis::from_secs(1))?])?;
/// let key = Key::new("ip:192.0.2.1");
/// assert!(limiter.check(Check::new(&policy, &key, UnixMillis::new(0))).await?.is_allowed());
/// # Ok(())
/// # }
/// ```
pub trait Transport: MaybeSend + MaybeSync {
    /// The deadline of a call, including its further requests. `()` if the host enforces the deadline.
    type Deadline: MaybeSend + MaybeSync;

    /// Returns the deadline of a call that begins now.
    fn deadline(&self, after: Millis) -> Self::Deadline;

    /// Sends one request, once, and returns the whole answer, whatever its status. The script never answers with more than a
    /// megabyte, so a transport may stop reading there.
    ///
    /// # Errors
    /// The reason why there is no answer.
    fn post(
        &self,
        command: String,
        deadline: &Self::Deadline,
    ) -> impl Future<Output = Result<Response, NoAnswer>> + MaybeSend;
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}

/// The reason why a request has no answer.
#[derive(Debug)]
pub enum NoAnswer {
    /// The connection could not be opened, so nothing was sent.
    NotConnected(Box<dyn StdError + Send + Sync>),
    /// The connection ended before the whole answer came, or it is unknown whether there was a connection.
    Lost(Box<dyn StdError + Send + Sync>),
    /// The deadline passed.
    Late,
    /// The deadline passed in a process that is too busy to have noticed an answer. A client can cause this with enough requests.
    Overload,
}
