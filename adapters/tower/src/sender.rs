//! What a service knows of a request's sender, as request extensions.

use std::fmt;

/// A request extension: the subject (`sub`) of a token whose signature was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject(pub String);

/// A request extension: a valid API key. The limiter's key holds only a hash of it.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(pub String);

/// A request extension: the sender's tier, such as a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tier(pub String);

/// A request extension: how likely a human sent the request; see [`Request::bot_score`](tidegate_core::gate::Request::bot_score).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BotScore(pub u8);

/// A request extension: the fingerprint of the client's TLS handshake, as what ends TLS in front of the service reports it, and no client
/// can write it; see [`Request::ja4`](tidegate_core::gate::Request::ja4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ja4(pub String);

/// A request extension: the limits of the sender that only the service knows, by the names in `limit_from`; see
/// [`Request::limits`](tidegate_core::gate::Request::limits).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits(pub Vec<(String, u64)>);

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(…)")
    }
}
