//! Signed tokens: what the rules expect of them, and what a valid one claims.

mod payload;

use std::fmt;
use std::format_args as args;
use std::sync::Arc;

use super::bytes::bytes_of_fields;
use super::dimension_names::DIMENSIONS;
use super::file::field_name;
use super::request::Request;
use crate::document::Item;
use crate::quota::checked_name;
use crate::suggestion::Suggestion;
use crate::{Error, Key, MaybeSend, MaybeSync, Millis, UnixMillis};

/// The longest token that is verified, in bytes.
const LEN_MAX: usize = 8_192;

/// The starts of keys that are not a claim's.
const TAKEN: [&str; 2] = ["sub", "key"];

/// What the rules expect of a token, the table `tokens` of their file.
#[derive(Clone, Debug)]
pub struct TokenRules {
    header: Box<str>,
    algorithms: Vec<Box<str>>,
    issuers: Vec<Box<str>>,
    audience: Vec<Box<str>>,
    leeway: Millis,
    subject: Box<str>,
    tier: Option<Box<str>>,
    /// Dimensions, and the claim that has the key of each.
    keys: Vec<(Box<str>, Box<str>)>,
    /// The claims that give limits.
    limits: Vec<Box<str>>,
}

bytes_of_fields!(TokenRules { header, algorithms, issuers, audience, leeway, subject, tier, keys, limits });

impl TokenRules {
    /// The algorithms that a rules file may allow, by their names in RFC 7518 and RFC 8037.
    pub const ALGORITHMS: [&str; 4] = ["HS256", "RS256", "ES256", "EdDSA"];

    /// How far clocks may differ, unless the file says otherwise.
    pub const DEFAULT_LEEWAY: Millis = Millis::from_secs(60);

    pub(super) fn new(item: &Item<'_>) -> Result<Self, Error> {
        item.only(&["header", "algorithms", "issuer", "audience", "leeway_ms", "subject", "tier", "keys"])?;
        let some = |item: &Item<'_>| match item.text()? {
            "" => Err(item.invalid(args!("empty; write a text or delete it"))),
            text => Ok(text.into()),
        };
        let text = |name: &str| item.field(name).map(|item| some(&item)).transpose();
        let listed = item.required("algorithms")?;
        let algorithms = listed.each(&mut |item| match item.text()? {
            known if Self::ALGORITHMS.contains(&known) => Ok(known.into()),
            other => Err(item.wrong(other, args!("is not supported; {}", Suggestion::of(other, &Self::ALGORITHMS)))),
        })?;
        if algorithms.is_empty() {
            return Err(listed.invalid(args!("empty; write those with which tokens may be signed")));
        }
        let mut issuers = Vec::new();
        if let Some(item) = item.field("issuer") {
            issuers = item.one_or_each(&mut |item| some(item))?;
            if issuers.is_empty() {
                return Err(item.invalid(args!("empty; write the issuers whose tokens are accepted, or delete it")));
            }
        }
        let leeway = item.number_in("leeway_ms", 0, 600_000)?.map_or(Self::DEFAULT_LEEWAY, Millis::new);
        let mut keys = Vec::new();
        if let Some(table) = item.field("keys") {
            table.entries(&mut |dimension, claim| {
                let name = checked_name("dimension", dimension).map_err(|error| claim.at(&error))?;
                if TAKEN.contains(&dimension) || DIMENSIONS.contains(&dimension) {
                    return Err(claim.wrong(dimension, args!("has a meaning of its own; write another name")));
                }
                keys.push((name, claim.text()?.into()));
                Ok(())
            })?;
        }
        Ok(Self {
            header: item.field("header").map_or_else(|| Ok("authorization".into()), |header| field_name(&header))?,
            algorithms,
            issuers,
            audience: item
                .field("audience")
                .map_or(Ok(Vec::new()), |list| list.each(&mut |one| Ok(one.text()?.into())))?,
            leeway,
            subject: text("subject")?.unwrap_or_else(|| "sub".into()),
            tier: text("tier")?,
            keys,
            limits: Vec::new(),
        })
    }

    /// Notes the claims that give limits.
    pub(super) fn claim_limits<'a>(&mut self, names: impl Iterator<Item = &'a str>) {
        for name in names {
            if !self.limits.iter().any(|known| **known == *name) {
                self.limits.push(name.into());
            }
        }
    }

    /// The name of the header field that has the token, in lower case.
    #[must_use]
    pub fn header(&self) -> &str {
        &self.header
    }

    /// Whether tokens may be signed with an algorithm.
    #[must_use]
    pub fn allows(&self, algorithm: &str) -> bool {
        self.algorithms.iter().any(|allowed| **allowed == *algorithm)
    }

    /// The issuers (`iss`), of which a token must have one. If there are none, it may have any.
    #[must_use]
    pub fn issuers(&self) -> &[Box<str>] {
        &self.issuers
    }

    /// The audiences (`aud`), of which a token must have one.
    #[must_use]
    pub fn audience(&self) -> &[Box<str>] {
        &self.audience
    }

    /// The algorithms with which tokens may be signed.
    #[must_use]
    pub fn algorithms(&self) -> &[Box<str>] {
        &self.algorithms
    }

    /// How long before `nbf` and after `exp` a token is valid.
    #[must_use]
    pub const fn leeway(&self) -> Millis {
        self.leeway
    }

    /// The token of a request. `None` if it has none, which includes the field `authorization` with another scheme.
    fn find(&self, request: &Request<'_>) -> Option<Result<String, InvalidToken>> {
        let (mut found, mut count) = (None, 0);
        request.headers().values(&self.header, &mut |value| {
            count += 1;
            found = bearer(value, &*self.header == "authorization");
        });
        match count {
            0 | 1 => found,
            _ => Some(Err(InvalidToken("there is more than one"))),
        }
    }
}

/// The token in a field's value, after the scheme `Bearer`.
fn bearer(value: &[u8], needs_scheme: bool) -> Option<Result<String, InvalidToken>> {
    const SCHEME: &[u8] = b"bearer";
    let value = value.trim_ascii();
    let token = match value.split_at_checked(SCHEME.len()) {
        Some((scheme, rest))
            if scheme.eq_ignore_ascii_case(SCHEME) && rest.first().is_none_or(|byte| *byte == b' ') =>
        {
            rest.trim_ascii()
        }
        _ if needs_scheme => return None,
        _ => value,
    };
    let fits = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    Some(match str::from_utf8(token) {
        Ok(text) if text.len() <= LEN_MAX && token.iter().all(fits) => Ok(text.to_string()),
        _ => Err(InvalidToken::NOT_SIGNED),
    })
}

/// Verifies tokens. The crate `tidegate-jwt` does it with a set of keys.
pub trait VerifyToken: fmt::Debug + MaybeSend + MaybeSync {
    /// Verifies the signature of a token, and that its claims are as expected at this instant.
    ///
    /// # Errors
    /// [`InvalidToken`] with the reason.
    fn verify(&self, token: &str, expected: &TokenRules, now: UnixMillis) -> Result<Claims, InvalidToken>;
}

impl<V: VerifyToken + ?Sized> VerifyToken for Arc<V> {
    fn verify(&self, token: &str, expected: &TokenRules, now: UnixMillis) -> Result<Claims, InvalidToken> {
        (**self).verify(token, expected, now)
    }
}

/// Why a token is invalid. For logs and explanations: a client is not told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InvalidToken(pub &'static str);

impl InvalidToken {
    /// Something else than a signed token.
    pub const NOT_SIGNED: Self = Self("it is not a signed token");
}

impl fmt::Display for InvalidToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid token: {}", self.0)
    }
}

impl std::error::Error for InvalidToken {}

/// What a valid token claims.
#[derive(Clone, Debug)]
pub struct Claims {
    pub(super) subject: Box<str>,
    pub(super) tier: Option<Box<str>>,
    /// The key in each dimension of the rules.
    pub(super) keys: Vec<(Box<str>, Option<Key>)>,
    /// The claims that give limits, as they are written.
    pub(super) limits: Vec<(Box<str>, Box<str>)>,
}

impl Claims {
    /// Reads the claims that the rules name. `claim` returns the text of a claim by its name.
    ///
    /// # Errors
    /// [`InvalidToken`] if there is no subject.
    pub fn new(expected: &TokenRules, claim: impl Fn(&str) -> Option<String>) -> Result<Self, InvalidToken> {
        Self::read(expected, &claim, &claim)
    }

    /// `limit` returns a claim that gives a limit, as it is written.
    fn read(
        expected: &TokenRules,
        claim: &dyn Fn(&str) -> Option<String>,
        limit: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, InvalidToken> {
        let claim = |name: &str| claim(name).filter(|text| !text.is_empty());
        let limit = |name: &str| Some((name.into(), limit(name)?.into()));
        let subject = claim(&expected.subject).ok_or(InvalidToken("it has no subject"))?;
        let key = |dimension: &str, name: &str| Some(Key::new([dimension, ":", &claim(name)?].concat()));
        Ok(Self {
            subject: subject.into(),
            tier: expected.tier.as_deref().and_then(claim).map(Into::into),
            keys: expected.keys.iter().map(|(dimension, name)| (dimension.clone(), key(dimension, name))).collect(),
            limits: expected.limits.iter().filter_map(|name| limit(name)).collect(),
        })
    }
}

/// The expectations of a file, and what verifies tokens.
#[derive(Debug)]
pub(super) struct Tokens {
    pub(super) expected: TokenRules,
    pub(super) verifier: Option<Arc<dyn VerifyToken>>,
}

impl Tokens {
    /// The token of a request, if it has one that can be verified.
    pub(super) fn of(&self, request: &Request<'_>) -> Option<String> {
        self.expected.find(request)?.ok()
    }

    /// What the token of a request claims. `None` without a token.
    pub(super) fn verify(&self, request: &Request<'_>) -> Option<Result<Claims, InvalidToken>> {
        let token = match self.expected.find(request)? {
            Ok(token) => token,
            Err(invalid) => return Some(Err(invalid)),
        };
        let unverified = || Err(InvalidToken("no keys are given that could verify it"));
        Some(
            self.verifier
                .as_ref()
                .map_or_else(unverified, |verifier| verifier.verify(&token, &self.expected, request.now())),
        )
    }

    /// The dimensions whose keys are claims.
    pub(super) fn dimensions(&self) -> impl Iterator<Item = &str> {
        self.expected.keys.iter().map(|(dimension, _)| &**dimension)
    }
}
