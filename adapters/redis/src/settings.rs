//! What a caller chooses whatever the transport.

use std::borrow::Cow;

use tidegate_core::{Error, ErrorKind, Millis};

/// Whose clock decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// The caller's: what each check says is now. Hosts whose clocks differ by `d` see what one host whose clock steps
    /// back by `d` would.
    #[default]
    Caller,
    /// The server's: `TIME`, read in the script. One clock for all hosts; what a check says is not read, but a refund's
    /// [`charged_at`](tidegate_core::Refund::charged_at) is, and must be the decision's own instant.
    Server,
}

/// How long a call takes at most, unless another deadline is set.
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
