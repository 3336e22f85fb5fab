//! What an isolate creates once, at the first request that needs it.

use std::sync::{Mutex, PoisonError};

use worker::send::SendWrapper;

/// A value for all requests of an isolate, such as a gate: a [`OnceLock`](std::sync::OnceLock) for types that are not `Sync`,
/// which tries again after an error.
///
/// An isolate has one thread, and lives as long as its values.
pub struct PerIsolate<T: 'static>(Mutex<Option<SendWrapper<&'static T>>>);

impl<T> PerIsolate<T> {
    /// Without a value yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// The value, which `make` creates if there is none yet.
    ///
    /// # Errors
    /// That of `make`.
    pub fn get_or_make<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&'static T, E> {
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(SendWrapper(made)) = *made {
            return Ok(made);
        }
        let new: &'static T = Box::leak(Box::new(make()?));
        *made = Some(SendWrapper(new));
        Ok(new)
    }
}

impl<T> Default for PerIsolate<T> {
    fn default() -> Self {
        Self::new()
    }
}
