//! What an object needs of its storage.

use tollgate_core::{Error, UnixMillis};

/// The rows of one object. On Cloudflare they are those of its SQLite storage; tests bring their own.
///
/// Nothing here waits: an object's decision is one synchronous step, and the platform holds its response until what the step
/// wrote is durable.
pub trait Rows {
    /// The row under `key`.
    ///
    /// # Errors
    /// Whatever keeps the storage from answering.
    fn load(&self, key: &str) -> Result<Option<Row>, Error>;

    /// Writes rows over what is there: all of them, or on an error none.
    ///
    /// # Errors
    /// Whatever keeps the storage from writing.
    fn save(&mut self, rows: &[(&str, &Row)]) -> Result<(), Error>;

    /// Removes the row under `key`, if there is one.
    ///
    /// # Errors
    /// Whatever keeps the storage from writing.
    fn remove(&mut self, key: &str) -> Result<(), Error>;

    /// Removes every row that has expired by `clock`.
    ///
    /// # Errors
    /// Whatever keeps the storage from writing.
    fn sweep(&mut self, clock: UnixMillis) -> Result<(), Error>;

    /// When the next row expires, if there is any.
    ///
    /// # Errors
    /// Whatever keeps the storage from answering.
    fn next_expiry(&self) -> Result<Option<UnixMillis>, Error>;

    /// Sets the object's one alarm, in place of the one that is pending.
    ///
    /// # Errors
    /// Whatever keeps the storage from writing.
    fn set_alarm(&mut self, at: UnixMillis) -> Result<(), Error>;
}

/// What is stored under one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// A state as [`Policy::encode`](tollgate_core::Policy::encode) writes it, or a token's first answer.
    pub value: Vec<u8>,
    /// What is lent of the state's quota: for each lease its units (8) and when it ends (8). Most rows have none.
    pub leased: Vec<u8>,
    /// From when on it says nothing any more, by the object's clock.
    pub expires: UnixMillis,
}
