//! Stores in a [`World`](super::World), with the behaviour that their platforms document. Each counts its operations.

mod binding;
mod counters;
mod exact;
mod kv;
mod replicas;

pub(super) use self::binding::{PlaceCounts, Window};
pub(super) use self::counters::{Counted, Counters, Host};
pub(super) use self::exact::Exact;
pub(super) use self::kv::{Kv, Values};
pub(super) use self::replicas::{Replicas, Timed};

use tidegate_core::{Error, ErrorKind};

/// No answer within the deadline.
fn late(store: &str) -> Error {
    Error::new(ErrorKind::Timeout, format!("{store}: no answer within the deadline"))
}
