//! Progress on standard error: a line for each target and, on a terminal, a bar for the running one.

use std::io::{IsTerminal as _, stderr};
use std::sync::LazyLock;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use tidegate_conformance::judge::Verdict;
use tidegate_conformance::report::{FixtureReport, TargetReport};
use tidegate_harness::output::errln;

/// The terminal, which the bar shares with the lines above it.
static TERMINAL: LazyLock<Option<MultiProgress>> = LazyLock::new(|| stderr().is_terminal().then(MultiProgress::new));

/// Prints a line above the bar, if there is one.
pub fn tell(line: &str) {
    match &*TERMINAL {
        Some(terminal) => drop(terminal.println(line)),
        None => errln!("{line}"),
    }
}

pub(crate) struct Progress {
    bar: Option<ProgressBar>,
}

impl Progress {
    /// For the target with this name, with these numbers of fixtures and of targets after it.
    pub(crate) fn new(name: &str, fixtures: usize, later: usize) -> Self {
        let Some(terminal) = &*TERMINAL else { return Self { bar: None } };
        let bar = terminal.add(ProgressBar::new(fixtures as u64).with_prefix(name.to_string()));
        let after = match later {
            0 => String::new(),
            1 => ", then 1 target".to_string(),
            later => format!(", then {later} targets"),
        };
        if let Ok(style) =
            ProgressStyle::with_template(&format!("{{prefix:>16}} {{bar:30}} {{pos}}/{{len}}{after} {{msg}}"))
        {
            bar.set_style(style);
        }
        Self { bar: Some(bar) }
    }

    pub(crate) fn step(&self, done: &FixtureReport) {
        let Some(bar) = &self.bar else { return };
        if done.verdict == Verdict::Fail {
            tell(&format!("failed: {}", done.id));
        }
        bar.set_message(done.id.clone());
        bar.inc(1);
    }

    pub(crate) fn finish(&self, report: &TargetReport) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        match &report.reason {
            Some(reason) if report.fixtures.is_empty() => tell(&format!("{}: {reason}", report.name)),
            _ => tell(&format!(
                "{}: {} passed, {} failed, of {}",
                report.name,
                report.count(Verdict::Pass),
                report.count(Verdict::Fail),
                report.fixtures.len()
            )),
        }
    }
}
