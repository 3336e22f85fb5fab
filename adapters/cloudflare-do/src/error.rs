//! What went wrong on the way to an object, in the core's kinds.

use tidegate_core::{Error, ErrorKind};

/// What a call to an object threw, as far as the platform tells
/// (<https://developers.cloudflare.com/durable-objects/best-practices/error-handling/>).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thrown {
    /// The error's text.
    pub message: String,
    /// `.overloaded`: the object has more requests than it can serve; this one was not delivered.
    pub overloaded: bool,
    /// `.retryable`: the platform's own transient failure; the request may have been delivered.
    pub retryable: bool,
    /// `.remote`: thrown by the object's code.
    pub remote: bool,
}

impl From<Thrown> for Error {
    fn from(thrown: Thrown) -> Self {
        let text = thrown.message.to_ascii_lowercase();
        let text = text.as_bytes();
        let says = |parts: &[&str]| parts.iter().any(|part| text.windows(part.len()).any(|at| at == part.as_bytes()));
        let (kind, what) =
            if thrown.overloaded || says(&["overloaded", "too many requests queued", "queued for too long"]) {
                (ErrorKind::Unavailable, "the object is overloaded; nothing was charged")
            } else if thrown.retryable
                || says(&["reset", "network connection lost", "timeout", "timed out", "storage operation"])
            {
                (ErrorKind::Timeout, "the object was lost before it answered; the request may have been charged")
            } else if thrown.remote || says(&["exceeded its", "limit exceeded", "not allowed", "no such", "class"]) {
                (
                    ErrorKind::Refused,
                    "the object failed; is the bound class one of tidegate_cloudflare_do::durable_object!, listed in \
                 new_sqlite_classes, and within the account's limits?",
                )
            } else {
                (ErrorKind::Unavailable, "the object cannot be reached; the request may have been charged")
            };
        Self::new(kind, format!("durable object: {what}: {}", shortened(&thrown.message)))
    }
}

/// An answer that Tidegate's object does not give.
pub(crate) fn nonsense(what: &str) -> Error {
    let message = format!(
        "durable object: {} is no answer of Tidegate's; is the bound class one of \
         tidegate_cloudflare_do::durable_object!, of this version?",
        shortened(what)
    );
    Error::new(ErrorKind::Corrupt, message)
}

fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(200)]
}

#[cfg(test)]
mod tests {
    use tidegate_core::{Error, ErrorKind};

    use super::Thrown;

    #[test]
    fn an_error_is_of_the_kind_that_says_whether_it_may_have_charged() {
        let plain = |message: &str| Thrown { message: message.into(), ..Thrown::default() };
        let cases = [
            (Thrown { overloaded: true, retryable: true, ..plain("x") }, ErrorKind::Unavailable),
            (plain("Durable Object is overloaded. Requests queued for too long."), ErrorKind::Unavailable),
            (Thrown { retryable: true, ..plain("internal error") }, ErrorKind::Timeout),
            (plain("Durable Object reset because its code was updated."), ErrorKind::Timeout),
            (plain("Network connection lost."), ErrorKind::Timeout),
            (Thrown { remote: true, ..plain("unreachable executed") }, ErrorKind::Refused),
            (plain("no route"), ErrorKind::Unavailable),
        ];
        for (thrown, kind) in cases {
            assert_eq!(Error::from(thrown.clone()).kind(), kind, "{thrown:?}");
        }
    }
}
