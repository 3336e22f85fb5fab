//! The protocol between the conformance suite and its guests: JSON over HTTP, the same on every platform.
//!
//! A guest is an ordinary app that uses an adapter. In test mode, it also answers the routes of [`Route`]. It passes
//! the body of each `POST` to [`serve`] with its limiter, and sends back the [`Reply`]. The body contains the time, so
//! time is virtual and concurrency is real. [`Mode`] says who may use the routes.
//!
//! | route | body | answer |
//! |-|-|-|
//! | `/_tidegate/check`, `/_tidegate/peek`, `/_tidegate/settle`, `/_tidegate/release`, `/_tidegate/grant` | [`Call`] | `{"decision": …}`, 200 or 429, with the response fields |
//! | `/_tidegate/refund`, `/_tidegate/block`, `/_tidegate/reset` | [`Call`] | `"done"` |
//! | `/_tidegate/gate` | [`Gated`] | `{"verdict": …}`, 200 or the status and the fields that the gate sends |
//! | `/_tidegate/identify` | [`Arrival`] | `{"identity": …}` |
//! | `/_tidegate/capabilities` | nothing | `{"capabilities": …}` |
//!
//! If the store cannot answer, the reply is a 503 with `{"error": {"kind", "message"}}`, never a 429. If the call
//! contradicts what the store remembers (`token_reused`, `unknown_charge`), the reply is a 409 with the same body. If
//! the body cannot be parsed, the reply is a 400. The suite reads the kind of an error. It accepts every status from 400
//! on, except 429.
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
//! let Ok(Answer::Decision(decision)) = Answer::from_body(&reply.body) else { panic!() };
//! assert_eq!(decision.retry_after_ms, Some(750));
//! ```
#![no_std]

extern crate alloc;
extern crate std;

mod call;
mod decided;
mod gated;
mod identity;
mod mode;
pub mod routed;

pub use call::{Call, Token};
pub use decided::{Able, Answer, Counted, Decided, Failure, Outcome};
pub use gated::{Fixed, Gated, Judged, gate};
pub use identity::{Arrival, Identified, Source};
pub use mode::Mode;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use tidegate_core::{Decision, Error, ErrorKind, Key, Keys, Limiter, LimiterExt, Policy, Quota, ResponseFields, Rule};

/// A route of a guest in test mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Route {
    /// [`LimiterExt::check`].
    Check,
    /// [`LimiterExt::peek`].
    Peek,
    /// [`LimiterExt::settle`].
    Settle,
    /// [`LimiterExt::settle`] with [`Settle::release`](tidegate_core::Settle::release).
    Release,
    /// [`LimiterExt::refund`].
    Refund,
    /// [`LimiterExt::block`].
    Block,
    /// [`LimiterExt::grant`].
    Grant,
    /// [`LimiterExt::reset`].
    Reset,
    /// [`Gate::check`](tidegate_core::gate::Gate::check) on a gate with the rules of the request.
    Gate,
    /// Returns the key that a request would be counted against.
    Identify,
    /// [`Limiter::capabilities`].
    Capabilities,
}

impl Route {
    /// All routes.
    pub const ALL: [Self; 11] = [
        Self::Check,
        Self::Peek,
        Self::Settle,
        Self::Release,
        Self::Refund,
        Self::Block,
        Self::Grant,
        Self::Reset,
        Self::Gate,
        Self::Identify,
        Self::Capabilities,
    ];

    /// The path to which a request is sent with `POST`.
    #[must_use]
    pub const fn path(self) -> &'static str {
        match self {
            Self::Check => "/_tidegate/check",
            Self::Peek => "/_tidegate/peek",
            Self::Settle => "/_tidegate/settle",
            Self::Release => "/_tidegate/release",
            Self::Refund => "/_tidegate/refund",
            Self::Block => "/_tidegate/block",
            Self::Grant => "/_tidegate/grant",
            Self::Reset => "/_tidegate/reset",
            Self::Gate => "/_tidegate/gate",
            Self::Identify => "/_tidegate/identify",
            Self::Capabilities => "/_tidegate/capabilities",
        }
    }

    /// Returns the route with this path, if there is one.
    #[must_use]
    pub fn of(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|route| route.path() == path)
    }
}

/// A reply, from which a guest creates its platform's response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The status code.
    pub status: u16,
    /// The response fields, including `content-type`.
    pub headers: Vec<(String, String)>,
    /// The [`Answer`] as JSON.
    pub body: Vec<u8>,
}

impl Reply {
    /// Creates a reply with this answer.
    #[must_use]
    pub fn new(status: u16, answer: &Answer) -> Self {
        let body = serde_json::to_vec(answer).unwrap_or_default();
        Self { status, headers: [("content-type".to_string(), "application/json".to_string())].into(), body }
    }

    fn decision(policy: &Policy, decision: &Decision) -> Self {
        let status = if decision.is_allowed() { 200 } else { 429 };
        let mut reply = Self::new(status, &Answer::Decision(decision.into()));
        let fields = ResponseFields::new(policy, decision);
        reply.headers.extend(fields.iter().map(|(name, value)| (name.to_string(), value.to_string())));
        reply
    }

    fn done(result: Result<(), Error>) -> Self {
        match result {
            Ok(()) => Self::new(200, &Answer::Done),
            Err(error) => Self::error(&error),
        }
    }

    /// Creates a reply with an error.
    #[must_use]
    pub fn error(error: &Error) -> Self {
        let status = match error.kind() {
            ErrorKind::TokenReused | ErrorKind::UnknownCharge => 409,
            _ => 503,
        };
        Self::new(status, &Answer::Error(error.into()))
    }

    fn unreadable(message: String) -> Self {
        Self::new(400, &Answer::Error(Failure { kind: ErrorKind::Invalid.name().to_string(), message }))
    }
}

/// Answers one request of the suite.
pub async fn serve<L: Limiter>(limiter: &L, route: Route, body: &[u8]) -> Reply {
    match route {
        Route::Identify => match read(serde_json::from_slice::<Arrival>(body)) {
            Ok(arrival) => arrival.identify(),
            Err(refused) => refused,
        },
        Route::Gate => match read(serde_json::from_slice::<Gated>(body)) {
            Ok(gated) => gated.decide(limiter).await,
            Err(refused) => refused,
        },
        Route::Capabilities => Reply::new(200, &Answer::Capabilities((&limiter.capabilities()).into())),
        _ => match read(Call::from_body(body)) {
            Ok(call) => carry_out(limiter, route, &call).await,
            Err(refused) => refused,
        },
    }
}

async fn carry_out<L: Limiter>(limiter: &L, route: Route, call: &Call) -> Reply {
    let sole = Key::new(&call.key);
    let named: Vec<(&str, Key)> = call.keys.iter().map(|(name, key)| (name.as_str(), Key::new(key))).collect();
    let named: Vec<(&str, &Key)> = named.iter().map(|(name, key)| (*name, key)).collect();
    let keys = if named.is_empty() { Keys::from(&sole) } else { Keys::from(&named[..]) };
    let decided = match route {
        Route::Check => limiter.check(call.check(keys)).await,
        Route::Peek => limiter.peek(call.check(keys)).await,
        Route::Settle | Route::Release => {
            let settle = if route == Route::Settle { call.settle(keys) } else { call.release(keys) };
            match settle {
                Some(settle) => limiter.settle(settle).await,
                None => return Reply::unreadable("settles: missing; write the token of the charge".to_string()),
            }
        }
        Route::Refund => return Reply::done(limiter.refund(call.refund(keys)).await),
        Route::Block => {
            return match call.block(keys) {
                Some(block) => Reply::done(limiter.block(block).await),
                None => Reply::unreadable("block_ms: missing; write how long the block is, 0 to end one".to_string()),
            };
        }
        Route::Grant => match call.grant(keys) {
            Some(grant) => {
                let granted = limiter.grant(grant).await;
                let told = granted
                    .and_then(|decision| Ok(Reply::decision(&granted_policy(&call.policy, &decision)?, &decision)));
                return told.unwrap_or_else(|error| Reply::error(&error));
            }
            None => return Reply::unreadable("token: missing; write one that is unique to the grant".to_string()),
        },
        _ => return Reply::done(limiter.reset(&call.policy, keys).await),
    };
    match decided {
        Ok(decision) => Reply::decision(&call.policy, &decision),
        Err(error) => Reply::error(&error),
    }
}

/// The policy of what a grant answers with: the quotas of the balance's dimension, if it is not of all.
fn granted_policy(policy: &Policy, decision: &Decision) -> Result<Policy, Error> {
    let mut parts = policy.dimensions().iter().map(|dimension| &policy.quotas()[dimension.quotas()]);
    let has_balance = |quotas: &&[Quota]| quotas.iter().any(|quota| matches!(quota.rule(), Rule::Balance(_)));
    match parts.find(has_balance).filter(|_| decision.quotas().len() < policy.quotas().len()) {
        Some(quotas) => Policy::new(policy.name(), quotas.to_vec()),
        None => Ok(policy.clone()),
    }
}

fn read<T>(body: serde_json::Result<T>) -> Result<T, Reply> {
    body.map_err(|error| Reply::unreadable(format!("the request's body: {error}")))
}
