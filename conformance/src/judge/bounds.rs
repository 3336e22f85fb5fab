//! Floors and ceilings.

use std::collections::BTreeMap;

use tollgate_core::{Accuracy, Load};

use crate::fixture::{Fixture, Op};
use crate::oracle;
use crate::replay::Replay;

/// What a soft limiter owes a fixture.
pub(super) struct Bounds {
    pub(super) floor: u64,
    pub(super) ceiling: u64,
    pub(super) ceiling_tested: bool,
    /// What it broke, in words.
    pub(super) broken: Vec<String>,
}

/// The checks of one key within one window.
#[derive(Default)]
struct Round {
    began_ms: u64,
    offered: u64,
    exact: u64,
    /// What each location would admit of what it was offered itself, if it counted exactly and alone.
    apart: BTreeMap<u64, u64>,
    admitted: u64,
    /// The largest burst: what was under way at once, for each step waits for the one before.
    in_flight: u64,
}

impl Round {
    fn add(&mut self, burst: u64, exact: u64, admitted: u64) {
        self.offered += burst;
        self.exact += exact;
        self.admitted += admitted;
        self.in_flight = self.in_flight.max(burst);
    }
}

/// Bounds of a soft or per-location limiter.
///
/// A ceiling is a statement on one quota under one load, so it is taken of each key, for each stretch of time as long as
/// the longest window: the reference's count is the limit, the largest burst what was in flight. Where locations count
/// on their own, one that has seen less of a key may admit more of it than the reference: then that is the limit. The floor holds for a
/// lone sequential client: a key that is only ever asked for by one request at a time in one location is never denied
/// what the reference admits. A burst on a key is owed one admission where the reference admits any.
pub(super) fn of(accuracy: &Accuracy, fixture: &Fixture, reference: &Replay, found: &Replay) -> Bounds {
    let mut keys: BTreeMap<&str, Vec<Round>> = BTreeMap::new();
    let apart = oracle::apart(fixture);
    for (place, step, policy) in fixture.steps_with_policy().filter(|(_, step, _)| step.op == Op::Check) {
        let window_ms = policy.quotas().iter().map(|quota| quota.rule().window().get()).max().unwrap_or(1);
        let now_ms = fixture.instant(step.at_ms);
        let rounds = keys.entry(&step.key).or_default();
        if rounds.last().is_none_or(|round| now_ms.saturating_sub(round.began_ms) >= window_ms) {
            rounds.push(Round { began_ms: now_ms, ..Round::default() });
        }
        let allowed = |replay: &Replay| replay.steps[place].iter().filter(|one| one.is_allowed()).count() as u64;
        if let Some(round) = rounds.last_mut() {
            round.add(step.burst, allowed(reference), allowed(found));
            *round.apart.entry(step.location).or_default() += apart[place];
        }
    }
    let mut bounds = Bounds { floor: 0, ceiling: 0, ceiling_tested: false, broken: Vec::new() };
    for (key, rounds) in &keys {
        let sum = |of: fn(&Round) -> u64| rounds.iter().map(of).sum::<u64>();
        let sequential = fixture.locations == 1 && rounds.iter().all(|round| round.in_flight == 1);
        let (exact, admitted) = (sum(|round| round.exact), sum(|round| round.admitted));
        let floor = if sequential { exact } else { exact.min(1) };
        if admitted < floor {
            bounds.broken.push(format!("{key:?}: admitted {admitted} where the floor is {floor}"));
        }
        bounds.floor += floor;
        for Round { offered, exact, apart, admitted, in_flight, .. } in rounds {
            let limit = apart.values().copied().max().unwrap_or(0).max(*exact);
            let load = Load { limit, in_flight: *in_flight, locations: fixture.locations };
            let ceiling = accuracy.ceiling(load);
            bounds.ceiling += ceiling;
            bounds.ceiling_tested |= *offered > ceiling;
            if *admitted > ceiling {
                bounds.broken.push(format!("{key:?}: admitted {admitted} where the ceiling is {ceiling} ({accuracy})"));
            }
        }
    }
    bounds
}

/// Bounds of an exact limiter whose store was killed amid a burst.
pub(super) fn of_restart(exact: u64, admitted: u64, errors: u64) -> Option<String> {
    if admitted > exact {
        return Some(format!("admitted {admitted} across the restart where the reference admits {exact}"));
    }
    (admitted + errors < exact).then(|| {
        format!(
            "admitted {admitted} across the restart with {errors} errors, where the reference admits {exact}: \
             something was charged that nobody was answered for, more than once"
        )
    })
}
