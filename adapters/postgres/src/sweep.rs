//! When to remove rows that have expired, and which pages to look at.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// After how many writes some pages are looked at.
const WRITES: u64 = 512;

/// How many pages that are. With some fifty rows in each, a table is looked at more than six times while its rows are written once.
const PAGES: u64 = 64;

/// The pages that were looked at. Processes begin at different ones.
#[derive(Debug)]
pub(crate) struct Sweep {
    writes: AtomicU64,
    next: AtomicU64,
    is_busy: AtomicBool,
}

impl Sweep {
    pub(crate) fn new() -> Self {
        // Half of the writes before the first one: processes that end soon sweep, too.
        Self { writes: AtomicU64::new(WRITES / 2), next: AtomicU64::new(drawn()), is_busy: AtomicBool::new(false) }
    }

    /// Counts a write. Whether it is time to sweep, and nobody does.
    pub(crate) fn is_due(&self) -> bool {
        let writes = self.writes.fetch_add(1, Ordering::Relaxed) + 1;
        writes.is_multiple_of(WRITES) && !self.is_busy.swap(true, Ordering::Relaxed)
    }

    /// The first page to look at in a table of so many pages, and the one after the last.
    pub(crate) fn pages(&self, of: u64) -> (u64, u64) {
        let first = self.next.load(Ordering::Relaxed) % of.max(1);
        let end = first + PAGES;
        self.next.store(if end >= of { 0 } else { end }, Ordering::Relaxed);
        (first, end)
    }

    pub(crate) fn is_over(&self) {
        self.is_busy.store(false, Ordering::Relaxed);
    }
}

/// A random number.
pub(crate) fn drawn() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::{PAGES, Sweep, WRITES};

    #[test]
    fn all_pages_have_their_turn() {
        let sweep = Sweep::new();
        let (first, _) = sweep.pages(200);
        let mut next = first + PAGES;
        for _ in 0..20 {
            let (first, end) = sweep.pages(200);
            assert_eq!((first, end), if next >= 200 { (0, PAGES) } else { (next, next + PAGES) });
            next = end;
        }
        assert_eq!(sweep.pages(0).0, 0);
    }

    #[test]
    fn it_is_due_after_so_many_writes_and_once_at_a_time() {
        let sweep = Sweep::new();
        let due = |writes| (0..writes).filter(|_| sweep.is_due()).count();
        assert_eq!((due(WRITES), due(WRITES)), (1, 0));
        sweep.is_over();
        assert_eq!(due(WRITES), 1);
    }
}
