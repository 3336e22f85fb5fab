//! What a client is sent, as JavaScript gets it: as one text, when it is asked for. The first line is the status of a rejected
//! request, otherwise empty; then come the response fields, one on each line; for a rejected request also an empty line and the
//! body.

use tidegate_core::{BodyFormat, Capabilities, Decision, ErrorKind, Policy, Rejection, ResponseFields};
use wasm_bindgen::prelude::*;

use crate::shared::{leave_text, with_text};

/// The capabilities of a store, as JSON.
pub(crate) fn capabilities(can: &Capabilities) -> String {
    let algorithms = can.algorithms.join(r#"",""#);
    format!(
        concat!(
            r#"{{"class":"{}","accuracy":"{}","algorithms":["{}"],"max_quotas":{},"dimensions":"{}","costs":{},"charge_denied":{},"#,
            r#""peek":{},"refund":{},"reset":{},"block":{},"idempotency":{},"round_trips":{}}}"#,
        ),
        can.accuracy.name(),
        can.accuracy,
        algorithms,
        can.max_quotas,
        can.dimensions.name(),
        can.costs,
        can.charge_denied,
        can.peek,
        can.refund,
        can.reset,
        can.block,
        can.idempotency,
        can.round_trips,
    )
}

/// The text of a decision.
pub(crate) fn text(policy: &Policy, decision: &Decision, format: BodyFormat) -> String {
    match Rejection::denied(policy, decision, format) {
        Some(rejection) => refused(&rejection),
        None => passed(&ResponseFields::new(policy, decision)),
    }
}

/// Leaves the text for a request that was not decided on because of an error of the kind whose name has this length.
///
/// The request may go on only if the limiter fails open and the store has failed. An invalid request gets a 400, one with a
/// reused token a 409, one whose middleware is set up wrongly a 500, everything else a 503.
#[wasm_bindgen]
pub fn undecided(length: usize, fails_open: bool) -> i32 {
    leave_text(&with_text(length, |kind| of_kind(kind, fails_open)))
}

fn of_kind(kind: &str, fails_open: bool) -> String {
    const INVALID: &str = concat!("400\ncontent-type:application/json\n\n", r#"{"error":"invalid_request"}"#);
    const REUSED: &str = concat!("409\ncontent-type:application/json\n\n", r#"{"error":"token_reused"}"#);
    const MISCONFIGURED: &str =
        concat!("500\ncontent-type:application/json\n\n", r#"{"error":"limiter_misconfigured"}"#);
    if kind == "misconfigured" {
        return MISCONFIGURED.into();
    }
    let kind = ErrorKind::ALL.into_iter().find(|known| known.name() == kind).unwrap_or(ErrorKind::Corrupt);
    match kind {
        ErrorKind::Invalid => INVALID.into(),
        ErrorKind::TokenReused => REUSED.into(),
        _ if fails_open && kind.is_store_failure() => passed(&ResponseFields::failed_open(kind)),
        _ => refused(&Rejection::unavailable(kind)),
    }
}

fn passed(fields: &ResponseFields) -> String {
    let mut out = String::with_capacity(256);
    push(&mut out, fields);
    out
}

fn refused(rejection: &Rejection) -> String {
    let mut out = rejection.status_code().to_string();
    push(&mut out, rejection.fields());
    out.push_str("\n\n");
    out.push_str(rejection.body());
    out
}

fn push(out: &mut String, fields: &ResponseFields) {
    for (name, value) in fields.iter() {
        for part in ["\n", name, ":", value] {
            out.push_str(part);
        }
    }
}
