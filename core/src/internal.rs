//! Code that the adapters of this workspace share. It is not part of the public API and may change in any release.

#[cfg(feature = "std")]
use std::pin::Pin;
#[cfg(feature = "std")]
use std::task::{Context, Waker};

#[cfg(feature = "lending")]
pub use crate::batches::Batches;
#[cfg(any(feature = "calendar", feature = "gate", feature = "serde"))]
pub use crate::suggestion::Suggestion;
/// Integers of few bytes.
pub mod leb128 {
    pub use crate::leb128::{put, take};
}
#[cfg(feature = "std")]
pub use crate::policy::PolicyParts;
pub use crate::quoted_text::Quoted;
pub use crate::sha256::sha256;
pub use crate::sorted_map::SortedMap;

/// Begins work that mostly has nothing to do. What is left of it, if it has to wait, is for a task of the host's.
#[cfg(feature = "std")]
pub fn begin<F: Future<Output = ()>>(work: F) -> Option<Pin<Box<F>>> {
    let mut work = Box::pin(work);
    work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending().then_some(work)
}
