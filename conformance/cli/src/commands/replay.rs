mod logs;

use std::fs;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use tidegate_core::Error;
use tidegate_core::internal::Suggestion;
use tidegate_harness::output::{errln, out};
use tidegate_traffic::accesslog::{
    AccessReport, Adapted, Entry, Field, Fields, Outcome, Parsed, Parser, Replay, Shadow, Tally, Together, Tuned, page,
    text, tune,
};

use self::logs::{Logs, Seen};
use crate::program::{Failure, rules};

const EXAMPLES: &str = "\
Examples:
  tidegate replay --log access.log --rules rules.toml            what the rules would have denied
  tidegate replay --log access.log.2.gz --log access.log.1 --rules rules.toml --out report/
                                                                 several logs in order; write replay.html and replay.json
  tidegate replay --log - --rules rules.toml --field time=at --field ip=client.addr <log.jsonl
                                                                 JSON lines with names of their own, from standard input
  tidegate replay --log access.log --rules rules.toml --tune 0.1
                                                                 the smallest limits that deny at most 0.1 % of the clients
  tidegate replay --log access.log --rules rules.toml --shadow new.toml
                                                                 where two rules files differ
  tidegate replay --log access.log --rules rules.toml --max-denied 1
                                                                 for CI: fail if more than 1 % of the clients are denied

A log is in the common or the combined log format of Apache and nginx, or has one JSON object per line. It may be compressed by
gzip. The usual names in JSON are known: those of nginx, Caddy, Traefik, Cloudflare and the Elastic Common Schema.

A log has no API keys and no tokens, so senders count by their address. An address counts as in a gate: IPv6 is folded to /64. If
the server is behind a proxy, log the address of the proxy's client.

Exit codes: 0 success, 1 more clients are denied than --max-denied allows, 2 the command line, the rules or a log is wrong.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// An access log. `-` reads standard input. May be repeated, the earliest first.
    #[arg(long, required = true, value_name = "FILE")]
    log: Vec<PathBuf>,
    /// The rules file, in TOML or JSON. All limits count in one store, whichever the rules name.
    #[arg(long, value_name = "FILE")]
    rules: PathBuf,
    /// Where a JSON line has its time, ip, method, path, request (all of its first line), host, agent, status, subject or tier,
    /// for example ip=client.addr. A dot leads into an object. May be repeated.
    #[arg(long, value_name = "NAME=FIELD", value_parser = field)]
    field: Vec<(Field, String)>,
    /// Find the smallest limit that denies at most this share of the clients that it counts, for each limit alone. The log is
    /// read three times or more.
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    tune: Option<f64>,
    /// Show which requests and clients only one of the two rules files denies.
    #[arg(long, value_name = "NEW_RULES")]
    shadow: Option<PathBuf>,
    /// Exit with 1 if more than this share of the clients is denied at least once: by the new rules, if there are any.
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    max_denied: Option<f64>,
    /// The most clients in each list.
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
    /// The form of the output.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// The folder for replay.html and replay.json.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

/// Why a log could not be replayed. The search for limits needs an error that rules have, too.
struct Stopped(Failure);

impl From<Error> for Stopped {
    fn from(error: Error) -> Self {
        Self(Failure::Usage(error.to_string()))
    }
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let adapted = adapted(&args.rules)?;
    let new = args.shadow.as_deref().map(self::adapted).transpose()?;
    let logs = Logs::new(&args.log, args.tune.is_some())?;
    let report = replay(args, &logs, &adapted, new.as_ref()).map_err(|Stopped(failure)| failure)?;
    let json = serde_json::to_string(&report).map_err(|error| Failure::Usage(error.to_string()))? + "\n";
    if let Some(out) = &args.out {
        write(&report, &json, out).map_err(|error| Failure::Usage(format!("--out {}: {error}", out.display())))?;
        errln!("replay.html and replay.json are in {}", out.display());
    }
    match args.format {
        Format::Text => out!("{}", text(&report)),
        Format::Json => out!("{json}"),
    }
    within(args, &report)
}

fn adapted(file: &Path) -> Result<Adapted, Failure> {
    for warning in rules::read(file)?.warnings() {
        errln!("warning: {warning}");
    }
    Ok(Adapted::new(rules::data(file)?))
}

fn replay(args: &Args, logs: &Logs, adapted: &Adapted, new: Option<&Adapted>) -> Result<AccessReport, Stopped> {
    let fields = Fields::new(&args.field);
    let (mut old, mut new) = (Replay::new(adapted)?, new.map(Replay::new).transpose()?);
    let (mut tally, mut shadow) = (Tally::default(), Shadow::default());
    logs.read(&mut Parser::new(fields.clone()), &mut |log, line, seen| match seen {
        Seen::Unreadable(text, why) => tally.unreadable(log, line, text, why),
        Seen::Parsed(parsed) => {
            tally.line(parsed);
            let Parsed::Request(entry) = parsed else { return };
            let client = old.client(entry);
            let outcome = old.decide(entry, client);
            tally.outcome(entry, client, outcome);
            if let Some(new) = &mut new {
                let by_new = new.decide(entry, client);
                shadow.add((log, line), entry, client, (&old, outcome), (new, by_new));
            }
        }
    })
    .map_err(Stopped)?;
    let names = args.log.iter().map(|log| log.display().to_string()).collect();
    let rules = args.rules.display().to_string();
    let report = AccessReport::new(names, &rules, &tally, old.causes(), args.top);
    readable(&report).map_err(Stopped)?;
    let notes = adapted.notes(report.lines.has_host);
    let mut report = report.with_notes(notes);
    if let Some(file) = &args.shadow {
        report = report.with_shadow(&shadow, &file.display().to_string(), args.top);
    }
    let Some(percent) = args.tune else { return Ok(report) };
    let mut again = |see: &mut dyn FnMut(&Entry<'_>)| {
        let read = logs.read(&mut Parser::new(fields.clone()), &mut |_, _, seen| {
            if let Seen::Parsed(Parsed::Request(entry)) = seen {
                see(entry);
            }
        });
        read.map_err(Stopped)
    };
    let numbers = tune(adapted, percent, &mut again)?;
    let together = together(adapted, &numbers, &mut again)?;
    Ok(report.with_tune(percent, numbers, together))
}

/// Replays all numbers that were found, together.
fn together(
    adapted: &Adapted,
    numbers: &[Tuned],
    read: &mut impl FnMut(&mut dyn FnMut(&Entry<'_>)) -> Result<(), Stopped>,
) -> Result<Together, Stopped> {
    let of_file = adapted.numbers();
    let proposed = of_file.iter().zip(numbers).map(|(number, found)| (number, found.proposed().number));
    let (mut replay, mut tally) = (Replay::new(&adapted.with(proposed))?, Tally::default());
    read(&mut |entry| {
        let client = replay.client(entry);
        let outcome: Outcome = replay.decide(entry, client);
        tally.outcome(entry, client, outcome);
    })?;
    Ok(tally.together())
}

/// Refuses a log that is mostly in another format, or has no requests.
fn readable(report: &AccessReport) -> Result<(), Failure> {
    let lines = &report.lines;
    if let Some(first) = lines.first_unreadable.as_ref().filter(|_| lines.is_mostly_unreadable()) {
        return Err(Failure::Usage(format!(
            "{} of {} lines cannot be read; the first is {}:{}, read as {}: {}: {:?}",
            lines.unreadable, lines.read, first.log, first.line, first.tried, first.reason, first.text
        )));
    }
    if lines.requests == 0 {
        let logs = report.logs.join(", ");
        return Err(Failure::Usage(format!("{logs}: there is no request in it; name a log that has some")));
    }
    Ok(())
}

fn within(args: &Args, report: &AccessReport) -> Result<(), Failure> {
    let Some(most) = args.max_denied else { return Ok(()) };
    let denied =
        report.shadow.as_ref().map_or(report.clients_denied_percent, |shadow| shadow.new_percent(report.clients));
    if denied <= most {
        return Ok(());
    }
    errln!("tidegate: {denied:.3} % of the clients are denied, and --max-denied allows {most} %");
    Err(Failure::Failed)
}

fn write(report: &AccessReport, json: &str, folder: &Path) -> std::io::Result<()> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join("replay.json"), json)?;
    fs::write(folder.join("replay.html"), page(report)?)
}

fn field(text: &str) -> Result<(Field, String), String> {
    let known = Field::ALL.map(Field::name);
    let (name, place) =
        text.split_once('=').ok_or_else(|| format!("write NAME=FIELD; the names are {}", known.join(", ")))?;
    let field = Field::ALL.into_iter().find(|field| field.name() == name);
    let field = field.ok_or_else(|| format!("{name:?} is unknown; {}", Suggestion::of(name, &known)))?;
    if place.is_empty() {
        return Err(format!("write the field of the {name} behind the equals sign"));
    }
    Ok((field, place.to_string()))
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim().parse::<f64>().ok();
    number.filter(|number| (0.0..=100.0).contains(number)).ok_or_else(|| "write a number from 0 to 100".into())
}
