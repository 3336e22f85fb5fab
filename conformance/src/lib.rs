//! Replays the same bursts against every adapter, and says with numbers which stores are exact and how far others drift.

pub mod expectation;
pub mod fixture;
pub mod judge;
pub mod oracle;
pub mod replay;
pub mod subject;
