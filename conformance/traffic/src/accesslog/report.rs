//! The result of a replay.

use serde::Serialize;

use super::adapted::Note;
use super::clients::ClientReport;
use super::replay::Cause;
use super::series::SeriesReport;
use super::shadow::{Shadow, ShadowReport};
use super::tally::{CauseReport, LineReport, Tally, Together, percent};
use super::tune::{Tried, Tuned};
use crate::build::Tidegate;

/// The schema version of an [`AccessReport`].
pub const SCHEMA: &str = "tidegate/access-log/v1";

/// The most steps of the series in a report.
const STEPS: usize = 240;

/// The result of a replay.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AccessReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// The build of Tidegate that ran.
    pub tidegate: Tidegate,
    /// The logs, in the order in which they were read.
    pub logs: Vec<String>,
    /// The rules file.
    pub rules: String,
    /// What was read.
    pub lines: LineReport,
    /// The time of the earliest request.
    pub from_ms: u64,
    /// The time of the latest request.
    pub to_ms: u64,
    /// The requests that their limits admit.
    pub admitted: u64,
    /// The requests that no limit applies to.
    pub unlimited: u64,
    /// The requests that are denied.
    pub denied: u64,
    /// The clients. Those beyond [`MAX_CLIENTS`](super::MAX_CLIENTS) are left out.
    pub clients: usize,
    /// The clients of which at least one request is denied.
    pub clients_denied: usize,
    /// The same as a share of a hundred.
    pub clients_denied_percent: f64,
    /// The requests of clients that are left out.
    pub requests_of_others: u64,
    /// What denies requests, the most frequent first.
    pub causes: Vec<CauseReport>,
    /// The clients that are denied most.
    pub denied_most: Vec<ClientReport>,
    /// The clients with the most requests.
    pub top: Vec<ClientReport>,
    /// How many addresses are probably shared by many people.
    pub shared_count: usize,
    /// Those with the most user agents.
    pub shared: Vec<ClientReport>,
    /// The requests over time.
    pub series: SeriesReport,
    /// What counted in another way than a gate does.
    pub notes: Vec<Note>,
    /// The limits that a search found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tune: Option<TuneReport>,
    /// Where other rules differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shadow: Option<ShadowReport>,
}

/// What a search found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TuneReport {
    /// The share of a hundred of a limit's clients that it may deny.
    pub percent: f64,
    /// Each number of the rules.
    pub numbers: Vec<Tuned>,
    /// What all new numbers deny together, with the penalties of the rules.
    pub together: Together,
}

impl AccessReport {
    /// The report of what was counted. `top` is the most clients in each list.
    #[must_use]
    pub fn new(logs: Vec<String>, rules: &str, tally: &Tally, causes: &[Cause], top: usize) -> Self {
        let (shared_count, shared) = tally.clients.shared(top);
        let (clients, clients_denied) = (tally.clients.len(), tally.clients.denied());
        Self {
            schema: SCHEMA.into(),
            tidegate: Tidegate::this(),
            logs,
            rules: rules.into(),
            lines: tally.lines.clone(),
            from_ms: tally.from_ms.unwrap_or_default(),
            to_ms: tally.to_ms,
            admitted: tally.admitted,
            unlimited: tally.unlimited,
            denied: tally.denied,
            clients,
            clients_denied,
            clients_denied_percent: percent(clients_denied, clients),
            requests_of_others: tally.clients.requests_of_others,
            causes: tally.by_cause(causes),
            denied_most: tally.denied_most(top, causes),
            top: tally.clients.top(top, |counts| counts.requests),
            shared_count,
            shared,
            series: tally.series.report(STEPS),
            notes: Vec::new(),
            tune: None,
            shadow: None,
        }
    }

    /// Adds what counted in another way than a gate does.
    #[must_use]
    pub fn with_notes(self, notes: Vec<Note>) -> Self {
        Self { notes, ..self }
    }

    /// Adds where other rules differ.
    #[must_use]
    pub fn with_shadow(self, shadow: &Shadow, rules: &str, top: usize) -> Self {
        Self { shadow: Some(shadow.report(rules, top)), ..self }
    }

    /// Adds what a search found, and what its numbers deny together.
    #[must_use]
    pub fn with_tune(self, percent: f64, numbers: Vec<Tuned>, together: Together) -> Self {
        Self { tune: Some(TuneReport { percent, numbers, together }), ..self }
    }
}

impl Tuned {
    /// The number that the search proposes: the old one, if it found none.
    #[must_use]
    pub fn proposed(&self) -> Tried {
        self.new.unwrap_or(self.old)
    }
}
