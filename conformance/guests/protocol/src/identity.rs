use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::net::IpAddr;

use serde::{Deserialize, Serialize};
use tidegate_core::{ClientIpSource, Error, ErrorKind, Identity, Ipv6Prefix, Key, KeySource};

use crate::{Answer, Reply};

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
    /// Nothing: the request tells none of them.
    Missing,
    /// A text of the application's own.
    Other,
}

impl Arrival {
    /// Whom the request is counted against.
    pub(crate) fn identify(&self) -> Reply {
        match self.key() {
            Ok(key) => {
                let identified = Identified { key: key.as_str().to_string(), source: key.source().into() };
                Reply::new(200, &Answer::Identity(identified))
            }
            Err(error) => Reply::new(400, &Answer::Error((&error).into())),
        }
    }

    fn key(&self) -> Result<Key, Error> {
        let mut source = ClientIpSource::new(self.platform.parse()?).trust_true_client_ip(self.trust_true_client_ip);
        if let Some(bits) = self.ipv6_prefix {
            source = source.ipv6_prefix(Ipv6Prefix::new(bits)?);
        }
        let peer = self.peer.as_deref().map(str::parse::<IpAddr>).transpose().map_err(|_| {
            let message = "peer: not an address; write an IPv4 or IPv6 address without a port";
            Error::new(ErrorKind::Invalid, message)
        })?;
        let headers = self.headers.iter().map(|(name, value)| (name, value));
        let client_ip = source.find(headers, peer).ok();
        let identity = Identity { subject: self.subject.as_deref(), api_key: self.api_key.as_deref(), client_ip };
        Ok(identity.resolve())
    }
}

impl From<KeySource> for Source {
    fn from(source: KeySource) -> Self {
        match source {
            KeySource::Subject => Self::Subject,
            KeySource::ApiKey => Self::ApiKey,
            KeySource::ClientIp => Self::ClientIp,
            KeySource::MissingIp => Self::Missing,
            _ => Self::Other,
        }
    }
}
