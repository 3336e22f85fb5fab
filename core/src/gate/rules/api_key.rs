//! Keys of API keys, as files have them.

use std::format_args as args;

use crate::Error;
use crate::document::Item;

/// The text of an API key's key, by its hash. `item` is where it is written.
pub(super) fn api_key(hash: &str, item: &Item<'_>) -> Result<Box<str>, Error> {
    if hash.len() == 32 && hash.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
        return Ok(["key:", hash].concat().into());
    }
    // It may be the secret itself.
    Err(item.invalid(args!(
        "this is not the hash of an API key; write 32 hexadecimal digits in lower case, the first half of its SHA-256"
    )))
}
