//! Idempotency tokens, and the first answers to checks with them.

use tidegate_core::internal::sha256;
use tidegate_core::{ChargeId, Decision, Error, ErrorKind, Policy, UnixMillis};

use crate::durable_objects::bytes::{CallReader, put, to_hex};
use crate::durable_objects::decision;
use crate::durable_objects::rows::Row;

/// The first half of a token's SHA-256.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token(pub(crate) [u8; 16]);

/// The first answer to a check with a token, and what it charged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct First {
    /// It is repeated before this instant.
    pub(crate) until: UnixMillis,
    pub(crate) cost: u64,
    /// Whether the charge is settled.
    pub(crate) settled: bool,
    pub(crate) decision: Decision,
}

/// The first byte of a stored answer, whose charge is not settled, or is.
const CHARGED: u8 = 0x10;
const SETTLED: u8 = 0x11;

impl Token {
    pub(crate) fn of(token: &str) -> Self {
        let hash = sha256(token.as_bytes());
        Self(std::array::from_fn(|place| hash[place]))
    }

    /// The name of the row with the first answer to a check of these rows. No other row's name begins like this.
    pub(crate) fn row(self, rows: &[&str]) -> String {
        let token = match rows {
            [_] => self,
            // Rows of one group differ in their ends only.
            _ => Self::of(&[&to_hex(&self.0), "\n", &rows.join("\n")].concat()),
        };
        ["once:", &to_hex(&token.0), ":", rows[0]].concat()
    }

    /// The identity of the charge with this token.
    pub(crate) fn charge_id(self) -> ChargeId {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        ChargeId::new(u64::from_be_bytes([a, b, c, d, e, f, g, h]))
    }
}

impl First {
    /// Its row.
    pub(crate) fn row(&self, expires: UnixMillis) -> Row {
        let mut value = vec![if self.settled { SETTLED } else { CHARGED }];
        put(&mut value, [self.until.get(), self.cost]);
        value.extend(decision::encode(&self.decision));
        Row { value, leased: Vec::new(), expires }
    }

    /// # Errors
    /// [`ErrorKind::Corrupt`] for the value of a row that [`First::row`] does not make of a decision by this policy.
    pub(crate) fn decode(bytes: &[u8], policy: &Policy) -> Result<Self, Error> {
        let mut rest = CallReader { bytes, kind: ErrorKind::Corrupt };
        let settled = match rest.take()? {
            [CHARGED] => false,
            [SETTLED] => true,
            _ => return Err(rest.error("the row of a token is not one")),
        };
        let (until, cost) = (rest.instant()?, rest.u64()?);
        Ok(Self { until, cost, settled, decision: decision::decode(rest.bytes, policy)? })
    }
}
