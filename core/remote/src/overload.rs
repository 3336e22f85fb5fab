//! Tells overload from a server that is down.
//!
//! A client can cause overload with a flood of requests. It is contention, and not a store failure, on which callers may fail
//! open.

use std::sync::atomic::{AtomicUsize, Ordering};

use tidegate_core::{Error, ErrorKind};

/// Counts the answers of a server. If it answers other calls while one passes its deadline, it is overloaded and not down.
#[derive(Debug, Default)]
pub struct Progress(AtomicUsize);

/// The start of a call.
#[derive(Clone, Copy, Debug)]
pub struct Start(usize);

impl Progress {
    /// The start of a call that begins now.
    #[must_use]
    pub fn start(&self) -> Start {
        Start(self.0.load(Ordering::Relaxed))
    }

    /// Counts an answer.
    pub fn answered(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// The error of a call: [`ErrorKind::Contended`] in place of a timeout if the server has answered since the start.
    #[must_use]
    pub fn failed(&self, start: Start, error: Error) -> Error {
        if error.kind() == ErrorKind::Timeout && self.start().0 != start.0 {
            return contended(
                error,
                "the server answers other requests, so it is overloaded, or has this one wait for others",
            );
        }
        error
    }
}

/// The error of a call that this process had no time for.
#[must_use]
pub fn overloaded(error: Error) -> Error {
    contended(error, "this process is overloaded, so the server may well be up")
}

fn contended(error: Error, why: &str) -> Error {
    Error::new(ErrorKind::Contended, format!("{error}; {why}")).with_source(error)
}

#[cfg(test)]
mod tests {
    use tidegate_core::{Error, ErrorKind};

    use super::Progress;

    #[test]
    fn a_server_that_answers_others_is_overloaded_and_not_down() {
        let (progress, timeout) = (Progress::default(), || Error::new(ErrorKind::Timeout, "late"));
        let start = progress.start();
        assert_eq!(progress.failed(start, timeout()).kind(), ErrorKind::Timeout);
        progress.answered();
        assert_eq!(progress.failed(start, timeout()).kind(), ErrorKind::Contended);
        assert_eq!(progress.failed(progress.start(), timeout()).kind(), ErrorKind::Timeout);
        let lost = progress.failed(start, Error::new(ErrorKind::Unavailable, "lost"));
        assert_eq!(lost.kind(), ErrorKind::Unavailable);
    }
}
