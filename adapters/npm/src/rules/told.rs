//! Verdicts as the host gets them: JSON.

use std::fmt::Write as _;

use tidegate_core::gate::{Hold, Pending, Reason, Verdict};
use tidegate_core::{Decision, Error, Policy, Rejection, ResponseFields};

use super::policies::Policies;

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
/// known of `rule`, `decision`, `error` and `hold`. The events of this and other requests follow.
pub(super) fn verdict(
    verdict: &Verdict,
    pending: Option<&Pending>,
    (policies, cost): (&Policies, u64),
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
        holding(&mut out, held, policies);
        let _ = write!(out, r#","slots":{},"cost":{cost}"#, held.has_slots());
    }
    if !events.is_empty() {
        let _ = write!(out, r#","events":[{}]"#, events.strip_suffix(',').unwrap_or(events));
    }
    out.push('}');
    out
}

/// The answer to a settlement.
pub(super) fn settled(made: &Decision, hold: &Hold) -> String {
    let mut out = String::from(r#"{"outcome":"#);
    text(&mut out, made.status().name());
    out.push_str(r#","fields":{}"#);
    let alone = hold.charges().count() == 1;
    decision(&mut out, made, alone.then(|| hold.policy()));
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

/// What is charged under the request's token, which the host keeps: for each store its place, that of the policy, and the keys.
fn holding(out: &mut String, held: &Hold, policies: &Policies) {
    out.push_str(r#","hold":["#);
    for (place, (store, policy, keys)) in held.charges().enumerate() {
        let _ = write!(out, r#"{}[{store},"#, if place == 0 { "" } else { "," });
        policies.write_known(out, policy);
        for (name, key) in keys {
            let _ = write!(out, r#","{name}","{key}""#);
        }
        out.push(']');
    }
    out.push(']');
}

fn number(out: &mut String, number: Option<u64>) {
    let _ = match number {
        Some(number) => write!(out, "{number}"),
        None => out.write_str("null"),
    };
}
