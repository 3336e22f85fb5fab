//! Code that the adapters of this workspace share. It is not part of the public API and may change in any release.

#[cfg(feature = "gate")]
pub use crate::decision::told::Told;
#[cfg(feature = "std")]
pub use crate::policy::PolicyParts;
pub use crate::sha256::sha256;
pub use crate::sorted_map::SortedMap;
