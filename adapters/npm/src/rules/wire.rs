//! What passes between the gate and its host.

use std::cell::Cell;
use std::future::poll_fn;
use std::task::Poll;

use tidegate_core::{Error, ErrorKind};

/// Carries requests and answers between a gate and its host. One call runs at a time, but several may wait.
#[derive(Default)]
pub(super) struct Wire {
    pub(super) wanted: Cell<Option<String>>,
    pub(super) met: Cell<Option<Met>>,
}

/// What the host answers.
pub(super) enum Met {
    /// A decision: see `host.rs`.
    Numbers(Vec<f64>),
    Text(String),
    Failed(Error),
}

impl Wire {
    /// Gives the host a request, a JSON array, and waits for its answer.
    pub(super) async fn ask(&self, wanted: String) -> Met {
        self.wanted.set(Some(wanted));
        poll_fn(|_| self.met.take().map_or(Poll::Pending, Poll::Ready)).await
    }
}

/// An error of the host.
pub(super) fn failed(kind: &str, message: String) -> Error {
    let kind = ErrorKind::ALL.into_iter().find(|known| known.name() == kind).unwrap_or(ErrorKind::Corrupt);
    Error::new(kind, message)
}

/// An answer of another form than the question asks for.
pub(super) fn unexpected() -> Error {
    Error::new(ErrorKind::Corrupt, "the host's answer has another form")
}

/// A number that the TypeScript has checked: whole, not negative and below 2^53.
#[expect(clippy::cast_possible_truncation, reason = "it is whole and below 2^53")]
pub(super) const fn whole(number: f64) -> u64 {
    number as u64
}

/// The same, unless it is negative, which stands for none.
pub(super) fn known(number: f64) -> Option<u64> {
    (number >= 0.0).then(|| whole(number))
}
