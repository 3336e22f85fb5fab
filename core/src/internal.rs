//! Code that the adapters of this workspace share. It is not part of the public API and may change in any release.

pub use crate::decision::numbers;
#[cfg(feature = "std")]
pub use crate::policy::PolicyParts;
pub use crate::quoted::Quoted;
pub use crate::sha256::sha256;
pub use crate::sorted_map::SortedMap;
