//! The keys of a JWK set.

use std::fmt;
use std::sync::Arc;

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};
use serde_json::Value;
use tidegate_core::Error;

use crate::invalid;

/// The most keys of a set.
const KEYS_MAX: usize = 100;

/// A key that verifies tokens of one algorithm.
pub(crate) struct Key {
    id: Option<String>,
    algorithm: Algorithm,
    decoding: DecodingKey,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} ({:?})", self.id.as_deref().unwrap_or_default(), self.algorithm)
    }
}

/// The name of an algorithm, if a rules file may allow it.
pub(crate) const fn name(algorithm: Algorithm) -> Option<&'static str> {
    match algorithm {
        Algorithm::HS256 => Some("HS256"),
        Algorithm::RS256 => Some("RS256"),
        Algorithm::ES256 => Some("ES256"),
        Algorithm::EdDSA => Some("EdDSA"),
        _ => None,
    }
}

/// The keys of a JWK set.
pub(crate) fn of_set(text: &str) -> Result<Arc<[Key]>, Error> {
    let set: Value = serde_json::from_str(text).map_err(|error| invalid(format!("JWK set: {error}")))?;
    let listed = set.get("keys").and_then(Value::as_array);
    let listed = listed.ok_or_else(|| invalid("JWK set: no list `keys`; write {\"keys\": [...]}"))?;
    if listed.len() > KEYS_MAX {
        return Err(invalid(format!("JWK set: {} keys; write at most {KEYS_MAX}", listed.len())));
    }
    let mut keys: Vec<Key> = Vec::new();
    for (place, value) in listed.iter().enumerate() {
        let found = Key::of_jwk(value).map_err(|fault| invalid(format!("JWK set: keys[{place}]: {fault}")))?;
        let Some(key) = found else { continue };
        if key.id.is_some() && keys.iter().any(|known| known.id == key.id) {
            return Err(invalid(format!("JWK set: keys[{place}]: its kid is that of another key too")));
        }
        keys.push(key);
    }
    if keys.is_empty() {
        return Err(invalid("JWK set: no key for HS256, RS256, ES256 or EdDSA"));
    }
    Ok(keys.into())
}

impl Key {
    pub(crate) fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    pub(crate) const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    pub(crate) const fn decoding(&self) -> &DecodingKey {
        &self.decoding
    }

    pub(crate) fn secret(secret: &[u8]) -> Result<Self, Error> {
        let key = Self { id: None, algorithm: Algorithm::HS256, decoding: DecodingKey::from_secret(secret) };
        key.check().map_err(invalid)?;
        Ok(key)
    }

    /// A key of a set. `None` if it is for something else, which RFC 7517, section 5, says to ignore.
    fn of_jwk(value: &Value) -> Result<Option<Self>, &'static str> {
        let Ok(jwk) = serde_json::from_value::<Jwk>(value.clone()) else { return Ok(None) };
        let (algorithm, its_name) = match &jwk.algorithm {
            AlgorithmParameters::OctetKey(_) => (Algorithm::HS256, KeyAlgorithm::HS256),
            AlgorithmParameters::RSA(_) => (Algorithm::RS256, KeyAlgorithm::RS256),
            AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => {
                (Algorithm::ES256, KeyAlgorithm::ES256)
            }
            AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
                (Algorithm::EdDSA, KeyAlgorithm::EdDSA)
            }
            _ => return Ok(None),
        };
        let encrypts = matches!(jwk.common.public_key_use, Some(ref wanted) if *wanted != PublicKeyUse::Signature);
        if encrypts || jwk.common.key_algorithm.is_some_and(|named| named != its_name) {
            return Ok(None);
        }
        let decoding = DecodingKey::from_jwk(&jwk).map_err(|_| "its numbers are not base64url")?;
        let key = Self { id: jwk.common.key_id, algorithm, decoding };
        key.check()?;
        Ok(Some(key))
    }

    /// Checks the size; see RFC 7518, sections 3.2 and 3.3.
    fn check(&self) -> Result<(), &'static str> {
        let bytes = match self.decoding.kind() {
            DecodingKeyKind::SecretOrDer(bytes) => bytes.len(),
            DecodingKeyKind::RsaModulusExponent { n, .. } => n.iter().skip_while(|byte| **byte == 0).count(),
        };
        let (fits, fault) = match self.algorithm {
            Algorithm::HS256 => (bytes >= 32, "the secret is shorter than 32 bytes; HS256 needs that many"),
            Algorithm::RS256 => ((256..=512).contains(&bytes), "the modulus does not have 2048 to 4096 bits"),
            Algorithm::ES256 => (bytes == 65, "the coordinates do not have 32 bytes each"),
            _ => (bytes == 32, "the key does not have 32 bytes"),
        };
        if fits { Ok(()) } else { Err(fault) }
    }
}
