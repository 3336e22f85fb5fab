//! Where two rules files differ.

use std::collections::HashMap;

use serde::Serialize;

use super::clients::Client;
use super::entry::Entry;
use super::replay::{Cause, Outcome, Replay};
use super::tally::percent;

/// The most clients whose differences are remembered one by one.
const MAX_DIFFERENT: usize = 100_000;

/// The most characters of a path that an example shows.
const SHOWN: usize = 120;

/// Counts the requests and the clients that only one of two rules files denies.
#[derive(Debug, Default)]
pub struct Shadow {
    only_old: u64,
    only_new: u64,
    both: u64,
    clients: HashMap<Client, Difference>,
    requests_left_out: u64,
}

#[derive(Debug, Default)]
struct Difference {
    old: u64,
    new: u64,
    only_old: u64,
    only_new: u64,
    example: Option<Example>,
}

/// A request that only one of the files denies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Example {
    /// The log.
    pub log: String,
    /// The line, from 1.
    pub line: u64,
    /// When it came.
    pub at_ms: u64,
    /// The method.
    pub method: String,
    /// The start of the path.
    pub path: String,
    /// The rule and the limit that deny it.
    #[serde(flatten)]
    pub cause: Cause,
}

/// Where two rules files differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ShadowReport {
    /// The new rules.
    pub rules: String,
    /// The requests that only the old rules deny.
    pub requests_only_old: u64,
    /// The requests that only the new rules deny.
    pub requests_only_new: u64,
    /// The requests that both deny.
    pub requests_both: u64,
    /// The clients that only the old rules deny.
    pub clients_only_old: u64,
    /// The clients that only the new rules deny.
    pub clients_only_new: u64,
    /// The clients that both deny.
    pub clients_both: u64,
    /// The requests of further clients, which are in no number of clients.
    pub requests_left_out: u64,
    /// The clients with the most requests that only the new rules deny.
    pub denied_by_new: Vec<DifferenceReport>,
    /// The clients with the most requests that only the old rules deny.
    pub denied_by_old: Vec<DifferenceReport>,
}

/// How the two files differ for a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DifferenceReport {
    /// The address, or the /64.
    pub client: Client,
    /// Its requests that the old rules deny.
    pub old: u64,
    /// Its requests that the new rules deny.
    pub new: u64,
    /// The first request for which they differ.
    pub example: Option<Example>,
}

impl ShadowReport {
    /// The share of a hundred of this number of clients that the new rules deny.
    #[must_use]
    pub fn new_percent(&self, clients: usize) -> f64 {
        percent(usize::try_from(self.clients_only_new + self.clients_both).unwrap_or(usize::MAX), clients)
    }
}

impl Shadow {
    /// Counts what both do with a request of this line of a log.
    pub fn add(
        &mut self,
        (log, line): (&str, u64),
        entry: &Entry<'_>,
        client: Client,
        old: (&Replay, Outcome),
        new: (&Replay, Outcome),
    ) {
        let cause = match (old, new) {
            ((_, Outcome::Denied(_)), (_, Outcome::Denied(_))) => {
                self.both += 1;
                None
            }
            ((replay, Outcome::Denied(cause)), _) => {
                self.only_old += 1;
                Some(replay.cause(cause))
            }
            (_, (replay, Outcome::Denied(cause))) => {
                self.only_new += 1;
                Some(replay.cause(cause))
            }
            _ => return,
        };
        if self.clients.len() >= MAX_DIFFERENT && !self.clients.contains_key(&client) {
            self.requests_left_out += 1;
            return;
        }
        let of_client = self.clients.entry(client).or_default();
        let [by_old, by_new] = [old.1, new.1].map(|outcome| matches!(outcome, Outcome::Denied(_)));
        of_client.old += u64::from(by_old);
        of_client.new += u64::from(by_new);
        of_client.only_old += u64::from(by_old && !by_new);
        of_client.only_new += u64::from(by_new && !by_old);
        if let (Some(cause), None) = (cause, &of_client.example) {
            of_client.example = Some(Example {
                log: log.into(),
                line,
                at_ms: entry.at.get(),
                method: entry.method.chars().take(SHOWN).collect(),
                path: entry.path.chars().take(SHOWN).collect(),
                cause: cause.clone(),
            });
        }
    }

    pub(super) fn report(&self, rules: &str, top: usize) -> ShadowReport {
        let count = |is: fn(&Difference) -> bool| self.clients.values().filter(|one| is(one)).count() as u64;
        ShadowReport {
            rules: rules.into(),
            requests_only_old: self.only_old,
            requests_only_new: self.only_new,
            requests_both: self.both,
            clients_only_old: count(|one| one.new == 0),
            clients_only_new: count(|one| one.old == 0),
            clients_both: count(|one| one.old > 0 && one.new > 0),
            requests_left_out: self.requests_left_out,
            denied_by_new: self.top(top, |one| one.only_new),
            denied_by_old: self.top(top, |one| one.only_old),
        }
    }

    fn top(&self, count: usize, rank: fn(&Difference) -> u64) -> Vec<DifferenceReport> {
        let mut found: Vec<_> = self.clients.iter().map(|(client, one)| (rank(one), *client, one)).collect();
        found.retain(|(rank, ..)| *rank > 0);
        found.sort_unstable_by_key(|(rank, client, _)| (std::cmp::Reverse(*rank), *client));
        found.truncate(count);
        let reported = |(_, client, one): (u64, Client, &Difference)| DifferenceReport {
            client,
            old: one.old,
            new: one.new,
            example: one.example.clone(),
        };
        found.into_iter().map(reported).collect()
    }
}
