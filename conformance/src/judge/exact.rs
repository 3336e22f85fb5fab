//! Answers as multisets.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use tollgate_guest_protocol::{Answer, Decided, Outcome};

use crate::expectation::{field, named};
use crate::fixture::Fixture;
use crate::replay::{Answered, Replay};

/// The response fields that are part of an answer. Hosts add others.
const FIELDS: [&str; 6] =
    ["retry-after", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "ratelimit-policy", "ratelimit"];

/// Different answers that a message shows before it says how many more there are.
const SHOWN: usize = 3;

/// An answer, whole.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Whole {
    Decision(Decided, [Option<String>; FIELDS.len()]),
    Done,
    Error,
}

/// Each step whose answers are not the reference's, in words.
pub(super) fn differences(fixture: &Fixture, reference: &Replay, found: &Replay) -> Vec<String> {
    let steps = fixture.steps.iter().zip(reference.steps.iter().zip(&found.steps)).enumerate();
    let differing = steps.filter_map(|(place, (step, (expected, found)))| {
        let mut counts: BTreeMap<Whole, i64> = BTreeMap::new();
        for one in expected {
            *counts.entry(whole(one)).or_default() += 1;
        }
        for one in found {
            *counts.entry(whole(one)).or_default() -= 1;
        }
        let missing: Vec<_> = counts.iter().filter(|(_, count)| **count > 0).collect();
        let unexpected: Vec<_> = counts.iter().filter(|(_, count)| **count < 0).collect();
        if missing.is_empty() && unexpected.is_empty() {
            return None;
        }
        Some(format!("{}: expected {}; found {}", named(place, step), listed(&missing), listed(&unexpected)))
    });
    differing.collect()
}

fn whole(one: &Answered) -> Whole {
    match &one.answer {
        Answer::Decision(decision) => Whole::Decision(decision.clone(), FIELDS.map(|name| field(one, name).cloned())),
        Answer::Error(_) => Whole::Error,
        _ => Whole::Done,
    }
}

fn listed(answers: &[(&Whole, &i64)]) -> String {
    let mut out = String::new();
    for (place, (answer, count)) in answers.iter().take(SHOWN).enumerate() {
        let _ = write!(out, "{}{} x {}", if place == 0 { "" } else { ", " }, count.abs(), in_words(answer));
    }
    if answers.len() > SHOWN {
        let rest: i64 = answers[SHOWN..].iter().map(|(_, count)| count.abs()).sum();
        let _ = write!(out, ", and {rest} others");
    }
    if out.is_empty() { "no answer in their place".into() } else { out }
}

fn in_words(answer: &Whole) -> String {
    let (decision, fields) = match answer {
        Whole::Decision(decision, fields) => (decision, fields),
        Whole::Done => return "done".into(),
        Whole::Error => return "an error".into(),
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
    for (name, value) in FIELDS.iter().zip(fields) {
        if let Some(value) = value {
            let _ = write!(out, "; {name}: {value}");
        }
    }
    out.push(')');
    out
}
