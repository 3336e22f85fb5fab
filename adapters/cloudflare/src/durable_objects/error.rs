//! Errors of calls to objects, in the core's kinds.
//!
//! A caller may fail open on [`Unavailable`](ErrorKind::Unavailable) and [`Timeout`](ErrorKind::Timeout). A client that
//! floods its key can overload the key's object, so an overload, a limit that the object exceeded, and a deadline that
//! passed while objects answer are [`Contended`](ErrorKind::Contended). An error that is not known to be the platform's
//! own failure is [`Refused`](ErrorKind::Refused).

use tidegate_core::{Error, ErrorKind};

/// What a call to an object threw, as far as the platform reports it
/// (<https://developers.cloudflare.com/durable-objects/best-practices/error-handling/>).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thrown {
    /// The error's text.
    pub message: String,
    /// `.overloaded`: the object has more requests than it can serve, and this one was not delivered.
    pub overloaded: bool,
    /// `.retryable`: a transient failure of the platform. The request may have been delivered.
    pub retryable: bool,
    /// `.remote`: thrown by the object's code.
    pub remote: bool,
    /// Whether no object of a namespace of this isolate has answered yet.
    pub is_first: bool,
}

/// What the platform says when an object has too much work.
const OVERLOADED: [&str; 4] = ["overloaded", "requests queued", "too much load", "too many concurrent"];

/// What it says when an object was reset because of a limit that requests can make it exceed.
const EXCEEDED: [&str; 3] = ["memory limit", "cpu time limit", "exceeded timeout"];

/// What it says when it failed itself, where it does not set `.retryable`.
const FAILED: [&str; 4] = ["network connection lost", "code was updated", INTERNAL, "transient"];

/// What it says of each call if there is no such class, and of some of its own failures.
const INTERNAL: &str = "internal error";

/// What it says to use in place of `new_classes` if a class has no SQLite storage. An object passes that on.
const SQLITE: &str = "new_sqlite_classes";

/// How a class is declared. It may be in another Worker, in Rust or in JavaScript.
macro_rules! declare {
    ($before:literal) => {
        concat!(
            $before,
            "the class that wrangler.jsonc binds must be that of durable_object! in Rust or TidegateObject in JavaScript, must be \
             exported by the Worker's main module, and must be in \"migrations\": [{ \"tag\": \"v1\", \"new_sqlite_classes\": \
             [\"TidegateObject\"] }], with its own name; wrangler before 4.164, which npm installs on Node.js 20, ignores \"exports\""
        )
    };
}

const DECLARE: &str = declare!("");
const DECLARE_FIRST: &str = declare!("no object has answered yet; if none ever does, ");
const NO_SQLITE: &str = concat!(declare!("durable object: its class has no SQLite storage; "), "; nothing was charged");

impl From<Thrown> for Error {
    fn from(thrown: Thrown) -> Self {
        let text = thrown.message.to_ascii_lowercase();
        let says = |parts: &[&str]| parts.iter().any(|part| contains(&text, part));
        let (kind, what, advice) = if thrown.overloaded || says(&OVERLOADED) {
            (ErrorKind::Contended, "the object is overloaded; nothing was charged", None)
        } else if says(&EXCEEDED) {
            (ErrorKind::Contended, "the object exceeded a limit and was reset; the request may have been charged", None)
        } else if !thrown.remote && (thrown.retryable || says(&FAILED)) {
            let may_be_absent = thrown.is_first && !thrown.retryable && says(&[INTERNAL]);
            let what = "the object was lost before it answered; the request may have been charged";
            (ErrorKind::Timeout, what, may_be_absent.then_some(DECLARE_FIRST))
        } else {
            (ErrorKind::Refused, "the object failed; check that it is within the account's limits", Some(DECLARE))
        };
        let said = shortened(&thrown.message);
        match advice {
            None => Self::new(kind, format!("durable object: {what}: {said}")),
            Some(advice) => Self::new(kind, format!("durable object: {what}; {advice}: {said}")).with_advice(advice),
        }
    }
}

/// The error that an object answered.
pub(crate) fn answered(kind: ErrorKind, message: &str) -> Error {
    match contains(message, SQLITE) {
        true => Error::new(kind, NO_SQLITE).with_advice(DECLARE),
        false => Error::new(kind, message.to_owned()),
    }
}

/// The error of a Worker without the binding `name`.
#[cfg(any(all(target_arch = "wasm32", feature = "worker"), test))]
pub(crate) fn missing(name: &str) -> Error {
    let message = format!(
        "durable object: no namespace is bound as {name}; in wrangler.jsonc, write \"durable_objects\": {{ \"bindings\": \
         [{{ \"name\": {name:?}, \"class_name\": \"Tidegate\" }}] }} and \"migrations\": [{{ \"tag\": \"v1\", \
         \"new_sqlite_classes\": [\"Tidegate\"] }}], with the name in durable_object!"
    );
    Error::new(ErrorKind::Invalid, message)
}

/// The error of a call whose deadline has passed. If objects answer others, then the store is up and this object is
/// slow, which a client can cause.
#[cfg(any(all(target_arch = "wasm32", feature = "worker"), test))]
pub(crate) fn late(deadline: tidegate_core::Millis, objects_answer: bool) -> Error {
    let (kind, others) = match objects_answer {
        true => (ErrorKind::Contended, ", while objects answered other calls"),
        false => (ErrorKind::Timeout, ""),
    };
    let message = format!("durable object: no answer within {deadline}{others}; the request may have been charged");
    Error::new(kind, message)
}

/// The error for an answer that Tidegate's object does not give.
pub(crate) fn not_an_answer(what: &str) -> Error {
    let message = format!(
        "durable object: unexpected answer \"{}\"; check that the bound class is one of durable_object! in Rust or \
         TidegateObject in JavaScript, and of this version",
        shortened(what)
    );
    Error::new(ErrorKind::Corrupt, message)
}

// `str::contains` would add a general search algorithm to the module, which is larger than this.
fn contains(text: &str, part: &str) -> bool {
    text.as_bytes().windows(part.len()).any(|at| at == part.as_bytes())
}

fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(200)]
}

#[cfg(test)]
mod tests {
    use tidegate_core::{Error, ErrorKind, Millis};

    use super::{DECLARE, DECLARE_FIRST, Thrown, answered, late, missing, not_an_answer};

    fn plain(message: &str) -> Thrown {
        Thrown { message: message.into(), ..Thrown::default() }
    }

    #[test]
    fn an_error_that_a_client_can_cause_is_not_a_store_failure() {
        let flooded = [
            Thrown { overloaded: true, retryable: true, ..plain("x") },
            plain("Durable Object is overloaded. Requests queued for too long."),
            plain("Durable Object is overloaded. Too much data queued."),
            plain("Too many requests queued."),
            plain("Your account is generating too much load on Durable Objects. Please back off and try again later."),
            plain("Durable Object's isolate exceeded its memory limit and was reset."),
            Thrown { retryable: true, ..plain("Durable Object's isolate exceeded its memory limit and was reset.") },
            plain("Durable Object exceeded its CPU time limit and was reset."),
            plain("Durable Object storage operation exceeded timeout which caused object to be reset."),
        ];
        for thrown in flooded {
            assert_eq!(Error::from(thrown.clone()).kind(), ErrorKind::Contended, "{thrown:?}");
        }
        assert_eq!(late(Millis::from_secs(2), true).kind(), ErrorKind::Contended);
        let unknown = [
            Thrown { remote: true, ..plain("unreachable executed") },
            // An object's own text must not make its failure look like the platform's.
            Thrown { remote: true, ..plain("Network connection lost.") },
            Thrown { remote: true, retryable: true, ..plain("x") },
            plain("Exceeded allowed rows written in Durable Objects free tier."),
            plain("no route"),
            plain(""),
        ];
        for thrown in unknown {
            assert_eq!(Error::from(thrown.clone()).kind(), ErrorKind::Refused, "{thrown:?}");
        }
    }

    #[test]
    fn an_answer_of_another_object_is_shown_in_part() {
        let error = not_an_answer(&"\u{e9}".repeat(1_000)).to_string();
        assert!(error.contains(&format!("\"{}\"", "\u{e9}".repeat(100))), "{error}");
    }

    #[test]
    fn a_failure_of_the_platform_is_a_store_failure() {
        let failed = [
            Thrown { retryable: true, ..plain("internal error; reference = 0") },
            plain("Durable Object reset because its code was updated."),
            plain("Network connection lost."),
            plain("Cannot resolve Durable Object due to transient issue on remote node."),
        ];
        for thrown in failed {
            assert_eq!(Error::from(thrown.clone()).kind(), ErrorKind::Timeout, "{thrown:?}");
        }
        assert_eq!(late(Millis::from_secs(2), false).kind(), ErrorKind::Timeout);
    }

    #[test]
    fn what_an_absent_object_causes_says_how_to_declare_it() {
        let internal = plain("internal error; reference = 0");
        let migrations = "\"migrations\": [{ \"tag\": \"v1\", \"new_sqlite_classes\": [\"";
        for (error, kind, advice) in [
            (missing("LIMITS"), ErrorKind::Invalid, None),
            (Thrown { is_first: true, ..internal.clone() }.into(), ErrorKind::Timeout, Some(DECLARE_FIRST)),
            (plain("no such object").into(), ErrorKind::Refused, Some(DECLARE)),
            (answered(ErrorKind::Refused, "write `new_sqlite_classes`"), ErrorKind::Refused, Some(DECLARE)),
        ] {
            assert_eq!((error.kind(), error.advice()), (kind, advice), "{error}");
            assert!(error.to_string().contains(migrations), "{error}");
            assert!(advice.is_none_or(|advice| error.to_string().contains(advice)), "{error}");
        }
        assert!(missing("LIMITS").to_string().contains("\"name\": \"LIMITS\", \"class_name\": \"Tidegate\""));
        // The platform's own failures are none of the operator's.
        for thrown in [
            internal.clone(),
            Thrown { is_first: true, retryable: true, ..internal },
            Thrown { is_first: true, ..plain("Network connection lost.") },
            Thrown { is_first: true, ..plain("The object is overloaded.") },
        ] {
            assert_eq!(Error::from(thrown.clone()).advice(), None, "{thrown:?}");
        }
        assert_eq!(answered(ErrorKind::Contended, "full").advice(), None);
    }
}
