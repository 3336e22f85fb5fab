//! The ceiling of an interval.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_core::{Accuracy, Load, Policy, UnixMillis};

use super::count::Burst;

/// Bursts of one count that follow each other, gathered from the last to the first.
#[derive(Default)]
pub(super) struct Stretch<'a> {
    policies: Vec<&'a Policy>,
    /// The earliest and the latest instant in it.
    interval: Option<(UnixMillis, UnixMillis)>,
    locations: BTreeSet<u64>,
    /// The largest burst: what was under way at once, for each step waits for the one before.
    pub(super) in_flight: u64,
    /// Requests by what they are charged.
    offered: BTreeMap<u64, u64>,
    /// Units admitted.
    pub(super) units: u64,
    /// Units given back within it, that may be admitted again.
    given_back: u64,
    /// Units given back before its first burst.
    given_back_before: u64,
}

impl<'a> Stretch<'a> {
    pub(super) fn extend(&mut self, burst: &Burst<'a>) {
        if self.policies.last() != Some(&burst.policy) {
            self.policies.push(burst.policy);
        }
        let (first, last) = self.interval.unwrap_or((burst.at, burst.at));
        self.interval = Some((first.min(burst.at), last.max(burst.at)));
        self.locations.insert(burst.location);
        self.in_flight = self.in_flight.max(burst.offered);
        *self.offered.entry(burst.cost).or_default() += burst.chargeable;
        *self.offered.entry(0).or_default() += burst.offered - burst.chargeable;
        self.units = self.units.saturating_add(burst.units());
        self.given_back = self.given_back.saturating_add(self.given_back_before);
        self.given_back_before = burst.given_back;
    }

    pub(super) fn interval(&self) -> (UnixMillis, UnixMillis) {
        self.interval.unwrap_or_default()
    }

    /// The load, where an exact limiter admits at most `limit`: the isolates at one location where all comes in at one.
    pub(super) fn load(&self, limit: u64, isolates: u64) -> Load {
        let locations = if self.locations.len() > 1 { self.locations.len() as u64 } else { isolates };
        Load { limit, in_flight: self.in_flight, locations }
    }

    /// The most units that may be admitted in it: each quota bounds on its own.
    pub(super) fn ceiling(&self, accuracy: &Accuracy, isolates: u64) -> u64 {
        let quotas = 0..self.policies.first().map_or(0, |policy| policy.quotas().len());
        let ceilings = quotas.map(|place| accuracy.ceiling(self.load(self.maximum(place), isolates)));
        ceilings.min().unwrap_or(0).saturating_add(self.given_back)
    }

    /// The most that a quota admits in it exactly: where its numbers changed meanwhile, by the largest of each.
    fn maximum(&self, place: usize) -> u64 {
        let (first, last) = self.interval();
        let rules = || self.policies.iter().map(|policy| policy.quotas()[place].rule());
        let at_once = rules().map(|rule| rule.limit()).max().unwrap_or(0);
        let in_time = rules().map(|rule| rule.maximum(first, last) - rule.limit()).max().unwrap_or(0);
        at_once.saturating_add(in_time)
    }

    /// The most requests that so many units are enough for: the cheapest.
    pub(super) fn requests(&self, mut units: u64) -> u64 {
        let mut sum = 0;
        for (&cost, &offered) in &self.offered {
            let fit = units.checked_div(cost).map_or(offered, |fit| fit.min(offered));
            units -= fit * cost;
            sum += fit;
        }
        sum
    }
}
