//! Deadlines in a process that may be too busy to keep them.

use std::time::Duration;

#[cfg(feature = "resp")]
use tidegate_core::Error;
use tidegate_core::Millis;
use tokio::time::{Instant, timeout_at};

#[cfg(feature = "resp")]
use crate::overload::overloaded;

/// The deadline of a call.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "rest"), expect(unreachable_pub, reason = "only `Native` shows it"))]
pub struct Deadline {
    at: Instant,
    after: Duration,
}

/// Why work has not ended by its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missed {
    /// What it waits for has not come.
    Deadline,
    /// This process is overloaded, so what it waits for may have come unnoticed.
    Overload,
}

impl Deadline {
    /// The deadline of a call that begins now.
    pub(crate) fn after(after: Millis) -> Self {
        let after = Duration::from_millis(after.get());
        Self { at: Instant::now() + after, after }
    }

    /// Awaits work until the deadline.
    pub(crate) async fn until<T>(&self, work: impl Future<Output = T>) -> Result<T, Missed> {
        timeout_at(self.at, work).await.map_err(|_| self.missed())
    }

    /// When the call began.
    #[cfg(feature = "resp")]
    pub(crate) fn began(&self) -> Instant {
        self.at - self.after
    }

    #[cfg(feature = "resp")]
    pub(crate) fn has_passed(&self) -> bool {
        Instant::now() >= self.at
    }

    /// Why work that ends now has missed this deadline. A process that notices this late has had no time to read an answer either.
    pub(crate) fn missed(&self) -> Missed {
        if self.at.elapsed() > self.after / 4 { Missed::Overload } else { Missed::Deadline }
    }
}

#[cfg(feature = "resp")]
impl Missed {
    /// The error, for which `timeout` is the one of a process that is not overloaded.
    pub(crate) fn error(self, timeout: Error) -> Error {
        match self {
            Self::Deadline => timeout,
            Self::Overload => overloaded(timeout),
        }
    }
}
