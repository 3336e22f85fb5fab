//! The protocol between a Worker and an object: one call, one answer. Integers are little-endian.
//!
//! | call | bytes |
//! |-|-|
//! | version, action | 1, 1 |
//! | storage key | length (2), text |
//! | flags: charges denials, object's clock, token | 1 |
//! | quotas | number (1), then for each: algorithm (1), limit (8), window or period (8), refill (8) |
//! | cost, now, least time to keep the row | 8, 8, 8 |
//! | if there is a token: its hash, time to keep it | 16, 8 |
//! | for a refund: when it was charged | 8 |
//! | for a settlement: the token's hash; the cost is the actual one | 16 |
//! | for a lease: units, lifetime; then, for an earlier lease: units, end, given back, kept | 8, 8; 8, 8, 8, 8 or nothing |
//!
//! | answer | bytes |
//! |-|-|
//! | version, flags: admitted, a state was stored, a lease was granted, an earlier answer, settled | 1, 1 |
//! | now, cost | 8, 8 |
//! | if a lease was granted: units, end | 8, 8 |
//! | the state before the step (after a settlement, the new one), as [`Policy::encode`] writes it | the rest |
//!
//! An error is a status of 400 or 500 and the text `kind: message`, with the kind's [`ErrorKind::name`].
//!
//! On Cloudflare, calls and answers are passed in hexadecimal, because JavaScript passes texts faster than bytes.

use tidegate_core::{Error, ErrorKind, Millis, Policy, Quota, Rule, UnixMillis};

use crate::bytes::{Reader, put, to_hex};
use crate::error;

const VERSION: u8 = 3;

/// An upper bound of the length of a storage key.
const KEY_LEN_MAX: usize = 1024;

/// The length of a quota: its algorithm, and three numbers.
const QUOTA_LEN: usize = 1 + 3 * 8;

const CHARGE_DENIED: u8 = 1;
const OBJECT_CLOCK: u8 = 2;
const TOKEN: u8 = 4;

const ADMITTED: u8 = 1;
const STORED: u8 = 2;
const LEASED: u8 = 4;
const REPLAYED: u8 = 8;
const SETTLED: u8 = 16;

/// One call to an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call<'a> {
    pub(crate) action: Action,
    pub(crate) key: String,
    pub(crate) policy: &'a Policy,
    pub(crate) cost: u64,
    /// `None` for the object's clock.
    pub(crate) now: Option<UnixMillis>,
    pub(crate) min_ttl: Millis,
    pub(crate) once: Option<Once>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Check,
    Peek,
    Refund { charged_at: UnixMillis },
    Settle { token: [u8; 16] },
    Delete,
    Lease { want: u64, lifetime: Millis, back: Option<Returned> },
}

/// The hash of an idempotency token, and how long its first answer is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Once {
    pub(crate) token: [u8; 16],
    pub(crate) ttl: Millis,
}

/// What an object answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) admitted: bool,
    /// Whether it is an earlier answer.
    pub(crate) replayed: bool,
    /// Whether the charge is settled. Only the row of a token says so.
    pub(crate) settled: bool,
    pub(crate) now: UnixMillis,
    pub(crate) cost: u64,
    pub(crate) lease: Option<Granted>,
    /// The state before the step, encoded.
    pub(crate) before: Option<Vec<u8>>,
}

/// A part of a quota that was lent, until an instant by the object's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Granted {
    pub(crate) units: u64,
    pub(crate) until: UnixMillis,
}

/// How a lease ends. The part that is neither given back nor kept was spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Returned {
    pub(crate) lease: Granted,
    /// Given back: the isolate will not spend it.
    pub(crate) unspent: u64,
    /// Kept: the isolate still spends it, and it becomes part of the next lease.
    pub(crate) kept: u64,
}

/// An object's response: an HTTP status and a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// 200, 400 for a call that cannot be answered, such as one of another version, or 500.
    pub status: u16,
    /// The answer, or the error's text.
    pub body: Vec<u8>,
}

/// The policy of the last call, and its bytes. Most calls have the same policy as the one before, and need not build
/// it.
#[derive(Debug, Default)]
pub(crate) struct Known(Option<(Vec<u8>, Policy)>);

impl<'a> Call<'a> {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION, self.action.number()];
        // The core's bound on keys is far lower.
        out.extend(u16::try_from(self.key.len()).unwrap_or(u16::MAX).to_le_bytes());
        out.extend(self.key.as_bytes());
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        out.push(
            flag(self.policy.charges_denied(), CHARGE_DENIED)
                | flag(self.now.is_none(), OBJECT_CLOCK)
                | flag(self.once.is_some(), TOKEN),
        );
        out.push(self.policy.quotas().len().to_le_bytes()[0]);
        for quota in self.policy.quotas() {
            out.push(algorithm(quota.rule()));
            put(&mut out, quota.rule().parameters());
        }
        put(&mut out, [self.cost, self.now.map_or(0, UnixMillis::get), self.min_ttl.get()]);
        if let Some(Once { token, ttl }) = self.once {
            out.extend(token);
            put(&mut out, [ttl.get()]);
        }
        match self.action {
            Action::Refund { charged_at } => put(&mut out, [charged_at.get()]),
            Action::Settle { token } => out.extend(token),
            Action::Lease { want, lifetime, back } => {
                put(&mut out, [want, lifetime.get()]);
                if let Some(Returned { lease, unspent, kept }) = back {
                    put(&mut out, [lease.units, lease.until.get(), unspent, kept]);
                }
            }
            Action::Check | Action::Peek | Action::Delete => {}
        }
        out
    }

    /// # Errors
    /// [`ErrorKind::Invalid`] for bytes that [`Call::encode`] does not write.
    pub(crate) fn decode(bytes: &[u8], known: &'a mut Known) -> Result<Self, Error> {
        let mut rest = Reader { bytes, kind: ErrorKind::Invalid };
        let [version, action] = rest.take()?;
        if version != VERSION {
            return Err(
                rest.error("the call has another version of the protocol; deploy the Worker and its objects together")
            );
        }
        let length = usize::from(u16::from_le_bytes(rest.take()?));
        let key = rest.split(length)?;
        if key.is_empty() || length > KEY_LEN_MAX {
            return Err(rest.error("the key is empty or too long"));
        }
        // The text of rows that are saved relies on keys without line breaks.
        let text = std::str::from_utf8(key).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_graphic()));
        let key = text.ok_or_else(|| rest.error("the key is not printable ASCII"))?.to_owned();
        let [flags, count] = rest.take()?;
        if flags & !(CHARGE_DENIED | OBJECT_CLOCK | TOKEN) != 0 {
            return Err(rest.error("unknown flags"));
        }
        let policy = known.policy(rest.split(QUOTA_LEN * usize::from(count))?, flags & CHARGE_DENIED != 0)?;
        let (cost, now, min_ttl) = (rest.u64()?, rest.instant()?, rest.millis()?);
        let now = (flags & OBJECT_CLOCK == 0).then_some(now);
        let once = match flags & TOKEN {
            0 => None,
            _ => Some(Once { token: rest.take()?, ttl: rest.millis()? }),
        };
        let action = match action {
            1 => Action::Check,
            2 => Action::Peek,
            3 => Action::Refund { charged_at: rest.instant()? },
            4 => Action::Delete,
            5 => {
                let (want, lifetime) = (rest.u64()?, rest.millis()?);
                let back = (!rest.bytes.is_empty()).then(|| returned(&mut rest)).transpose()?;
                Action::Lease { want, lifetime, back }
            }
            6 => Action::Settle { token: rest.take()? },
            _ => return Err(rest.error("an unknown action")),
        };
        rest.end()?;
        Ok(Self { action, key, policy, cost, now, min_ttl, once })
    }
}

impl Known {
    /// The policy with these quotas.
    fn policy(&mut self, bytes: &[u8], charge_denied: bool) -> Result<&Policy, Error> {
        self.0.take_if(|(known, policy)| known != bytes || policy.charges_denied() != charge_denied);
        match &mut self.0 {
            Some((_, policy)) => Ok(policy),
            unknown => {
                let mut rest = Reader { bytes, kind: ErrorKind::Invalid };
                let mut quotas = Vec::new();
                while !rest.bytes.is_empty() {
                    quotas.push(quota(&mut rest)?);
                }
                let policy = Policy::new("wire", quotas)?.charge_denied(charge_denied);
                Ok(&unknown.insert((bytes.to_vec(), policy)).1)
            }
        }
    }
}

impl Action {
    const fn number(self) -> u8 {
        match self {
            Self::Check => 1,
            Self::Peek => 2,
            Self::Refund { .. } => 3,
            Self::Delete => 4,
            Self::Lease { .. } => 5,
            Self::Settle { .. } => 6,
        }
    }
}

impl Answer {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let flags = flag(self.admitted, ADMITTED)
            | flag(self.before.is_some(), STORED)
            | flag(self.lease.is_some(), LEASED)
            | flag(self.replayed, REPLAYED)
            | flag(self.settled, SETTLED);
        let mut out = vec![VERSION, flags];
        put(&mut out, [self.now.get(), self.cost]);
        if let Some(Granted { units, until }) = self.lease {
            put(&mut out, [units, until.get()]);
        }
        out.extend_from_slice(self.before.as_deref().unwrap_or_default());
        out
    }

    /// # Errors
    /// [`ErrorKind::Corrupt`] for bytes that [`Answer::encode`] does not write.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let mut rest = Reader { bytes, kind: ErrorKind::Corrupt };
        let [version, flags] = rest.take().unwrap_or_default();
        if version != VERSION || flags & !(ADMITTED | STORED | LEASED | REPLAYED | SETTLED) != 0 {
            return Err(error::not_an_answer(&to_hex(bytes)));
        }
        let (now, cost) = (rest.instant()?, rest.u64()?);
        let lease = match flags & LEASED {
            0 => None,
            _ => Some(Granted { units: rest.u64()?, until: rest.instant()? }),
        };
        let before = match flags & STORED {
            0 => rest.end().map(|()| None)?,
            _ => Some(rest.bytes.to_vec()),
        };
        let is = |flag| flags & flag != 0;
        Ok(Self { admitted: is(ADMITTED), replayed: is(REPLAYED), settled: is(SETTLED), now, cost, lease, before })
    }
}

impl Reply {
    pub(crate) fn of(answer: Result<Answer, Error>) -> Self {
        match answer {
            Ok(answer) => Self { status: 200, body: answer.encode() },
            Err(error) => Self::error(error),
        }
    }

    pub(crate) fn error(error: Error) -> Self {
        let status = match error.kind() {
            ErrorKind::Invalid | ErrorKind::TokenReused | ErrorKind::UnknownCharge => 400,
            _ => 500,
        };
        Self { status, body: format!("{}: {error}", error.kind()).into_bytes() }
    }

    /// The reply as text: an answer in hexadecimal, or an error's status, a space and the body.
    #[cfg(any(target_arch = "wasm32", test))]
    pub(crate) fn to_text(&self) -> String {
        match self.status {
            200 => to_hex(&self.body),
            status => format!("{status} {}", str::from_utf8(&self.body).unwrap_or_default()),
        }
    }

    #[cfg(any(target_arch = "wasm32", test))]
    pub(crate) fn from_text(text: &str) -> Self {
        match text.split_once(' ') {
            Some((status, body)) => Self { status: status.parse().unwrap_or(500), body: body.into() },
            None => Self { status: 200, body: crate::bytes::from_hex(text) },
        }
    }

    pub(crate) fn answer(&self) -> Result<Answer, Error> {
        if self.status == 200 {
            return Answer::decode(&self.body);
        }
        let text = str::from_utf8(&self.body).unwrap_or_default();
        let known = text
            .split_once(':')
            .and_then(|(name, message)| Some((kind_of(name)?, message.strip_prefix(' ')?.to_owned())));
        let (kind, message) = known.ok_or_else(|| error::not_an_answer(&format!("{} {text}", self.status)))?;
        Err(Error::new(kind, message))
    }
}

fn kind_of(name: &str) -> Option<ErrorKind> {
    ErrorKind::ALL.into_iter().find(|kind| kind.name() == name)
}

fn returned(rest: &mut Reader<'_>) -> Result<Returned, Error> {
    let lease = Granted { units: rest.u64()?, until: rest.instant()? };
    Ok(Returned { lease, unspent: rest.u64()?, kept: rest.u64()? })
}

fn quota(rest: &mut Reader<'_>) -> Result<Quota, Error> {
    let [algorithm] = rest.take()?;
    let (limit, span, refill) = (rest.u64()?, rest.millis()?, rest.u64()?);
    match algorithm {
        1 => Quota::fixed_window(limit, span),
        2 => Quota::sliding_window(limit, span),
        3 => Quota::sliding_log(limit, span),
        4 => Quota::token_bucket(limit, refill, span),
        5 => Quota::leaky_bucket(limit, refill, span),
        _ => Err(rest.error("an unknown algorithm")),
    }
}

/// The number of a rule's algorithm in the codec. [`quota`] rejects 0.
const fn algorithm(rule: &Rule) -> u8 {
    match rule {
        Rule::FixedWindow(_) => 1,
        Rule::SlidingWindow(_) => 2,
        Rule::SlidingLog(_) => 3,
        Rule::TokenBucket(_) => 4,
        Rule::LeakyBucket(_) => 5,
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
