//! What the tests of several crates share: policies and instants, stores that fail on demand, what is logged, futures that take
//! turns, and random policies and histories of requests.

#![allow(clippy::unwrap_used, reason = "what fails here fails its test")]

pub mod balances;
mod builders;
pub mod certificates;
pub mod crowd;
mod histories;
mod log;
mod orders;
mod stores;
mod turns;

pub use builders::{
    MINUTE, NOW, SECOND, at, bucket, key, named_per_minute, of_each_algorithm, per_minute, policy, policy_of,
};
pub use histories::{Cost, History, LAST, Numbers, Plausibility, Step, Steps, history};
pub use log::Log;
pub use orders::in_every_order;
pub use stores::{ADVICE, Declaring, FlakyStore, SECRET, Table, failing};
pub use turns::{together, turn};
