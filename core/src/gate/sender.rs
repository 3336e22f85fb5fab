//! Who sent a request, and the keys that it counts against.

use std::net::IpAddr;

use super::lists::List;
use super::request::Request;
use super::rules::Rules;
use crate::dimension::OwnKeys;
use crate::{ClientIp, ClientIpSource, Dimension, Error, Key, Keys, Policy};

/// The dimension of the client's address.
const IP: &str = "ip";

/// The dimension of a key that all requests share.
const GLOBAL: &str = "global";

/// The sender of a request.
pub(super) struct Sender {
    /// The application's key, or that of a verified subject or a valid API key.
    verified: Option<Key>,
    address: Option<(IpAddr, ClientIp)>,
    tier: Option<usize>,
}

impl Sender {
    pub(super) fn of(request: &Request<'_>, rules: &Rules, source: &ClientIpSource) -> Self {
        let address = source.client(request.peer, |read| {
            for (place, field) in source.fields().iter().enumerate() {
                request.headers().values(field, &mut |value| read(place, value));
            }
        });
        let api_key = match request.api_key {
            Some(secret) => Some((Key::api_key(secret), None)),
            None => rules.api_key(request),
        };
        let tier = match request.tier {
            Some(name) => rules.tier(name),
            None => api_key.as_ref().and_then(|(_, tier)| *tier),
        };
        let verified = request.key.cloned().or_else(|| request.subject.map(Key::subject));
        let verified = verified.or(api_key.map(|(key, _)| key));
        Self { verified, address: address.ok(), tier }
    }

    pub(super) const fn tier(&self) -> Option<usize> {
        self.tier
    }

    pub(super) fn is_on(&self, list: &List) -> bool {
        !list.is_empty()
            && (self.address.is_some_and(|(address, _)| list.has_address(address))
                || self.verified.as_ref().is_some_and(|key| list.has_key(key)))
    }

    pub(super) fn address(&self) -> Option<IpAddr> {
        self.address.map(|(address, _)| address)
    }

    pub(super) const fn verified(&self) -> Option<&Key> {
        self.verified.as_ref()
    }

    /// The key in each dimension of a policy. `given` are the application's.
    pub(super) fn keys(&self, policy: &Policy, given: &[(&str, &Key)]) -> Result<OwnKeys, Error> {
        OwnKeys::new(policy, |dimension| self.key(dimension, given))
    }

    /// The key in a dimension.
    pub(super) fn key(&self, dimension: &Dimension, given: &[(&str, &Key)]) -> Result<Key, Error> {
        match dimension.name() {
            "" => Ok(self.verified.clone().unwrap_or_else(|| self.ip())),
            IP => Ok(self.ip()),
            GLOBAL => Ok(Key::new(GLOBAL)),
            _ => Keys::from(given).of(dimension).cloned(),
        }
    }

    fn ip(&self) -> Key {
        self.address.as_ref().map_or_else(Key::missing_ip, |(_, client)| Key::ip(client))
    }
}
