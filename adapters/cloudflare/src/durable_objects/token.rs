//! Idempotency tokens, and the first answers to checks with them.

use tidegate_core::algorithm::{Balance, Lot};
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
    /// What a balance paid. Not of a settled charge.
    pub(crate) paid: Vec<Lot>,
}

/// What was granted under a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Granted {
    /// It is remembered before this instant.
    pub(crate) until: UnixMillis,
    pub(crate) units: u64,
}

/// The first byte of a stored answer, whose charge is not settled, or is.
const CHARGED: u8 = 0x10;
const SETTLED: u8 = 0x11;
/// The same of a charge that is not settled, of which a balance paid a part.
const PAID: u8 = 0x12;
/// The first byte of a stored grant.
const GRANTED: u8 = 0x20;

impl Token {
    pub(crate) fn of(token: &str) -> Self {
        let hash = sha256(token.as_bytes());
        Self(std::array::from_fn(|place| hash[place]))
    }

    /// The name of the row with the first answer to a check of these rows. No other row's name begins like this.
    pub(crate) fn row(self, rows: &[&str]) -> String {
        self.name("once:", rows)
    }

    /// The name of the row with what was granted under it to the balance of a row.
    pub(crate) fn grant_row(self, balance: &str) -> String {
        self.name("grant:", &[balance])
    }

    fn name(self, kind: &str, rows: &[&str]) -> String {
        let token = match rows {
            [_] => self,
            // Rows of one group differ in their ends only.
            _ => Self::of(&[&to_hex(&self.0), "\n", &rows.join("\n")].concat()),
        };
        [kind, &to_hex(&token.0), ":", rows[0]].concat()
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
        let paid = if self.settled { &[][..] } else { &self.paid };
        let kind = match (self.settled, paid) {
            (true, _) => SETTLED,
            (false, []) => CHARGED,
            (false, _) => PAID,
        };
        let mut value = vec![kind];
        put(&mut value, [self.until.get(), self.cost]);
        if kind == PAID {
            // A balance has at most 64 lots.
            value.push(paid.len().to_le_bytes()[0]);
            paid.iter().for_each(|lot| put(&mut value, [lot.units, lot.expires.get()]));
        }
        value.extend(decision::encode(&self.decision));
        Row { value, leased: Vec::new(), expires }
    }

    /// # Errors
    /// [`ErrorKind::Corrupt`] for the value of a row that [`First::row`] does not make of a decision by this policy.
    pub(crate) fn decode(bytes: &[u8], policy: &Policy) -> Result<Self, Error> {
        let mut rest = CallReader { bytes, kind: ErrorKind::Corrupt };
        let settled = match rest.take()? {
            [CHARGED | PAID] => false,
            [SETTLED] => true,
            _ => return Err(rest.error("the row of a token is not one")),
        };
        let (until, cost) = (rest.instant()?, rest.u64()?);
        let mut paid = Vec::new();
        if bytes.first() == Some(&PAID) {
            let [count] = rest.take()?;
            if usize::from(count) > Balance::MAX_LOTS {
                return Err(rest.error("too many lots"));
            }
            for _ in 0..count {
                paid.push(Lot { units: rest.u64()?, expires: rest.instant()? });
            }
        }
        Ok(Self { until, cost, settled, paid, decision: decision::decode(rest.bytes, policy)? })
    }
}

impl Granted {
    /// Its row.
    pub(crate) fn row(self, expires: UnixMillis) -> Row {
        let mut value = vec![GRANTED];
        put(&mut value, [self.until.get(), self.units]);
        Row { value, leased: Vec::new(), expires }
    }

    /// # Errors
    /// [`ErrorKind::Corrupt`] for the value of a row that [`Granted::row`] does not make.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let mut rest = CallReader { bytes, kind: ErrorKind::Corrupt };
        if rest.take()? != [GRANTED] {
            return Err(rest.error("the row of a grant is not one"));
        }
        let granted = Self { until: rest.instant()?, units: rest.u64()? };
        rest.end()?;
        Ok(granted)
    }
}
