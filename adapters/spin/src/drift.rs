//! How far get and put can drift.

use tollgate_core::{Drift, Floor, Load};

/// The most that a store where the last writer wins admits, of a limit `L` and `n` requests under way at once:
/// `(n + L)! / (n! L!) - 1`.
///
/// A request that read a low count may write last, and so take the count back: what was admitted since is forgotten. Nobody can
/// have read 0 but the `n` that were under way at the first write; each of them can bring the count back to 1, where up to `n`
/// read 1; and so on, up to `L`. `tests/drift.rs` searches all orders of small cases, and finds that each is reached.
///
/// With one request at a time that is the limit. With a limit of 1 it is `n`. Where the store is quiet between bursts, each burst
/// that admits anyone raises the count, and it is at most `limit x in_flight`. Where a store shows writes late, a request is
/// under way until what it wrote is shown.
///
/// Nobody is denied what the limit admits.
pub const DRIFT: Drift =
    Drift { formula: "(in_flight + limit)! / (in_flight! x limit!) - 1", ceiling, floor: Floor::NOTHING_HELD };

fn ceiling(Load { limit, in_flight, .. }: Load) -> u64 {
    let (few, many) = if limit < in_flight { (limit, in_flight) } else { (in_flight, limit) };
    let mut chosen: u128 = 1;
    for nth in 1..=u128::from(few) {
        // Exact at each step: the product of `nth` numbers in a row.
        chosen = chosen * (u128::from(many) + nth) / nth;
        if chosen > u128::from(u64::MAX) {
            return u64::MAX;
        }
    }
    u64::try_from(chosen - 1).unwrap_or(u64::MAX)
}
