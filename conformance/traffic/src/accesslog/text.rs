//! The report as text.

use std::fmt::Write as _;

use super::adapted::Effect;
use super::clients::{ClientReport, Denials};
use super::report::{AccessReport, TuneReport};
use super::shadow::{DifferenceReport, ShadowReport};
use super::tally::percent;
use super::time::shown;
use super::tune::{Tried, Tuned};
use crate::page::grouped;
use crate::table;

/// The most bars over time.
const BARS: usize = 24;

/// The characters of the longest bar.
const WIDTH: u64 = 40;

/// Renders the report.
#[must_use]
pub fn text(report: &AccessReport) -> String {
    let mut out = String::new();
    summary(&mut out, report);
    causes(&mut out, report);
    clients(&mut out, "denied most", &report.denied_most, true);
    clients(&mut out, "most requests", &report.top, false);
    shared(&mut out, report);
    over_time(&mut out, report);
    if let Some(tune) = &report.tune {
        tuned(&mut out, tune, report.clients);
    }
    if let Some(shadow) = &report.shadow {
        differences(&mut out, shadow);
    }
    notes(&mut out, report);
    out
}

fn summary(out: &mut String, report: &AccessReport) {
    let AccessReport { from_ms, to_ms, admitted, unlimited, denied, clients, clients_denied, lines, .. } = report;
    let all = lines.requests;
    let of_all = |part: u64| format!("{} ({})", grouped(part), share(part, all));
    let _ = writeln!(
        out,
        "{} of {} from {} to {} UTC",
        counted(all, "request"),
        counted(*clients as u64, "client"),
        shown(*from_ms),
        shown(*to_ms)
    );
    let _ = writeln!(out, "admitted   {}, and {} without a limit", of_all(*admitted), grouped(*unlimited));
    let _ = writeln!(
        out,
        "denied     {}, of {} ({})",
        of_all(*denied),
        counted(*clients_denied as u64, "client"),
        share(*clients_denied as u64, *clients as u64)
    );
}

fn causes(out: &mut String, report: &AccessReport) {
    if report.causes.is_empty() {
        return;
    }
    let mut table = table(["denied by rule", "limit", "requests", "clients", "first", "last"], 2..4);
    for one in &report.causes {
        table.add_row([
            one.cause.rule.clone(),
            one.cause.limit.clone(),
            grouped(one.requests),
            grouped(one.clients),
            shown(one.first_ms),
            shown(one.last_ms),
        ]);
    }
    let _ = writeln!(out, "\n{table}");
}

fn clients(out: &mut String, title: &'static str, clients: &[ClientReport], are_denied: bool) {
    if clients.is_empty() {
        return;
    }
    let mut table = match are_denied {
        true => table(vec![title, "denied", "of requests", "agents", "first", "last", "by"], 1..4),
        false => table(vec![title, "requests", "denied", "agents"], 1..4),
    };
    for one in clients {
        let client = format!("{}{}", one.client, if one.shared { " (shared?)" } else { "" });
        let (requests, denied) = (grouped(one.requests), grouped(one.denied));
        let agents = format!("~{}", one.agents);
        let at = |at_ms: Option<u64>| at_ms.map(shown).unwrap_or_default();
        table.add_row(match are_denied {
            true => {
                vec![client, denied, requests, agents, at(one.first_denied_ms), at(one.last_denied_ms), by(&one.by)]
            }
            false => vec![client, requests, denied, agents],
        });
    }
    let _ = writeln!(out, "\n{table}");
}

fn by(denials: &[Denials]) -> String {
    let parts: Vec<_> =
        denials.iter().take(3).map(|one| format!("{} {}: {}", one.rule, one.limit, grouped(one.requests))).collect();
    parts.join(", ")
}

fn shared(out: &mut String, report: &AccessReport) {
    if report.shared.is_empty() {
        return;
    }
    let mut table = table(["probably many people", "user agents", "requests", "denied"], 1..4);
    for one in &report.shared {
        table.add_row([one.client.to_string(), format!("~{}", one.agents), grouped(one.requests), grouped(one.denied)]);
    }
    let _ = writeln!(
        out,
        "\n{table}\n{} in all, by an estimate: at least 8 user agents, each with 3 requests or more on average. \
         The number of user agents is estimated too.",
        grouped(report.shared_count as u64)
    );
}

fn over_time(out: &mut String, report: &AccessReport) {
    let series = report.series.coarser(BARS);
    let most =
        series.buckets.iter().map(|bucket| bucket.unlimited + bucket.admitted + bucket.denied).max().unwrap_or(0);
    if most == 0 {
        return;
    }
    let _ = writeln!(out, "\nrequests in steps of {} (. without a limit, = admitted, # denied)", span(series.step_ms));
    for bucket in series.dense() {
        let scaled = |value: u64| value * WIDTH / most + u64::from(value > 0 && value * WIDTH < most);
        let repeated = |text: &str, value: u64| text.repeat(usize::try_from(scaled(value)).unwrap_or(0));
        let bar = repeated(".", bucket.unlimited) + &repeated("=", bucket.admitted) + &repeated("#", bucket.denied);
        let _ = writeln!(
            out,
            "{}  {bar:<width$}  {} admitted, {} denied",
            shown(bucket.from_ms),
            grouped(bucket.admitted + bucket.unlimited),
            grouped(bucket.denied),
            width = usize::try_from(WIDTH).unwrap_or(0) + 1,
        );
    }
}

fn tuned(out: &mut String, tune: &TuneReport, clients: usize) {
    let columns = "limit,algorithm,clients,now,denies clients,requests,smallest,denies clients,requests";
    let mut table = table(columns.split(','), 2..9);
    for one in &tune.numbers {
        let Tuned { limit, quota, algorithm, .. } = one;
        let name = if limit == quota { limit.clone() } else { format!("{limit}: {quota}") };
        let tried = |tried: Tried| {
            let clients =
                format!("{} ({})", grouped(tried.clients as u64), share(tried.clients as u64, one.clients as u64));
            [grouped(tried.number), clients, grouped(tried.requests)]
        };
        let new = match one.new {
            Some(new) => tried(new),
            None if one.clients == 0 => ["counts no request".into(), String::new(), String::new()],
            None => [format!("none up to {}", grouped(one.most)), String::new(), String::new()],
        };
        let start = [name, algorithm.clone(), grouped(one.clients as u64)];
        table.add_row(start.into_iter().chain(tried(one.old)).chain(new));
    }
    let _ = writeln!(
        out,
        "\n{table}\nThe smallest numbers that deny at most {} % of the clients that they count, each alone. All of them together \
         deny {} of {} ({}).",
        tune.percent,
        counted(tune.together.requests, "request"),
        counted(tune.together.clients as u64, "client"),
        share(tune.together.clients as u64, clients as u64),
    );
}

fn differences(out: &mut String, shadow: &ShadowReport) {
    let ShadowReport { rules, requests_only_old, requests_only_new, requests_both, .. } = shadow;
    let mut table = table(["", "only the old rules", "only the new rules", "both"], 1..4);
    let row =
        |name: &str, numbers: [u64; 3]| [name.to_string()].into_iter().chain(numbers.map(grouped)).collect::<Vec<_>>();
    table.add_row(row("requests denied by", [*requests_only_old, *requests_only_new, *requests_both]));
    let clients = [shadow.clients_only_old, shadow.clients_only_new, shadow.clients_both];
    table.add_row(row("clients denied by", clients));
    let _ = writeln!(out, "\nnew rules: {}\n{table}", escaped(rules));
    for (title, list) in [
        ("denied only by the new rules", &shadow.denied_by_new),
        ("denied only by the old rules", &shadow.denied_by_old),
    ] {
        if list.is_empty() {
            continue;
        }
        let mut table = crate::table([title, "by old", "by new", "first at", "request", "rule", "limit"], 1..3);
        for DifferenceReport { client, old, new, example } in list {
            let mut row = vec![client.to_string(), grouped(*old), grouped(*new)];
            if let Some(example) = example {
                let request = format!("{} {}", escaped(&example.method), escaped(&example.path));
                row.extend([shown(example.at_ms), request, example.cause.rule.clone(), example.cause.limit.clone()]);
            }
            table.add_row(row);
        }
        let _ = writeln!(out, "{table}");
    }
    if shadow.requests_left_out > 0 {
        let left_out = grouped(shadow.requests_left_out);
        let _ = writeln!(out, "{left_out} more requests are of further clients, which are in no number of clients.");
    }
}

fn notes(out: &mut String, report: &AccessReport) {
    out.push('\n');
    for note in remarks(report) {
        let _ = writeln!(out, "note: {note}");
    }
}

/// What a reader should know about these numbers.
pub(super) fn remarks(report: &AccessReport) -> Vec<String> {
    let lines = &report.lines;
    let mut found = Vec::new();
    if let Some(first) = &lines.first_unreadable {
        found.push(format!(
            "{} of {} lines cannot be read; the first is {}:{}, as {}: {}: {}",
            grouped(lines.unreadable),
            grouped(lines.read),
            escaped(&first.log),
            first.line,
            first.tried,
            first.reason,
            escaped(&first.text)
        ));
    }
    if lines.no_request > 0 {
        found.push(format!("{} lines are about bytes that were no HTTP request", grouped(lines.no_request)));
    }
    if lines.stepped_back > 0 {
        found.push(format!(
            "{} requests are earlier than one before them, by up to {}; they were decided in the order of the log",
            grouped(lines.stepped_back),
            span(lines.step_back_max_ms)
        ));
    }
    if !lines.has_milliseconds {
        found.push(
            "the log has whole seconds, so a request counts up to one second early, and all requests of a second at once".into(),
        );
    }
    if lines.without_address > 0 {
        let count = grouped(lines.without_address);
        found.push(format!("{count} requests have no address, and count as one client, as in a gate"));
    }
    if lines.already_429 > 0 {
        let count = grouped(lines.already_429);
        found
            .push(format!("the server answered {count} of these requests with a 429; here they count like all others"));
    }
    if !lines.has_agent {
        found.push("the log has no user agents, so nothing tells which addresses are shared".into());
    }
    if let Some(first) = report.top.first().filter(|first| first.shared && first.requests * 2 > lines.requests) {
        let client = first.client;
        found.push(format!(
            "{client} sent more than half of the requests; if it is a proxy, log the address of its clients"
        ));
    }
    if report.requests_of_others > 0 {
        let (count, most) = (grouped(report.requests_of_others), grouped(super::MAX_CLIENTS as u64));
        found.push(format!("only the first {most} clients are counted one by one; further ones sent {count} requests"));
    }
    let not_applied: Vec<_> = report.notes.iter().filter(|note| note.effect == Effect::NotApplied).collect();
    if !not_applied.is_empty() {
        let reasons: Vec<_> = not_applied.iter().map(|note| format!("{}: {}", note.of, note.reason)).collect();
        found.push(format!(
            "{} of the rules file could not be applied: {}",
            counted(not_applied.len() as u64, "part"),
            reasons.join("; ")
        ));
    }
    let by_address = report.notes.iter().filter(|note| note.effect == Effect::ByAddress);
    found.extend(by_address.map(|note| format!("{} counted by the address: {}", note.of, note.reason)));
    found
}

fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{} {what}s", grouped(count)) }
}

/// Text of a log, without what a terminal would obey.
fn escaped(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect::<Vec<_>>() } else { vec![c] }).collect()
}

fn share(part: u64, of: u64) -> String {
    let count = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
    let percent = percent(count(part), count(of));
    if percent > 0.0 && percent < 0.05 { "<0.1 %".into() } else { format!("{percent:.1} %") }
}

/// A length of time in its largest whole unit.
fn span(ms: u64) -> String {
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")];
    let unit = units.into_iter().find(|(length, _)| ms >= *length && ms.is_multiple_of(*length));
    unit.map_or_else(|| format!("{ms} ms"), |(length, name)| format!("{} {name}", ms / length))
}
