//! The reference: what an exact limiter answers, one request after the other on the same virtual timeline.

use futures_util::FutureExt as _;
use tollgate_core::{Key, Limiter as _, MemoryLimiter};

use crate::expectation;
use crate::fixture::{Fixture, Op};
use crate::replay::{Replay, call, replay};
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

/// What the checks of each step would be admitted if every location counted on its own, and exactly.
#[must_use]
pub fn apart(fixture: &Fixture) -> Vec<u64> {
    let locations: Vec<_> = (0..fixture.locations).map(|_| MemoryLimiter::with_shards(1)).collect();
    let admitted = fixture.steps_with_policy().map(|(_, step, policy)| {
        let location = usize::try_from(step.location).ok().and_then(|location| locations.get(location));
        let limiter = location.unwrap_or(&locations[0]);
        let call = call(fixture, step, policy, "");
        let key = Key::new(&call.key);
        match step.op {
            Op::Check => (0..step.burst).filter(|_| limiter.decide(call.check(&key)).is_allowed()).count() as u64,
            Op::Peek => 0,
            // Memory never waits.
            Op::Refund => limiter.refund(call.refund(&key)).now_or_never().map_or(0, |_| 0),
            Op::Reset => limiter.reset(policy, &key).now_or_never().map_or(0, |_| 0),
        }
    });
    admitted.collect()
}
