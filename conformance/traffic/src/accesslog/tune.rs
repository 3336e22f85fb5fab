//! Searches for the smallest limits that deny few clients.
//!
//! Each number is judged alone: the others are so large that they deny nobody. A client is denied by a limit if the limit denies
//! at least one of its requests.
//!
//! A client that counts alone and is never denied has been charged for all its requests, whatever the limit is. So a first
//! replay, with numbers that deny nobody, tells how much each client needs, and the number that only the wanted share exceeds is
//! known. A second replay shows that this number is within the share, and that the next smaller one is not. Where clients share a
//! count, the denial of one leaves room for another, so the first guess may be wrong. Then a binary search continues. It
//! ends with a number that is within the share while the next smaller one is not. There may be yet smaller ones that are.

use std::collections::{HashMap, HashSet};

use serde::Serialize;
use tidegate_core::Error;

use super::adapted::{Adapted, Number};
use super::clients::{Client, MAX_CLIENTS};
use super::entry::Entry;
use super::replay::{Outcome, Replay};

/// What is found for one number of a rules file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tuned {
    /// The limit.
    pub limit: String,
    /// Its quota.
    pub quota: String,
    /// The algorithm.
    pub algorithm: String,
    /// The clients whose requests it counts.
    pub clients: usize,
    /// The largest number that is valid.
    pub most: u64,
    /// The number in the file.
    pub old: Tried,
    /// The smallest number that is within the share. `None` if it counts no request, or if even the largest is not.
    pub new: Option<Tried>,
    /// The next smaller number. `None` if there is none.
    pub below: Option<Tried>,
}

/// What a number denies, alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Tried {
    /// The limit of a window, or the capacity of a bucket.
    pub number: u64,
    /// The clients that it denies.
    pub clients: usize,
    /// The requests that it denies.
    pub requests: u64,
}

/// Searches, for each number of the rules, the smallest that denies at most `percent` of the clients that it counts. `read` reads
/// the log once and calls its argument with each request.
///
/// # Errors
/// Those of `read`.
pub fn tune<E: From<Error>>(
    rules: &Adapted,
    percent: f64,
    mut read: impl FnMut(&mut dyn FnMut(&Entry<'_>)) -> Result<(), E>,
) -> Result<Vec<Tuned>, E> {
    let rules = rules.without_penalties();
    let numbers = rules.numbers();
    let needs = needs(&rules, &numbers, &mut read)?;
    let mut searches: Vec<Search> =
        numbers.iter().zip(needs).map(|(number, needs)| Search::new(number, needs, percent)).collect();
    loop {
        let mut probes = Vec::new();
        for (place, search) in searches.iter().enumerate() {
            for wanted in search.wanted() {
                probes.push(Probe::new(&rules, &numbers, place, wanted)?);
            }
        }
        if probes.is_empty() {
            return Ok(searches.into_iter().map(Search::done).collect());
        }
        read(&mut |entry| probes.iter_mut().for_each(|probe| probe.add(entry)))?;
        for probe in probes {
            searches[probe.place].tried.push(probe.tried());
        }
    }
}

/// How much of each number each client needs so that none of its requests is denied.
fn needs<E: From<Error>>(
    rules: &Adapted,
    numbers: &[Number],
    read: &mut impl FnMut(&mut dyn FnMut(&Entry<'_>)) -> Result<(), E>,
) -> Result<Vec<HashMap<Client, u64>>, E> {
    let mut replay = Replay::new(&rules.with(numbers.iter().map(|number| (number, number.most))))?;
    let mut needs = vec![HashMap::new(); numbers.len()];
    let places: HashMap<&str, usize> =
        numbers.iter().enumerate().map(|(place, one)| (one.quota.as_str(), place)).collect();
    read(&mut |entry| {
        let client = replay.client(entry);
        replay.decide_seen(entry, client, |policy, decision| {
            for (quota, status) in policy.quotas().iter().zip(decision.quotas()) {
                let Some(place) = places.get(quota.name()) else { continue };
                let of_number: &mut HashMap<Client, u64> = &mut needs[*place];
                if of_number.len() >= MAX_CLIENTS && !of_number.contains_key(&client) {
                    continue;
                }
                let needed = of_number.entry(client).or_default();
                *needed = (*needed).max(status.limit() - status.remaining().unwrap_or_default().min(status.limit()));
            }
        });
    })?;
    Ok(needs)
}

/// The search for one number.
struct Search {
    number: Number,
    clients: usize,
    /// The most clients that may be denied.
    allowed: usize,
    guess: u64,
    tried: Vec<Tried>,
}

impl Search {
    fn new(number: &Number, needs: HashMap<Client, u64>, percent: f64) -> Self {
        let mut needs: Vec<u64> = needs.into_values().collect();
        needs.sort_unstable_by_key(|needed| std::cmp::Reverse(*needed));
        let clients = needs.len();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a share"
        )]
        let allowed = (clients as f64 * percent / 100.0) as usize;
        let guess = needs.get(allowed).copied().unwrap_or(1).clamp(1, number.most);
        Self { number: number.clone(), clients, allowed, guess, tried: Vec::new() }
    }

    /// The largest number that denies too many, or 0, and the smallest that does not.
    fn bounds(&self) -> (u64, Option<u64>) {
        let fits = |tried: &&Tried| tried.clients <= self.allowed;
        // A search goes on from the guess, and the number in the file is no part of it.
        let within = self.tried.iter().skip(1).filter(fits).map(|tried| tried.number).min();
        let below = |tried: &&Tried| within.is_none_or(|within| tried.number < within);
        let beyond =
            self.tried.iter().skip(1).filter(|tried| !fits(tried)).filter(below).map(|tried| tried.number).max();
        (beyond.unwrap_or(0), within)
    }

    /// The numbers to try next: first the one in the file, the guess and the next smaller one.
    fn wanted(&self) -> Vec<u64> {
        if self.clients == 0 {
            return Vec::new();
        }
        if self.tried.is_empty() {
            return [self.number.value, self.guess, self.guess - 1].into_iter().filter(|number| *number > 0).collect();
        }
        match self.bounds() {
            (beyond, Some(within)) if within - beyond > 1 => vec![beyond + (within - beyond) / 2],
            (_, Some(_)) => Vec::new(),
            (beyond, None) if beyond < self.number.most => vec![beyond.saturating_mul(2).min(self.number.most)],
            (_, None) => Vec::new(),
        }
    }

    fn done(self) -> Tuned {
        let (_, within) = self.bounds();
        let find = |wanted: u64| self.tried.iter().copied().find(|tried| tried.number == wanted);
        let unused = Tried { number: self.number.value, clients: 0, requests: 0 };
        Tuned {
            clients: self.clients,
            most: self.number.most,
            old: self.tried.first().copied().unwrap_or(unused),
            new: within.and_then(find),
            below: within.and_then(|within| find(within - 1)),
            limit: self.number.limit,
            quota: self.number.quota,
            algorithm: self.number.algorithm,
        }
    }
}

/// A replay with one number, in which no other number denies anyone.
struct Probe {
    /// The place of the search.
    place: usize,
    number: u64,
    quota: String,
    replay: Replay,
    clients: HashSet<Client>,
    requests: u64,
}

impl Probe {
    fn new(rules: &Adapted, numbers: &[Number], place: usize, wanted: u64) -> Result<Self, Error> {
        let all = numbers.iter().enumerate();
        let rules = rules.with(all.map(|(other, number)| (number, if other == place { wanted } else { number.most })));
        let (replay, quota) = (Replay::new(&rules)?, numbers[place].quota.clone());
        Ok(Self { place, number: wanted, quota, replay, clients: HashSet::new(), requests: 0 })
    }

    fn add(&mut self, entry: &Entry<'_>) {
        let client = self.replay.client(entry);
        let Outcome::Denied(cause) = self.replay.decide(entry, client) else { return };
        if self.replay.cause(cause).limit == self.quota {
            self.requests += 1;
            if self.clients.len() < MAX_CLIENTS {
                self.clients.insert(client);
            }
        }
    }

    fn tried(&self) -> Tried {
        Tried { number: self.number, clients: self.clients.len(), requests: self.requests }
    }
}
