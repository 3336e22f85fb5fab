//! A policy and where it counts.

use std::rc::Rc;

use tidegate_core::{BodyFormat, Policy};

use crate::wire::Wire;

/// Memory is not asked less often by a cache.
#[cfg(feature = "memory")]
type Cached = crate::store::Store;
#[cfg(not(feature = "memory"))]
type Cached = tidegate_core::DenyCache<crate::store::Store>;

/// The part of a gate that its calls use.
pub(crate) struct Limit {
    pub(crate) policy: Policy,
    pub(crate) limiter: Cached,
    pub(crate) body_format: BodyFormat,
    pub(crate) wire: Rc<Wire>,
    /// Whether a gate made the policy, and makes the keys.
    pub(crate) is_of_gate: bool,
}
