//! Deadlines in a process that may be too busy to keep them, and of a server that may be too busy to answer in time.
//!
//! A client can cause either with a flood of requests. It is contention, and not a store failure, on which callers may fail open.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidegate_core::{Error, ErrorKind, Millis};
use tokio::time::{Instant, timeout_at};

/// The deadline of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
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

    /// Awaits work until the deadline. A process that notices late that it has passed has had no time to read an answer either.
    pub(crate) async fn until<T>(&self, work: impl Future<Output = T>) -> Result<T, Missed> {
        timeout_at(self.at, work)
            .await
            .map_err(|_| if self.at.elapsed() > self.after / 4 { Missed::Overload } else { Missed::Deadline })
    }
}

impl Missed {
    /// The error, for which `timeout` is the one of a process that is not overloaded.
    pub(crate) fn error(self, timeout: Error) -> Error {
        match self {
            Self::Deadline => timeout,
            Self::Overload => contended(timeout, "this process is overloaded, so the server may well be up"),
        }
    }
}

/// Counts the answers of a server. If it answers other calls while one passes its deadline, it is overloaded and not down.
#[derive(Debug, Default)]
pub(crate) struct Progress(AtomicUsize);

impl Progress {
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn answered(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// The error of a call that began when the count was `start`, and its answer is late.
    pub(crate) fn late(&self, start: usize, timeout: Error) -> Error {
        if self.count() == start {
            return timeout;
        }
        contended(timeout, "the server answers other requests, so it is overloaded, or somebody has locked the row")
    }
}

fn contended(error: Error, why: &str) -> Error {
    Error::new(ErrorKind::Contended, format!("{error}; {why}")).with_source(error)
}
