use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::net::IpAddr;

use serde::{Deserialize, Serialize};
use tidegate_core::{ClientIpSource, Error, ErrorKind, Identity, Key};

use crate::{Answer, Reply};

/// The parts of a request that identify its sender.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arrival {
    /// The platform that received the request.
    pub platform: String,
    /// The address from the platform's API or the socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// The prefix length to which IPv6 addresses are reduced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6_prefix: Option<u8>,
    /// Whether `true-client-ip` is trusted.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub trust_true_client_ip: bool,
    /// The header fields in order, one entry per value.
    pub headers: Vec<(String, String)>,
    /// The subject of a verified token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The API key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key: Option<String>,
}

/// The key that a request is counted against, and its source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identified {
    /// The key.
    pub key: String,
    /// The source of the key.
    pub source: Source,
}

/// The source of a key, most trusted first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A verified token's subject.
    Subject,
    /// An API key.
    ApiKey,
    /// The client's address.
    ClientIp,
    /// None of these.
    Missing,
    /// A key that the application chose.
    Other,
}

impl Arrival {
    /// Returns the key that the request is counted against.
    pub(crate) fn identify(&self) -> Reply {
        match self.key() {
            Ok(key) => {
                let identified = Identified { key: key.as_str().to_string(), source: Source::of(&key) };
                Reply::new(200, &Answer::Identity(identified))
            }
            Err(error) => Reply::new(400, &Answer::Error((&error).into())),
        }
    }

    fn key(&self) -> Result<Key, Error> {
        let (source, peer) = self.source()?;
        let headers = self.headers.iter().map(|(name, value)| (name, value));
        let client_ip = source.find(headers, peer).ok();
        let identity = Identity { subject: self.subject.as_deref(), api_key: self.api_key.as_deref(), client_ip };
        Ok(identity.resolve())
    }

    /// Where the client's address is, and that of the connection.
    pub(crate) fn source(&self) -> Result<(ClientIpSource, Option<IpAddr>), Error> {
        let mut source = ClientIpSource::new(self.platform.parse()?).trust_true_client_ip(self.trust_true_client_ip);
        if let Some(bits) = self.ipv6_prefix {
            source = source.ipv6_prefix(bits)?;
        }
        let peer = self.peer.as_deref().map(str::parse::<IpAddr>).transpose().map_err(|_| {
            let message = "peer: not an address; write an IPv4 or IPv6 address without a port";
            Error::new(ErrorKind::Invalid, message)
        })?;
        Ok((source, peer))
    }
}

impl Source {
    /// That of a key, by the start of its text.
    fn of(key: &Key) -> Self {
        match key.as_str().split_once(':') {
            _ if *key == Key::missing_ip() => Self::Missing,
            Some(("sub", _)) => Self::Subject,
            Some(("key", _)) => Self::ApiKey,
            Some(("ip", _)) => Self::ClientIp,
            _ => Self::Other,
        }
    }
}
