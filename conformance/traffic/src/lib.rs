//! Traffic against rate limits, without a network.
//!
//! [`simulate`] runs the adapters in a fleet of locations and isolates, on virtual time. [`accesslog`] tells what rules would have
//! done to the requests of a log. [`prices`] tells what platforms charge for what decisions do at their stores. [`page`] makes HTML
//! reports, and [`table()`] tables for a terminal.

pub mod accesslog;
mod build;
pub mod page;
pub mod prices;
pub mod simulate;
mod table;

pub use build::Tidegate;
pub use table::table;
