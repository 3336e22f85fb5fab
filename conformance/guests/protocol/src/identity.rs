use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::{Answer, Failure, Reply};

/// A request as it reaches a guest, as far as it says who sent it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arrival {
    /// The platform it came through.
    pub platform: String,
    /// The address that the platform's own API or socket gives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// The prefix length that IPv6 addresses fold to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6_prefix: Option<u8>,
    /// Whether `true-client-ip` is believed.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub trust_true_client_ip: bool,
    /// The header fields, in order, a repeated name once for each value.
    pub headers: Vec<(String, String)>,
    /// The subject of a verified token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The API key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key: Option<String>,
}

/// Whom a request is counted against, and by what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identified {
    /// The key.
    pub key: String,
    /// What it was made of.
    pub source: Source,
}

/// What a key was made of, most trusted first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A verified token's subject.
    Subject,
    /// An API key.
    ApiKey,
    /// The client's address.
    ClientIp,
    /// Nothing: the request says of none of them.
    Missing,
}

impl Arrival {
    /// Whom the request is counted against.
    #[must_use]
    pub fn identify(&self) -> Reply {
        let failure = Failure { kind: "unsupported".into(), message: "this guest does not identify requests".into() };
        Reply::new(503, &Answer::Error(failure))
    }
}
