//! What carries requests and answers, on whatever host.

use std::error::Error as StdError;
use std::future::Future;

use tidegate_core::{MaybeSend, MaybeSync, Millis};

/// What carries a command to the database's REST endpoint and brings back the answer: `reqwest` natively,
/// elsewhere the host's own HTTP client.
///
/// A request is a `POST` to the database's URL, with the fields `authorization: Bearer <token>` and
/// `content-type: application/json`; no redirect is followed, and no cache asked. Where an answer has the field
/// `upstash-sync-token`, the next request repeats it: it then sees what this one wrote, wherever it is served.
///
/// ```
/// use tidegate_core::{Check, Key, Limiter, Millis, Policy, Quota, UnixMillis};
/// use tidegate_redis::{NoAnswer, Response, Rest, RestConfig, Transport};
///
/// /// An endpoint that admits whatever comes, as if it were the key's first.
/// struct Admits;
///
/// impl Transport for Admits {
///     type Deadline = ();
///
///     fn deadline(&self, _: Millis) {}
///
///     async fn post(&self, command: String, _: &()) -> Result<Response, NoAnswer> {
///         assert!(command.starts_with(r#"["EVALSHA","#));
///         Ok(Response { status: 200, body: br#"{"result":"a"}"#.to_vec() })
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
    /// When a call must be done, its second request included. Nothing, where whoever makes the calls sees to that.
    type Deadline: MaybeSend + MaybeSync;

    /// The deadline of a call that begins now.
    fn deadline(&self, after: Millis) -> Self::Deadline;

    /// Sends one request, once, and brings the whole answer, whatever its status. What is over a megabyte is no answer of
    /// the script's: of such a one, a little more than that is enough.
    ///
    /// # Errors
    /// Why there is no answer.
    fn post(
        &self,
        command: String,
        deadline: &Self::Deadline,
    ) -> impl Future<Output = Result<Response, NoAnswer>> + MaybeSend;
}

/// What a request was answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The status of HTTP.
    pub status: u16,
    /// What came with it.
    pub body: Vec<u8>,
}

/// Why a request has no answer.
#[derive(Debug)]
pub enum NoAnswer {
    /// Nobody listens there: nothing was sent.
    NotConnected(Box<dyn StdError + Send + Sync>),
    /// The connection ended before the whole answer came, or nobody can tell whether there was one.
    Lost(Box<dyn StdError + Send + Sync>),
    /// The deadline has passed.
    Late,
}
