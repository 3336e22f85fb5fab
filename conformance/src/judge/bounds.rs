//! Floors and ceilings.

use tidegate_core::{Accuracy, Drift, Floor, Load, Millis, Rule, UnixMillis};

use super::count::{self, Burst, Count, exact};
use super::stretch::Stretch;
use crate::fixture::{Disturb, Fixture};
use crate::replay::Replay;

/// The bounds of an approximate limiter for a fixture, in requests.
pub(super) struct Bounds {
    /// The fewest and the most checks that may be admitted by the end of each step.
    pub(super) by_step: Vec<(u64, u64)>,
    /// Whether more requests than the ceiling were offered for some key.
    pub(super) ceiling_tested: bool,
    /// Describes each bound that was broken.
    pub(super) broken: Vec<String>,
}

/// Computes the bounds of an approximate or per-location limiter, and checks them for each key under each policy.
///
/// **Ceiling.** An interval extends from any burst to any later one. The cost admitted in it is at most the limiter's
/// formula applied to the algorithm's own maximum ([`Rule::maximum`](tidegate_core::Rule::maximum)). So a unit may be
/// spent later than the reference would have admitted it, but never beyond the maximum. A second ceiling applies if the
/// formula does not depend on races and [admitting early admits the most](Count::earliest_is_most). By any instant, no
/// more is admitted than the formula applied to the reference's count, or to the count of the location that would have
/// admitted the most on its own, whichever is larger. An isolate that replaces an evicted one counts as one more location. What is
/// admitted by grace is bounded for each interval only: each borrower of each window may add it, those that were killed or restarted included.
///
/// **Floor.** If admitting early admits the most, then by any instant at least as much is admitted as by an exact
/// limiter with the limit that [`Accuracy::floor`] returns, where each borrower that has replaced a killed one counts as one more
/// location. If that holds for a key's first seconds only, it holds again whenever the key is unused again. Otherwise, a
/// limiter that holds nothing back never denies a single sequential client on one isolate what the reference admits. In
/// every case, a key gets at least one admission, or an error for it, if the reference admits any. Until the store has been killed, halted or cut
/// off for the last time, only this last rule applies, because some answers are errors. A request that its client has aborted
/// lowers the floor by one.
pub(super) fn of(accuracy: &Accuracy, isolates: u64, fixture: &Fixture, reference: &Replay, found: &Replay) -> Bounds {
    let mut bounds = Bounds { by_step: vec![(0, 0); fixture.steps.len()], ceiling_tested: false, broken: Vec::new() };
    let evicted = fixture.steps.iter().any(|step| step.disturb == Some(Disturb::Evict));
    let alone = isolates == 1 && fixture.locations == 1 && !evicted;
    // With several locations, one isolate serves each.
    let isolates = if fixture.locations > 1 { 1 } else { isolates };
    let last_fault = fixture.steps.iter().rposition(|step| step.disturb.is_some_and(Disturb::fails_the_store));
    for mut count in count::of(fixture, reference, found) {
        let steps_back = !count.bursts.is_sorted_by_key(|burst| burst.at);
        if alone {
            count.never_go_back();
        }
        let earliest_is_most = count.earliest_is_most();
        let start_ms = fixture.start_ms;
        let judged =
            Judged { accuracy, isolates, alone, last_fault, steps_back, earliest_is_most, start_ms, count: &count };
        let offered: u64 = count.bursts.iter().map(|burst| burst.offered).sum();
        let ceilings = judged.ceilings(&mut bounds.broken);
        let floors = judged.floors(&mut bounds.broken);
        bounds.ceiling_tested |= ceilings.last().is_some_and(|ceiling| offered > *ceiling);
        // Each holds from its burst until the next burst of the same count.
        let mut bursts = count.bursts.iter().zip(floors.into_iter().zip(ceilings)).peekable();
        while let Some((burst, (floor, ceiling))) = bursts.next() {
            let until = bursts.peek().map_or(fixture.steps.len(), |(next, _)| next.step);
            for (floors, ceilings) in &mut bounds.by_step[burst.step..until] {
                *floors += floor;
                *ceilings += ceiling;
            }
        }
    }
    bounds
}

struct Judged<'a> {
    accuracy: &'a Accuracy,
    isolates: u64,
    /// Whether one isolate serves all requests.
    alone: bool,
    /// The last step in which the store was killed, halted or cut off.
    last_fault: Option<usize>,
    /// Whether the clock steps back.
    steps_back: bool,
    earliest_is_most: bool,
    start_ms: u64,
    count: &'a Count<'a>,
}

impl Judged<'_> {
    /// The most requests that can be admitted by the end of each burst. For each interval, this is what can be admitted
    /// before it plus what can be admitted in it; the lowest sum counts.
    fn ceilings(&self, broken: &mut Vec<String>) -> Vec<u64> {
        let bursts = &self.count.bursts;
        let by_the_reference = self.earliest_is_most.then(|| self.reference());
        let mut most = vec![0];
        let mut over = None;
        for last in 0..bursts.len() {
            let mut by_now = most[last] + bursts[last].offered;
            let mut stretch = Stretch::default();
            let mut bound = |stretch: &Stretch, before: u64, ceiling: u64| {
                // After the clock has stepped back far, an exact limiter admits more than its maximum in a window that it has
                // left before.
                let ceiling = if self.steps_back { ceiling.max(stretch.exact) } else { ceiling };
                by_now = by_now.min(before + stretch.requests(ceiling));
                if stretch.units > ceiling {
                    over.get_or_insert_with(|| self.too_many(stretch, ceiling));
                }
            };
            for first in (0..=last).rev() {
                stretch.extend(&bursts[first]);
                bound(&stretch, most[first], stretch.ceiling(self.accuracy, self.isolates));
            }
            if let Some(ceiling) =
                by_the_reference.as_ref().and_then(|admits| self.without_races(&stretch, admits[last]))
            {
                bound(&stretch, 0, ceiling);
            }
            most.push(by_now);
        }
        broken.extend(over);
        most.split_off(1)
    }

    /// The units that the reference admits by the end of each burst: with one count for all locations, or at the
    /// location that admits the most with a count of its own, whichever is more.
    fn reference(&self) -> Vec<u64> {
        let bursts = &self.count.bursts;
        let (together, apart) = (exact(bursts, |limit| limit, false), exact(bursts, |limit| limit, true));
        let requests = together.into_iter().zip(apart).map(|(together, apart)| together.max(apart));
        requests.zip(bursts).map(|(requests, burst)| requests.saturating_mul(burst.cost)).collect()
    }

    /// The ceiling if an exact limiter has admitted `limit`, or `None` if the ceiling depends on races.
    fn without_races(&self, stretch: &Stretch, limit: u64) -> Option<u64> {
        let load = stretch.load_of_all(limit, stretch.least_quota(), self.isolates);
        let ceiling = self.accuracy.ceiling(load);
        // A grace may be given again once what it was over is repaid.
        (self.accuracy.drift().grace == 0 && ceiling == self.accuracy.ceiling(Load { in_flight: 1, ..load }))
            .then_some(ceiling)
    }

    fn too_many(&self, stretch: &Stretch, ceiling: u64) -> String {
        let (first, last) = stretch.interval();
        let at_ms = |at: UnixMillis| i128::from(at.get()) - i128::from(self.start_ms);
        let (keys, units, accuracy) = (&self.count.keys, stretch.units, self.accuracy);
        let (from, to) = (at_ms(first), at_ms(last));
        format!("{keys}: admitted {units} from {from} ms to {to} ms, but the ceiling is {ceiling} ({accuracy})")
    }

    /// The fewest requests that must be admitted by the end of each burst.
    fn floors(&self, broken: &mut Vec<String>) -> Vec<u64> {
        let (mut all, mut under) = (Vec::new(), None);
        for bursts in self.count.bursts.chunk_by(|before, burst| !self.is_unused_again(before, burst)) {
            let (owed, before) = (self.owed(bursts), all.last().copied().unwrap_or(0));
            let (mut admitted, mut aborted, mut least) = (0, 0, 0);
            for (burst, owed) in bursts.iter().zip(owed) {
                admitted += burst.admitted;
                aborted += burst.aborted;
                // Each request that was aborted may have been charged in place of another.
                least = least.max(owed.saturating_sub(aborted));
                all.push(before + least);
                if admitted < least {
                    let from_ms = i128::from(bursts[0].at.get()) - i128::from(self.start_ms);
                    let (keys, accuracy) = (&self.count.keys, self.accuracy);
                    under.get_or_insert_with(|| {
                        format!(
                            "{keys}: admitted {admitted}, but the floor is {least} from {from_ms} ms on ({accuracy})"
                        )
                    });
                }
            }
        }
        broken.extend(under);
        all
    }

    /// Whether a burst finds its key unused, so that the floor holds from there as it does for a new key: what was lent before has
    /// ended, and it counts no more.
    fn is_unused_again(&self, before: &Burst<'_>, burst: &Burst<'_>) -> bool {
        let Accuracy::Approximate(Drift { floor: Floor { within: Some(within), .. }, .. }) = self.accuracy else {
            return false;
        };
        // Then there is one quota.
        if !self.earliest_is_most {
            return false;
        }
        let rule = |burst: &Burst<'_>| *burst.policy.quotas()[0].rule();
        match (rule(before), rule(burst)) {
            (_, Rule::FixedWindow(rule)) => {
                before.at.get() / rule.window().get() != burst.at.get() / rule.window().get()
            }
            (Rule::CalendarWindow(rule), Rule::CalendarWindow(_)) => {
                rule.start() + rule.window() + rule.next_window() <= burst.at
            }
            (earlier, later) => {
                let window = earlier.window().max(later.window());
                burst.at.since(before.at) >= *within + window + window + self.repays(&later)
            }
        }
    }

    /// How long a bucket drains what all graces have charged beyond its capacity.
    fn repays(&self, rule: &Rule) -> Millis {
        let Rule::TokenBucket(_) = rule else { return Millis::ZERO };
        let mut all = Stretch::default();
        self.count.bursts.iter().rev().for_each(|burst| all.extend(burst));
        let Load { locations, .. } = all.load_of_borrowers(0, self.isolates);
        let owed = self.accuracy.drift().grace.saturating_mul(locations);
        Millis::new(rule.window().get().saturating_mul(owed.div_ceil(rule.limit())))
    }

    /// What [`floors`](Self::floors) checks for bursts from an unused key on.
    fn owed(&self, bursts: &[Burst<'_>]) -> Vec<u64> {
        let mut all = Stretch::default();
        bursts.iter().rev().for_each(|burst| all.extend(burst));
        let floor = |limit| self.accuracy.floor(all.load_of_borrowers(limit, self.isolates));
        let by_the_reference = || {
            bursts.iter().scan(0, |sum, burst| {
                *sum += burst.exact;
                Some(*sum)
            })
        };
        let lone = self.alone && all.in_flight == 1 && floor(1) == 1;
        let killed = self.last_fault.is_some_and(|place| bursts[0].step <= place);
        let mut owed = if self.earliest_is_most && !killed {
            exact(bursts, floor, false)
        } else if lone && !killed {
            by_the_reference().collect()
        } else {
            vec![0; bursts.len()]
        };
        if let Accuracy::Approximate(Drift { floor: Floor { within: Some(within), .. }, .. }) = self.accuracy {
            // The floor stops rising after that time.
            let lasts = bursts.partition_point(|burst| burst.at.since(bursts[0].at) < *within);
            let most = owed[..lasts].last().copied().unwrap_or(0);
            owed[lasts..].fill(most);
        }
        // After the clock has stepped back, an exact limiter may admit less than one that stays at the later time.
        if self.steps_back {
            owed.iter_mut().zip(by_the_reference()).for_each(|(owed, exact)| *owed = (*owed).min(exact));
        }
        if let (Some(owed), Some(exact)) = (owed.last_mut(), by_the_reference().last()) {
            let failed: u64 = bursts.iter().map(|burst| burst.failed).sum();
            *owed = (*owed).max(exact.min(1).saturating_sub(failed));
        }
        owed
    }
}

/// Checks the bounds of an exact limiter whose store was killed, halted or cut off during a burst.
pub(super) fn of_fault(exact: u64, admitted: u64, errors: u64) -> Option<String> {
    if admitted > exact {
        return Some(format!("admitted {admitted} across the fault, but the reference admits {exact}"));
    }
    (admitted + errors < exact).then(|| {
        format!(
            "admitted {admitted} across the fault with {errors} errors, but the reference admits {exact}: \
             a request that got an error was charged more than once"
        )
    })
}
