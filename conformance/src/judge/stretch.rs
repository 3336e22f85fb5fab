//! The ceiling for an interval.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_core::{Accuracy, Drift, Load, Policy, Quota, Rule, UnixMillis};

use super::count::Burst;

/// Consecutive bursts of one count, collected from the last to the first.
#[derive(Default)]
pub(super) struct Stretch<'a> {
    policies: Vec<&'a Policy>,
    /// The earliest and the latest instant.
    interval: Option<(UnixMillis, UnixMillis)>,
    locations: BTreeSet<u64>,
    /// The locations, each with the number of evictions before.
    lives: BTreeSet<(u64, u64)>,
    /// The same, each with how often those that ask the store were killed before.
    borrowers: BTreeSet<(u64, u64)>,
    /// For each quota, who may have given the key a grace: a borrower, in each window that it was asked in.
    graces: Vec<BTreeSet<Grace>>,
    /// The instant of the first burst, and how often the clock steps back after it.
    begins: Option<UnixMillis>,
    steps_back: usize,
    /// The size of the largest burst. No more requests are in flight, because each step waits for the previous one.
    pub(super) in_flight: u64,
    /// The number of requests for each cost.
    offered: BTreeMap<u64, u64>,
    /// Units admitted.
    pub(super) units: u64,
    /// Units that the reference admits.
    pub(super) exact: u64,
    /// Units refunded within the interval. They may be admitted again.
    given_back: u64,
    /// Units refunded before the first burst.
    given_back_before: u64,
    /// Units granted to a balance before the last burst, the first grant of all included.
    granted: u64,
}

/// A location, with the evictions before and which of the borrowers there it is, and a window of a quota under one policy by a clock that does not step back. A
/// bucket repays a grace, so that all its time is one window.
type Grace = (u64, u64, u64, usize, usize, u64);

impl<'a> Stretch<'a> {
    pub(super) fn extend(&mut self, burst: &Burst<'a>) {
        if self.policies.last() != Some(&burst.policy) {
            self.policies.push(burst.policy);
        }
        let (first, last) = self.interval.unwrap_or((burst.at, burst.at));
        self.steps_back += usize::from(self.begins.is_some_and(|begins| burst.at > begins));
        self.begins = Some(burst.at);
        self.interval = Some((first.min(burst.at), last.max(burst.at)));
        self.locations.insert(burst.location);
        self.lives.insert((burst.location, burst.evictions));
        self.borrowers.insert((burst.location, burst.kills));
        self.graces.resize_with(burst.policy.quotas().len().max(self.graces.len()), BTreeSet::new);
        for (graces, quota) in self.graces.iter_mut().zip(burst.policy.quotas()) {
            let window = match quota.rule() {
                Rule::TokenBucket(_) => 0,
                Rule::CalendarWindow(rule) => rule.start().get(),
                rule => burst.at.get() / rule.window().get().max(1),
            };
            let Burst { location, evictions, .. } = *burst;
            let (policies, steps_back) = (self.policies.len(), self.steps_back);
            graces.extend(burst.lives.clone().map(|life| (location, evictions, life, policies, steps_back, window)));
        }
        self.in_flight = self.in_flight.max(burst.offered);
        *self.offered.entry(burst.cost).or_default() += burst.chargeable;
        *self.offered.entry(0).or_default() += burst.offered - burst.chargeable;
        self.units = self.units.saturating_add(burst.units());
        self.exact = self.exact.saturating_add(burst.exact.min(burst.chargeable).saturating_mul(burst.cost));
        self.given_back = self.given_back.saturating_add(self.given_back_before);
        self.given_back_before = burst.given_back;
        self.granted = self.granted.max(burst.granted);
    }

    pub(super) fn interval(&self) -> (UnixMillis, UnixMillis) {
        self.interval.unwrap_or_default()
    }

    /// The load on a limiter whose exact counterpart admits at most `limit`. If all requests arrive at one location,
    /// each of its isolates counts as a location.
    pub(super) fn load(&self, limit: u64, quota: u64, isolates: u64) -> Load {
        let locations = if self.locations.len() > 1 { self.locations.len() as u64 } else { isolates };
        Load { limit, quota, in_flight: self.in_flight, locations }
    }

    /// The same, where each isolate that has replaced an evicted one counts as one more location.
    pub(super) fn load_of_all(&self, limit: u64, quota: u64, isolates: u64) -> Load {
        // Several locations have one isolate each.
        Load { locations: self.lives.len() as u64 * isolates, ..self.load(limit, quota, isolates) }
    }

    /// The same, where each one that has replaced a killed one counts as one more location: what was lent to the dead stays lent.
    pub(super) fn load_of_borrowers(&self, limit: u64, isolates: u64) -> Load {
        Load { locations: self.borrowers.len() as u64 * isolates, ..self.load(limit, limit, isolates) }
    }

    /// The most units that may be admitted: the lowest ceiling of any quota.
    pub(super) fn ceiling(&self, accuracy: &Accuracy, isolates: u64) -> u64 {
        let quotas = 0..self.policies.first().map_or(0, |policy| policy.quotas().len());
        let least = |place: usize| self.policies.iter().map(|policy| policy.quotas()[place].rule().limit()).min();
        let ceilings = quotas.map(|place| {
            let maximum = self.maximum(place).saturating_add(self.covered_with(place));
            let load = self.load_of_all(maximum, least(place).unwrap_or(0), isolates);
            // Of the locations, each window has its own.
            let Drift { grace, .. } = accuracy.drift();
            let without = accuracy.ceiling(load).saturating_sub(grace.saturating_mul(load.locations));
            without.saturating_add(grace.saturating_mul(self.graces[place].len() as u64 * isolates))
        });
        ceilings.min().unwrap_or(0).saturating_add(self.given_back)
    }

    /// The lowest limit of any quota.
    pub(super) fn least_quota(&self) -> u64 {
        let quotas = self.policies.iter().flat_map(|policy| policy.quotas());
        quotas.map(|quota| quota.rule().limit()).min().unwrap_or(0)
    }

    /// The most units that another quota admits beside the one at `place`, because one of the two is a balance that covers the other.
    fn covered_with(&self, place: usize) -> u64 {
        let covers = |place: usize| {
            let balance = |policy: &&Policy| matches!(policy.quotas().get(place).map(Quota::rule), Some(Rule::Balance(rule)) if rule.covers());
            self.policies.iter().any(balance)
        };
        match place {
            _ if covers(place + 1) => self.maximum(place + 1),
            1.. if covers(place) => self.maximum(place - 1),
            _ => 0,
        }
    }

    /// The most units that an exact limiter admits by one quota. A balance admits what was granted. If the quota's numbers changed, the largest of each
    /// counts.
    fn maximum(&self, place: usize) -> u64 {
        let (first, last) = self.interval();
        let rules = || self.policies.iter().map(|policy| policy.quotas()[place].rule());
        if rules().any(|rule| matches!(rule, Rule::Balance(_))) {
            return self.granted;
        }
        let at_once = rules().map(|rule| rule.limit()).max().unwrap_or(0);
        let quotas = || self.policies.iter().map(|policy| &policy.quotas()[place]);
        let in_time = quotas().map(|quota| most(quota, first, last) - quota.rule().limit()).max().unwrap_or(0);
        // A window lasts until its end, and the new calendar's may begin before it.
        let changes = quotas().zip(quotas().skip(1)).filter(|(one, other)| one.calendar() != other.calendar()).count();
        at_once.saturating_add(in_time).saturating_add(at_once.saturating_mul(changes as u64))
    }

    /// The most requests that these units can pay for, the cheapest first.
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

/// The most units that a quota admits in an interval. A rule knows two windows of its calendar, and the calendar all.
fn most(quota: &Quota, first: UnixMillis, last: UnixMillis) -> u64 {
    let (Rule::CalendarWindow(rule), Some(calendar)) = (quota.rule(), quota.calendar()) else {
        return quota.rule().maximum(first, last);
    };
    let (mut windows, mut now) = (1u64, first);
    while let Some([_, end, _]) = calendar.boundaries(now).filter(|[_, end, _]| *end <= last) {
        (windows, now) = (windows + 1, end);
    }
    windows.saturating_mul(quota.rule().limit()).saturating_add(rule.carry_over())
}
