//! What a gate reads of a descriptor: a path, a key for each entry, and an address.

use std::fmt::{self, Write as _};
use std::net::IpAddr;

use tidegate_core::gate::Request;
use tidegate_core::{Key, UnixMillis};

use crate::proto::{RateLimitDescriptor, RateLimitRequest};

/// The entry that has the client's address.
pub(crate) const REMOTE_ADDRESS: &str = "remote_address";

/// The most descriptors of a request, and the most entries of one. A client has no part in their number: they follow Envoy's actions.
const MAX: usize = 64;

const NO_FIELDS: [(&str, &str); 0] = [];

/// What is wrong with a request. A client has no part in it, whatever it sends: Envoy lets a request pass that has an error.
pub(crate) fn check(request: &RateLimitRequest) -> Result<(), String> {
    if request.domain.is_empty() {
        return Err("domain: empty; set `domain` of the filter in Envoy".into());
    }
    let counted = |field: fmt::Arguments<'_>, count: usize| match count {
        1..=MAX => Ok(()),
        _ => Err(format!("{field}: there are {count}; send 1 to {MAX}")),
    };
    counted(format_args!("descriptors"), request.descriptors.len())?;
    for (place, descriptor) in request.descriptors.iter().enumerate() {
        counted(format_args!("descriptors[{place}].entries"), descriptor.entries.len())?;
        if descriptor.is_negative_hits {
            return Err(format!("descriptors[{place}].is_negative_hits: nothing is given back; leave it out"));
        }
    }
    Ok(())
}

/// Calls a function with what a gate reads of a descriptor.
pub(crate) fn on<T>(
    request: &RateLimitRequest,
    descriptor: &RateLimitDescriptor,
    now: UnixMillis,
    call: impl FnOnce(&Request<'_>) -> T,
) -> T {
    let mut path = String::new();
    push(&request.domain, &mut path);
    let mut keys: Vec<(&str, Key)> = Vec::with_capacity(descriptor.entries.len());
    for entry in &descriptor.entries {
        push(&entry.key, &mut path);
        push(&entry.value, &mut path);
        // Of entries with the same key, rules count by none but the first.
        if !keys.iter().any(|(known, _)| *known == entry.key) {
            keys.push((&entry.key, Key::new(&entry.value)));
        }
    }
    let keys: Vec<(&str, &Key)> = keys.iter().map(|(name, key)| (*name, key)).collect();
    let mut addresses = descriptor.entries.iter().filter(|entry| entry.key == REMOTE_ADDRESS);
    let address = addresses.next().and_then(|entry| entry.value.parse::<IpAddr>().ok());
    let asked = Request::new("", &path, &NO_FIELDS, now).keys(&keys).peer(address);
    let hits = descriptor.hits_addend.or((request.hits_addend > 0).then_some(request.hits_addend.into()));
    call(&match hits {
        Some(hits) => asked.cost(hits),
        None => asked,
    })
}

/// Appends a segment that every reading of the path has in the same place: a slash in it is no separator, and it is neither empty nor made
/// of dots. All other characters stay, so that a rule's path has them as they are. What stands behind an empty text and behind dots is the
/// escape of a byte that no text has, and so no other value is read as one of these.
fn push(text: &str, path: &mut String) {
    path.push('/');
    for character in text.chars() {
        if "%/\\?#".contains(character) {
            let _ = write!(path, "%{:02X}", u32::from(character));
        } else {
            path.push(character);
        }
    }
    if matches!(text, "" | "." | "..") {
        path.push_str("%FF");
    }
}
