//! Tells an overloaded server from one that is down.

use std::sync::atomic::{AtomicUsize, Ordering};

use tidegate_core::{Error, ErrorKind};

/// Counts the answers of a server.
///
/// A client can make calls pass their deadline with a flood of requests. The server answers other calls meanwhile, so this
/// is contention and not a store failure, on which callers may fail open.
#[derive(Debug, Default)]
pub(crate) struct Progress(AtomicUsize);

/// The start of a call.
#[derive(Clone, Copy)]
pub(crate) struct Start(usize);

impl Progress {
    pub(crate) fn start(&self) -> Start {
        Start(self.0.load(Ordering::Relaxed))
    }

    pub(crate) fn answered(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// The error of a call: [`ErrorKind::Contended`] in place of a timeout if the server has answered since the start.
    pub(crate) fn failed(&self, start: Start, error: Error) -> Error {
        if error.kind() == ErrorKind::Timeout && self.start().0 != start.0 {
            let message = format!("{error}; the server answers other requests, so it is overloaded");
            return Error::new(ErrorKind::Contended, message).with_source(error);
        }
        error
    }
}
