//! Which key a request counts against.

use std::fmt;
use std::net::IpAddr;

use http::Extensions;
use http::request::Parts;
use tidegate_core::{ClientIpSource, Error, ErrorKind, Identity, Key};

/// Extracts the key that a request counts against. It takes the first of these that is present:
///
/// 1. a [`Key`] in the request's extensions, inserted by an earlier layer;
/// 2. a [`Subject`] there, inserted by a layer that verified a token;
/// 3. an [`ApiKey`] there, inserted by a layer that validated it;
/// 4. the client's address, from the source that [`ClientIpSource`] names.
///
/// Requests with none of these share one key. Insert a subject or an API key only after verifying it: a client that can
/// choose either gets a new limit with each request.
///
/// ```
/// use std::net::SocketAddr;
/// use axum::extract::ConnectInfo;
/// use tidegate_core::{ClientIpSource, Platform};
/// use tidegate_tower::KeyExtractor;
/// // On Vercel, the address is in Vercel's own header.
/// let behind_vercel = KeyExtractor::new(ClientIpSource::new(Platform::Vercel));
/// // Without a platform in front, the address is that of the connection. axum stores it as `ConnectInfo`.
/// let direct = KeyExtractor::new(ClientIpSource::new(Platform::Direct))
///     .peer(|extensions| extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip()));
/// ```
#[derive(Clone, Debug)]
pub struct KeyExtractor {
    client_ip: ClientIpSource,
    peer: Option<fn(&Extensions) -> Option<IpAddr>>,
}

/// A request extension: the subject (`sub`) of a token whose signature was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject(pub String);

/// A request extension: a valid API key. The limiter's key holds only a hash of it.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(pub String);

impl KeyExtractor {
    /// An extractor that takes client addresses from `client_ip`.
    #[must_use]
    pub fn new(client_ip: ClientIpSource) -> Self {
        Self { client_ip, peer: None }
    }

    /// Sets how to read the connection's address. Servers store it in the request's extensions, each in its own type.
    ///
    /// A source that [reads it](ClientIpSource::reads_peer), such as
    /// [`Platform::Direct`](tidegate_core::Platform::Direct), requires this setting.
    #[must_use]
    pub fn peer(mut self, peer: fn(&Extensions) -> Option<IpAddr>) -> Self {
        self.peer = Some(peer);
        self
    }

    pub(crate) fn validate(&self) -> Result<(), Error> {
        if self.peer.is_none() && self.client_ip.reads_peer() {
            return Err(Error::new(
                ErrorKind::Invalid,
                "key_extractor: this source takes the client's address from the connection; call \
                 KeyExtractor::peer, for axum with |extensions| extensions.get::<ConnectInfo<SocketAddr>>()\
                 .map(|info| info.0.ip()), or with |_| None if earlier layers insert every key",
            ));
        }
        Ok(())
    }

    /// The key that this request counts against.
    #[must_use]
    pub fn key(&self, head: &Parts) -> Key {
        if let Some(key) = head.extensions.get::<Key>() {
            return key.clone();
        }
        let identity = Identity {
            subject: head.extensions.get::<Subject>().map(|subject| subject.0.as_str()),
            api_key: head.extensions.get::<ApiKey>().map(|key| key.0.as_str()),
            client_ip: self.client_ip.find(&head.headers, self.peer.and_then(|peer| peer(&head.extensions))).ok(),
        };
        identity.resolve()
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(…)")
    }
}
