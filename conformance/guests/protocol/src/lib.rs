//! What the conformance harness and its guests say to each other: JSON over HTTP, the same on every platform.
//!
//! A guest is an ordinary app that uses an adapter. Only when it is started in test mode does it also answer the routes
//! of [`Route`], and then it does no more than to hand the body of a `POST` to [`serve`] with its limiter, and to send
//! back the [`Reply`]. In test mode the caller's clock is the one in the body: time is virtual, concurrency is real.
//!
//! | route | body | answer |
//! |-|-|-|
//! | `/_tidegate/check`, `/_tidegate/peek` | [`Call`] | `{"decision": …}`, 200 or 429, with the response fields |
//! | `/_tidegate/refund`, `/_tidegate/reset` | [`Call`] | `"done"` |
//! | `/_tidegate/identify` | [`Arrival`] | `{"identity": …}` |
//! | `/_tidegate/capabilities` | nothing | `{"capabilities": …}` |
//!
//! A store that cannot answer is a 503 with `{"error": {"kind", "message"}}`, never a 429. A body that cannot be read
//! is a 400.
//!
//! ```
//! use tidegate_core::MemoryLimiter;
//! use tidegate_guest_protocol::{Answer, Route, serve};
//! let body = br#"{ "policy": { "name": "api", "quotas": [{ "algorithm": "fixed_window", "limit": 1, "window_ms": 1000 }] },
//!     "key": "ip:192.0.2.1", "now_ms": 1800000000250 }"#;
//! let limiter = MemoryLimiter::new();
//! let route = Route::of("/_tidegate/check").unwrap();
//! assert_eq!(pollster::block_on(serve(&limiter, route, body)).status, 200);
//! let reply = pollster::block_on(serve(&limiter, route, body));
//! assert_eq!(reply.status, 429);
//! let Ok(Answer::Decision(decision)) = serde_json::from_slice(&reply.body) else { panic!() };
//! assert_eq!(decision.retry_after_ms, Some(750));
//! ```
#![no_std]

extern crate alloc;

mod call;
mod decided;
mod identity;

pub use call::{Call, Token};
pub use decided::{Able, Answer, Counted, Decided, Failure, Outcome};
pub use identity::{Arrival, Identified, Source};

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::de::DeserializeOwned;
use tidegate_core::{Decision, Error, Key, Limiter, Policy, ResponseFields};

/// What a guest in test mode is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Route {
    /// [`Limiter::check`].
    Check,
    /// [`Limiter::peek`].
    Peek,
    /// [`Limiter::refund`].
    Refund,
    /// [`Limiter::reset`].
    Reset,
    /// Whom a request would be counted against.
    Identify,
    /// [`Limiter::capabilities`].
    Capabilities,
}

impl Route {
    /// Every route.
    pub const ALL: [Self; 6] = [Self::Check, Self::Peek, Self::Refund, Self::Reset, Self::Identify, Self::Capabilities];

    /// The path of its `POST`.
    #[must_use]
    pub const fn path(self) -> &'static str {
        match self {
            Self::Check => "/_tidegate/check",
            Self::Peek => "/_tidegate/peek",
            Self::Refund => "/_tidegate/refund",
            Self::Reset => "/_tidegate/reset",
            Self::Identify => "/_tidegate/identify",
            Self::Capabilities => "/_tidegate/capabilities",
        }
    }

    /// The route of a path, if there is one.
    #[must_use]
    pub fn of(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|route| route.path() == path)
    }
}

/// What a guest sends back, for its platform to make a response of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The status code.
    pub status: u16,
    /// The response fields, `content-type` among them.
    pub headers: Vec<(String, String)>,
    /// The [`Answer`] as JSON.
    pub body: Vec<u8>,
}

impl Reply {
    /// A reply that says `answer`.
    #[must_use]
    pub fn new(status: u16, answer: &Answer) -> Self {
        let body = serde_json::to_vec(answer).unwrap_or_default();
        Self { status, headers: [("content-type".to_string(), "application/json".to_string())].into(), body }
    }

    fn decision(policy: &Policy, decision: &Decision) -> Self {
        let status = if decision.is_allowed() { 200 } else { 429 };
        let mut reply = Self::new(status, &Answer::Decision(decision.into()));
        let fields = ResponseFields::new(policy, decision);
        reply.headers.extend(fields.into_iter().map(|(name, value)| (name.to_string(), value)));
        reply
    }

    fn done(result: Result<(), Error>) -> Self {
        match result {
            Ok(()) => Self::new(200, &Answer::Done),
            Err(error) => Self::error(&error),
        }
    }

    /// A reply that says why there is no answer.
    #[must_use]
    pub fn error(error: &Error) -> Self {
        Self::new(503, &Answer::Error(error.into()))
    }
}

/// Answers one request of the harness: all that a guest's test routes do.
pub async fn serve<L: Limiter>(limiter: &L, route: Route, body: &[u8]) -> Reply {
    match route {
        Route::Identify => match read::<Arrival>(body) {
            Ok(arrival) => arrival.identify(),
            Err(refused) => refused,
        },
        Route::Capabilities => Reply::new(200, &Answer::Capabilities((&limiter.capabilities()).into())),
        _ => match read::<Call>(body) {
            Ok(call) => carry_out(limiter, route, &call).await,
            Err(refused) => refused,
        },
    }
}

async fn carry_out<L: Limiter>(limiter: &L, route: Route, call: &Call) -> Reply {
    let key = Key::new(&call.key);
    let decided = match route {
        Route::Check => limiter.check(call.check(&key)).await,
        Route::Peek => limiter.peek(call.check(&key)).await,
        Route::Refund => return Reply::done(limiter.refund(call.refund(&key)).await),
        _ => return Reply::done(limiter.reset(&call.policy, &key).await),
    };
    match decided {
        Ok(decision) => Reply::decision(&call.policy, &decision),
        Err(error) => Reply::error(&error),
    }
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Reply> {
    serde_json::from_slice(body).map_err(|error| {
        let failure = Failure { kind: "invalid".to_string(), message: format!("the request's body: {error}") };
        Reply::new(400, &Answer::Error(failure))
    })
}
