//! The reference: what an exact limiter answers, one request after the other on the same virtual timeline.

use tidegate_core::MemoryLimiter;

use crate::expectation;
use crate::fixture::Fixture;
use crate::replay::{Replay, replay};
use crate::subject::InProcess;

/// The reference's answers to a fixture.
///
/// The reference never waits, so each request is decided before the next one is asked.
pub async fn reference(fixture: &Fixture) -> Replay {
    replay(fixture, &InProcess::new(MemoryLimiter::with_shards(1)), "").await
}

/// The reference's answers, where they are what the fixture says outright.
///
/// # Errors
/// What the fixture expects and the reference does not answer: then the fixture is wrong, or the reference is.
pub async fn agreed(fixture: &Fixture) -> Result<Replay, Vec<String>> {
    let reference = reference(fixture).await;
    let unmet = expectation::unmet(fixture, &reference);
    if unmet.is_empty() { Ok(reference) } else { Err(unmet) }
}
