//! Comparisons as text, Markdown and HTML. Transitions without a change are left out.

use std::fmt::Write as _;

use tidegate_harness::report::{escaped_markdown, escaped_xml};
use tidegate_traffic::page::STYLE;

use super::Transition;

/// Renders the transitions for a terminal.
#[must_use]
pub fn text(transitions: &[Transition]) -> String {
    let mut out = String::new();
    for transition in changed(transitions) {
        if transitions.len() > 1 {
            let _ = writeln!(out, "{} -> {}", transition.before, transition.after);
        }
        for change in &transition.changes {
            let _ = writeln!(out, "{change}");
        }
    }
    let _ = writeln!(out, "{}", tally(transitions));
    out
}

/// Renders the transitions for a pull request.
#[must_use]
pub fn markdown(transitions: &[Transition]) -> String {
    let mut out = format!("# Conformance: {}\n", tally(transitions));
    for transition in changed(transitions) {
        let _ = writeln!(out, "\n`{}` → `{}`\n", transition.before, transition.after);
        let _ = writeln!(out, "| | target | fixture | change |\n| - | - | - | - |");
        for change in &transition.changes {
            let [target, fixture] = [&change.target, &change.fixture].map(|name| name.as_deref().unwrap_or(""));
            let _ = writeln!(out, "| {} | {target} | {fixture} | {} |", mark(change), escaped_markdown(&change.what));
        }
    }
    out
}

/// Renders the transitions as a page that needs nothing from the network.
#[must_use]
pub fn html(transitions: &[Transition]) -> String {
    let tally = tally(transitions);
    let mut body = format!("<h1>Conformance: {tally}</h1>");
    for transition in changed(transitions) {
        let [before, after] = [&transition.before, &transition.after].map(|name| escaped_xml(name));
        let _ = write!(
            body,
            "<h2>{before} → {after}</h2><div class=\"scroll\"><table><thead><tr><th><th>target<th>fixture"
        );
        let _ = write!(body, "<th>change</thead><tbody>");
        for change in &transition.changes {
            let [target, fixture] =
                [&change.target, &change.fixture].map(|name| escaped_xml(name.as_deref().unwrap_or("")));
            let class = if change.is_regression() { "fail" } else { "unsupported" };
            let what = escaped_xml(&change.what);
            let _ = write!(body, "<tr><td class={class}>{}<td>{target}<td>{fixture}<td>{what}", mark(change));
        }
        body.push_str("</tbody></table></div>");
    }
    let head =
        r#"<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">"#;
    format!("{head}<title>Conformance: {tally}</title><style>{STYLE}</style>{body}\n")
}

fn changed(transitions: &[Transition]) -> impl Iterator<Item = &Transition> {
    transitions.iter().filter(|transition| !transition.changes.is_empty())
}

fn mark(change: &super::Change) -> &'static str {
    match change {
        change if change.is_regression() => "✗ worse",
        change if change.allowed => "allowed",
        _ => "",
    }
}

fn tally(transitions: &[Transition]) -> String {
    let changes = || transitions.iter().flat_map(|transition| &transition.changes);
    let (all, worse) = (changes().count(), changes().filter(|change| change.is_regression()).count());
    let changes = if all == 1 { "change" } else { "changes" };
    format!("{all} {changes}, {worse} of them worse")
}
