//! Settings that every transport has.

use std::borrow::Cow;

use tidegate_core::{Error, ErrorKind, Millis};

/// Whose clock decides.
///
/// The server's clock is the default: it is one clock for all hosts, and it costs no round trip, because the script reads
/// it. With the caller's clocks, a host whose clock is wrong uses up the limits of others, and may lock a key for up to
/// [`MAX_CLOCK_SKEW`](tidegate_core::MAX_CLOCK_SKEW).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// The server's: the script reads `TIME`. [`Check::now`](tidegate_core::Check::now) is not used. A refund's
    /// [`charged_at`](tidegate_core::Refund::charged_at) is, and must be the instant of the decision.
    #[default]
    Server,
    /// The caller's: [`Check::now`](tidegate_core::Check::now). For virtual time, and where several stores have to agree
    /// on the time. Hosts whose clocks differ by `d` are treated like one host whose clock steps back by `d`.
    Caller,
}

/// The default deadline of a call.
pub(crate) const DEFAULT_DEADLINE: Millis = Millis::new(250);

pub(crate) fn check_deadline(deadline: Millis) -> Result<(), Error> {
    if deadline == Millis::ZERO {
        return Err(invalid("deadline: 0 ms leaves no time for an answer; write at least 1 ms"));
    }
    if deadline > Millis::from_secs(3_600) {
        return Err(invalid("deadline: longer than any request waits; write at most 3600000 ms"));
    }
    Ok(())
}

pub(crate) fn invalid(message: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Invalid, message)
}

#[cfg(test)]
mod tests {
    use tidegate_core::Millis;

    use super::check_deadline;

    #[test]
    fn a_deadline_is_at_most_an_hour() {
        for (ms, fits) in [(0, false), (1, true), (3_600_000, true), (3_600_001, false)] {
            assert_eq!(check_deadline(Millis::new(ms)).is_ok(), fits, "{ms}");
        }
    }
}
