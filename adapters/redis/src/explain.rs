//! Describes a key's state for people.

use std::fmt;

use redis::Value;
use tidegate_core::lending::Lender;
use tidegate_core::{Decision, Error, Millis, Policy, PolicyState, UnixMillis};

use crate::{error, state};

/// The stored state of a key and its meaning. `Display` shows it as text.
///
/// ```text
/// {tg1:api:tb1000.fw86400000:ip:192.0.2.1}
///   stored: tb1 2400 1800000000000;fw1 1799971200000 3; (removed in 8 h 0 min)
///   burst (token_bucket): 3 of 10 used, 7 remaining; unused again in 4.8 s
///   daily (fixed_window): 3 of 1000 used, 997 remaining; unused again in 8 h 0 min
/// ```
#[derive(Clone, Debug)]
pub struct Explanation {
    rows: Vec<Stored>,
    policy: Policy,
    decision: Decision,
}

/// One of the policy's rows.
#[derive(Clone, Debug)]
struct Stored {
    key: String,
    text: Option<String>,
    ttl: Option<Millis>,
}

impl Stored {
    fn new(key: String, text: &Value, ttl: &Value) -> Result<Self, Error> {
        let text = match text {
            Value::Nil => None,
            Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
            other => return Err(error::nonsense(other)),
        };
        let ttl = match ttl {
            Value::Int(ms) => u64::try_from(*ms).ok().map(Millis::new),
            other => return Err(error::nonsense(other)),
        };
        Ok(Self { key, text, ttl })
    }
}

impl Explanation {
    /// Of the rows of a policy, each with its key, its value and its time to live, and the server's time.
    pub(crate) fn new(policy: &Policy, rows: Vec<(String, Value, Value)>, time: &Value) -> Result<Self, Error> {
        let rows = rows.into_iter().map(|(key, text, ttl)| Stored::new(key, &text, &ttl));
        let rows = rows.collect::<Result<Vec<_>, _>>()?;
        let now = instant(time).ok_or_else(|| error::nonsense(time))?;
        let (mut parts, mut lender) = (Vec::new(), Lender::default());
        for (place, row) in rows.iter().enumerate() {
            let of_row = policy.of_row(place);
            let (state, loans) = match &row.text {
                Some(text) => state::parse(&of_row, text)?,
                None => (of_row.initial_state(), Lender::default()),
            };
            parts.extend_from_slice(state.parts());
            // Only a policy of one row is lent.
            lender = loans;
        }
        let mut state = PolicyState::from_parts(parts);
        policy.verify(&state, now)?;
        lender.settle(policy, &mut state, now);
        let decision = lender.corrected(policy, &state, now, 1, policy.peek(&state, now, 1));
        Ok(Self { rows, policy: policy.clone(), decision })
    }

    /// The storage key, or that of the first row if there are several.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.rows[0].key
    }

    /// How long the server keeps the state, or the row that it keeps longest. `None` if nothing is stored.
    #[must_use]
    pub fn ttl(&self) -> Option<Millis> {
        self.rows.iter().filter_map(|row| row.ttl).max()
    }

    /// The decision that a request of cost 1 would get now, by the server's clock.
    #[must_use]
    pub const fn decision(&self) -> &Decision {
        &self.decision
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Stored { key, text, ttl } in &self.rows {
            writeln!(f, "{key}")?;
            match (text, ttl) {
                (None, _) => writeln!(f, "  nothing stored: unused")?,
                (Some(text), Some(ttl)) => writeln!(f, "  stored: {} (removed in {})", shortened(text), Words(*ttl))?,
                (Some(text), None) => {
                    writeln!(f, "  stored: {} (and never removed: Tidegate did not write it)", shortened(text))?
                }
            }
        }
        for (quota, status) in self.policy.quotas().iter().zip(self.decision.quotas()) {
            let remaining = status.remaining().unwrap_or_default();
            let used = status.limit().saturating_sub(remaining);
            write!(
                f,
                "  {} ({}): {used} of {} used, {remaining} remaining",
                quota.name(),
                quota.rule().name(),
                status.limit()
            )?;
            match status.reset_after().unwrap_or_default() {
                Millis::ZERO => writeln!(f)?,
                after => writeln!(f, "; unused again in {}", Words(after))?,
            }
        }
        Ok(())
    }
}

fn instant(time: &Value) -> Option<UnixMillis> {
    let Value::Array(parts) = time else { return None };
    let number = |part: &Value| match part {
        Value::BulkString(digits) => std::str::from_utf8(digits).ok()?.parse::<u64>().ok(),
        _ => None,
    };
    let (seconds, micros) = (number(parts.first()?)?, number(parts.get(1)?)?);
    Some(UnixMillis::new(seconds.saturating_mul(1_000).saturating_add(micros / 1_000)))
}

/// Shortens a stored text, because a log may be long.
fn shortened(text: &str) -> String {
    let mut shown: String = text.chars().take(200).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

/// Shows a span in words, with about three digits.
struct Words(Millis);

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0.get();
        let (minute, hour, day) = (60_000, 3_600_000, 86_400_000);
        match ms {
            0..1_000 => write!(f, "{ms} ms"),
            _ if ms < minute => write!(f, "{}.{} s", ms / 1_000, ms % 1_000 / 100),
            _ if ms < hour => write!(f, "{} min {} s", ms / minute, ms % minute / 1_000),
            _ if ms < day => write!(f, "{} h {} min", ms / hour, ms % hour / minute),
            _ => write!(f, "{} d {} h", ms / day, ms % day / hour),
        }
    }
}

#[cfg(test)]
mod tests {
    use redis::Value;
    use tidegate_core::{ErrorKind, Millis, Policy, Quota};

    use super::{Explanation, Words, shortened};

    fn bytes(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn a_state_is_described_with_what_it_means() -> Result<(), tidegate_core::Error> {
        let minute = Millis::from_secs(60);
        let burst = Quota::token_bucket(10, 1, minute)?.named("burst")?;
        let daily = Quota::fixed_window(1_000, Millis::from_secs(86_400))?.named("daily")?;
        let policy = Policy::new("api", [burst, daily])?;
        let of = |stored: &Value, ttl: i64, micros: &str| {
            let time = Value::Array(vec![bytes("1800000000"), bytes(micros)]);
            Explanation::new(&policy, vec![("{tg1:api}".into(), stored.clone(), Value::Int(ttl))], &time)
        };
        let stored = bytes("tb1 180000 1800000000000;fw1 1799971200000 3;");
        let found = of(&stored, 57_600_000, "250000")?;
        assert_eq!((found.key(), found.ttl()), ("{tg1:api}", Some(Millis::from_secs(57_600))));
        assert_eq!(
            found.to_string(),
            "{tg1:api}\n  stored: tb1 180000 1800000000000;fw1 1799971200000 3; (removed in 16 h 0 min)\n  burst \
             (token_bucket): 3 of 10 used, 7 remaining; unused again in 2 min 59 s\n  daily (fixed_window): 3 of 1000 \
             used, 997 remaining; unused again in 15 h 59 min\n"
        );
        let unused = of(&Value::Nil, -2, "0")?;
        assert_eq!((unused.ttl(), unused.decision().is_allowed()), (None, true));
        assert!(unused.to_string().starts_with("{tg1:api}\n  nothing stored: unused\n  burst (token_bucket): 0 of 10"));
        assert!(of(&stored, -1, "0")?.to_string().contains("; (and never removed: Tidegate did not write it)\n"));
        for wrong in [Value::Okay, bytes("fw1 0 0;")] {
            assert_eq!(of(&wrong, 1, "0").map(drop).map_err(|error| error.kind()), Err(ErrorKind::Corrupt));
        }
        Ok(())
    }

    #[test]
    fn spans_have_two_units_at_most() {
        for (ms, words) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (1_000, "1.0 s"),
            (59_999, "59.9 s"),
            (60_000, "1 min 0 s"),
            (3_599_999, "59 min 59 s"),
            (3_600_000, "1 h 0 min"),
            (86_399_999, "23 h 59 min"),
            (86_400_000, "1 d 0 h"),
            (190_000_000, "2 d 4 h"),
        ] {
            assert_eq!(Words(Millis::new(ms)).to_string(), words);
        }
    }

    #[test]
    fn a_long_text_is_shortened() {
        for (length, shown) in [(199, 199), (200, 200), (201, 201), (900, 201)] {
            let text = shortened(&"x".repeat(length));
            assert_eq!((text.chars().count(), text.ends_with('…')), (shown, length > 200));
        }
    }
}
