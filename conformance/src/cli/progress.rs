//! Progress on standard error: a bar on a terminal, a line a target elsewhere.

use std::io::{IsTerminal as _, stderr};

use indicatif::{ProgressBar, ProgressStyle};

use crate::judge::Verdict;
use crate::report::{FixtureReport, TargetReport};

pub(super) struct Progress {
    bar: Option<ProgressBar>,
}

impl Progress {
    pub(super) fn new(name: &str, fixtures: usize) -> Self {
        if !stderr().is_terminal() {
            return Self { bar: None };
        }
        let bar = ProgressBar::new(fixtures as u64).with_prefix(name.to_string());
        if let Ok(style) = ProgressStyle::with_template("{prefix:>16} {bar:30} {pos}/{len} {msg}") {
            bar.set_style(style);
        }
        Self { bar: Some(bar) }
    }

    pub(super) fn step(&self, done: &FixtureReport) {
        let Some(bar) = &self.bar else { return };
        if done.verdict == Verdict::Fail {
            bar.println(format!("failed: {}", done.id));
        }
        bar.set_message(done.id.clone());
        bar.inc(1);
    }

    pub(super) fn finish(&self, report: &TargetReport) {
        match &self.bar {
            Some(bar) => bar.finish_and_clear(),
            None if report.fixtures.is_empty() => {
                eprintln!("{}: {}", report.name, report.reason.as_deref().unwrap_or("nothing ran"));
            }
            None => eprintln!(
                "{}: {} passed, {} failed, of {}",
                report.name,
                report.count(Verdict::Pass),
                report.count(Verdict::Fail),
                report.fixtures.len()
            ),
        }
    }
}
