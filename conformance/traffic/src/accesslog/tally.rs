//! Counts what the rules did with the requests of a log.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use serde::Serialize;

use super::clients::{Client, ClientReport, Clients, Denials, MAX_CLIENTS, Times};
use super::entry::{Entry, Parsed, Unreadable};
use super::replay::{Cause, Outcome};
use super::series::Series;

/// Counts lines and requests, in bounded memory.
#[derive(Debug, Default)]
pub struct Tally {
    pub(super) lines: LineReport,
    pub(super) from_ms: Option<u64>,
    pub(super) to_ms: u64,
    pub(super) admitted: u64,
    pub(super) unlimited: u64,
    pub(super) denied: u64,
    pub(super) clients: Clients,
    pub(super) series: Series,
    causes: Vec<Times>,
    /// For each client, what denied it.
    denials: HashMap<(Client, usize), Times, RandomState>,
}

/// What was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LineReport {
    /// The lines. Empty ones are left out.
    pub read: u64,
    /// The lines with a request.
    pub requests: u64,
    /// The lines about bytes that were no HTTP request.
    pub no_request: u64,
    /// The lines that cannot be read.
    pub unreadable: u64,
    /// The first of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_unreadable: Option<Sample>,
    /// The requests earlier than one before them.
    pub stepped_back: u64,
    /// The largest of these steps.
    pub step_back_max_ms: u64,
    /// The requests without a client address.
    pub without_address: u64,
    /// The requests that the server answered with a 429.
    pub already_429: u64,
    /// Whether the log has times within a second.
    pub has_milliseconds: bool,
    /// Whether the log has hosts.
    pub has_host: bool,
    /// Whether the log has user agents.
    pub has_agent: bool,
}

impl LineReport {
    /// Whether more than half of the lines cannot be read.
    #[must_use]
    pub const fn is_mostly_unreadable(&self) -> bool {
        self.unreadable * 2 > self.read
    }
}

/// A line that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sample {
    /// The log.
    pub log: String,
    /// The line, from 1.
    pub line: u64,
    /// Why.
    pub reason: String,
    /// The format that was tried.
    pub tried: String,
    /// The start of the line.
    pub text: String,
}

/// What all numbers of a rules file deny together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Together {
    /// The clients that are denied.
    pub clients: usize,
    /// The requests that are denied.
    pub requests: u64,
}

/// What one cause denied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CauseReport {
    /// The rule and the limit.
    #[serde(flatten)]
    pub cause: Cause,
    /// The requests that it denied.
    pub requests: u64,
    /// The clients that it denied.
    pub clients: u64,
    /// When it denied the first.
    pub first_ms: u64,
    /// When it denied the last.
    pub last_ms: u64,
}

impl Tally {
    /// Counts a line that was read.
    pub fn line(&mut self, parsed: &Parsed<'_>) {
        match parsed {
            Parsed::Blank => {}
            Parsed::NoRequest => {
                self.lines.read += 1;
                self.lines.no_request += 1;
            }
            Parsed::Request(entry) => {
                self.lines.read += 1;
                self.request(entry);
            }
        }
    }

    /// Counts a line that cannot be read.
    pub fn unreadable(&mut self, log: &str, line: u64, text: &str, why: Unreadable) {
        self.lines.read += 1;
        self.lines.unreadable += 1;
        self.lines.first_unreadable.get_or_insert_with(|| Sample {
            log: log.into(),
            line,
            reason: why.to_string(),
            tried: why.tried().into(),
            text: quoted(text),
        });
    }

    fn request(&mut self, entry: &Entry<'_>) {
        let at_ms = entry.at.get();
        self.lines.requests += 1;
        self.lines.without_address += u64::from(entry.peer.is_none());
        self.lines.already_429 += u64::from(entry.status == Some(429));
        self.lines.has_host |= entry.host.is_some();
        self.lines.has_agent |= entry.agent.is_some();
        self.lines.has_milliseconds |= !at_ms.is_multiple_of(1_000);
        self.from_ms = Some(self.from_ms.map_or(at_ms, |from_ms| from_ms.min(at_ms)));
        let back_ms = self.to_ms.saturating_sub(at_ms);
        self.lines.stepped_back += u64::from(back_ms > 0);
        self.lines.step_back_max_ms = self.lines.step_back_max_ms.max(back_ms);
        self.to_ms = self.to_ms.max(at_ms);
    }

    /// Counts the outcome of a request.
    pub fn outcome(&mut self, entry: &Entry<'_>, client: Client, outcome: Outcome) {
        let at_ms = entry.at.get();
        let denied = match outcome {
            Outcome::Denied(cause) => {
                self.denied += 1;
                self.denial(cause, client, at_ms);
                Some(at_ms)
            }
            Outcome::Admitted => {
                self.admitted += 1;
                None
            }
            Outcome::Unlimited => {
                self.unlimited += 1;
                None
            }
        };
        self.clients.add(client, entry.agent.as_deref(), denied);
        self.series.add(at_ms, outcome);
    }

    fn denial(&mut self, cause: usize, client: Client, at_ms: u64) {
        if self.causes.len() <= cause {
            self.causes.resize_with(cause + 1, Times::default);
        }
        self.causes[cause].add(at_ms);
        let has_room = self.denials.len() < MAX_CLIENTS;
        match self.denials.get_mut(&(client, cause)) {
            Some(times) => times.add(at_ms),
            None if has_room => self.denials.entry((client, cause)).or_default().add(at_ms),
            None => {}
        }
    }

    /// What was denied in sum.
    #[must_use]
    pub fn together(&self) -> Together {
        Together { clients: self.clients.denied(), requests: self.denied }
    }

    /// What denied requests, the most frequent first.
    pub(super) fn by_cause(&self, causes: &[Cause]) -> Vec<CauseReport> {
        let mut clients = vec![0; causes.len()];
        for (_, cause) in self.denials.keys() {
            clients[*cause] += 1;
        }
        let counted = causes.iter().zip(&self.causes).zip(clients);
        let mut found: Vec<CauseReport> = counted
            .filter(|((_, times), _)| times.count > 0)
            .map(|((cause, times), clients)| CauseReport {
                cause: cause.clone(),
                requests: times.count,
                clients,
                first_ms: times.first_ms,
                last_ms: times.last_ms,
            })
            .collect();
        found.sort_by_key(|one| std::cmp::Reverse(one.requests));
        found
    }

    /// The clients that were denied most, each with its causes.
    pub(super) fn denied_most(&self, count: usize, causes: &[Cause]) -> Vec<ClientReport> {
        let mut top = self.clients.top(count, |counts| counts.denied.count);
        let places: HashMap<Client, usize> = top.iter().enumerate().map(|(place, one)| (one.client, place)).collect();
        for ((client, cause), times) in &self.denials {
            if let Some(place) = places.get(client) {
                let Cause { rule, limit } = causes[*cause].clone();
                top[*place].by.push(Denials { rule, limit, requests: times.count });
            }
        }
        for one in &mut top {
            one.by.sort_by(|a, b| b.requests.cmp(&a.requests).then_with(|| a.rule.cmp(&b.rule)));
        }
        top
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share")]
pub(super) fn percent(part: usize, of: usize) -> f64 {
    if of == 0 { 0.0 } else { part as f64 * 100.0 / of as f64 }
}

/// The most characters that are quoted of a line, escapes included.
const QUOTED: usize = 80;

/// The start of a line, which ends with an ellipsis if there is more.
fn quoted(text: &str) -> String {
    let mut room = QUOTED;
    let fits = |letter: &char| {
        let width = letter.escape_debug().count();
        let fits = width <= room;
        room = room.saturating_sub(if fits { width } else { room });
        fits
    };
    let start: String = text.chars().take_while(fits).collect();
    if start.len() < text.len() { start + "…" } else { start }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn a_line_is_quoted_up_to_80_characters() {
        assert_eq!(quoted("short"), "short");
        assert_eq!(quoted(&"\0".repeat(9_000)), ["\0".repeat(40).as_str(), "…"].concat());
        assert_eq!(quoted(&"é".repeat(81)), ["é".repeat(80).as_str(), "…"].concat());
    }
}
