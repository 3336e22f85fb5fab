//! The reference: an exact limiter that answers one request after another on the same virtual timeline.

use tidegate_core::MemoryLimiter;

use crate::expectation;
use crate::fixture::{Case, Fixture};
use crate::judge::unanswered;
use crate::replay::{Replay, replay};
use crate::subject::InProcess;

/// A fixture with the reference's answers.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The fixture.
    pub case: Case,
    /// The reference's answers. It is empty for all but a [`Fixture`].
    pub reference: Replay,
    /// The expectations that the reference does not meet: the fixture is wrong, or the limits do not do what it expects.
    pub unmet: Vec<String>,
}

/// Returns the reference's answers to a fixture.
///
/// The reference never awaits, so each request is decided before the next one is sent.
pub async fn answers(fixture: &Fixture) -> Replay {
    replay(fixture, &InProcess::new(MemoryLimiter::with_shards(1)), "").await
}

/// Returns the reference's answers if they meet the fixture's expectations.
///
/// # Errors
/// Returns each expectation that the reference does not meet, and each error that the fixture does not expect: either
/// the fixture or the reference is wrong.
pub async fn agreed(fixture: &Fixture) -> Result<Replay, Vec<String>> {
    let reference = answers(fixture).await;
    let mut unmet = expectation::unmet(fixture, &reference);
    unmet.extend(unanswered(fixture, &reference));
    if unmet.is_empty() { Ok(reference) } else { Err(unmet) }
}
