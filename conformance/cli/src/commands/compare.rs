use std::path::{Path, PathBuf};

use clap::ValueEnum;
use tidegate_core::internal::Suggestion;
use tidegate_harness::output::{err, out, outln};
use tidegate_harness::report::Report;
use wildmatch::WildMatch;

use crate::compare::{self, Change, Exactness, Summary, Transition, badge, changes, html, markdown, text};
use crate::program::{Failure, deserialized, report, versioned};

const EXAMPLES: &str = "\
Examples:
  tidegate compare main.json branch.json           what a change did
  tidegate compare report.json#redis report.json#cloudflare-do
                                                   two platforms side by side";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The reports, the earliest first: report.json files, summaries, or folders, whose files are taken in the order of
    /// their names. FILE#TARGET selects one target, so that two platforms can be compared.
    #[arg(required = true, value_name = "REPORT")]
    reports: Vec<String>,
    /// Do not fail because of changes of these targets and fixtures, for example 'spin-kv *' or '* race/two-keys'.
    #[arg(long, value_name = "GLOB")]
    allow: Vec<String>,
    /// The form of the output.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Markdown,
    Html,
    Json,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let mut runs = Vec::new();
    for name in &args.reports {
        runs.extend(read(name)?);
    }
    if runs.len() < 2 {
        return Err(Failure::Usage("there is one report; name another to compare it with".into()));
    }
    let transitions: Vec<_> = runs.windows(2).map(|pair| transition(&pair[0], &pair[1], &args.allow)).collect();
    match args.format {
        Format::Text => out!("{}", text(&transitions)),
        Format::Markdown => out!("{}", markdown(&transitions)),
        Format::Html => out!("{}", html(&transitions)),
        Format::Json => outln!("{}", serde_json::to_string(&transitions).unwrap_or_default()),
    }
    // An earlier regression may have been corrected since.
    let worse = transitions.last().is_some_and(|last| last.changes.iter().any(Change::is_regression));
    if worse { Err(Failure::Failed) } else { Ok(()) }
}

/// A run with its name.
pub(super) type Run = (String, Summary);

fn transition((before, old): &Run, (after, new): &Run, allow: &[String]) -> Transition {
    let allow: Vec<_> = allow.iter().map(|pattern| WildMatch::new(pattern)).collect();
    let mut changes = changes(old, new);
    for change in &mut changes {
        change.allowed = change.worse && allow.iter().any(|pattern| pattern.matches(&change.place()));
    }
    Transition { before: before.clone(), after: after.clone(), changes }
}

/// Compares a run with a baseline, of which only what the run has tested counts. Prints the changes, and returns whether
/// one is a regression that is not allowed.
pub(super) fn is_worse(report: &Report, baseline: Run, allow: &[String]) -> bool {
    let after = Summary::of(report);
    let baseline = (baseline.0, baseline.1.restricted_to(&after));
    let transition = transition(&baseline, &("this run".into(), after), allow);
    let worse = transition.changes.iter().any(Change::is_regression);
    err!("\ncompared with {}:\n{}", baseline.0, text(&[transition]));
    worse
}

/// Reads one report or summary.
pub(super) fn read_one(file: &Path) -> Result<Run, Failure> {
    Ok((file.display().to_string(), summary(file)?))
}

/// Reads a report, a summary, one target of either, or all files of a folder.
fn read(name: &str) -> Result<Vec<Run>, Failure> {
    let path = Path::new(name);
    if path.is_dir() {
        let wrong = |error: std::io::Error| Failure::Usage(format!("{name}: {error}"));
        let entries = path.read_dir().map_err(wrong)?.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
        let is_json = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "json");
        let mut files: Vec<_> = entries.into_iter().map(|entry| entry.path()).filter(is_json).collect();
        files.sort();
        if files.is_empty() {
            return Err(Failure::Usage(format!("{name}: there is no .json file in this folder")));
        }
        return files.iter().map(|file| read_one(file)).collect();
    }
    let Some((file, target)) = name.rsplit_once('#').filter(|_| !path.exists()) else {
        return Ok(vec![read_one(path)?]);
    };
    let mut one = summary(Path::new(file))?;
    let Some(found) = one.targets.remove(target) else {
        let known: Vec<_> = one.targets.keys().map(String::as_str).collect();
        let suggestion = Suggestion::of(target, &known);
        return Err(Failure::Usage(format!("{file}: has no target {target:?}; {suggestion}")));
    };
    // Under one name, two targets can be compared.
    one.targets = [("target".to_string(), found)].into();
    Ok(vec![(name.into(), one)])
}

fn summary(file: &Path) -> Result<Summary, Failure> {
    let (text, schema) = versioned(file)?;
    if schema == compare::SCHEMA {
        return deserialized(file, &text);
    }
    Ok(Summary::of(&report(file)?))
}

pub(super) const SUMMARY_EXAMPLES: &str = "\
Examples:
  tidegate summary target/conformance/report.json > baseline.json
  tidegate run --baseline baseline.json            fail if something gets worse";

pub(super) const EXACTNESS_EXAMPLES: &str = "\
Examples:
  tidegate exactness target/conformance/report.json > exactness.json
  tidegate exactness report.json | jq .targets     for another program";

#[derive(Debug, clap::Args)]
pub(super) struct SummaryArgs {
    /// The report.json.
    report: PathBuf,
}

pub(super) fn summarize(args: &SummaryArgs) -> Result<(), Failure> {
    out!("{}", summary(&args.report)?.to_json());
    Ok(())
}

pub(super) fn exactness(args: &SummaryArgs) -> Result<(), Failure> {
    let report = report(&args.report)?;
    outln!("{}", serde_json::to_string_pretty(&Exactness::of(&report)).unwrap_or_default());
    Ok(())
}

const BADGE_EXAMPLES: &str = "\
Examples:
  tidegate badge target/conformance/report.json > badge.svg
  tidegate badge target/conformance/report.json --target redis > redis.svg";

#[derive(Debug, clap::Args)]
#[command(after_help = BADGE_EXAMPLES)]
pub(super) struct BadgeArgs {
    /// The report.json.
    report: PathBuf,
    /// Show the result of this target, instead of all.
    #[arg(long, value_name = "NAME")]
    target: Option<String>,
}

pub(super) fn show_badge(args: &BadgeArgs) -> Result<(), Failure> {
    let report = report(&args.report)?;
    let target = match &args.target {
        None => None,
        Some(name) => {
            let found = report.targets.iter().find(|target| target.name == *name);
            Some(found.ok_or_else(|| Failure::Usage(format!("{}: has no target {name:?}", args.report.display())))?)
        }
    };
    out!("{}", badge(&report, target));
    Ok(())
}
