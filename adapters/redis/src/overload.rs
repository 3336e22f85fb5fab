//! Tells overload from a server that is down.
//!
//! A client can cause overload with a flood of requests. It is contention, and not a store failure, on which callers may fail
//! open.

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidegate_core::{Error, ErrorKind};

/// Counts the answers of a server. If it answers other calls while one passes its deadline, it is overloaded and not down.
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
            return contended(error, "the server answers other requests, so it is overloaded");
        }
        error
    }
}

/// The error of a call that this process had no time for.
pub(crate) fn overloaded(error: Error) -> Error {
    contended(error, "this process is overloaded, so the server may well be up")
}

/// The error of a call for which no connection could be opened, because this process or its machine has too many files open.
/// `None` if that is not the cause.
pub(crate) fn no_files_left(name: &str, cause: &(dyn StdError + 'static)) -> Option<Error> {
    /// `ENFILE` and `EMFILE`, or `WSAEMFILE`.
    const CODES: &[i32] = if cfg!(windows) { &[10_024] } else { &[23, 24] };
    let code = |error: &(dyn StdError + 'static)| {
        // The `redis` package shares its causes.
        let shared = || error.downcast_ref::<Arc<dyn StdError + Send + Sync>>()?.downcast_ref();
        error.downcast_ref::<io::Error>().or_else(shared)?.raw_os_error()
    };
    std::iter::successors(Some(cause), |&error| error.source()).filter_map(code).find(|code| CODES.contains(code))?;
    let message = format!("{name}: cannot connect, because too many files are open (ulimit -n); nothing was charged");
    Some(Error::new(ErrorKind::Contended, message))
}

fn contended(error: Error, why: &str) -> Error {
    Error::new(ErrorKind::Contended, format!("{error}; {why}")).with_source(error)
}

#[cfg(test)]
mod tests {
    use std::io;

    use tidegate_core::ErrorKind;

    use super::no_files_left;

    #[cfg(unix)]
    #[test]
    fn too_many_open_files_are_contention() {
        let error = io::Error::from_raw_os_error;
        assert_eq!(no_files_left("redis", &error(24)).map(|error| error.kind()), Some(ErrorKind::Contended));
        assert!(no_files_left("redis", &error(111)).is_none());
        assert!(no_files_left("redis", &io::Error::other("Too many open files (os error 24)")).is_none());
        #[cfg(feature = "resp")]
        assert!(no_files_left("redis", &redis::RedisError::from(error(24))).is_some());
    }
}
