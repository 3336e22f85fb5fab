//! Values that an isolate creates once, at the first request that needs them.

use std::sync::{Mutex, PoisonError};

use tidegate_core::Error;

/// Like a [`OnceLock`](std::sync::OnceLock), but if the initialization fails, it is tried again.
pub(crate) struct Once<T: 'static>(Mutex<Option<&'static T>>);

impl<T> Once<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(None))
    }

    pub(crate) fn get_or_make(&self, make: impl FnOnce() -> Result<T, Error>) -> Result<&'static T, Error> {
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match *made {
            Some(made) => Ok(made),
            None => make().map(|new| &**made.insert(Box::leak(Box::new(new)))),
        }
    }
}
