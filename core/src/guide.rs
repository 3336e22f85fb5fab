//! The guide: a page for each question that comes up in use.
//!
//! | to | read |
//! |-|-|
//! | write a rules file: every table and key | [`rules`] |
//! | choose an algorithm, or block a key by hand | [`algorithms`] |
//! | choose a key: dimensions, addresses, proxies, IPv6 | [`keys`] |
//! | limit by several keys at once | [`several_keys`] |
//! | know what happens when the store dies | [`failures`] |
//! | charge language-model tokens | [`costs`] |
//! | process a webhook's event once | [`once`] |
//! | sell credits that pay beyond a quota | [`credits`] |
//! | wait instead of denying | [`waiting`] |
//! | change limits | [`changes`] |
//! | test an application | [`testing`] |
//! | observe it: metrics, events, log lines, alerts | [`observing`] |
//! | run replicas, Kubernetes and Redis | [`replicas`] |
//! | write an adapter | [`adapters`] |

#[doc = include_str!("../docs/adapters.md")]
pub mod adapters {}
#[doc = include_str!("../docs/algorithms.md")]
pub mod algorithms {}
#[doc = include_str!("../docs/changes.md")]
pub mod changes {}
#[doc = include_str!("../docs/costs.md")]
pub mod costs {}
#[doc = include_str!("../docs/credits.md")]
pub mod credits {}
#[doc = include_str!("../docs/failures.md")]
pub mod failures {}
#[doc = include_str!("../docs/keys.md")]
pub mod keys {}
#[doc = include_str!("../docs/observing.md")]
pub mod observing {}
#[doc = include_str!("../docs/once.md")]
pub mod once {}
#[doc = include_str!("../docs/replicas.md")]
pub mod replicas {}
#[doc = include_str!("../docs/rules.md")]
pub mod rules {}
#[doc = include_str!("../docs/several_keys.md")]
pub mod several_keys {}
#[doc = include_str!("../docs/testing.md")]
pub mod testing {}
#[doc = include_str!("../docs/waiting.md")]
pub mod waiting {}
