//! Who sent a request, and the keys that it counts against.

use std::fmt;
use std::net::IpAddr;

use super::dimension_names::{GLOBAL, IP, JA4, SENDER};
use super::lists::List;
use super::request::Request;
use super::rules::Rules;
use super::token::{Claims, InvalidToken, Tokens};
use crate::dimension::OwnKeys;
use crate::{ClientIp, ClientIpSource, Dimension, Error, Key, Keys, MissingIp, Policy};

/// Who says that a request has an identity.
#[derive(Clone, Copy)]
enum Source {
    Application,
    Token,
    ApiKey,
}

/// The identities of a request, most trusted first: the application's key and its subject, the subject of a valid token, the
/// application's API key, and a valid one in the header field.
const SOURCES: [Source; 5] = [Source::Application, Source::Application, Source::Token, Source::ApiKey, Source::ApiKey];

/// The sender of a request. One of its identities is counted. Its tier and its dimensions are that identity's.
pub(super) struct Sender<'r> {
    rules: &'r Rules,
    /// The key of each identity, in the order of [`SOURCES`].
    identities: [Option<Key>; SOURCES.len()],
    /// As it came.
    address: Option<IpAddr>,
    client: Option<ClientIp>,
    /// The fingerprint of its TLS handshake, if the platform reports it.
    ja4: Option<&'r str>,
    tier: Option<usize>,
    /// What its token claims, in a box, because most requests have none.
    claims: Option<Box<Result<Claims, InvalidToken>>>,
}

impl<'r> Sender<'r> {
    #[inline]
    pub(super) fn of(request: &Request<'r>, rules: &'r Rules, source: &ClientIpSource) -> Self {
        let mut sender = Self::without_token(request, rules, source);
        if let Some(tokens) = rules.tokens() {
            sender.verify(request, tokens);
        }
        if rules.has_tiers() {
            sender.tier = sender.find_tier(request);
        }
        sender
    }

    fn verify(&mut self, request: &Request<'r>, tokens: &Tokens) {
        // A signature costs more than everything else here.
        if !self.is_on(self.rules.denied()) {
            self.claims = tokens.verify(request).map(Box::new);
        }
        let [_, _, token, _, _] = &mut self.identities;
        *token =
            self.claims.as_deref().and_then(|claims| claims.as_ref().ok()).map(|claims| Key::subject(&*claims.subject));
    }

    /// The sender, as far as it is known before its token is verified.
    #[inline]
    pub(super) fn without_token(request: &Request<'r>, rules: &'r Rules, source: &ClientIpSource) -> Self {
        let address = address(request, source).ok();
        let client = address.and_then(|address| source.client_at(address).ok());
        let identities = if request.has_identity() || rules.reads_api_keys() {
            let [subject, api_key] = [request.subject.map(Key::subject), request.api_key.map(Key::api_key)];
            [request.key.cloned(), subject, None, api_key, rules.api_key(request)]
        } else {
            [const { None }; SOURCES.len()]
        };
        Self { rules, identities, address, client, ja4: request.ja4, tier: None, claims: None }
    }

    fn find_tier(&self, request: &Request<'_>) -> Option<usize> {
        // The application's tier is that of the API key that it names, even if a token's subject is counted.
        let is_anothers = matches!(self.identities, [None, None, Some(_), Some(_), _]);
        if let Some(name) = request.tier.filter(|_| !is_anothers) {
            return self.rules.tier(name);
        }
        match self.counted_claims() {
            Some(claims) => self.rules.tier(claims.tier.as_deref()?),
            None => self.rules.tier_of_api_key(self.verified()?),
        }
    }

    pub(super) const fn tier(&self) -> Option<usize> {
        self.tier
    }

    #[inline]
    pub(super) fn is_on(&self, list: &List) -> bool {
        !list.is_empty() && self.entry_of(list).is_some()
    }

    /// The first of the request's addresses and identities that is on a list.
    pub(super) fn entry_of(&self, list: &List) -> Option<Entry> {
        if list.is_empty() {
            return None;
        }
        let embedded = self.client.map(|client| client.address()).filter(IpAddr::is_ipv4);
        let mut addresses = [self.address, embedded].into_iter().flatten();
        let address = addresses.find(|address| list.has_address(*address)).map(Entry::Address);
        let mut keys = self.identities.iter().flatten();
        address.or_else(|| keys.find(|key| list.has_key(key)).cloned().map(Entry::Key))
    }

    /// The client's address.
    pub(super) fn address(&self) -> Option<IpAddr> {
        self.address.filter(|_| self.client.is_some())
    }

    /// Whether the token is valid, if there is one.
    pub(super) fn token(&self) -> Option<Result<(), InvalidToken>> {
        Some(self.claims.as_deref()?.as_ref().map(drop).map_err(|invalid| *invalid))
    }

    /// The key of the identity that is counted, unless that is the address.
    pub(super) fn verified(&self) -> Option<&Key> {
        self.identities.iter().flatten().next()
    }

    /// How that identity is known.
    pub(super) fn verified_by(&self) -> &'static str {
        let mut known = self.identities.iter().zip(SOURCES).filter(|(key, _)| key.is_some());
        match known.next() {
            Some((_, Source::Token)) => "of a valid token",
            Some((_, Source::ApiKey)) => "of a valid API key",
            _ => "verified by the application",
        }
    }

    /// What the token claims, if its subject is counted.
    fn counted_claims(&self) -> Option<&Claims> {
        let [_, _, subject, _, _] = &self.identities;
        let is_counted = self.verified() == subject.as_ref();
        self.claims.as_deref()?.as_ref().ok().filter(|_| is_counted)
    }

    /// A claim that gives a limit, as it is written, if the token's subject is counted.
    pub(super) fn claimed_limit(&self, name: &str) -> Option<&str> {
        let mut limits = self.counted_claims()?.limits.iter();
        limits.find(|(known, _)| **known == *name).map(|(_, text)| &**text)
    }

    /// The key in each dimension of a policy. `given` are the application's.
    #[inline]
    pub(super) fn keys(&self, policy: &Policy, given: &[(&str, &Key)]) -> Result<OwnKeys, Error> {
        OwnKeys::new(policy, |dimension| self.key(dimension, given))
    }

    /// The key in a dimension.
    #[inline]
    pub(super) fn key(&self, dimension: &Dimension, given: &[(&str, &Key)]) -> Result<Key, Error> {
        match dimension.is_of_one() {
            true => self.key_of(dimension.name(), given),
            false => {
                Ok(Key::joined(&dimension.parts().map(|name| self.key_of(name, given)).collect::<Result<Vec<_>, _>>()?))
            }
        }
    }

    #[inline]
    fn key_of(&self, name: &str, given: &[(&str, &Key)]) -> Result<Key, Error> {
        match name {
            name if name.is_empty() || name == SENDER => Ok(self.main()),
            IP => Ok(self.ip()),
            JA4 => Ok(self.ja4.map_or_else(Key::missing_ja4, Key::ja4)),
            GLOBAL => Ok(Key::new(GLOBAL)),
            name => Keys::from(given).named(name).cloned().or_else(|error| self.claimed(name).ok_or(error)),
        }
    }

    /// The key in a dimension of the token's claims. The sender's, if the token of the counted subject has no such claim.
    fn claimed(&self, dimension: &str) -> Option<Key> {
        self.rules.tokens()?.dimensions().find(|known| *known == dimension)?;
        let mut keys = self.counted_claims().into_iter().flat_map(|claims| &claims.keys);
        let key = keys.find(|(name, _)| **name == *dimension).and_then(|(_, key)| key.clone());
        Some(key.unwrap_or_else(|| self.main()))
    }

    #[inline]
    fn main(&self) -> Key {
        match self.verified() {
            Some(key) => key.clone(),
            None => self.ip(),
        }
    }

    fn ip(&self) -> Key {
        key_of_client(self.client)
    }
}

/// Whether requests that do not name their sender count by the client's address, and nothing else is read of who sent them.
pub(super) fn is_by_address(rules: &Rules, policy: &Policy) -> bool {
    let by = |dimension: &Dimension| ["", SENDER, IP].contains(&dimension.name());
    let reads_more = rules.tokens().is_some() || rules.reads_api_keys() || rules.has_tiers();
    let has_lists = !rules.denied().is_empty() || !rules.allowed().is_empty();
    !reads_more && !has_lists && matches!(policy.dimensions(), [one] if by(one))
}

/// The key of the client's address.
#[inline]
pub(super) fn address_key(request: &Request<'_>, source: &ClientIpSource) -> Key {
    key_of_client(address(request, source).and_then(|address| source.client_at(address)).ok())
}

#[inline]
fn key_of_client(client: Option<ClientIp>) -> Key {
    client.as_ref().map_or_else(Key::missing_ip, Key::ip)
}

/// The address of a request's sender.
#[inline]
fn address(request: &Request<'_>, source: &ClientIpSource) -> Result<IpAddr, MissingIp> {
    source.address(request.peer, |read| {
        for (place, field) in source.fields().iter().enumerate() {
            request.headers().values(field, &mut |value| read(place, value));
        }
    })
}

/// What of a request is on a list.
#[derive(Debug)]
pub(super) enum Entry {
    Address(IpAddr),
    Key(Key),
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(f, "{address}"),
            Self::Key(key) => write!(f, "{key}"),
        }
    }
}
