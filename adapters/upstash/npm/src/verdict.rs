//! Decisions on their way to JavaScript: one text of JSON, which costs less to hand over than an object field by field.

use std::fmt::Write as _;

use tollgate_core::{BodyFormat, Decision, ErrorKind, Policy, Refusal, ResponseFields};
use wasm_bindgen::prelude::*;

/// All that there is to say of a decision.
pub(crate) fn verdict(policy: &Policy, decision: &Decision, format: BodyFormat) -> String {
    let mut out = String::with_capacity(768);
    let binding = decision.binding_index();
    let _ = write!(out, r#"{{"status":"{}","binding":{binding},"quotas":["#, decision.status().name());
    for (place, (quota, status)) in policy.quotas().iter().zip(decision.quotas()).enumerate() {
        let comma = if place == 0 { "" } else { "," };
        let _ = write!(out, r#"{comma}{{"name":"{}","limit":{},"remaining":"#, quota.name(), status.limit());
        number_or_null(&mut out, status.remaining());
        out.push_str(r#","resetAfterMs":"#);
        number_or_null(&mut out, status.reset_after().map(|span| span.get()));
        out.push('}');
    }
    out.push_str(r#"],"retryAfterMs":"#);
    number_or_null(&mut out, decision.retry_after().map(|span| span.get()));
    let (delay, at, origin) = (decision.delay().get(), decision.decided_at().get(), decision.origin().name());
    let _ = write!(out, r#","delayMs":{delay},"decidedAtMs":{at},"origin":"{origin}","#);
    match Refusal::denied(policy, decision, format) {
        Some(refusal) => response(&mut out, refusal),
        None => headers(&mut out, &ResponseFields::new(policy, decision)),
    }
    out.push('}');
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
    let mut out = String::from("{");
    if passes {
        headers(&mut out, &ResponseFields::failed_open(kind));
    } else {
        response(&mut out, Refusal::unavailable(kind));
    }
    out.push('}');
    out
}

fn response(out: &mut String, refusal: Refusal) {
    let (status_code, fields, body) = refusal.into_parts();
    headers(out, &fields);
    let _ = write!(out, r#","refusal":{{"status":{status_code},"body":"#);
    text(out, &body);
    out.push('}');
}

fn headers(out: &mut String, fields: &ResponseFields) {
    out.push_str(r#""headers":{"#);
    for (place, (name, value)) in fields.iter().enumerate() {
        let comma = if place == 0 { "" } else { "," };
        let _ = write!(out, r#"{comma}"{name}":"#);
        text(out, value);
    }
    out.push('}');
}

/// Fields and bodies hold quotes, and nothing else that JSON escapes but what is escaped in them already.
fn text(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        if matches!(character, '"' | '\\') {
            out.push('\\');
        }
        out.push(character);
    }
    out.push('"');
}

fn number_or_null(out: &mut String, number: Option<u64>) {
    let _ = match number {
        Some(number) => write!(out, "{number}"),
        None => out.write_str("null"),
    };
}
