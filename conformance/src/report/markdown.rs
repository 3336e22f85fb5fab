use std::fmt::Write as _;

use super::Report;
use super::table::{COLUMNS, row};
use crate::judge::Verdict;

/// Renders the report as Markdown: a row per target, then for each target its failures and a row per fixture.
#[must_use]
pub fn markdown(report: &Report) -> String {
    let mut out = format!("# Conformance\n\nTidegate {} at `{}`.\n\n", report.tidegate.version, report.tidegate.commit);
    line(&mut out, &COLUMNS.map(str::to_string));
    line(&mut out, &COLUMNS.map(|_| "-".to_string()));
    for target in &report.targets {
        line(&mut out, &row(target));
    }
    for target in &report.targets {
        let _ = write!(out, "\n## {}\n\n{}", target.name, target.accuracy);
        if let Some(emulator) = &target.emulator {
            let _ = write!(out, "; on {} {}", emulator.name, emulator.version);
        }
        let _ = writeln!(out, ".");
        if let Some(reason) = &target.reason {
            let _ = writeln!(out, "\n**{}**", escaped(reason));
        }
        for one in target.fixtures.iter().filter(|one| one.verdict == Verdict::Fail) {
            let _ = writeln!(out, "\n- `{}`", one.id);
            for reason in &one.reasons {
                let _ = writeln!(out, "  - {}", escaped(reason));
            }
        }
        if target.fixtures.is_empty() {
            continue;
        }
        out.push('\n');
        let columns = ["fixture", "verdict", "offered", "admitted", "floor", "ceiling", "tested", "trips", "ms"];
        line(&mut out, &columns.map(str::to_string));
        line(&mut out, &columns.map(|_| "-".to_string()));
        for one in &target.fixtures {
            let verdict = serde_json::to_value(one.verdict).unwrap_or_default();
            line(
                &mut out,
                &[
                    format!("`{}`", one.id),
                    verdict.as_str().unwrap_or("?").to_string(),
                    one.offered.to_string(),
                    one.admitted.to_string(),
                    one.floor.to_string(),
                    one.ceiling.to_string(),
                    if one.ceiling_tested { "yes" } else { "no" }.to_string(),
                    one.round_trips.map_or_else(|| "-".into(), |trips| trips.to_string()),
                    one.elapsed_ms.to_string(),
                ],
            );
        }
    }
    out
}

fn line(out: &mut String, cells: &[String]) {
    let _ = writeln!(out, "| {} |", cells.join(" | "));
}

fn escaped(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;")
}
