//! Whether a token is used for the first time.

use alloc::format;
use alloc::string::String;
use core::fmt::Write as _;

use super::{Accuracy, Capabilities};
use crate::sha256::sha256;
use crate::{Error, ErrorKind, Key, Millis, Policy, Quota};

/// What the first use of a token is charged to: one unit of a bucket that takes `ttl` to get it back, under a key that nobody else uses.
pub(super) fn charge(can: &Capabilities, namespace: &str, token: &[u8], ttl: Millis) -> Result<(Policy, Key), Error> {
    if !matches!(can.accuracy, Accuracy::Exact) {
        let message =
            format!("once: only an exact limiter can tell the first use of a token, and this one is {}", can.accuracy);
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    if token.is_empty() {
        return Err(Error::invalid("once: the token is empty; give what names the event, such as its id"));
    }
    if ttl == Millis::ZERO {
        return Err(Error::invalid("once: a ttl of 0 ms remembers nothing; write at least 1 ms"));
    }
    // Not a window: two that follow one another would admit twice within the time of one.
    let policy = Policy::new(namespace, [Quota::token_bucket(1, 1, ttl)?])?;
    can.supports_policy(&policy)?;
    // The whole hash: whoever chooses tokens may look for two with one key.
    let mut key = String::from("once:");
    for byte in sha256(token) {
        let _ = write!(key, "{byte:02x}");
    }
    Ok((policy, Key::new(key)))
}
