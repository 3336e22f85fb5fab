//! What passes between a limiter's store and its host.

use std::cell::Cell;
#[cfg(not(feature = "memory"))]
use std::{future::poll_fn, task::Poll};

/// Carries requests and answers between a limiter's store and its host. One call runs at a time.
#[derive(Default)]
pub(crate) struct Wire {
    pub(crate) wanted: Cell<Option<String>>,
    pub(crate) met: Cell<Option<Met>>,
}

/// The result of a request to the store.
#[cfg_attr(feature = "memory", expect(dead_code, reason = "memory never fails"))]
pub(crate) enum Met {
    Answer(Answer),
    /// The host threw an error.
    Failed {
        name: String,
        message: String,
    },
    /// The deadline has passed.
    Late,
}

/// An answer of the store.
#[cfg_attr(
    not(any(feature = "versioned", feature = "object")),
    expect(dead_code, reason = "only these stores have versions or errors with properties")
)]
pub(crate) struct Answer {
    /// The status in HTTP's terms.
    pub(crate) status: u16,
    /// The version of the bytes, if the store has versions.
    pub(crate) version: Option<String>,
    pub(crate) bytes: Vec<u8>,
}

#[cfg(not(feature = "memory"))]
impl Wire {
    /// Gives the host a request, a JSON array, and waits for the result.
    pub(crate) async fn ask(&self, wanted: String) -> Met {
        self.wanted.set(Some(wanted));
        poll_fn(|_| self.met.take().map_or(Poll::Pending, Poll::Ready)).await
    }
}
