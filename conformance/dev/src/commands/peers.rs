use std::collections::BTreeSet;

use comfy_table::Table;
use comfy_table::presets::ASCII_MARKDOWN;
use tidegate::program::{Failure, Selection, block_on, counted, tell};
use tidegate_conformance::fixture::Case;
use tidegate_core::internal::Suggestion;
use tidegate_harness::output::{errln, outln};

use crate::peer::{Found, Peer, PeerReport, all};

const EXAMPLES: &str = "\
Examples:
  tidegate-dev peers                               all of them
  tidegate-dev peers --peer governor --filter 'token-bucket/*'
                                                   one of them, on some fixtures";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Run only these limiters. May be repeated. The default is all of them.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    peer: Vec<String>,
    #[command(flatten)]
    selection: Selection,
    /// How to print the result. Only text and json list the fixtures that differ.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// A table, and below it each difference.
    Text,
    /// A table.
    Markdown,
    /// Every fixture.
    Json,
}

const COLUMNS: [&str; 11] = [
    "limiter",
    "counts in",
    "algorithm",
    "fixtures",
    "as claimed",
    "charges denials",
    "too many",
    "too few",
    "errors",
    "Retry-After",
    "most over the limit",
];

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let peers = selected(&args.peer)?;
    let cases = args.selection.prepared()?;
    let (reports, missing) = block_on(async {
        let fixtures: Vec<_> = cases
            .iter()
            .filter_map(|one| match &one.case {
                Case::Decision(fixture) => Some(&**fixture),
                _ => None,
            })
            .collect();
        let (mut reports, mut missing) = (Vec::new(), Vec::new());
        for peer in &peers {
            let name = format!("{} in {}", peer.name, peer.store);
            let mut done = 0;
            let ran = tokio::select! {
                ran = peer.run(&fixtures, |_| done += 1) => ran,
                _ = tokio::signal::ctrl_c() => return Err(Failure::Interrupted),
            };
            match ran {
                Ok(ran) => {
                    tell(&format!("{name}: {}", counted(done, "fixture")));
                    reports.extend(ran);
                }
                Err(reason) => {
                    tell(&format!("{name}: {reason}"));
                    missing.push(name);
                }
            }
        }
        Ok((reports, missing))
    })??;
    if !reports.is_empty() && reports.iter().all(|report| report.scores.is_empty()) {
        return Err(Failure::Usage(
            "these limiters can take none of the selected fixtures; choose others with --filter".into(),
        ));
    }
    match args.format {
        _ if reports.is_empty() => {}
        Format::Json => outln!("{}", serde_json::to_string_pretty(&reports).unwrap_or_default()),
        Format::Markdown => outln!("{}", table(&reports).load_style(ASCII_MARKDOWN)),
        Format::Text => outln!("{}\n{}", table(&reports), differences(&reports)),
    }
    if missing.is_empty() {
        return Ok(());
    }
    errln!("tidegate-dev: did not run: {}", missing.join(", "));
    Err(Failure::Failed)
}

fn selected(names: &[String]) -> Result<Vec<Peer>, Failure> {
    let all = all();
    if let Some(unknown) = names.iter().find(|name| !all.iter().any(|peer| peer.name == **name)) {
        let known: BTreeSet<&str> = all.iter().map(|peer| peer.name).collect();
        let known: Vec<&str> = known.into_iter().collect();
        return Err(Failure::Usage(format!("--peer {unknown:?} is unknown; {}", Suggestion::of(unknown, &known))));
    }
    Ok(all.into_iter().filter(|peer| names.is_empty() || names.iter().any(|name| name == peer.name)).collect())
}

fn table(reports: &[PeerReport]) -> Table {
    let mut table = tidegate_traffic::table(COLUMNS, 3..9);
    table.add_rows(reports.iter().map(row));
    table
}

fn row(report: &PeerReport) -> [String; 11] {
    let count = |is: fn(&Found) -> bool| match report.count(is) {
        0 => "-".to_string(),
        count => count.to_string(),
    };
    let most = report.scores.iter().filter_map(|score| match score.found {
        Found::More { by, of } => Some((by, of)),
        _ => None,
    });
    let most = most.max().map_or_else(|| "-".to_string(), |(by, of)| format!("{} where {of} are due", by + of));
    [
        [Some(report.name.as_str()), report.version.as_deref()].into_iter().flatten().collect::<Vec<_>>().join(" "),
        report.store.clone(),
        report.algorithm.replace('_', " "),
        report.scores.len().to_string(),
        count(|found| *found == Found::AsDue),
        count(|found| *found == Found::ChargesDenials),
        count(|found| matches!(found, Found::More { .. })),
        count(|found| matches!(found, Found::Fewer { .. })),
        count(|found| matches!(found, Found::Errors { .. })),
        waits(report),
        most,
    ]
}

fn waits(report: &PeerReport) -> String {
    let waits = report.waits();
    let named = [(waits.right, "right"), (waits.early, "too early"), (waits.late, "too late"), (waits.none, "missing")];
    let named: Vec<_> =
        named.iter().filter(|(count, _)| *count > 0).map(|(count, name)| format!("{count} {name}")).collect();
    if named.is_empty() { "-".into() } else { named.join(", ") }
}

fn differences(reports: &[PeerReport]) -> String {
    let mut out = String::new();
    for report in reports {
        let differing = report.scores.iter().filter_map(|score| {
            let said = match &score.found {
                Found::AsDue | Found::ChargesDenials => return None,
                Found::More { by, of } => format!("admitted {} where {of} are due", of + by),
                Found::Fewer { by, of } => format!("admitted {} where {of} are due", of - by),
                Found::Errors { count, message } => {
                    format!("{}, the first: {message}", counted(*count, "error"))
                }
            };
            Some(format!("  {}: {said}\n", score.id))
        });
        let differing: String = differing.collect();
        if !differing.is_empty() {
            out.push_str(&format!(
                "\n{} in {}, {}\n  claims: {}\n{differing}",
                report.name, report.store, report.algorithm, report.claim
            ));
        }
    }
    out
}
