//! Whom a request counts against.

use std::fmt;
use std::net::IpAddr;

use http::Extensions;
use http::request::Parts;
use tidegate_core::{ClientIpSource, Identity, Key};

/// Finds out whom a request counts against: the most trusted of what is known.
///
/// 1. A [`Key`] in the request's extensions: an earlier layer has decided.
/// 2. A [`Subject`] there: an earlier layer has verified a token.
/// 3. An [`ApiKey`] there: an earlier layer has found it valid.
/// 4. The client's address, as the platform in front tells it, or as the connection does.
///
/// Requests with none of these count together, as one key_extractor. A subject or key that nobody verified must not be put
/// there: a client that may send any gets a fresh quota with each.
///
/// ```
/// use std::net::SocketAddr;
/// use axum::extract::ConnectInfo;
/// use tidegate_core::{ClientIpSource, Platform};
/// use tidegate_tower::KeyExtractor;
/// // Behind Vercel, whose header is the only one believed; and behind nothing, where the connection tells.
/// let behind_vercel = KeyExtractor::new(ClientIpSource::new(Platform::Vercel));
/// let direct = KeyExtractor::new(ClientIpSource::new(Platform::Direct))
///     .peer(|extensions| extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip()));
/// ```
#[derive(Clone, Debug)]
pub struct KeyExtractor {
    client_ip: ClientIpSource,
    peer: fn(&Extensions) -> Option<IpAddr>,
}

/// In a request's extensions: the subject (`sub`) of a token whose signature was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject(pub String);

/// In a request's extensions: an API key that was found valid. Only its hash is stored.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(pub String);

impl KeyExtractor {
    /// Senders as the platform of `client_ip` tells their addresses.
    #[must_use]
    pub fn new(client_ip: ClientIpSource) -> Self {
        Self { client_ip, peer: |_| None }
    }

    /// Where the connection's own address is: servers put it into the request's extensions, each in a type of its own.
    /// It counts where the platform is [`Direct`](tidegate_core::Platform::Direct).
    #[must_use]
    pub fn peer(mut self, peer: fn(&Extensions) -> Option<IpAddr>) -> Self {
        self.peer = peer;
        self
    }

    /// Whom this request counts against.
    #[must_use]
    pub fn key(&self, head: &Parts) -> Key {
        if let Some(key) = head.extensions.get::<Key>() {
            return key.clone();
        }
        let identity = Identity {
            subject: head.extensions.get::<Subject>().map(|subject| subject.0.as_str()),
            api_key: head.extensions.get::<ApiKey>().map(|key| key.0.as_str()),
            client_ip: self.client_ip.find(&head.headers, (self.peer)(&head.extensions)).ok(),
        };
        identity.resolve()
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(…)")
    }
}
