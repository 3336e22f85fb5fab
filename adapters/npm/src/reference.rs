//! What the TypeScript does by itself, in the core's words: the tests hold it to them.

use std::net::IpAddr;

use tidegate_core::{BodyFormat, Decision, ErrorKind, Identity, Policy, Rejection, ResponseFields};
use wasm_bindgen::prelude::*;

use crate::limit::Limit;
use crate::shared::{found, leave_text, texts, with_text};

#[wasm_bindgen]
impl Limit {
    /// Leaves a text: 0 the names of the policy's dimensions, 1 those of its quotas, and 2 the header fields that contain the
    /// client's address, all separated by commas; from 4 on those of the store.
    pub fn text(&self, which: u32) -> i32 {
        match which {
            0 => leave_list(self.policy.dimensions().iter().map(|dimension| dimension.name())),
            1 => leave_list(self.policy.quotas().iter().map(|quota| quota.name())),
            _ => leave_list(self.sender.source.fields().iter().copied()),
        }
    }

    /// Leaves the key that a request counts against. The texts are the values of two header fields, the address of the connection, a
    /// subject, and an API key.
    pub fn key(&self) -> i32 {
        let mut texts = texts().into_iter();
        let mut next = || texts.next().flatten();
        let (first, second, peer, subject, api_key) = (next(), next(), next(), next(), next());
        // Anything but one address counts as missing: a list may contain what the client wrote.
        let peer = peer.and_then(|peer| peer.parse::<IpAddr>().ok());
        let values = [first.as_deref(), second.as_deref()];
        let source = &self.sender.source;
        let headers = source.fields().iter().zip(values).filter_map(|(name, value)| Some((name, value?)));
        let client_ip = source.find(headers, peer).ok();
        let identity = Identity { subject: subject.as_deref(), api_key: api_key.as_deref(), client_ip };
        leave_text(identity.resolve().as_str())
    }

    /// Leaves what the client of the decision in the numbers is sent: see [`undecided`].
    pub fn told(&self) -> i32 {
        let decision = found(self.policy.quotas().len());
        leave_text(
            &decision.map_or_else(String::new, |decision| text(&self.policy, &decision, self.sender.body_format)),
        )
    }
}

/// Leaves texts with commas between them.
fn leave_list<'a>(texts: impl Iterator<Item = &'a str>) -> i32 {
    let list: Vec<&str> = texts.collect();
    leave_text(&list.join(","))
}

/// The text of a decision.
pub(crate) fn text(policy: &Policy, decision: &Decision, format: BodyFormat) -> String {
    match Rejection::denied(policy, decision, format) {
        Some(rejection) => refused(&rejection),
        None => passed(&ResponseFields::new(policy, decision)),
    }
}

/// Leaves what the client of a request is sent that was not decided on, as one text because of an error of the kind whose name has this length.
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
