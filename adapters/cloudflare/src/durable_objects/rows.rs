//! The storage of one object.

use tidegate_core::{Error, UnixMillis};

use crate::durable_objects::bytes::{from_hex, push_hex};

/// The rows of one object. On Cloudflare they are in its SQLite storage. Tests bring their own.
///
/// All methods are synchronous, so a decision is one step. The platform holds the response until the step's writes are
/// durable.
pub trait Rows {
    /// Reads the row under `key`.
    ///
    /// # Errors
    /// Whatever keeps the storage from answering.
    fn load(&self, key: &str) -> Result<Option<Row>, Error>;

    /// Writes all of `rows`, or none if it returns an error.
    ///
    /// # Errors
    /// Whatever keeps the storage from writing.
    fn save(&mut self, rows: &[(&str, Row)]) -> Result<(), Error>;

    /// Removes the row under `key`, if there is one.
    ///
    /// # Errors
    /// Whatever keeps the storage from writing.
    fn remove(&mut self, key: &str) -> Result<(), Error>;

    /// Reads a page of rows, a bounded number in the order of their keys, and removes those that have expired by
    /// `clock`. The page begins after the key `after`, or with the first row.
    ///
    /// # Errors
    /// Whatever keeps the storage from writing.
    fn sweep(&mut self, clock: UnixMillis, after: Option<&str>) -> Result<Page, Error>;

    /// Sets the object's alarm. It replaces a pending one.
    ///
    /// # Errors
    /// Whatever keeps the storage from writing.
    fn set_alarm(&mut self, at: UnixMillis) -> Result<(), Error>;
}

/// What [`Rows::sweep`] found in a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The number of rows that remain.
    pub kept: u64,
    /// When the first of them expires; `None` if none does. A row that cannot be read never expires.
    pub next: Option<UnixMillis>,
    /// The last key of the page; `None` if this was the last page.
    pub last: Option<String>,
}

impl Page {
    /// Parses what `sweep` in rows.js returns: the fields in this order, separated by spaces, and empty for `None`.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        let mut fields = text.splitn(3, ' ');
        let kept = fields.next()?.parse().ok()?;
        let next = match fields.next()? {
            "" => None,
            ms => Some(UnixMillis::new(ms.parse().ok()?)),
        };
        let last = Some(fields.next()?).filter(|key| !key.is_empty()).map(str::to_owned);
        Some(Self { kept, next, last })
    }
}

/// What is stored under one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// A state as [`Policy::encode`](tidegate_core::Policy::encode) writes it, or the first answer to a token.
    pub value: Vec<u8>,
    /// What is lent of the state's quotas, as [`Lender::encode`](tidegate_core::lending::Lender::encode) writes it. Empty for rows
    /// that never lent.
    pub leased: Vec<u8>,
    /// When the row may be removed, by the object's clock.
    pub expires: UnixMillis,
}

impl Row {
    /// The row as text: twelve hexadecimal digits for the expiry, the leases in hexadecimal, a dot, the value in
    /// hexadecimal. The expiry comes first so that a sweep can read it alone.
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

    /// Parses a text that [`Row::to_text`] wrote; `None` for any other text.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        let (expires, rest) = text.split_at_checked(EXPIRES_LEN)?;
        let (leased, value) = rest.split_once('.')?;
        let whole = |text: &str| Some(from_hex(text)).filter(|bytes| 2 * bytes.len() == text.len());
        let expires = whole(expires)?.iter().fold(0, |ms, byte| ms << 8 | u64::from(*byte));
        Some(Self { value: whole(value)?, leased: whole(leased)?, expires: UnixMillis::new(expires) })
    }
}

/// The number of hexadecimal digits of [`UnixMillis::MAX`].
const EXPIRES_LEN: usize = 12;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidegate_core::UnixMillis;

    use super::{Page, Row};

    #[test]
    fn a_text_begins_with_the_expiry() {
        let row = Row { value: vec![1, 255], leased: vec![16], expires: UnixMillis::new(1_800_000_000_000) };
        assert_eq!(row.to_text(), "01a3185c500010.01ff");
        for nonsense in
            ["", "not ours", "01a3185c5000", "01a3185c50001.01", "01a3185c5000.0x", "éé3185c5000.01", "+1a3185c5000."]
        {
            assert_eq!(Row::from_text(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn a_page_is_read_from_its_text() {
        let page = Page { kept: 3, next: Some(UnixMillis::new(1_800_000_000_000)), last: Some("tg1:a".to_owned()) };
        assert_eq!(Page::from_text("3 1800000000000 tg1:a"), Some(page));
        assert_eq!(Page::from_text("0  "), Some(Page::default()));
        for nonsense in ["", "1", "1 2", "x  ", "1 x "] {
            assert_eq!(Page::from_text(nonsense), None, "{nonsense}");
        }
    }

    proptest! {
        #[test]
        fn a_row_round_trips_through_its_text(value: Vec<u8>, leased: Vec<u8>, expires: u64) {
            let row = Row { value, leased, expires: UnixMillis::new(expires) };
            prop_assert_eq!(Row::from_text(&row.to_text()), Some(row));
        }
    }
}
