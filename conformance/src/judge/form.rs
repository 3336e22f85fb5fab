//! Rules that every answer must follow, independent of the decision.

use tidegate_guest_protocol::{Answer, Outcome};

use crate::expectation::{field, named};
use crate::fixture::Fixture;
use crate::replay::{ABORTED, Answered, NO_ANSWER, Replay};

/// Describes the first malformed answer of each step.
pub(super) fn wrong(fixture: &Fixture, found: &Replay) -> Vec<String> {
    let steps = fixture.steps.iter().zip(&found.steps).enumerate();
    let first = steps.filter_map(|(place, (step, answers))| {
        let wrong = answers.iter().find_map(of_answer)?;
        Some(format!("{}: {wrong}", named(place, step)))
    });
    first.collect()
}

/// The status code must match the answer, and `Retry-After` must match the wait.
fn of_answer(one: &Answered) -> Option<String> {
    let status = match &one.answer {
        Answer::Error(failure) if [NO_ANSWER, ABORTED].contains(&failure.kind.as_str()) => return None,
        Answer::Error(failure) if one.status == 429 => {
            return Some(format!("an error ({}) was answered with 429, which blames the client", failure.kind));
        }
        Answer::Error(failure) if one.status < 400 => {
            return Some(format!("an error ({}) was answered with {}, which is no error", failure.kind, one.status));
        }
        Answer::Error(_) => return None,
        Answer::Decision(decision) if decision.status != Outcome::Allowed => 429,
        _ => 200,
    };
    if one.status != status {
        return Some(format!("answered with status {}, expected {status}", one.status));
    }
    let Answer::Decision(decision) = &one.answer else { return None };
    let sent = field(one, "retry-after").map(String::as_str);
    let right = decision.retry_after_ms.map(|wait_ms| wait_ms.div_ceil(1_000).max(1).to_string());
    (sent != right.as_deref()).then(|| {
        let (sent, right) = (sent.unwrap_or("none"), right.as_deref().unwrap_or("none"));
        format!("Retry-After is {sent}, expected {right} (whole seconds, rounded up)")
    })
}
