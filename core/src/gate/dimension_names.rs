//! The names that `by` may have in every file.

/// The dimension of the sender's most trusted identity, which a quota without a dimension counts by, too.
pub(super) const SENDER: &str = "sender";

/// The dimension of the client's address.
pub(super) const IP: &str = "ip";

/// The dimension of a key that all requests share.
pub(super) const GLOBAL: &str = "global";

/// The dimension of the fingerprint of the client's TLS handshake.
pub(super) const JA4: &str = "ja4";

/// The dimensions whose keys a gate finds itself.
pub(super) const DIMENSIONS: [&str; 4] = [SENDER, IP, JA4, GLOBAL];
