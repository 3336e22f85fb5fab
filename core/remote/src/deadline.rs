//! Deadlines in a process that may be too busy to keep them.

use std::future::Future;
use std::time::Duration;

use tidegate_core::{Error, Millis};
use tokio::time::{Instant, timeout_at};

use crate::overload::overloaded;

/// The deadline of a call.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    at: Instant,
    after: Duration,
}

/// Why work has not ended by its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    /// What it waits for has not come.
    Deadline,
    /// This process is overloaded, so what it waits for may have come unnoticed.
    Overload,
}

impl Deadline {
    /// The deadline of a call that begins now.
    #[must_use]
    pub fn after(after: Millis) -> Self {
        let after = Duration::from_millis(after.get());
        Self { at: Instant::now() + after, after }
    }

    /// Awaits work until the deadline.
    ///
    /// # Errors
    /// Why it has not ended by then.
    pub async fn until<T>(&self, work: impl Future<Output = T>) -> Result<T, Missed> {
        timeout_at(self.at, work).await.map_err(|_| self.missed())
    }

    /// When the call began.
    #[must_use]
    pub fn began(&self) -> Instant {
        self.at - self.after
    }

    /// Whether it is now or earlier.
    #[must_use]
    pub fn has_passed(&self) -> bool {
        Instant::now() >= self.at
    }

    /// Why work that ends now has missed this deadline. A process that notices this late has had no time to read an answer either.
    #[must_use]
    pub fn missed(&self) -> Missed {
        if self.at.elapsed() > self.after / 4 { Missed::Overload } else { Missed::Deadline }
    }
}

impl Missed {
    /// The error, for which `timeout` is the one of a process that is not overloaded.
    #[must_use]
    pub fn error(self, timeout: Error) -> Error {
        match self {
            Self::Deadline => timeout,
            Self::Overload => overloaded(timeout),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_core::{Error, ErrorKind, Millis};

    use super::{Deadline, Missed};

    #[tokio::test(start_paused = true)]
    async fn a_process_that_notices_late_is_overloaded() {
        let deadline = Deadline::after(Millis::new(100));
        assert_eq!(deadline.until(async { 1 }).await, Ok(1));
        assert!(!deadline.has_passed());
        assert_eq!(deadline.until(std::future::pending::<()>()).await, Err(Missed::Deadline));
        assert!(deadline.has_passed());
        tokio::time::advance(Duration::from_millis(26)).await;
        assert_eq!(deadline.until(std::future::pending::<()>()).await, Err(Missed::Overload));
        let timeout = || Error::new(ErrorKind::Timeout, "late");
        assert_eq!(Missed::Deadline.error(timeout()).kind(), ErrorKind::Timeout);
        assert_eq!(Missed::Overload.error(timeout()).kind(), ErrorKind::Contended);
    }
}
