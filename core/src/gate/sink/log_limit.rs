//! Bounds how often an error is logged.

use std::sync::{Mutex, PoisonError};

use crate::{ErrorKind, Millis, UnixMillis};

/// At most one line in each second for each kind of error. While a store is down, every request would be another.
///
/// ```
/// use tidegate_core::gate::LogLimit;
/// use tidegate_core::{ErrorKind, UnixMillis};
/// let (limit, at) = (LogLimit::default(), UnixMillis::new);
/// assert_eq!(limit.admit(ErrorKind::Timeout, at(0)), Some(0));
/// assert_eq!(limit.admit(ErrorKind::Timeout, at(400)), None);
/// assert_eq!(limit.admit(ErrorKind::Unavailable, at(400)), Some(0));
/// assert_eq!(limit.admit(ErrorKind::Timeout, at(1_000)), Some(1));
/// ```
#[derive(Debug, Default)]
pub struct LogLimit(Mutex<[Line; ErrorKind::ALL.len()]>);

#[derive(Clone, Copy, Debug, Default)]
struct Line {
    logged: Option<UnixMillis>,
    suppressed: u64,
}

impl LogLimit {
    /// The time between two lines of a kind.
    const PAUSE: Millis = Millis::from_secs(1);

    /// Whether to log an error now: the number of those of its kind that were not logged since the last line, or `None`.
    pub fn admit(&self, kind: ErrorKind, now: UnixMillis) -> Option<u64> {
        let place = ErrorKind::ALL.iter().position(|known| *known == kind)?;
        let line = &mut self.0.lock().unwrap_or_else(PoisonError::into_inner)[place];
        // A clock that was set back must not silence the log.
        if line.logged.is_some_and(|logged| now.since(logged).max(logged.since(now)) < Self::PAUSE) {
            line.suppressed = line.suppressed.saturating_add(1);
            return None;
        }
        let suppressed = line.suppressed;
        *line = Line { logged: Some(now), suppressed: 0 };
        Some(suppressed)
    }
}
