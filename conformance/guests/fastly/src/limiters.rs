//! Opens the limiters.

use fastly::KVStore;
use fastly::erl::ERL;
use tidegate_core::{Error, Millis};
use tidegate_fastly::{Erl, Kv, KvLimiter};

#[cfg(feature = "suite")]
use crate::settings::test_mode;

/// In test mode a state lives at least this long by the platform's clock, because virtual time stands still.
const TEST_TTL_MIN: Millis = Millis::from_secs(3_600);

/// In test mode a thousand clients write one key at once, and each must get a decision.
pub(crate) const TEST_ATTEMPTS: u32 = 256;

/// Whether the time comes from the requests.
#[cfg(feature = "suite")]
fn in_test_mode() -> bool {
    tidegate_guest_protocol::Mode::of(&test_mode()).is_on()
}

#[cfg(not(feature = "suite"))]
const fn in_test_mode() -> bool {
    false
}

pub(crate) fn kv() -> Result<KvLimiter<KVStore>, Error> {
    let kv = Kv::open("tidegate")?;
    Ok(if in_test_mode() { kv.min_ttl(TEST_TTL_MIN).limiter().attempts(TEST_ATTEMPTS) } else { kv.limiter() })
}

/// 20 requests per second on average over 10 s. A client that exceeds this is denied for a minute.
pub(crate) fn erl() -> Result<Erl<ERL>, Error> {
    erl_of(200, Millis::from_secs(10))
}

pub(crate) fn erl_of(limit: u64, window: Millis) -> Result<Erl<ERL>, Error> {
    Erl::open("requests", "penalties", limit, window, Millis::from_secs(60))
}
