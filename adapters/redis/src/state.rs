//! Parses a policy's state, which is text so that `redis-cli GET` shows it: one part for each quota.
//!
//! | part | numbers |
//! |-|-|
//! | `fw1 <start> <used>;` | fixed window |
//! | `sw1 <start> <previous> <current>;` | sliding window |
//! | `cw1 <end> <used> <carried>;` | calendar window |
//! | `sl1 <at>:<units> <at>:<units> …;` | sliding log |
//! | `tb1 <level> <at>;`, `lb1 <level> <at>;` | token bucket, leaky bucket |
//! | `cc1 <id>:<at>:<cost> <id>:<at>:<cost> …;` | concurrency limit |
//! | `pn1 <violations> <until>;`, `pn1 <violations> <until> <length>;` | penalty, and one whose block was set by hand |
//! | `ba1 <debt> <units>:<expires> …;` | balance |
//! | `ln1 <last> <borrowers> <number>:<units>:<until> …;` | what is lent of the state, after all else |
//!
//! The digit is the version of the format. Only the scripts write it.

use tidegate_core::algorithm::{
    BalanceState, BucketState, CalendarState, LogEntry, Lot, PenaltyState, SlidingState, WindowState,
};
use tidegate_core::internal::Quoted;
use tidegate_core::lending::Lender;
use tidegate_core::{Charge, ChargeId, Error, ErrorKind, Millis, Policy, PolicyState, QuotaState, Rule, UnixMillis};

/// Parses a text that a script wrote, and what is lent of it. [`Policy::verify`] checks whether the state is plausible.
///
/// # Errors
/// [`ErrorKind::Corrupt`] for anything else.
pub(crate) fn parse(policy: &Policy, text: &str) -> Result<(PolicyState, Lender), Error> {
    let mut reader = StateReader { rest: text, length: text.len() };
    let mut parts = Vec::with_capacity(policy.quotas().len());
    for quota in policy.quotas() {
        parts.push(reader.part(quota.rule())?);
    }
    let lender = reader.lender()?;
    if !reader.rest.is_empty() {
        return Err(reader.corrupt("more than the policy's quotas have"));
    }
    Ok((PolicyState::from_parts(parts), lender))
}

struct StateReader<'a> {
    /// What is not read yet.
    rest: &'a str,
    /// The length of the whole text.
    length: usize,
}

impl StateReader<'_> {
    fn part(&mut self, rule: &Rule) -> Result<QuotaState, Error> {
        self.literal(rule.code())?;
        self.literal("1")?;
        let state = match rule {
            Rule::FixedWindow(_) => {
                QuotaState::Window(WindowState { start: self.instant(" ")?, used: self.number(" ")? })
            }
            Rule::SlidingWindow(_) => QuotaState::Sliding(SlidingState {
                start: self.instant(" ")?,
                previous: self.number(" ")?,
                current: self.number(" ")?,
            }),
            Rule::SlidingLog(_) => {
                let mut entries = Vec::new();
                while self.rest.starts_with(' ') {
                    entries.push(LogEntry { at: self.instant(" ")?, units: self.number(":")? });
                }
                QuotaState::Log(entries)
            }
            Rule::TokenBucket(_) | Rule::LeakyBucket(_) => {
                QuotaState::Bucket(BucketState { level: self.number(" ")?, at: self.instant(" ")? })
            }
            Rule::Concurrency(_) => {
                let mut slots = Vec::new();
                while self.rest.starts_with(' ') {
                    slots.push(Charge { id: self.id(" ")?, at: self.instant(":")?, cost: self.number(":")? });
                }
                QuotaState::Slots(slots)
            }
            Rule::Penalty(_) => {
                let (strikes, until) = (self.number(" ")?, self.instant(" ")?);
                let is_by_hand = self.rest.starts_with(' ');
                let length = if is_by_hand { Millis::new(self.number(" ")?) } else { Millis::ZERO };
                QuotaState::Penalty(PenaltyState { strikes, until, length })
            }
            Rule::CalendarWindow(_) => QuotaState::Calendar(CalendarState {
                end: self.instant(" ")?,
                used: self.number(" ")?,
                carried: self.number(" ")?,
            }),
            Rule::Balance(_) => {
                let debt = self.number(" ")?;
                let mut lots = Vec::new();
                while self.rest.starts_with(' ') {
                    lots.push(Lot { units: self.number(" ")?, expires: self.instant(":")? });
                }
                QuotaState::Balance(BalanceState { debt, lots })
            }
            _ => return Err(self.corrupt("an algorithm that this version does not know")),
        };
        self.literal(";")?;
        Ok(state)
    }

    fn lender(&mut self) -> Result<Lender, Error> {
        if !self.rest.starts_with("ln1") {
            return Ok(Lender::default());
        }
        self.literal("ln1")?;
        let mut numbers = vec![self.number(" ")?, self.number(" ")?];
        while self.rest.starts_with(' ') {
            numbers.extend([self.number(" ")?, self.number(":")?, self.number(":")?]);
        }
        self.literal(";")?;
        Lender::from_numbers(&numbers)
    }

    fn literal(&mut self, expected: &str) -> Result<(), Error> {
        let rest = self.rest.strip_prefix(expected);
        self.rest = rest.ok_or_else(|| self.corrupt(&format!("{} belongs here", Quoted(expected))))?;
        Ok(())
    }

    fn number(&mut self, after: &str) -> Result<u64, Error> {
        self.literal(after)?;
        let digits = self.rest.bytes().take_while(u8::is_ascii_digit).count();
        let number = self.rest.split_at_checked(digits).and_then(|(digits, rest)| Some((digits.parse().ok()?, rest)));
        let (number, rest) = number.ok_or_else(|| self.corrupt("a whole number belongs here"))?;
        self.rest = rest;
        Ok(number)
    }

    fn id(&mut self, after: &str) -> Result<ChargeId, Error> {
        self.literal(after)?;
        let digits = self.rest.split_at_checked(16);
        let id = digits.and_then(|(digits, rest)| Some((u64::from_str_radix(digits, 16).ok()?, rest)));
        let (id, rest) = id.ok_or_else(|| self.corrupt("16 hexadecimal digits belong here"))?;
        self.rest = rest;
        Ok(ChargeId::new(id))
    }

    fn instant(&mut self, after: &str) -> Result<UnixMillis, Error> {
        let ms = self.number(after)?;
        if ms > UnixMillis::MAX.get() {
            return Err(self.corrupt("an instant past the last one"));
        }
        Ok(UnixMillis::new(ms))
    }

    fn corrupt(&self, what: &str) -> Error {
        let message = format!(
            "stored state: {what}, at character {} of {}; delete the key, or find what else writes to it",
            self.length - self.rest.len(),
            self.length
        );
        Error::new(ErrorKind::Corrupt, message)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::{ErrorKind, Millis, Policy, Quota};

    use super::parse;

    #[test]
    fn parses_only_what_the_script_writes() -> Result<(), tidegate_core::Error> {
        let second = Millis::from_secs(1);
        let policy = Policy::new(
            "api",
            [
                Quota::token_bucket(10, 1, second)?,
                Quota::fixed_window(5, second)?,
                Quota::sliding_window(5, second)?,
                Quota::sliding_log(5, second)?,
                Quota::leaky_bucket(10, 1, second)?,
            ],
        )?;
        let text = "tb1 3000 7;fw1 1000 3;sw1 2000 1 2;sl1 5:1 9:2;lb1 0 8;";
        assert_eq!(parse(&policy, text)?.0.parts().len(), 5);
        assert!(parse(&policy, "tb1 3000 7;fw1 1000 3;sw1 2000 1 2;sl1;lb1 0 8;").is_ok());
        let corrupt = |text: &str| parse(&policy, text).is_err_and(|error| error.kind() == ErrorKind::Corrupt);
        for end in 0..text.len() {
            assert!(corrupt(&text[..end]), "{}", &text[..end]);
        }
        for (from, to) in [("tb1", "tb2"), ("7;", "7;;"), ("3000", "-3"), ("7", "é")] {
            let garbled = text.replacen(from, to, 1);
            assert!(corrupt(&garbled), "{garbled}");
        }
        Ok(())
    }

    #[test]
    fn parses_what_is_lent() -> Result<(), tidegate_core::Error> {
        let policy = Policy::new("api", [Quota::fixed_window(5, Millis::from_secs(1))?])?;
        let loans = "ln1 288000000 16 16000:2:1500 288000000:1:2000;";
        let (_, lender) = parse(&policy, &format!("fw1 1000 3;{loans}"))?;
        assert_eq!(lender.numbers(), [288_000_000, 16, 16_000, 2, 1_500, 288_000_000, 1, 2_000]);
        assert!(parse(&policy, "fw1 1000 3;")?.1.is_unused());
        for end in 1..loans.len() {
            assert!(parse(&policy, &format!("fw1 1000 3;{}", &loans[..end])).is_err(), "{}", &loans[..end]);
        }
        for (from, to) in
            [("ln1", "ln2"), (":1500", ":2500"), ("288000000 16", "0 16"), ("16000", "288000001"), (";", ";;")]
        {
            let garbled = loans.replacen(from, to, 1);
            assert!(parse(&policy, &format!("fw1 1000 3;{garbled}")).is_err(), "{garbled}");
        }
        Ok(())
    }
}
