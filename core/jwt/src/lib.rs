#![doc = include_str!("../README.md")]

mod key;

use std::sync::{Arc, PoisonError, RwLock};

use jsonwebtoken::errors::ErrorKind as Cause;
use jsonwebtoken::{Validation, decode, decode_header};
use serde_json::value::RawValue;
use tidegate_core::gate::{Claims, InvalidToken, TokenRules, VerifyToken};
use tidegate_core::{Error, ErrorKind, UnixMillis};

use self::key::{Key, name};

/// The keys of an issuer of tokens, which can be replaced while they are in use.
#[derive(Debug)]
pub struct KeySet {
    keys: RwLock<Arc<[Key]>>,
}

impl KeySet {
    /// The keys of a JWK set (RFC 7517). Keys for encryption and keys of other algorithms are ignored.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) if the text is not a JWK set, a key is malformed or weaker than RFC 7518 permits, two
    /// keys have the same `kid`, or no key can be used. No message contains a key.
    ///
    /// ```
    /// use tidegate_jwt::KeySet;
    /// # fn main() -> Result<(), tidegate_core::Error> {
    /// let keys = KeySet::from_jwks(r#"{ "keys": [{ "kty": "OKP", "crv": "Ed25519", "kid": "2026",
    ///     "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo" }] }"#)?;
    /// assert_eq!(keys.len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_jwks(text: &str) -> Result<Self, Error> {
        Ok(Self { keys: RwLock::new(key::of_set(text)?) })
    }

    /// One secret, for HS256.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for less than 32 bytes; see RFC 7518, section 3.2.
    pub fn from_secret(secret: &[u8]) -> Result<Self, Error> {
        Ok(Self { keys: RwLock::new([Key::secret(secret)?].into()) })
    }

    /// Replaces the keys by those of another JWK set.
    ///
    /// # Errors
    /// As [`KeySet::from_jwks`]. The old keys then remain.
    pub fn replace(&self, text: &str) -> Result<(), Error> {
        let keys = key::of_set(text)?;
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = keys;
        Ok(())
    }

    /// How many keys can verify tokens.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys().len()
    }

    /// Whether there is no key, which is never so.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys().is_empty()
    }

    fn keys(&self) -> Arc<[Key]> {
        Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl VerifyToken for KeySet {
    fn verify(&self, token: &str, expected: &TokenRules, now: UnixMillis) -> Result<Claims, InvalidToken> {
        let header = decode_header(token).map_err(|_| InvalidToken::NOT_SIGNED)?;
        let algorithm = name(header.alg).filter(|name| expected.allows(name));
        let algorithm = algorithm.ok_or(InvalidToken("the rules do not allow its algorithm"))?;
        if header.crit.is_some() {
            return Err(InvalidToken("it has a critical extension"));
        }
        let keys = self.keys();
        let mut fitting = keys.iter().filter(|key| {
            key.algorithm() == header.alg && header.kid.as_deref().is_none_or(|kid| key.id() == Some(kid))
        });
        let (Some(key), None) = (fitting.next(), fitting.next()) else {
            return Err(InvalidToken("no key of the set fits it"));
        };
        debug_assert_eq!(name(key.algorithm()), Some(algorithm));
        // The text as it was signed: the gate's own reader has the claims of all hosts in one form.
        let token = decode::<Box<RawValue>>(token, key.decoding(), &validation(header.alg)).map_err(|error| {
            let does_not_match = matches!(error.kind(), Cause::InvalidSignature);
            if does_not_match { InvalidToken("its signature does not match") } else { InvalidToken::NOT_SIGNED }
        })?;
        Claims::of_payload(token.claims.get().as_bytes(), expected, now)
    }
}

/// The library checks the signature, and the core everything else.
fn validation(algorithm: jsonwebtoken::Algorithm) -> Validation {
    let mut validation = Validation::new(algorithm);
    (validation.validate_exp, validation.validate_aud) = (false, false);
    validation.required_spec_claims.clear();
    validation
}

fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Invalid, message)
}
