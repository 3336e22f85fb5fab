//! Makes concurrent requests overlap as far as they can: all that have arrived read before one of them writes.
//!
//! This order loses the most updates of a store without compare-and-swap. On Spin it happens by chance, since a write waits for the
//! disk and the reads of others do not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::time::sleep;

/// The most pauses that a write waits for reads, so that clients that never stop do not hold it for ever.
const PAUSES_MAX: u32 = 1_000;

/// The requests in flight, as far as writes wait for them.
pub(crate) struct Overlap {
    /// How long each operation waits. If it is zero, nothing here waits.
    pause: Duration,
    began: Instant,
    /// How many requests have arrived, and have neither read nor ended.
    unread: AtomicUsize,
    /// When the last one arrived or read, in microseconds since `began`.
    last_us: AtomicU64,
}

/// A request that has not read yet.
pub(crate) struct Unread(Arc<Overlap>);

impl Overlap {
    pub(crate) fn new(pause: Duration) -> Arc<Self> {
        Arc::new(Self { pause, began: Instant::now(), unread: AtomicUsize::new(0), last_us: AtomicU64::new(0) })
    }

    /// A request arrives. It has read when the value is dropped.
    pub(crate) fn arrives(self: &Arc<Self>) -> Unread {
        self.unread.fetch_add(1, Ordering::SeqCst);
        self.touch();
        Unread(Arc::clone(self))
    }

    /// Waits before a read, as if the store were across a network.
    pub(crate) async fn before_read(&self) {
        if !self.pause.is_zero() {
            sleep(self.pause).await;
            self.touch();
        }
    }

    /// Waits before a write until the others have read, and none has arrived or read for a pause.
    pub(crate) async fn before_write(&self) {
        let began = Instant::now();
        let mut left = self.pause;
        while !left.is_zero() && began.elapsed() < self.pause * PAUSES_MAX {
            sleep(left).await;
            let last = self.began + Duration::from_micros(self.last_us.load(Ordering::SeqCst));
            let is_quiet = self.unread.load(Ordering::SeqCst) == 0;
            left = if is_quiet { self.pause.saturating_sub(last.elapsed()) } else { self.pause };
        }
    }

    fn touch(&self) {
        let now = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.last_us.fetch_max(now, Ordering::SeqCst);
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        self.0.unread.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_millis(5);

    #[tokio::test]
    async fn a_write_waits_until_a_request_that_arrived_has_read() {
        let overlap = Overlap::new(PAUSE);
        let unread = overlap.arrives();
        assert!(tokio::time::timeout(PAUSE * 20, overlap.before_write()).await.is_err());
        drop(unread);
        overlap.before_write().await;
    }

    #[tokio::test]
    async fn a_write_does_not_wait_for_ever() {
        let overlap = Overlap::new(Duration::from_micros(50));
        let _never_reads = overlap.arrives();
        overlap.before_write().await;
    }

    #[tokio::test]
    async fn without_a_pause_nothing_waits() {
        let overlap = Overlap::new(Duration::ZERO);
        let _never_reads = overlap.arrives();
        overlap.before_write().await;
        overlap.before_read().await;
    }
}
