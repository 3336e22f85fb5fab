//! Decisions as JavaScript gets them: as one text. An object would cost more, and most callers need only the first line. The
//! text has the form of an HTTP response:
//!
//! 1. `allowed`, `denied`, `never_admissible`, or `undecided` if the limiter failed; for a rejected request also
//!    the status.
//! 2. The index of the binding quota, `retry_after`, the delay and the time of the decision in milliseconds, its origin, and 1
//!    if it repeats an earlier answer, otherwise 0; then for each quota its name, its limit, what remains, and `reset_after` in
//!    milliseconds. `-` stands for an unknown number.
//! 3. The response fields, one on each line; for a rejected request also an empty line and the body.

use std::fmt::Write as _;

use tidegate_core::{BodyFormat, Decision, ErrorKind, Policy, Rejection, ResponseFields};
use wasm_bindgen::prelude::*;

/// The text of a decision.
pub(crate) fn verdict(policy: &Policy, decision: &Decision, format: BodyFormat) -> String {
    let rejection = Rejection::denied(policy, decision, format);
    let mut out = begun(decision.status().name(), rejection.as_ref());
    let _ = write!(out, "{} ", decision.binding_index());
    told(&mut out, decision.retry_after().map(|span| span.get()));
    let (delay, at) = (decision.delay().get(), decision.decided_at().get());
    let _ = write!(out, " {delay} {at} {} {}", decision.origin().name(), u64::from(decision.is_replay()));
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

/// The outcome of a request that was not decided on because of an error of this kind.
///
/// The request may go on only if the limiter fails open and the store has failed. An invalid request gets a 400, one with a
/// reused token a 409, one whose middleware is set up wrongly a 500, everything else a 503.
#[wasm_bindgen]
pub fn undecided(kind: &str, fails_open: bool) -> String {
    const INVALID: &str = concat!(
        "undecided 400\n0 - 0 0 fail_mode\n",
        "content-type:application/json\n\n",
        r#"{"error":"invalid_request"}"#,
    );
    const REUSED: &str = concat!(
        "undecided 409\n0 - 0 0 fail_mode\n",
        "content-type:application/json\n\n",
        r#"{"error":"token_reused"}"#,
    );
    const MISCONFIGURED: &str = concat!(
        "undecided 500\n0 - 0 0 fail_mode\n",
        "content-type:application/json\n\n",
        r#"{"error":"limiter_misconfigured"}"#,
    );
    if kind == "misconfigured" {
        return MISCONFIGURED.into();
    }
    if kind == ErrorKind::Invalid.name() {
        return INVALID.into();
    }
    if kind == ErrorKind::TokenReused.name() {
        return REUSED.into();
    }
    let kind = ErrorKind::ALL.into_iter().find(|known| known.name() == kind).unwrap_or(ErrorKind::Corrupt);
    let passes = fails_open && kind.is_store_failure();
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
