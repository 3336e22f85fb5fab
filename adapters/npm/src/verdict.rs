//! Decisions on their way to JavaScript: one text, for handing over an object costs more, and most who ask need but its first
//! line. It is made like a response of HTTP:
//!
//! 1. `allowed`, `denied`, `never_admissible`, or `undecided` where the limiter failed; and if it is refused, the status.
//! 2. Which quota bound; after how many milliseconds to retry; how many to delay; when it was decided; where; and of each
//!    quota its name, its limit, how much remains, and after how many milliseconds it is unused. `-` for what is not told.
//! 3. The response fields, one a line; and if it is refused an empty line, and the body.

use std::fmt::Write as _;

use tidegate_core::{BodyFormat, Decision, ErrorKind, Policy, Rejection, ResponseFields};
use wasm_bindgen::prelude::*;

/// All that there is to say of a decision.
pub(crate) fn verdict(policy: &Policy, decision: &Decision, format: BodyFormat) -> String {
    let rejection = Rejection::denied(policy, decision, format);
    let mut out = begun(decision.status().name(), rejection.as_ref());
    let _ = write!(out, "{} ", decision.binding_index());
    told(&mut out, decision.retry_after().map(|span| span.get()));
    let (delay, at) = (decision.delay().get(), decision.decided_at().get());
    let _ = write!(out, " {delay} {at} {}", decision.origin().name());
    for (quota, status) in policy.quotas().iter().zip(decision.quotas()) {
        let _ = write!(out, " {} {} ", quota.name(), status.limit());
        told(&mut out, status.remaining());
        out.push(' ');
        told(&mut out, status.reset_after().map(|span| span.get()));
    }
    match rejection {
        Some(rejection) => refused(&mut out, &rejection),
        None => fields(&mut out, &ResponseFields::new(policy, decision)),
    }
    out
}

/// What to do with a request that was not decided on, for an error of the kind so named.
#[wasm_bindgen]
pub fn undecided(kind: &str, passes: bool) -> String {
    const KINDS: [ErrorKind; 7] = [
        ErrorKind::Invalid,
        ErrorKind::Unavailable,
        ErrorKind::Timeout,
        ErrorKind::Contended,
        ErrorKind::Corrupt,
        ErrorKind::Refused,
        ErrorKind::Unsupported,
    ];
    let kind = KINDS.into_iter().find(|known| known.name() == kind).unwrap_or(ErrorKind::Unavailable);
    let rejection = (!passes).then(|| Rejection::unavailable(kind));
    let mut out = begun("undecided", rejection.as_ref());
    out.push_str("0 - 0 0 fail_mode");
    match rejection {
        Some(rejection) => refused(&mut out, &rejection),
        None => fields(&mut out, &ResponseFields::failed_open(kind)),
    }
    out
}

fn begun(status: &str, rejection: Option<&Rejection>) -> String {
    let mut out = String::with_capacity(512);
    out.push_str(status);
    if let Some(rejection) = rejection {
        let _ = write!(out, " {}", rejection.status_code());
    }
    out.push('\n');
    out
}

fn refused(out: &mut String, rejection: &Rejection) {
    fields(out, rejection.fields());
    out.push_str("\n\n");
    out.push_str(rejection.body());
}

fn fields(out: &mut String, fields: &ResponseFields) {
    for (name, value) in fields.iter() {
        for part in ["\n", name, ":", value] {
            out.push_str(part);
        }
    }
}

fn told(out: &mut String, number: Option<u64>) {
    let _ = match number {
        Some(number) => write!(out, "{number}"),
        None => out.write_str("-"),
    };
}
