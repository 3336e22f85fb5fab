//! SHA-256, once for all that hashes.

use sha2::{Digest as _, Sha256};

/// The SHA-256 of bytes: for what a store should not keep as it came, such as a token, which may be long and secret.
///
/// ```
/// let hash = tidegate_core::internal::sha256(b"abc");
/// assert_eq!(hash[..4], [0xba, 0x78, 0x16, 0xbf]);
/// ```
#[must_use]
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}
