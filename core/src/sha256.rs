//! SHA-256, shared by all crates that hash.

use sha2::{Digest as _, Sha256};

/// Hashes bytes with SHA-256, for values that a store must not keep in the clear, such as a long or secret token.
///
/// ```
/// let hash = tidegate_core::internal::sha256(b"abc");
/// assert_eq!(hash[..4], [0xba, 0x78, 0x16, 0xbf]);
/// ```
#[must_use]
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}
