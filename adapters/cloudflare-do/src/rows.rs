//! What an object needs of its storage.

use tidegate_core::{Error, UnixMillis};

use crate::bytes::{from_hex, push_hex};

/// The rows of one object. On Cloudflare they are those of its SQLite storage; tests bring their own.
///
/// Nothing here waits: an object's decision is one synchronous step, and the platform holds its response until what the
/// step wrote is durable.
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
    fn save(&mut self, rows: &[(&str, Row)]) -> Result<(), Error>;

    /// Removes the row under `key`, if there is one.
    ///
    /// # Errors
    /// Whatever keeps the storage from writing.
    fn remove(&mut self, key: &str) -> Result<(), Error>;

    /// Removes every row that has expired by `clock`. Answers when the first of the others does, if any is left; one that
    /// cannot be read never does.
    ///
    /// # Errors
    /// Whatever keeps the storage from writing.
    fn sweep(&mut self, clock: UnixMillis) -> Result<Option<UnixMillis>, Error>;

    /// Sets the object's one alarm, in place of the one that is pending.
    ///
    /// # Errors
    /// Whatever keeps the storage from writing.
    fn set_alarm(&mut self, at: UnixMillis) -> Result<(), Error>;
}

/// What is stored under one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// A state as [`Policy::encode`](tidegate_core::Policy::encode) writes it, or a token's first answer.
    pub value: Vec<u8>,
    /// What is lent of the state's quota: for each lease its units (8) and when it ends (8). Most rows have none.
    pub leased: Vec<u8>,
    /// From when on it says nothing any more, by the object's clock.
    pub expires: UnixMillis,
}

impl Row {
    /// As text: when it expires as twelve hexadecimal digits, by which it is swept unread, and those of what is lent and of
    /// the value, a dot between.
    #[must_use]
    pub fn to_text(&self) -> String {
        let [_, _, expires @ ..] = self.expires.get().to_be_bytes();
        let mut out = Vec::with_capacity(EXPIRES_LEN + 1 + 2 * (self.leased.len() + self.value.len()));
        push_hex(&mut out, &expires);
        push_hex(&mut out, &self.leased);
        out.push(b'.');
        push_hex(&mut out, &self.value);
        String::from_utf8(out).unwrap_or_default()
    }

    /// The row of such a text; `None` for what [`Row::to_text`] does not make.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        let (expires, rest) = text.split_at_checked(EXPIRES_LEN)?;
        let (leased, value) = rest.split_once('.')?;
        let whole = |text: &str| Some(from_hex(text)).filter(|bytes| 2 * bytes.len() == text.len());
        let expires = whole(expires)?.iter().fold(0, |ms, byte| ms << 8 | u64::from(*byte));
        Some(Self { value: whole(value)?, leased: whole(leased)?, expires: UnixMillis::new(expires) })
    }
}

/// As many digits as the last instant has.
const EXPIRES_LEN: usize = 12;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidegate_core::UnixMillis;

    use super::Row;

    #[test]
    fn a_text_begins_with_when_it_expires() {
        let row = Row { value: vec![1, 255], leased: vec![16], expires: UnixMillis::new(1_800_000_000_000) };
        assert_eq!(row.to_text(), "01a3185c500010.01ff");
        for nonsense in
            ["", "not ours", "01a3185c5000", "01a3185c50001.01", "01a3185c5000.0x", "éé3185c5000.01", "+1a3185c5000."]
        {
            assert_eq!(Row::from_text(nonsense), None, "{nonsense}");
        }
    }

    proptest! {
        #[test]
        fn a_row_is_the_same_after_it_was_text(value: Vec<u8>, leased: Vec<u8>, expires: u64) {
            let row = Row { value, leased, expires: UnixMillis::new(expires) };
            prop_assert_eq!(Row::from_text(&row.to_text()), Some(row));
        }
    }
}
