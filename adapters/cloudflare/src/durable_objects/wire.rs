//! The protocol between a Worker and an object: one call, one answer. Integers are little-endian.
//!
//! | call | bytes |
//! |-|-|
//! | version, action | 1, 1 |
//! | flags: charges denials, object's clock, token | 1 |
//! | quotas | number (1), then for each: dimension (high 4 bits) and algorithm (low 4 bits), [`Rule::parameters`] (8, 8, 8) |
//! | for each dimension, the name of its row | length (2), text |
//! | cost, now, least time to keep a row | 8, 8, 8 |
//! | if there is a token: its hash, time to keep its answer | 16, 8 |
//! | for a refund: when it was charged | 8 |
//! | for a settlement: the token's hash; the cost is the actual one | 16 |
//! | for a block: its length, 0 to end one | 8 |
//! | for a grant: the token's hash, how long to remember it, when the units expire; the cost is the units | 16, 8, 8 |
//! | for a question of a borrower: what it wants, in which time, the same again, the lifetime; then, of its last loan: number, given back, kept | 8, 8, 8, 8; 8, 8, 8 or nothing |
//! | for one that owes units, before its last loan | 8 |
//!
//! | answer | bytes |
//! |-|-|
//! | version, flags: a loan was granted, the denial may be repeated | 1, 1 |
//! | if a loan was granted: number, units, life | 8, 8, 8 |
//! | if the denial may be repeated: for how long | 8 |
//! | the decision, as `decision.rs` writes it | the rest |
//!
//! An error is a status of 400 or 500 and the text `kind: message`, with the kind's [`ErrorKind::name`].
//!
//! In earlier releases, a borrower told what it had spent, and then its slice: an object takes the smaller one as what it wants. An object
//! of such a release lends a borrower that has spent as much as it wants, and may hold no more, at most that. So releases of one version of
//! the protocol understand each other, whichever is deployed first. `tests/data/versions.json` has calls and answers of an earlier one.
//!
//! Only a question of a borrower that owes units has version 5: an object of an earlier release would not charge them, so it refuses the
//! call, and the borrower asks without them.
//!
//! Several calls of one object, each of version 4 or 5, may be one of version 6. They are answered in their order, each in a step of its own.
//! An object of an earlier release refuses it, and the Worker sends each alone.
//!
//! | several calls | bytes |
//! |-|-|
//! | version | 1 |
//! | for each call | length (4), the call |
//!
//! | their answers | bytes |
//! |-|-|
//! | version | 1 |
//! | for each call | status (2), length (4), the answer or the error's text |
//!
//! On Cloudflare, calls and answers are passed in hexadecimal, because JavaScript passes texts faster than bytes.
//!
//! [`Rule::parameters`]: tidegate_core::Rule::parameters

mod policy;

use tidegate_core::lending::{Answer, Loan, Question, Returned};
use tidegate_core::{ChargeId, Error, ErrorKind, Millis, Policy, UnixMillis};

use crate::durable_objects::bytes::{CallReader, put, to_hex};
use crate::durable_objects::token::Token;
pub(crate) use crate::durable_objects::wire::policy::Known;
use crate::durable_objects::wire::policy::put_quotas;
use crate::durable_objects::{decision, error};

const VERSION: u8 = 4;

/// The version of a question with units that are owed.
const VERSION_OF_OWED: u8 = 5;

/// The version of several calls.
const VERSION_OF_SEVERAL: u8 = 6;

/// The most calls that are sent as one.
pub(crate) const CALLS_MAX: usize = 64;

/// An upper bound of the length of a row's name.
const NAME_LEN_MAX: usize = 1024;

const CHARGE_DENIED: u8 = 1;
const OBJECT_CLOCK: u8 = 2;
const TOKEN: u8 = 4;

const GRANTED: u8 = 1;
const DENIES: u8 = 2;

/// One call to an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call<'a> {
    pub(crate) action: Action,
    pub(crate) policy: &'a Policy,
    /// The policy of each row, if there are several. Only the object knows it.
    pub(crate) parts: &'a [Policy],
    /// The name of each of the policy's rows.
    pub(crate) rows: Vec<&'a str>,
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
    Refund {
        charged_at: UnixMillis,
    },
    /// Settles a charge to the call's cost.
    Settle {
        token: Token,
    },
    /// Settles a charge to what it was.
    Release {
        token: Token,
    },
    Delete,
    /// A check, along with a borrower's question.
    Lend(Question),
    /// Blocks the keys, or ends their blocks.
    Block {
        span: Millis,
    },
    /// Grants units to the balance: the call's cost.
    Grant {
        token: Token,
        ttl: Millis,
        expires: UnixMillis,
    },
}

/// An idempotency token, and how long its first answer is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Once {
    pub(crate) token: Token,
    pub(crate) ttl: Millis,
}

/// An object's response: an HTTP status and a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// 200, 400 for a call that cannot be answered, or 500, also for one of another version.
    pub status: u16,
    /// The answer, or the error's text.
    pub body: Vec<u8>,
}

impl<'a> Call<'a> {
    /// The policy of a row.
    pub(crate) fn part(&self, place: usize) -> &'a Policy {
        self.parts.get(place).unwrap_or(self.policy)
    }

    /// The identity of a check's charge.
    pub(crate) fn charge_id(&self) -> ChargeId {
        match self.once {
            Some(Once { token, .. }) if self.policy.has_slots() => token.charge_id(),
            _ => ChargeId::NONE,
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let flags = flag(self.policy.charges_denied(), CHARGE_DENIED)
            | flag(self.now.is_none(), OBJECT_CLOCK)
            | flag(self.once.is_some(), TOKEN);
        let mut out = Vec::with_capacity(256);
        out.extend([self.action.version(), self.action.number(), flags]);
        put_quotas(&mut out, self.policy);
        for name in &self.rows {
            // The core's bounds on names and keys are far lower.
            out.extend(u16::try_from(name.len()).unwrap_or(u16::MAX).to_le_bytes());
            out.extend(name.as_bytes());
        }
        put(&mut out, [self.cost, self.now.map_or(0, UnixMillis::get), self.min_ttl.get()]);
        if let Some(Once { token, ttl }) = self.once {
            out.extend(token.0);
            put(&mut out, [ttl.get()]);
        }
        match self.action {
            Action::Refund { charged_at } => put(&mut out, [charged_at.get()]),
            Action::Block { span } => put(&mut out, [span.get()]),
            Action::Grant { token, ttl, expires } => {
                out.extend(token.0);
                put(&mut out, [ttl.get(), expires.get()]);
            }
            Action::Settle { token } | Action::Release { token } => out.extend(token.0),
            Action::Lend(Question { wanted, within, owed, lifetime, back }) => {
                put(&mut out, [wanted, within.get(), wanted, lifetime.get()]);
                if owed > 0 {
                    put(&mut out, [owed]);
                }
                if let Some(Returned { loan, unspent, kept }) = back {
                    put(&mut out, [loan, unspent, kept]);
                }
            }
            Action::Check | Action::Peek | Action::Delete => {}
        }
        out
    }

    /// # Errors
    /// [`ErrorKind::Unavailable`] for another version, and [`ErrorKind::Invalid`] for bytes that [`Call::encode`] does not write.
    pub(crate) fn decode(bytes: &'a [u8], known: &'a mut Known) -> Result<Self, Error> {
        let mut rest = CallReader { bytes, kind: ErrorKind::Invalid };
        let [version, action] = rest.take()?;
        if version != VERSION && version != VERSION_OF_OWED {
            // A deployment may take minutes to reach an object. Until then it is as good as down.
            let what = "durable object: the call has another version of the protocol; deploy the Worker and its objects together";
            return Err(Error::new(ErrorKind::Unavailable, what));
        }
        let [flags] = rest.take()?;
        if flags & !(CHARGE_DENIED | OBJECT_CLOCK | TOKEN) != 0 {
            return Err(rest.error("unknown flags"));
        }
        let (policy, parts) = known.read(&mut rest, flags & CHARGE_DENIED != 0)?;
        let mut rows = Vec::with_capacity(policy.rows().len());
        for _ in policy.rows() {
            rows.push(name(&mut rest)?);
        }
        let (cost, now, min_ttl) = (rest.u64()?, rest.instant()?, rest.millis()?);
        let now = (flags & OBJECT_CLOCK == 0).then_some(now);
        let once = match flags & TOKEN {
            0 => None,
            _ => Some(Once { token: Token(rest.take()?), ttl: rest.millis()? }),
        };
        let action = match action {
            1 => Action::Check,
            2 => Action::Peek,
            3 => Action::Refund { charged_at: rest.instant()? },
            4 => Action::Delete,
            5 => Action::Lend(question(&mut rest, version)?),
            6 => Action::Settle { token: Token(rest.take()?) },
            7 => Action::Release { token: Token(rest.take()?) },
            8 => Action::Block { span: rest.millis()? },
            9 => Action::Grant { token: Token(rest.take()?), ttl: rest.millis()?, expires: rest.instant()? },
            _ => return Err(rest.error("an unknown action")),
        };
        if version != action.version() {
            return Err(rest.error("an action of another version"));
        }
        rest.end()?;
        Ok(Self { action, policy, parts, rows, cost, now, min_ttl, once })
    }
}

impl Action {
    const fn version(self) -> u8 {
        if let Self::Lend(Question { owed: 1.., .. }) = self { VERSION_OF_OWED } else { VERSION }
    }

    const fn number(self) -> u8 {
        match self {
            Self::Check => 1,
            Self::Peek => 2,
            Self::Refund { .. } => 3,
            Self::Delete => 4,
            Self::Lend(_) => 5,
            Self::Settle { .. } => 6,
            Self::Release { .. } => 7,
            Self::Block { .. } => 8,
            Self::Grant { .. } => 9,
        }
    }
}

/// Several calls as one.
pub(crate) fn together(calls: &[Vec<u8>]) -> Vec<u8> {
    let mut out = vec![VERSION_OF_SEVERAL];
    calls.iter().for_each(|call| put_text(&mut out, call));
    out
}

/// The calls of one that [`together`] has written. `None` for a call of another version.
///
/// # Errors
/// [`ErrorKind::Invalid`] for bytes that [`together`] does not write.
pub(crate) fn apart(bytes: &[u8]) -> Option<Result<Vec<&[u8]>, Error>> {
    let (VERSION_OF_SEVERAL, bytes) = bytes.split_first().map(|(version, rest)| (*version, rest))? else { return None };
    let mut rest = CallReader { bytes, kind: ErrorKind::Invalid };
    let mut read = || {
        let mut calls = Vec::new();
        while !rest.bytes.is_empty() {
            if calls.len() == CALLS_MAX {
                return Err(rest.error("too many calls"));
            }
            calls.push(text(&mut rest)?);
        }
        Ok(calls)
    };
    Some(read())
}

fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    out.extend(u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend(text);
}

fn text<'a>(rest: &mut CallReader<'a>) -> Result<&'a [u8], Error> {
    let length = u32::from_le_bytes(rest.take()?);
    rest.split(usize::try_from(length).unwrap_or(usize::MAX))
}

fn encode(answer: &Answer) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    let denies = answer.denies_for > Millis::ZERO;
    out.extend([VERSION, if answer.granted.is_some() { GRANTED } else { 0 } | if denies { DENIES } else { 0 }]);
    if let Some(Loan { number, units, lasts }) = answer.granted {
        put(&mut out, [number, units, lasts.get()]);
    }
    if denies {
        put(&mut out, [answer.denies_for.get()]);
    }
    out.extend(decision::encode(&answer.decision));
    out
}

/// # Errors
/// [`ErrorKind::Corrupt`] for bytes that [`encode`] does not write of a decision by this policy.
fn decode(bytes: &[u8], policy: &Policy) -> Result<Answer, Error> {
    let mut rest = CallReader { bytes, kind: ErrorKind::Corrupt };
    let [version, flags] = rest.take().unwrap_or_default();
    if version != VERSION || flags & !(GRANTED | DENIES) != 0 {
        return Err(error::not_an_answer(&to_hex(bytes)));
    }
    let granted = match flags & GRANTED {
        0 => None,
        _ => Some(Loan { number: rest.u64()?, units: rest.u64()?, lasts: rest.millis()? }),
    };
    let denies_for = if flags & DENIES == 0 { Millis::ZERO } else { rest.millis()? };
    Ok(Answer { decision: decision::decode(rest.bytes, policy)?, granted, denies_for })
}

impl Reply {
    pub(crate) fn of(answer: Result<Answer, Error>) -> Self {
        match answer {
            Ok(answer) => Self { status: 200, body: encode(&answer) },
            Err(error) => Self::error(error),
        }
    }

    /// The replies to several calls.
    pub(crate) fn together(replies: impl IntoIterator<Item = Self>) -> Self {
        let mut body = vec![VERSION_OF_SEVERAL];
        for reply in replies {
            body.extend(reply.status.to_le_bytes());
            put_text(&mut body, &reply.body);
        }
        Self { status: 200, body }
    }

    /// The replies to so many calls. `None` if the object takes no several ones, or this is no answer of an object to these.
    pub(crate) fn apart(&self, count: usize) -> Option<Vec<Self>> {
        let (VERSION_OF_SEVERAL, bytes) = self.body.split_first().map(|(version, rest)| (*version, rest))? else {
            return None;
        };
        let mut rest = CallReader { bytes, kind: ErrorKind::Corrupt };
        let mut reply = || {
            let status = u16::from_le_bytes(rest.take().ok()?);
            Some(Self { status, body: text(&mut rest).ok()?.to_owned() })
        };
        let replies: Option<Vec<Self>> = (0..count).map(|_| reply()).collect();
        replies.filter(|_| self.status == 200 && rest.bytes.is_empty())
    }

    pub(crate) fn error(error: Error) -> Self {
        let status = match error.kind() {
            ErrorKind::Invalid | ErrorKind::TokenReused | ErrorKind::UnknownCharge => 400,
            _ => 500,
        };
        Self { status, body: format!("{}: {error}", error.kind()).into_bytes() }
    }

    /// The reply as text: an answer in hexadecimal, or an error's status, a space and the body.
    #[must_use]
    pub fn to_text(&self) -> String {
        match self.status {
            200 => to_hex(&self.body),
            status => format!("{status} {}", str::from_utf8(&self.body).unwrap_or_default()),
        }
    }

    /// Parses a text that [`Reply::to_text`] wrote. Any other text becomes an error's body.
    #[must_use]
    pub fn from_text(text: &str) -> Self {
        match text.split_once(' ') {
            Some((status, body)) => Self { status: status.parse().unwrap_or(500), body: body.into() },
            None => {
                let body = crate::durable_objects::bytes::from_hex(text);
                let is_hex = !body.is_empty() && 2 * body.len() == text.len();
                if is_hex { Self { status: 200, body } } else { Self { status: 500, body: text.into() } }
            }
        }
    }

    /// The answer to a call with this policy. For hosts that call objects by themselves.
    ///
    /// # Errors
    /// The object's error, or [`ErrorKind::Corrupt`] if this is no answer of an object.
    pub fn answer(&self, policy: &Policy) -> Result<Answer, Error> {
        if self.status == 200 {
            return decode(&self.body, policy);
        }
        let text = str::from_utf8(&self.body).unwrap_or_default();
        let known = text.split_once(':').and_then(|(name, message)| Some((kind_of(name)?, message.strip_prefix(' ')?)));
        let (kind, message) = known.ok_or_else(|| error::not_an_answer(&format!("{} {text}", self.status)))?;
        Err(error::answered(kind, message))
    }
}

fn kind_of(name: &str) -> Option<ErrorKind> {
    ErrorKind::ALL.into_iter().find(|kind| kind.name() == name)
}

/// The name of a row.
fn name<'a>(rest: &mut CallReader<'a>) -> Result<&'a str, Error> {
    let length = usize::from(u16::from_le_bytes(rest.take()?));
    let name = rest.split(length)?;
    if name.is_empty() || length > NAME_LEN_MAX {
        return Err(rest.error("a row's name is empty or too long"));
    }
    // The text of rows that are saved relies on names without line breaks.
    let text = str::from_utf8(name).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_graphic()));
    text.ok_or_else(|| rest.error("a row's name is not printable ASCII"))
}

fn question(rest: &mut CallReader<'_>, version: u8) -> Result<Question, Error> {
    let (spent, within, slice, lifetime) = (rest.u64()?, rest.millis()?, rest.u64()?, rest.millis()?);
    let wanted = spent.min(slice);
    let owed = if version == VERSION_OF_OWED { rest.u64()? } else { 0 };
    let back = match rest.bytes {
        [] => None,
        _ => Some(Returned { loan: rest.u64()?, unspent: rest.u64()?, kept: rest.u64()? }),
    };
    Ok(Question { wanted, within, owed, lifetime, back })
}

#[cfg(test)]
mod tests;
