//! A call of a script: its keys and arguments, and its answer, which are the same over any transport.

use tidegate_core::algorithm::MAX_UNITS;
use tidegate_core::internal::Quoted;
use tidegate_core::lending::{Answer, Lender, Loan, Question, Returned, can_lend};
use tidegate_core::store::Applied;
use tidegate_core::{
    ChargeId, Check, Dimension, Error, ErrorKind, MAX_CLOCK_SKEW, Millis, Operation, Rule, Settle, UnixMillis,
};

use crate::answered;
use crate::names::{grant_key, once_key, state_keys};
use crate::script::Script;
use crate::settings::Clock;
use crate::state;

/// An operation on its way to the server.
#[derive(Debug)]
pub struct Call<'a> {
    operation: Operation<'a>,
    /// The general script's name for the operation.
    mode: &'static str,
    clock: Clock,
    ttl_min: Millis,
    /// The keys of the states, one for each row.
    pub(crate) keys: Vec<String>,
    /// The key of the first answer to an idempotency token.
    pub(crate) once: Option<String>,
    /// What a borrower asks.
    question: Option<Question>,
}

impl<'a> Call<'a> {
    /// A call of `operation`. What it stores is kept for at least `ttl_min`.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for an operation that the scripts do not know.
    pub fn new(mut operation: Operation<'a>, mut clock: Clock, mut ttl_min: Millis) -> Result<Self, Error> {
        let mut question = None;
        let mode = match operation {
            Operation::Check(check) if check.policy.charges_denied() => "d",
            Operation::Check(_) => "c",
            Operation::Peek(_) => "p",
            Operation::Refund(_) => "r",
            Operation::Settle(_) => "s",
            Operation::Block(_) => "b",
            Operation::Grant(_) => "g",
            // A token is ignored.
            Operation::Lend(mut check, asked) => {
                (question, check.idempotency) = (Some(*asked), None);
                operation = Operation::Check(check);
                "c"
            }
            // A balance is not lent, and stays.
            Operation::Reset { policy, keys } if policy.has_balance() => {
                operation = Operation::Peek(Check::new(policy, keys, UnixMillis::new(0)).cost(0));
                (clock, ttl_min) = (Clock::Caller, Millis::ZERO);
                "k"
            }
            // What is lent stays charged.
            Operation::Reset { policy, keys } => {
                operation = Operation::Peek(Check::new(policy, keys, UnixMillis::new(0)).cost(0));
                (clock, ttl_min) = (Clock::Caller, Millis::ZERO);
                "x"
            }
            _ => return Err(operation.unsupported()),
        };
        let names = state_keys(operation.policy(), operation.keys())?;
        let token = match operation {
            Operation::Check(check) => check.idempotency.map(|idempotency| idempotency.token),
            Operation::Settle(settle) => Some(settle.token),
            _ => None,
        };
        let once = match operation {
            Operation::Grant(grant) => {
                let row = grant.policy.balance_row().and_then(|row| names.get(row));
                row.map(|row| grant_key(row, grant.token))
            }
            _ => token.map(|token| once_key(&names, token)),
        };
        Ok(Self { operation, mode, clock, ttl_min, keys: names, once, question })
    }

    /// The script to run first. If it has [no answer](Self::answer), [`Script::Lending`] has.
    #[must_use]
    pub fn script(&self) -> Script {
        match self.mode {
            "x" => Script::Lending,
            _ if self.question.is_some() => Script::Lending,
            _ if self.operation.policy().has_balance() => Script::Balance,
            _ if self.is_plain() => Script::Plain,
            _ => Script::General,
        }
    }

    /// The same, where states probably have loans if `lends`.
    #[must_use]
    pub fn script_where(&self, lends: bool) -> Script {
        let may_be_lent = lends && self.once.is_none() && can_lend(self.operation.policy());
        if may_be_lent { Script::Lending } else { self.script() }
    }

    /// Whether this is a check by windows and buckets, all of one row or each of its own, with numbers that allow for plain.lua's
    /// arithmetic.
    fn is_plain(&self) -> bool {
        let Operation::Check(Check { policy, cost, now, idempotency: None, .. }) = self.operation else {
            return false;
        };
        let (quotas, rows) = (policy.quotas(), policy.rows().len());
        let is_early = self.clock == Clock::Server || now.get() < PRINTED;
        let is_flat = rows == 1 || rows == quotas.len();
        is_early && is_flat && !policy.charges_denied() && quotas.iter().all(|quota| is_plain(quota.rule(), cost))
    }

    /// Whether a borrower tells something, and nobody waits for a decision.
    #[cfg(feature = "rest")]
    pub(crate) fn only_tells(&self) -> bool {
        self.question.is_some() && self.operation.cost() == 0
    }

    /// Passes what follows a script or its SHA-1 in a command: the number of keys, the keys, and `ARGV`.
    pub fn words(&self, script: Script, mut give: impl FnMut(&str)) {
        let mut digits = itoa::Buffer::new();
        let mut number = |value: u64, give: &mut dyn FnMut(&str)| give(digits.format(value));
        number((self.keys.len() + usize::from(self.once.is_some())) as u64, &mut give);
        for key in self.keys.iter().chain(&self.once) {
            give(key);
        }
        match script {
            Script::Plain => self.give_plain(&mut number, &mut give),
            Script::General | Script::Balance => self.give_general(&mut number, &mut give),
            Script::Lending => {
                give(&self.question.map(asked).unwrap_or_default());
                self.give_general(&mut number, &mut give);
            }
        }
    }

    fn give_plain(&self, number: &mut Number<'_>, give: &mut dyn FnMut(&str)) {
        self.give_quotas(number, give);
        let (cost, server_clock, has_ttl_min) =
            (self.operation.cost(), self.clock == Clock::Server, self.ttl_min.get() > 1);
        if cost > 1 || has_ttl_min || !server_clock {
            number(cost, give);
        }
        if has_ttl_min || !server_clock {
            self.give_now(number, give);
        }
        if has_ttl_min {
            number(ttl(self.ttl_min), give);
        }
    }

    fn give_quotas(&self, number: &mut Number<'_>, give: &mut dyn FnMut(&str)) {
        for quota in self.operation.policy().quotas() {
            give(quota.rule().code());
            for parameter in quota.rule().parameters() {
                number(parameter, give);
            }
        }
    }

    fn give_general(&self, number: &mut Number<'_>, give: &mut dyn FnMut(&str)) {
        let policy = self.operation.policy();
        match policy.rows() {
            [_] => give(self.mode),
            rows => {
                let begins = |row: &Dimension| {
                    policy.dimensions().iter().any(|dimension| dimension.quotas().start == row.quotas().start)
                };
                let count = |row: &Dimension| if begins(row) { row.quotas().len() } else { 0 };
                let counts = rows.iter().map(|row| count(row).to_string());
                give(&std::iter::once(self.mode.to_string()).chain(counts).collect::<String>());
            }
        }
        self.give_now(number, give);
        match self.operation {
            Operation::Settle(Settle { cost: None, .. }) => give("-"),
            Operation::Settle(Settle { cost: Some(cost), .. }) => number(cost, give),
            Operation::Block(block) => number(block.span.get(), give),
            Operation::Grant(grant) => number(grant.units, give),
            _ => number(self.operation.cost(), give),
        }
        number(ttl(self.ttl_min), give);
        self.give_quotas(number, give);
        match self.operation {
            Operation::Refund(refund) => number(refund.charged_at.get(), give),
            Operation::Check(check) => {
                if let Some(idempotency) = check.remembered() {
                    number(ttl(idempotency.ttl), give);
                    self.give_id(check.charge_id(), give);
                }
            }
            Operation::Settle(settle) => self.give_id(settle.charge_id(), give),
            Operation::Grant(grant) => {
                number(ttl(grant.ttl), give);
                number(grant.expires.get(), give);
            }
            _ => {}
        }
    }

    fn give_now(&self, number: &mut Number<'_>, give: &mut dyn FnMut(&str)) {
        match self.clock {
            Clock::Server => give("server"),
            Clock::Caller => number(self.operation.now().get(), give),
        }
    }

    fn give_id(&self, id: ChargeId, give: &mut dyn FnMut(&str)) {
        if self.operation.policy().has_slots() {
            give(&id.to_string());
        }
    }

    /// The most words that [`Call::words`] passes.
    #[cfg(feature = "resp")]
    pub(crate) fn word_count(&self, script: Script) -> usize {
        let others = if script == Script::Plain { 3 } else { 7 };
        1 + self.keys.len() + 1 + others + 4 * self.operation.policy().quotas().len()
    }

    /// Reads the answer of a script. Returns `None` if the state is not one for this script.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] for anything that is not an answer of this script, and for a [loan that is not safe](Lender::accept).
    pub fn answer(&self, script: Script, bytes: &[u8]) -> Result<Option<Applied>, Error> {
        if let Some(question) = &self.question {
            return self.lent(question, bytes).map(|answer| Some(answer.into()));
        }
        // With a token, the script tells the first call's time and cost.
        let tells = self.clock == Clock::Server || self.once.is_some();
        answer(&self.operation, tells, script, bytes)
    }

    fn lent(&self, question: &Question, bytes: &[u8]) -> Result<Answer, Error> {
        let (told, granted) = utf8(bytes)?.rsplit_once('>').ok_or_else(|| no_answer(bytes))?;
        let Told { admitted, now, cost, state, .. } = told_by(&self.operation, self.clock == Clock::Server, told)?;
        let policy = self.operation.policy();
        let (mut state, mut lender) = match state {
            "" => (policy.initial_state(), Lender::default()),
            text => state::parse(policy, text)?,
        };
        policy.verify(&state, now)?;
        lender.settle(policy, &mut state, now);
        let granted = granted_by(granted, now).ok_or_else(|| no_answer(bytes))?;
        let answer = lender.accept(policy, &mut state, now, cost, question, granted)?;
        if admitted != answer.decision.is_allowed() {
            return Err(disagreement(admitted));
        }
        Ok(answer)
    }

    /// Maps an error that the server answered, by its text.
    #[must_use]
    pub fn refused(&self, text: &str) -> Error {
        answered::refused(text, self.key_of(text))
    }

    /// The key that an error of a script is about.
    pub(crate) fn key_of(&self, text: &str) -> &str {
        let quota = text.split_once("quotas[").and_then(|(_, rest)| rest.split_once(']')?.0.parse().ok());
        let row =
            quota.and_then(|quota| self.operation.policy().rows().iter().position(|row| row.quotas().contains(&quota)));
        &self.keys[row.unwrap_or_default()]
    }
}

/// What Lua's `..` prints as a whole number, with all its digits.
const PRINTED: u64 = 100_000_000_000_000;

/// Whether plain.lua's arithmetic is exact for a rule and a cost.
fn is_plain(rule: &Rule, cost: u64) -> bool {
    let [limit, unit, _] = rule.parameters();
    let (product, ahead) = (limit.saturating_mul(unit), MAX_CLOCK_SKEW.get());
    let is_counted = limit < 1 << 31 && unit < (PRINTED - ahead) / 2;
    let is_small = match rule {
        Rule::FixedWindow(_) => is_counted,
        Rule::SlidingWindow(_) => is_counted && product <= MAX_UNITS,
        Rule::TokenBucket(_) | Rule::LeakyBucket(_) => product < PRINTED - ahead,
        _ => false,
    };
    is_small && (1..=limit).contains(&cost)
}

/// Reads the answer of a script to an operation. Returns `None` if the state is not one for this script. `tells` is whether
/// the answer has the time and the cost, because the caller cannot know them.
///
/// # Errors
/// [`ErrorKind::Corrupt`] for anything that is not an answer of this script.
pub fn answer(operation: &Operation<'_>, tells: bool, script: Script, bytes: &[u8]) -> Result<Option<Applied>, Error> {
    if bytes.is_empty() && script != Script::Lending {
        return Ok(None);
    }
    let Told { admitted, replayed, now, cost, from_balance, state } = told_by(operation, tells, utf8(bytes)?)?;
    let before = |previous| Applied::Before { previous, now, cost, admitted, replayed, from_balance };
    if state.is_empty() {
        return Ok(Some(before(None)));
    }
    let policy = operation.policy();
    let (mut state, mut lender) = state::parse(policy, state)?;
    if lender.is_unused() {
        return Ok(Some(before(Some(state))));
    }
    policy.verify(&state, now)?;
    lender.settle(policy, &mut state, now);
    let decision = match operation {
        Operation::Check(check) => {
            let decision = before(Some(state.clone())).decision(check)?;
            let _ = policy.decide_as(&mut state, now, cost, check.charge_id());
            decision
        }
        _ => policy.peek(&state, now, cost),
    };
    // Loans keep a bucket from draining, so the wait may be longer.
    Ok(Some(lender.corrected(policy, &state, now, cost, decision).into()))
}

/// What a script has answered.
struct Told<'a> {
    admitted: bool,
    replayed: bool,
    now: UnixMillis,
    cost: u64,
    from_balance: u64,
    state: &'a str,
}

fn told_by<'a>(operation: &Operation<'_>, tells: bool, text: &'a str) -> Result<Told<'a>, Error> {
    let wrong = || no_answer(text.as_bytes());
    let (admitted, replayed, rest) = match text.split_at_checked(1) {
        Some(("a", rest)) => (true, false, rest),
        Some(("d", rest)) => (false, false, rest),
        Some(("r", rest)) => (true, true, rest),
        _ => return Err(wrong()),
    };
    let (mut now, mut cost, mut from_balance, mut state) = (operation.now(), operation.cost(), 0, rest);
    if let Some(known) = rest.strip_prefix('@') {
        let mut words = known.splitn(3, ' ');
        let number = |word: &str| word.parse().map_err(|_| wrong());
        now = UnixMillis::new(number(words.next().ok_or_else(wrong)?)?);
        let charged = words.next().ok_or_else(wrong)?;
        let (charged, paid) = charged.split_once('+').unwrap_or((charged, "0"));
        (cost, from_balance) = (number(charged)?, number(paid)?);
        state = words.next().ok_or_else(wrong)?;
    } else if tells {
        return Err(wrong());
    }
    Ok(Told { admitted, replayed, now, cost, from_balance, state })
}

fn utf8(bytes: &[u8]) -> Result<&str, Error> {
    std::str::from_utf8(bytes).map_err(|_| no_answer(bytes))
}

/// The question that is a word of [`Script::Lending`]. `None` if it is none.
#[must_use]
pub fn question(word: &str) -> Option<Question> {
    let mut numbers = word.split(' ').map(|digits| digits.parse::<u64>().ok());
    let mut next = || numbers.next().flatten();
    let (wanted, within, owed, lifetime) = (next()?, Millis::new(next()?), next()?, Millis::new(next()?));
    let back = next().and_then(|loan| Some(Returned { loan, unspent: next()?, kept: next()? }));
    Some(Question { wanted, within, owed, lifetime, back })
}

/// A question as a word of [`Script::Lending`].
fn asked(question: Question) -> String {
    let Question { wanted, within, owed, lifetime, back } = question;
    let mut word = format!("{wanted} {} {owed} {}", within.get(), lifetime.get());
    if let Some(Returned { loan, unspent, kept }) = back {
        word.push_str(&format!(" {loan} {unspent} {kept}"));
    }
    word
}

/// Passes a number as a word.
type Number<'a> = dyn FnMut(u64, &mut dyn FnMut(&str)) + 'a;

/// A span as a TTL: at least 1 ms, and not too long. Redis would reject others after the charge was made.
fn ttl(span: Millis) -> u64 {
    span.get().clamp(1, UnixMillis::MAX.get())
}

/// Reads the next loan of an answer: `<number>:<units>:<until>`, or nothing. `None` for another text.
fn granted_by(text: &str, now: UnixMillis) -> Option<Option<Loan>> {
    if text.is_empty() {
        return Some(None);
    }
    let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    let mut numbers = text.split(':').map(number);
    let (number, units, until) = (numbers.next()??, numbers.next()??, numbers.next()??);
    numbers.next().is_none().then_some(Some(Loan { number, units, lasts: UnixMillis::new(until).since(now) }))
}

fn disagreement(admitted: bool) -> Error {
    let what = format!(
        "the server and this library disagree on a decision (admitted by the server: {admitted}); do all clients of this \
         server run the same version of Tidegate?"
    );
    Error::new(ErrorKind::Corrupt, what)
}

fn no_answer(bytes: &[u8]) -> Error {
    let shown: String = str::from_utf8(bytes).unwrap_or("not a text").chars().take(60).collect();
    let what = format!("{} is not an answer of Tidegate's script; is this a Redis server?", Quoted(&shown));
    Error::new(ErrorKind::Corrupt, what)
}

#[cfg(test)]
mod tests;
