//! Tokens, which identify charges.

use tidegate_core::{Error, ErrorKind};

/// A token that no other charge has. Each is random on its own: a counter with a random start would repeat in processes that
/// are resumed from one snapshot, and a request with a repeated token is not charged.
pub(crate) fn token() -> Result<String, Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| {
        let message = "the system has no random numbers for the token of a charge; nothing was charged";
        Error::new(ErrorKind::Refused, message).with_source(error)
    })?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}
