//! SHA-256 of a text, once for all that hashes.

use sha2::{Digest as _, Sha256};

pub(crate) fn sha256(text: &[u8]) -> [u8; 32] {
    Sha256::digest(text).into()
}
