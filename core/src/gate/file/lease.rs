//! The lease of a limit.

use crate::algorithm::MAX_UNITS;
use crate::document::Item;
use crate::lending::{LIFETIME_MAX, Lease};
use crate::{Error, Millis};

/// Reads `true`, `false`, or a table of the bounds.
pub(in crate::gate) fn lease(item: &Item<'_>) -> Result<Option<Lease>, Error> {
    let mut lease = Lease::default();
    if let Ok(is_on) = item.flag() {
        return Ok(is_on.then_some(lease));
    }
    item.only(&["slice", "lifetime_ms", "grace"])?;
    if let Some(slice) = item.number_in("slice", 1, MAX_UNITS)? {
        lease.slice = slice;
    }
    if let Some(lifetime) = item.number_in("lifetime_ms", 1, LIFETIME_MAX.get())? {
        lease.lifetime = Millis::new(lifetime);
    }
    if let Some(grace) = item.number_in("grace", 0, lease.slice)? {
        lease.grace = grace;
    }
    Ok(Some(lease))
}
