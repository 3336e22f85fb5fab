//! A policy and where it counts.

use std::rc::Rc;

use tidegate_core::{BodyFormat, DenyCache, Policy};

use crate::store::Store;
use crate::wire::Wire;

/// The part of a gate that its calls use.
pub(crate) struct Limit {
    pub(crate) policy: Policy,
    pub(crate) limiter: DenyCache<Store>,
    pub(crate) body_format: BodyFormat,
    pub(crate) wire: Rc<Wire>,
    /// Whether a gate made the policy, and makes the keys.
    pub(crate) is_of_gate: bool,
}
