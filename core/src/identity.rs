//! Selects the key of a request from the most trusted identity of its sender.

use core::fmt;

use crate::{ClientIp, Key};

/// The identities of a request's sender, most trusted first.
///
/// Set only verified values: a client that can choose its subject or API key gets a new limit with each. An empty text counts
/// as absent.
///
/// ```
/// use tidegate_core::{ClientIp, Identity};
/// let client_ip = ClientIp::parse("192.0.2.1").ok();
/// let anonymous = Identity { client_ip, ..Identity::default() };
/// assert_eq!(anonymous.resolve().as_str(), "ip:192.0.2.1");
/// let alice = Identity { subject: Some("alice"), ..anonymous };
/// assert_eq!(alice.resolve().as_str(), "sub:alice");
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Identity<'a> {
    /// The subject (`sub`) of a token whose signature was verified.
    pub subject: Option<&'a str>,
    /// A valid API key. The [`Key`] holds only a hash of it.
    pub api_key: Option<&'a str>,
    /// The client's address from the platform; see [`ClientIpSource::find`](crate::ClientIpSource::find).
    pub client_ip: Option<ClientIp>,
}

impl Identity<'_> {
    /// The key of the first identity that is present: subject, API key, address. If none is, [`Key::missing_ip`].
    ///
    /// ```
    /// use tidegate_core::{Identity, Key};
    /// let identity = Identity { subject: Some(""), api_key: Some("secret"), client_ip: None };
    /// assert_eq!(identity.resolve(), Key::api_key("secret"));
    /// assert_eq!(Identity::default().resolve(), Key::missing_ip());
    /// ```
    #[must_use]
    pub fn resolve(&self) -> Key {
        let present = |text: &&str| !text.is_empty();
        if let Some(subject) = self.subject.filter(present) {
            Key::subject(subject)
        } else if let Some(secret) = self.api_key.filter(present) {
            Key::api_key(secret)
        } else if let Some(ip) = &self.client_ip {
            Key::ip(ip)
        } else {
            Key::missing_ip()
        }
    }
}

/// Hides the API key.
impl fmt::Debug for Identity<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("subject", &self.subject)
            .field("api_key", &self.api_key.map(|_| "…"))
            .field("client_ip", &self.client_ip)
            .finish()
    }
}
