//! Grants to the balances of a gate's rules, without a request.

use std::net::IpAddr;
use std::sync::Arc;

use super::dimension_names::{GLOBAL, IP, SENDER};
use super::rules::{Numbers, Rules};
use super::stores::unknown_store;
use super::{Gate, State};
use crate::dimension::OwnKeys;
use crate::quoted_text::Quoted;
use crate::suggestion::Suggestion;
use crate::{Decision, Dimension, Error, Grant, Key, Keys, LimiterExt, Millis, Policy, UnixMillis};

/// Whom a [credit](Credit) is for: the identity that is counted when this sender makes a request. What a request counts by with several
/// identities, [the guide](crate::guide::keys#which-identity-is-counted) says.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Grantee<'a> {
    /// The subject of a verified token, or the one that the application gives as [`Request::subject`](super::Request::subject).
    Subject(&'a str),
    /// A valid API key.
    ApiKey(&'a str),
    /// The key that the application gives as [`Request::key`](super::Request::key).
    Key(&'a Key),
    /// A client without an identity, by its address.
    Address(IpAddr),
}

impl Grantee<'_> {
    fn is_empty(&self) -> bool {
        match self {
            Self::Subject(text) | Self::ApiKey(text) => text.is_empty(),
            Self::Key(key) => key.as_str().is_empty(),
            Self::Address(_) => false,
        }
    }
}

/// Units for the balance of a limit of the rules; see [`Gate::grant`].
#[derive(Clone, Copy, Debug)]
pub struct Credit<'a> {
    limit: &'a str,
    to: Grantee<'a>,
    units: u64,
    token: &'a str,
    now: UnixMillis,
    keys: &'a [(&'a str, &'a Key)],
    tier: Option<&'a str>,
    store: Option<&'a str>,
    expires: UnixMillis,
    ttl: Millis,
}

impl<'a> Credit<'a> {
    /// `units` for the balance of the limit with this name. The `token` is unique to the grant, such as the number of the order: a grant that
    /// is repeated with it grants nothing more.
    #[must_use]
    pub const fn new(limit: &'a str, to: Grantee<'a>, units: u64, token: &'a str, now: UnixMillis) -> Self {
        let (keys, expires, ttl) = (&[], UnixMillis::MAX, Grant::REMEMBERED);
        Self { limit, to, units, token, now, keys, tier: None, store: None, expires, ttl }
    }

    /// Sets when the units expire: they count before this instant. By default, they do not.
    #[must_use]
    pub const fn expires(mut self, at: UnixMillis) -> Self {
        self.expires = at;
        self
    }

    /// Sets how long the token is remembered. The default is [`Grant::REMEMBERED`].
    #[must_use]
    pub const fn remembered_for(mut self, ttl: Millis) -> Self {
        self.ttl = ttl;
        self
    }

    /// Gives the keys of other dimensions than the sender's and its address, for a balance that counts by one: those that requests give as
    /// [`Request::keys`](super::Request::keys), and those of the claims of tokens. The claim `acme` of the dimension `tenant` is
    /// `Key::new("tenant:acme")`.
    #[must_use]
    pub const fn keys(mut self, keys: &'a [(&'a str, &'a Key)]) -> Self {
        self.keys = keys;
        self
    }

    /// Sets the sender's tier, if requests have it from a token or from the application. That of an API key in the rules is known.
    #[must_use]
    pub const fn tier(mut self, name: &'a str) -> Self {
        self.tier = Some(name);
        self
    }

    /// Names the store, for a limit that rules count in several.
    #[must_use]
    pub const fn store(mut self, name: &'a str) -> Self {
        self.store = Some(name);
        self
    }

    /// The key that a request of this sender counts by.
    fn key(&self, gate: &Gate<'_>, dimension: &Dimension) -> Result<Key, Error> {
        let parts = dimension.parts().map(|name| self.key_of(gate, name)).collect::<Result<Vec<_>, _>>()?;
        match <[Key; 1]>::try_from(parts) {
            Ok([key]) => Ok(key),
            Err(parts) => Ok(Key::joined(&parts)),
        }
    }

    fn key_of(&self, gate: &Gate<'_>, name: &str) -> Result<Key, Error> {
        match (name, self.to) {
            (GLOBAL, _) => Ok(Key::new(GLOBAL)),
            ("" | SENDER, to) if to.is_empty() => {
                Err(self.wrong("to", "the text is empty, which identifies nobody; write the sender's"))
            }
            ("" | SENDER, Grantee::Subject(subject)) => Ok(Key::subject(subject)),
            ("" | SENDER, Grantee::ApiKey(api_key)) => Ok(Key::api_key(api_key)),
            ("" | SENDER, Grantee::Key(key)) => Ok(key.clone()),
            ("" | SENDER | IP, Grantee::Address(address)) => {
                let client = gate.client_ip.of_address(address);
                client.map(|client| Key::ip(&client)).map_err(|_| {
                    self.wrong("to", &std::format!("{address} identifies no client; give the address of one"))
                })
            }
            (IP, _) => Err(self.wrong("to", "it counts by the client's address; give a Grantee::Address")),
            (name, _) => Keys::from(self.keys).named(name).cloned().map_err(|_| {
                self.wrong("keys", &std::format!("it counts by {}; give that key with Credit::keys", Quoted(name)))
            }),
        }
    }

    /// An error about the limit.
    fn wrong(&self, field: &str, what: &str) -> Error {
        Error::invalid(std::format!("{field}: of the limit {}: {what}", Quoted(self.limit)))
    }

    /// The place of the sender's tier.
    fn place_of_tier(&self, rules: &Rules) -> Result<Option<usize>, Error> {
        match (self.tier, self.to) {
            (Some(name), _) => match rules.tier(name) {
                Some(tier) => Ok(Some(tier)),
                None => Err(Error::invalid(std::format!("tier: {}", unknown(name, "a tier", &rules.tiers())))),
            },
            (None, Grantee::ApiKey(api_key)) => Ok(rules.tier_of_api_key(&Key::api_key(api_key))),
            (None, Grantee::Key(key)) => Ok(rules.tier_of_api_key(key)),
            (None, _) => Ok(None),
        }
    }

    /// Checks that all names are those of something.
    fn verify(&self, gate: &Gate<'_>, rules: &Rules) -> Result<(), Error> {
        let mut limits: Vec<&str> = Vec::new();
        for policy in rules.rules().iter().flat_map(super::Rule::policies) {
            limits.extend(policy.dimensions().iter().map(Dimension::policy));
        }
        limits.sort_unstable();
        limits.dedup();
        if !limits.contains(&self.limit) {
            return Err(Error::invalid(std::format!("limit: {}", unknown(self.limit, "a limit of any rule", &limits))));
        }
        let stores: Vec<&str> = gate.stores.iter().map(|store| &*store.name).collect();
        if let Some(store) = self.store.filter(|store| !stores.contains(store)) {
            return Err(unknown_store("store", store, &stores));
        }
        let dimensions = rules.known_dimensions();
        match self.keys.iter().find(|(name, _)| !dimensions.contains(name)) {
            Some((name, _)) => Err(Error::invalid(std::format!("keys: {}", unknown(name, "a dimension", &dimensions)))),
            None => Ok(()),
        }
    }
}

fn unknown(name: &str, what: &str, known: &[&str]) -> String {
    match known {
        [] => std::format!("{} is not {what}; there is none", Quoted(name)),
        known => std::format!("{} is not {what}; {}", Quoted(name), Suggestion::of(name, known)),
    }
}

impl Gate<'_> {
    /// Adds units to the balance of a sender, such as credits that a customer has bought, without a request: to the one that is charged when
    /// this sender makes a request. See [`Grant`] and [the guide](crate::guide::credits).
    ///
    /// ```
    /// use tidegate_core::gate::{Credit, Gate, Grantee, Request, Rules};
    /// use tidegate_core::{ClientIpSource, MemoryLimiter, Platform, UnixMillis};
    /// # fn main() -> Result<(), tidegate_core::Error> {
    /// # pollster::block_on(async {
    /// let rules = Rules::parse("rules.json", r#"{
    ///     "limits": { "api": { "quotas": [
    ///         { "algorithm": "fixed_window", "limit": 2, "window_ms": 86400000 },
    ///         { "algorithm": "balance", "max": 1000000, "covers": true }
    ///     ] } },
    ///     "rules": [{ "path": "/api/*", "limits": ["api"] }]
    /// }"#)?;
    /// let gate = Gate::new(rules, MemoryLimiter::new(), ClientIpSource::new(Platform::Direct))?;
    /// let now = UnixMillis::new(1_800_000_000_000);
    ///
    /// let order = Credit::new("api", Grantee::Subject("alice"), 5_000, "order-1817", now);
    /// assert_eq!(gate.grant(&order).await?.quotas()[1].remaining(), Some(5_000));
    /// assert!(gate.grant(&order).await?.is_replay());
    ///
    /// let (headers, peer): ([(&str, &str); 0], _) = ([], "192.0.2.1".parse().ok());
    /// let request = Request::new("GET", "/api/items", &headers, now).peer(peer).subject("alice").cost(12);
    /// assert_eq!(gate.check(&request).await.decision().unwrap().from_balance(), 10);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for a name of no limit, tier, store or dimension, with the nearest one, for a limit without a
    /// balance, for an identity of another kind than the balance counts by, and for a limit that rules count in several stores if the credit
    /// names none; and those of [`LimiterExt::grant`]. After a [`Timeout`](crate::ErrorKind::Timeout), repeat it with the same token.
    pub async fn grant(&self, credit: &Credit<'_>) -> Result<Decision, Error> {
        let state = self.state();
        let (store, policy, keys) = self.balance_of(&state, credit)?;
        let grant = Grant::new(&policy, keys.as_keys(), credit.units, credit.token, credit.now);
        state.asked[store].grant(grant.expires(credit.expires).remembered_for(credit.ttl)).await
    }

    /// The place of the store, the policy and the keys of the balance.
    fn balance_of(
        &self,
        State { rules, .. }: &State<'_>,
        credit: &Credit<'_>,
    ) -> Result<(usize, Arc<Policy>, OwnKeys), Error> {
        credit.verify(self, rules)?;
        let tier = credit.place_of_tier(rules)?;
        let mut found: Option<(usize, &Arc<Policy>)> = None;
        for rule in rules.rules() {
            let Some(policy) = rule.policy(tier).filter(|policy| policy.limit_of_balance() == Some(credit.limit))
            else {
                continue;
            };
            let store = self.store(rule)?;
            let name = &*self.stores[store].name;
            match found {
                _ if credit.store.is_some_and(|wanted| wanted != name) => {}
                Some((first, _)) if first != store => {
                    let first = Quoted(&self.stores[first].name);
                    let what =
                        std::format!("rules count in {first} and in {}; name one with Credit::store", Quoted(name));
                    return Err(credit.wrong("store", &what));
                }
                Some(_) => {}
                None => found = Some((store, policy)),
            }
        }
        let Some((store, policy)) = found else {
            let whom = credit.tier.map_or_else(String::new, |tier| std::format!(" for the tier {}", Quoted(tier)));
            let place = credit.store.map_or_else(String::new, |store| std::format!(" in the store {}", Quoted(store)));
            let what = std::format!("it has no balance{whom}{place}; add a quota with algorithm = \"balance\"");
            return Err(credit.wrong("limit", &what));
        };
        let policy = rules.current(policy, credit.now);
        let own = policy.grantable().map_or(policy, Arc::new);
        let keys = OwnKeys::new(&own, |dimension| credit.key(self, dimension))?;
        // A quota beside the balance may have a number of its own.
        let numbers = Numbers { claim: &|_| None, given: &[] };
        let own = rules.numbered(&own, tier, &keys, numbers, credit.now)?;
        Ok((store, own, keys))
    }
}
