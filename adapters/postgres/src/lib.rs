#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod config;
mod connection;
mod connections;
mod error;
mod statement;
mod store;
mod sweep;
mod tls;
mod writes;

pub use config::Config;
pub use connection::Own;
pub use connections::Connections;
pub use error::from_postgres;
pub use statement::{CREATE_TABLE, SWEEP_ALL, Statement};
pub use store::{Postgres, PostgresLimiter};
pub use tidegate_core::prelude::*;
/// The client that this crate uses.
pub use tokio_postgres;
