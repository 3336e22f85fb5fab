//! Compares a limiter's answers with what is due.

use std::ops::Add;

use serde::Serialize;
use tidegate_conformance::fixture::Fixture;
use tidegate_conformance::replay::{Answered, Replay};
use tidegate_guest_protocol::Answer;

use super::due::Due;

/// The result of one fixture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Score {
    /// The fixture.
    pub id: String,
    /// What was admitted.
    #[serde(flatten)]
    pub found: Found,
    /// What denials said about when to come back.
    pub waits: Waits,
}

/// What a limiter admitted of a fixture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "result")]
pub enum Found {
    /// As much as is due.
    AsDue,
    /// As much as is due if denials are charged.
    ChargesDenials,
    /// More than is due.
    More {
        /// By how many requests.
        by: u64,
        /// How many are due by then.
        of: u64,
    },
    /// Never more than is due, and at some point fewer.
    Fewer {
        /// By how many requests.
        by: u64,
        /// How many are due by then.
        of: u64,
    },
    /// Some answers were errors.
    Errors {
        /// How many.
        count: u64,
        /// The first one.
        message: String,
    },
}

/// How many steps' denials told a wait, by how good it was. A step counts by its worst denial. Only steps of fixtures that
/// were admitted as is due are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Waits {
    /// A request sent after the wait is admitted, and it would not have been a second before.
    pub right: u64,
    /// A request sent after the wait is denied.
    pub early: u64,
    /// The wait is at least a second longer than it needs to be.
    pub late: u64,
    /// There is no wait.
    pub none: u64,
}

impl Add for Waits {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            right: self.right + other.right,
            early: self.early + other.early,
            late: self.late + other.late,
            none: self.none + other.none,
        }
    }
}

/// The resolution of `Retry-After`.
const SECOND_MS: u64 = 1_000;

/// Compares a limiter's answers with what is due if denials are free, and with what is due if they are charged. A wait may be
/// `slack_ms` too short.
pub(super) fn of(fixture: &Fixture, found: &Replay, free: &[Due], charged: &[Due], slack_ms: u64) -> Score {
    let admitted: Vec<u64> =
        found.steps.iter().map(|answers| answers.iter().filter(|one| one.is_allowed()).count() as u64).collect();
    let is = |due: &[Due]| due.iter().map(|due| due.admitted).eq(admitted.iter().copied());
    let (found_as, due) = match errors(found) {
        Some(errors) => (errors, None),
        None if is(free) => (Found::AsDue, Some(free)),
        None if is(charged) => (Found::ChargesDenials, Some(charged)),
        None => (difference(&admitted, free), None),
    };
    let waits = due.map_or_else(Waits::default, |due| {
        found
            .steps
            .iter()
            .zip(due)
            .map(|(answers, due)| waits(answers, *due, slack_ms))
            .fold(Waits::default(), Add::add)
    });
    Score { id: fixture.id.clone(), found: found_as, waits }
}

fn errors(found: &Replay) -> Option<Found> {
    let mut errors = found.steps.iter().flatten().filter_map(|one| match &one.answer {
        Answer::Error(failure) => Some(&failure.message),
        _ => None,
    });
    let message = errors.next()?.clone();
    Some(Found::Errors { count: 1 + errors.count() as u64, message })
}

/// The largest difference by the end of any step. What is more counts before what is fewer.
fn difference(admitted: &[u64], due: &[Due]) -> Found {
    let (mut sum, mut sum_due) = (0, 0);
    let (mut more, mut fewer) = ((0, 0), (0, 0));
    for (admitted, due) in admitted.iter().zip(due) {
        (sum, sum_due) = (sum + admitted, sum_due + due.admitted);
        more = more.max((sum.saturating_sub(sum_due), sum_due));
        fewer = fewer.max((sum_due.saturating_sub(sum), sum_due));
    }
    match (more, fewer) {
        ((0, _), (by, of)) => Found::Fewer { by, of },
        ((by, of), _) => Found::More { by, of },
    }
}

fn waits(answers: &[Answered], due: Due, slack_ms: u64) -> Waits {
    let Some((least, most)) = due.waits else { return Waits::default() };
    let mut waits = Waits::default();
    let denied = answers.iter().filter_map(|one| match &one.answer {
        Answer::Decision(decision) if !one.is_allowed() => Some(decision.retry_after_ms),
        _ => None,
    });
    for wait in denied {
        match wait {
            None => waits.none = 1,
            Some(wait) if wait + slack_ms < least => waits.early = 1,
            Some(wait) if wait >= most + SECOND_MS => waits.late = 1,
            Some(_) => waits.right = 1,
        }
    }
    match waits {
        Waits { early: 1, .. } => Waits { early: 1, ..Waits::default() },
        Waits { late: 1, .. } => Waits { late: 1, ..Waits::default() },
        Waits { none: 1, .. } => Waits { none: 1, ..Waits::default() },
        right => right,
    }
}

#[cfg(test)]
mod tests {
    use tidegate_guest_protocol::{Decided, Failure, Outcome};

    use super::*;

    fn due(admitted: u64) -> Due {
        Due { admitted, waits: Some((5_000, 5_000)) }
    }

    fn answer(answer: Answer) -> Answered {
        Answered { status: 200, headers: Vec::new(), answer }
    }

    fn decided(status: Outcome, retry_after_ms: Option<u64>) -> Answered {
        let quotas = Vec::new();
        let (delay_ms, from_balance, replayed) = (0, 0, false);
        answer(Answer::Decision(Decided {
            status,
            binding: 0,
            quotas,
            retry_after_ms,
            delay_ms,
            from_balance,
            replayed,
        }))
    }

    fn waits_of(told: &[Option<u64>]) -> Waits {
        let answers: Vec<_> = told.iter().map(|wait| decided(Outcome::Denied, *wait)).collect();
        waits(&answers, due(0), 250)
    }

    #[test]
    fn a_limiter_that_ever_admits_too_many_is_not_excused_by_admitting_fewer_later() {
        let due = [due(10), due(10)];
        assert_eq!(difference(&[12, 8], &due), Found::More { by: 2, of: 10 });
        assert_eq!(difference(&[8, 12], &due), Found::Fewer { by: 2, of: 10 });
        assert_eq!(difference(&[8, 13], &due), Found::More { by: 1, of: 20 });
    }

    #[test]
    fn a_wait_is_right_if_it_ends_within_the_second_in_which_a_request_is_admitted() {
        let right = Waits { right: 1, ..Waits::default() };
        assert_eq!((waits_of(&[Some(5_000)]), waits_of(&[Some(5_999), Some(4_750)])), (right, right));
        assert_eq!(waits_of(&[Some(5_000), Some(4_749)]), Waits { early: 1, ..Waits::default() });
        assert_eq!(waits_of(&[Some(6_000), None]), Waits { late: 1, ..Waits::default() });
        assert_eq!(waits_of(&[Some(5_000), None]), Waits { none: 1, ..Waits::default() });
    }

    #[test]
    fn an_error_is_neither_an_admission_nor_a_denial() {
        let failed = answer(Answer::Error(Failure { kind: "peer".into(), message: "down".into() }));
        let found = Replay { steps: vec![vec![decided(Outcome::Allowed, None), failed]], ..Replay::default() };
        assert_eq!(errors(&found), Some(Found::Errors { count: 1, message: "down".into() }));
    }
}
