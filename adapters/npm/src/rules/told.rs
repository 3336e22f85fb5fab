//! Verdicts as the host gets them: JSON.

use std::cell::RefCell;
use std::fmt::Write as _;

use tidegate_core::gate::{Hold, Pending, Reason, Verdict};
use tidegate_core::{Decision, Error, Policy, Rejection, ResponseFields};

/// Appends a JSON string.
pub(super) fn text(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => {
                out.push('\\');
                out.push(character);
            }
            _ if character < ' ' => _ = write!(out, "\\u{:04x}", u32::from(character)),
            _ => out.push(character),
        }
    }
    out.push('"');
}

/// The verdict on a request: `outcome` as in events, or `unlimited`; `fields`; if it is refused, `status` and `body`; and what is
/// known of `rule`, `decision`, `error` and `hold`, a place in `holds`. The events of this and other requests follow.
pub(super) fn verdict(
    verdict: &Verdict,
    pending: Option<&Pending>,
    (holds, cost): (&RefCell<Vec<(Hold, bool)>>, u64),
    events: &str,
) -> String {
    let mut out = String::with_capacity(512);
    let (outcome, rejection, hold) = match verdict {
        Verdict::Pass(pass) => {
            let outcome = match (pass.decision(), pass.error()) {
                (Some(_), _) => "allowed",
                (None, Some(_)) => "failed_open",
                (None, None) => "unlimited",
            };
            (outcome, None, pass.hold())
        }
        Verdict::Refuse(refusal) => {
            let outcome = match refusal.reason() {
                Reason::Denied(decision) => decision.status().name(),
                Reason::Listed => "listed",
                Reason::Challenged(_) => "challenged",
                Reason::InvalidToken(_) => "invalid_token",
                _ => "failed_closed",
            };
            (outcome, Some(refusal.rejection()), None)
        }
    };
    let _ = write!(out, r#"{{"outcome":"{outcome}""#);
    if let Some(rejection) = rejection {
        let _ = write!(out, r#","status":{},"body":"#, rejection.status_code());
        text(&mut out, rejection.body());
    }
    let passed = match verdict {
        Verdict::Pass(pass) => pass.fields(),
        Verdict::Refuse(_) => ResponseFields::default(),
    };
    let fields = rejection.map_or(&passed, Rejection::fields);
    out.push_str(r#","fields":{"#);
    for (place, (name, value)) in fields.iter().enumerate() {
        let _ = write!(out, r#"{}"{name}":"#, if place == 0 { "" } else { "," });
        text(&mut out, value);
    }
    out.push('}');
    if let Some(pending) = pending {
        out.push_str(r#","rule":"#);
        text(&mut out, pending.rule());
    }
    if let Some(made) = verdict.decision() {
        let policy = pending.filter(|pending| pending.is_alone()).map(Pending::policy);
        decision(&mut out, made, policy);
    }
    if let Some(error) = verdict.error() {
        failure(&mut out, error);
    }
    if let Some(held) = hold.filter(|_| verdict.decision().is_some()) {
        let mut holds = holds.borrow_mut();
        let _ = write!(out, r#","hold":{},"slots":{},"cost":{cost}"#, holds.len(), held.has_slots());
        holds.push((held.clone(), pending.is_some_and(Pending::is_alone)));
    }
    if !events.is_empty() {
        let _ = write!(out, r#","events":[{}]"#, events.strip_suffix(',').unwrap_or(events));
    }
    out.push('}');
    out
}

/// The answer to a settlement, by this policy if by one.
pub(super) fn settled(made: &Decision, policy: Option<&Policy>) -> String {
    let mut out = String::from(r#"{"outcome":"#);
    text(&mut out, made.status().name());
    out.push_str(r#","fields":{}"#);
    decision(&mut out, made, policy);
    out.push('}');
    out
}

/// The decision: the binding quota, the wait, the delay, the time, the origin, and whether it is a replay; then for each quota its
/// name, its limit, what remains, and the time until its reset.
fn decision(out: &mut String, made: &Decision, policy: Option<&Policy>) {
    let _ = write!(out, r#","decision":[{},"#, made.binding_index());
    number(out, made.retry_after().map(|span| span.get()));
    let (delay, at) = (made.delay().get(), made.decided_at().get());
    let _ = write!(out, r#",{delay},{at},"{}",{}"#, made.origin().name(), made.is_replay());
    for (place, status) in made.quotas().iter().enumerate() {
        let name = policy.and_then(|policy| policy.quotas().get(place)).map_or("", |quota| quota.name());
        let _ = write!(out, r#","{name}",{},"#, status.limit());
        number(out, status.remaining());
        out.push(',');
        number(out, status.reset_after().map(|span| span.get()));
    }
    out.push(']');
}

fn failure(out: &mut String, error: &Error) {
    let _ = write!(out, r#","error":["{}","#, error.kind().name());
    text(out, &error.to_string());
    out.push(']');
}

fn number(out: &mut String, number: Option<u64>) {
    let _ = match number {
        Some(number) => write!(out, "{number}"),
        None => out.write_str("null"),
    };
}
