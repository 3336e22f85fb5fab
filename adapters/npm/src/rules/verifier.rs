//! Signatures, which the host verifies before the gate reads a token.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use tidegate_core::UnixMillis;
use tidegate_core::gate::{Claims, InvalidToken, TokenRules, VerifyToken};

/// What the host may find wrong with a token.
const REASONS: [InvalidToken; 5] = [
    InvalidToken::NOT_SIGNED,
    InvalidToken("the rules do not allow its algorithm"),
    InvalidToken("it has a critical extension"),
    InvalidToken("no key of the set fits it"),
    InvalidToken("its signature does not match"),
];

/// Gives what the host has found: the payload of the token, or the reason why it is invalid. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Verifier(Rc<RefCell<Option<Result<String, InvalidToken>>>>);

impl Verifier {
    /// Sets what is found next.
    pub(super) fn set(&self, found: Result<String, InvalidToken>) {
        self.0.replace(Some(found));
    }
}

/// The reason with this text.
pub(super) fn reason(text: &str) -> InvalidToken {
    REASONS.into_iter().find(|known| known.0 == text).unwrap_or(InvalidToken::NOT_SIGNED)
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verifier")
    }
}

impl VerifyToken for Verifier {
    fn verify(&self, _: &str, expected: &TokenRules, now: UnixMillis) -> Result<Claims, InvalidToken> {
        let payload = self.0.take().unwrap_or(Err(InvalidToken::NOT_SIGNED))?;
        Claims::of_payload(payload.as_bytes(), expected, now)
    }
}
