//! Compares answers as multisets.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use tidegate_guest_protocol::{Answer, Decided, Outcome};

use crate::expectation::{field, named};
use crate::fixture::Fixture;
use crate::replay::{Answered, Replay};

/// The response fields that are compared. Hosts add others.
const FIELDS: [&str; 6] =
    ["retry-after", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "ratelimit-policy", "ratelimit"];

/// The most distinct answers that a message lists.
const SHOWN: usize = 3;

/// The part of an answer that is compared.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Seen {
    Decision(Decided, Vec<Option<String>>),
    Done,
    Error(String),
}

/// Describes each step whose answers differ from the reference's. Response fields are shown only if nothing else
/// differs.
pub(super) fn differences(fixture: &Fixture, reference: &Replay, found: &Replay) -> Vec<String> {
    let steps = fixture.steps.iter().zip(reference.steps.iter().zip(&found.steps)).enumerate();
    let differing = steps.filter_map(|(place, (step, (expected, found)))| {
        let bare = |one: &Answered| seen(one, false);
        let whole = |one: &Answered| seen(one, true);
        let difference = difference(expected, found, bare).or_else(|| difference(expected, found, whole))?;
        Some(format!("{}: {difference}", named(place, step)))
    });
    differing.collect()
}

fn difference(expected: &[Answered], found: &[Answered], seen: impl Fn(&Answered) -> Seen) -> Option<String> {
    let mut counts: BTreeMap<Seen, i64> = BTreeMap::new();
    for one in expected {
        *counts.entry(seen(one)).or_default() += 1;
    }
    for one in found {
        *counts.entry(seen(one)).or_default() -= 1;
    }
    let missing: Vec<_> = counts.iter().filter(|(_, count)| **count > 0).collect();
    let unexpected: Vec<_> = counts.iter().filter(|(_, count)| **count < 0).collect();
    let differ = !missing.is_empty() || !unexpected.is_empty();
    differ.then(|| format!("expected {}; found {}", listed(&missing), listed(&unexpected)))
}

fn seen(one: &Answered, with_fields: bool) -> Seen {
    let fields = || FIELDS.iter().map(|name| field(one, name).cloned()).collect();
    match &one.answer {
        Answer::Decision(decision) => Seen::Decision(decision.clone(), if with_fields { fields() } else { Vec::new() }),
        Answer::Error(failure) => Seen::Error(failure.kind.clone()),
        _ => Seen::Done,
    }
}

fn listed(answers: &[(&Seen, &i64)]) -> String {
    let mut out = String::new();
    for (place, (answer, count)) in answers.iter().take(SHOWN).enumerate() {
        let _ = write!(out, "{}{} x {}", if place == 0 { "" } else { ", " }, count.abs(), in_words(answer));
    }
    if answers.len() > SHOWN {
        let rest: i64 = answers[SHOWN..].iter().map(|(_, count)| count.abs()).sum();
        let _ = write!(out, ", and {rest} others");
    }
    if out.is_empty() { "nothing in their place".into() } else { out }
}

fn in_words(answer: &Seen) -> String {
    let (decision, fields) = match answer {
        Seen::Decision(decision, fields) => (decision, fields),
        Seen::Done => return "done".into(),
        Seen::Error(kind) => return format!("error {kind}"),
    };
    let mut out = match decision.status {
        Outcome::Allowed => "allowed".to_string(),
        Outcome::Denied => "denied".to_string(),
        Outcome::NeverAdmissible => "never admissible".to_string(),
    };
    let several = decision.quotas.len() > 1;
    let told = |value: Option<u64>| value.map_or_else(|| "?".to_string(), |value| value.to_string());
    let _ = write!(out, " (");
    for (place, quota) in decision.quotas.iter().enumerate() {
        let comma = if place == 0 { "" } else { "; " };
        let bound = if several && place == decision.binding { "binding: " } else { "" };
        let _ = write!(out, "{comma}{bound}{} of {} remaining", told(quota.remaining), quota.limit);
        let _ = write!(out, ", reset after {} ms", told(quota.reset_after_ms));
    }
    if let Some(wait_ms) = decision.retry_after_ms {
        let _ = write!(out, "; retry after {wait_ms} ms");
    }
    if decision.delay_ms > 0 {
        let _ = write!(out, "; delay {} ms", decision.delay_ms);
    }
    if decision.from_balance > 0 {
        let _ = write!(out, "; {} from the balance", decision.from_balance);
    }
    if decision.replayed {
        out.push_str("; an earlier answer");
    }
    for (name, value) in FIELDS.iter().zip(fields) {
        if let Some(value) = value {
            let _ = write!(out, "; {name}: {value}");
        }
    }
    out.push(')');
    out
}
