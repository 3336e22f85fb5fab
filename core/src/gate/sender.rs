//! Who sent a request, and the keys that it counts against.

use std::net::IpAddr;

use super::by::{GLOBAL, IP, SENDER};
use super::lists::List;
use super::request::Request;
use super::rules::Rules;
use super::token::{Claims, InvalidToken};
use crate::dimension::OwnKeys;
use crate::{ClientIp, ClientIpSource, Dimension, Error, Key, Keys, Policy};

/// The address of a request, and the client that it belongs to.
pub(super) fn address(request: &Request<'_>, source: &ClientIpSource) -> Option<(IpAddr, ClientIp)> {
    let found = source.client(request.peer, |read| {
        for (place, field) in source.fields().iter().enumerate() {
            request.headers().values(field, &mut |value| read(place, value));
        }
    });
    found.ok()
}

/// The sender of a request.
pub(super) struct Sender<'r> {
    rules: &'r Rules,
    /// The application's key, or that of a verified subject or a valid API key.
    verified: Option<Key>,
    address: Option<(IpAddr, ClientIp)>,
    tier: Option<usize>,
    /// What its token claims.
    claims: Option<Result<Claims, InvalidToken>>,
}

impl<'r> Sender<'r> {
    pub(super) fn of(request: &Request<'_>, rules: &'r Rules, source: &ClientIpSource) -> Self {
        let address = address(request, source);
        let is_denied = address.as_ref().is_some_and(|(address, _)| rules.denied().has_address(*address));
        // A signature costs more than everything else here.
        let claims = rules.tokens().filter(|_| !is_denied).and_then(|tokens| tokens.verify(request));
        let valid = claims.as_ref().and_then(|claims| claims.as_ref().ok());
        let api_key = match request.api_key {
            Some(secret) => Some((Key::api_key(secret), None)),
            None => rules.api_key(request),
        };
        let tier = match request.tier.or_else(|| valid?.tier.as_deref()) {
            Some(name) => rules.tier(name),
            None => api_key.as_ref().and_then(|(_, tier)| *tier),
        };
        let subject = request.subject.or_else(|| Some(&*valid?.subject));
        let verified = request.key.cloned().or_else(|| subject.map(Key::subject));
        let verified = verified.or(api_key.map(|(key, _)| key));
        Self { rules, verified, address, tier, claims }
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

    /// Whether the token is valid, if there is one.
    pub(super) fn token(&self) -> Option<Result<(), InvalidToken>> {
        Some(self.claims.as_ref()?.as_ref().map(drop).map_err(|invalid| *invalid))
    }

    pub(super) const fn verified(&self) -> Option<&Key> {
        self.verified.as_ref()
    }

    /// The key in each dimension of a policy. `given` are the application's.
    pub(super) fn keys(&self, policy: &Policy, given: &[(&str, &Key)]) -> Result<OwnKeys, Error> {
        OwnKeys::new(policy, &|dimension| self.key(dimension, given))
    }

    /// The key in a dimension.
    pub(super) fn key(&self, dimension: &Dimension, given: &[(&str, &Key)]) -> Result<Key, Error> {
        match dimension.name() {
            "" | SENDER => Ok(self.main()),
            IP => Ok(self.ip()),
            GLOBAL => Ok(Key::new(GLOBAL)),
            name => Keys::from(given).of(dimension).cloned().or_else(|error| self.claimed(name).ok_or(error)),
        }
    }

    /// The key in a dimension of the token's claims. The sender's, if there is no such claim.
    fn claimed(&self, dimension: &str) -> Option<Key> {
        self.rules.tokens()?.dimensions().find(|known| *known == dimension)?;
        let claimed = self.claims.as_ref().and_then(|claims| claims.as_ref().ok());
        let mut keys = claimed.into_iter().flat_map(|claims| &claims.keys);
        let key = keys.find(|(name, _)| **name == *dimension).and_then(|(_, key)| key.clone());
        Some(key.unwrap_or_else(|| self.main()))
    }

    fn main(&self) -> Key {
        self.verified.clone().unwrap_or_else(|| self.ip())
    }

    fn ip(&self) -> Key {
        self.address.as_ref().map_or_else(Key::missing_ip, |(_, client)| Key::ip(client))
    }
}
