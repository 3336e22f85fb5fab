//! What the tests of several crates share: policies and instants, stores that fail on demand, futures that take turns, and random
//! policies and histories of requests.

#![allow(clippy::unwrap_used, reason = "what fails here fails its test")]

mod builders;
pub mod crowd;
mod histories;
mod orders;
mod stores;
mod turns;

pub use builders::{MINUTE, NOW, SECOND, at, key, named_per_minute, of_each_algorithm, per_minute, policy};
pub use histories::{Cost, History, LAST, Numbers, Plausibility, Step, Steps, history};
pub use orders::in_every_order;
pub use stores::{ADVICE, Declaring, FlakyStore, SECRET, Table, failing};
pub use turns::{together, turn};
