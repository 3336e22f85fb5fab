mod candidates;
mod code;
mod grace;
mod platform;

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _};

use tidegate_harness::output::{errln, outln};
use tidegate_traffic::simulate::{Design, Outcome, designs, percent};

use self::candidates::candidates;
use self::code::Code;
use self::grace::Grace;
use self::platform::Platform;
use super::ask::ask;
use super::simulate::{FleetArgs, outcomes, table};
use crate::program::Failure;

const EXAMPLES: &str = "\
Examples:
  tidegate choose                                                     asks for what it needs
  tidegate choose --platform cloudflare --limit 100
  tidegate choose --platform cloudflare --limit 1000 --max-over 50 --max-p50-ms 1
  tidegate choose --platform server --limit 1000 --excess 12          first requests that wait for no store, and 1012 at most
  tidegate choose --platform vercel --limit 60 --max-usd 5 --places iad,fra
  tidegate choose --platform server --places fra --isolates 1         one process: its memory will do

Simulates the designs that the platform has, and prints the one that meets the requirements with the shortest wait, or the
cheapest of those that wait equally long (to 5 ms), its numbers and the code to paste. Exit codes: 0 success, 1 no design meets the requirements, 2 the command line is wrong.";

/// Waits that differ by less are taken for equal.
const WAIT_MS: f64 = 5.0;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Where the application runs: cloudflare, vercel, netlify, fastly, spin (Akamai Functions, or Spin), or server (anywhere else). On
    /// a terminal, it is asked for.
    #[arg(long, value_name = "NAME")]
    platform: Option<Platform>,
    /// Ask on standard input, even if it is not a terminal.
    #[arg(long, conflicts_with = "platform")]
    ask: bool,
    /// How much more than the limit may be admitted, in percent. With 0, only designs are considered that never exceed it, or
    /// by the excess at most.
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0)]
    max_over: f64,
    /// By how many units a client may exceed its limit, so that its first requests wait for no store. Designs that lend then have a
    /// grace: these units, divided by the isolates that a client can meet.
    #[arg(long, value_name = "UNITS", default_value = "0", allow_negative_numbers = true, value_parser = units)]
    excess: u64,
    /// How long half of the decisions may take.
    #[arg(long, value_name = "MS")]
    max_p50_ms: Option<f64>,
    /// What a million decisions may cost, in US dollars. Designs whose price is not known are left out.
    #[arg(long, value_name = "USD")]
    max_usd: Option<f64>,
    /// How many decisions may end in an error, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0)]
    max_errors: f64,
    /// Print the outcomes, the choice and the code for each design as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    fleet: FleetArgs,
}

pub(super) fn run(mut args: Args) -> Result<(), Failure> {
    let platform = match args.platform {
        Some(platform) => platform,
        None if args.ask || io::stdin().is_terminal() => args.questions()?,
        None => return Err(Failure::Usage("write --platform, or --ask to be asked".into())),
    };
    let maxima = [
        ("--max-over", Some(args.max_over)),
        ("--max-p50-ms", args.max_p50_ms),
        ("--max-usd", args.max_usd),
        ("--max-errors", Some(args.max_errors)),
    ];
    for (option, most) in maxima {
        if let Some(most) = most
            && (most.is_nan() || most < 0.0)
        {
            return Err(Failure::Usage(format!("{option}: {most} is out of range; write 0 or more")));
        }
    }
    let setup = args.fleet.setup().map_err(Failure::Usage)?;
    let grace = Grace::within(args.excess, &setup, platform).map_err(Failure::Usage)?;
    let here = |design: &str| candidates(platform).find(|known| known.design == design);
    let (mut able, mut reasons) = (Vec::new(), Vec::new());
    // Other parameters than the adapters' own only draw the curve.
    let units = grace.as_ref().map_or(0, |grace| grace.units);
    for design in designs(units).into_iter().filter(|design| here(design.name).is_some() && design.is_default()) {
        match design.takes(&setup.policy) {
            Ok(()) => able.push(design),
            Err(why) => reasons.push(format!("{}: {why}", design.name)),
        }
    }
    if able.is_empty() {
        let reasons = reasons.join("; ");
        return Err(Failure::Usage(format!("no design of the platform can count by this policy ({reasons})")));
    }
    let mut outcomes = outcomes(&setup, &able)?;
    // Nobody notices a few milliseconds, but everybody the price. A server of one's own has none for each decision.
    let coarse = |ms: f64| (ms / WAIT_MS).floor();
    let price = |outcome: &Outcome| outcome.usd_per_million.unwrap_or_default();
    outcomes.sort_by(|a, b| {
        let waits = coarse(a.p50_ms).total_cmp(&coarse(b.p50_ms)).then(coarse(a.p99_ms).total_cmp(&coarse(b.p99_ms)));
        waits.then(price(a).total_cmp(&price(b))).then(a.round_trips.total_cmp(&b.round_trips))
    });
    let isolates = setup.places.count() * setup.isolates;
    let lease = |outcome: &Outcome| able.iter().find(|one| one.name == outcome.design).and_then(Design::lease);
    let has_grace = |outcome: &Outcome| lease(outcome).is_some_and(|lease| lease.grace > 0);
    let is_strict = |outcome: &Outcome| able.iter().any(|one| one.name == outcome.design && one.is_strict(isolates));
    // What a grace admits is bounded by the excess, whatever a run shows.
    let max_over = |outcome: &Outcome| if has_grace(outcome) { f64::INFINITY } else { args.max_over };
    let objections = |outcome: &Outcome| args.objections(outcome, is_strict(outcome), max_over(outcome));
    let chosen = outcomes.iter().find(|outcome| objections(outcome).is_empty());
    let code = |outcome: &Outcome| {
        here(outcome.design).map(|candidate| Code::new(candidate, &setup.policy, platform, lease(outcome)))
    };
    if args.json {
        let choice = chosen.map(|outcome| outcome.design);
        let codes: BTreeMap<_, _> = outcomes.iter().map(|outcome| (outcome.design, code(outcome))).collect();
        outln!("{}", serde_json::json!({ "choice": choice, "grace": grace, "outcomes": outcomes, "code": codes }));
    } else {
        outln!("{}", table(&outcomes));
        for outcome in &outcomes {
            let objections = objections(outcome);
            if !objections.is_empty() {
                outln!("not {}: {}", outcome.design, objections.join("; "));
            }
        }
        if let Some(outcome) = chosen
            && let Some(code) = code(outcome)
        {
            outln!("\n{}", advice(outcome));
            match &grace {
                Some(grace) if has_grace(outcome) => outln!("{}", grace.in_words(&setup)),
                Some(_) => outln!("--excess is not needed: {} has no grace. Leave it out.", outcome.design),
                None => {}
            }
            outln!("{code}");
        }
    }
    if chosen.is_none() {
        let why =
            "no design meets the requirements; allow more with --max-over, --max-p50-ms, --max-usd or --max-errors";
        errln!("tidegate: {why}");
        return Err(Failure::Failed);
    }
    Ok(())
}

impl Args {
    /// Asks for the platform, the limit, the traffic and the requirements.
    fn questions(&mut self) -> Result<Platform, Failure> {
        let platform = ask("Where does the application run?", Platform::Cloudflare)?;
        self.fleet.ask()?;
        self.max_over = ask("How much more than the limit may be admitted, in percent? 0 is exact", self.max_over)?;
        if grace::lends(platform) {
            let excess = "By how many units may a client exceed its limit, so that its first request waits for no store? 0 is none";
            self.excess = ask(excess, self.excess)?;
            if self.excess > 0 {
                self.fleet.ask_isolates()?;
            }
        }
        let never = f64::INFINITY;
        let p50 = ask("How many milliseconds may half of the decisions take?", self.max_p50_ms.unwrap_or(never))?;
        let usd = ask("How many US dollars may a million decisions cost?", self.max_usd.unwrap_or(never))?;
        let bounded = |most: f64| most.is_finite().then_some(most);
        (self.max_p50_ms, self.max_usd) = (bounded(p50), bounded(usd));
        Ok(platform)
    }

    /// Why an outcome does not meet the requirements.
    fn objections(&self, outcome: &Outcome, is_strict: bool, max_over: f64) -> Vec<String> {
        let mut objections = Vec::new();
        let over = outcome.overshoot_percent();
        if over > max_over {
            objections.push(format!("{} over the limit", percent(over)));
        } else if max_over == 0.0 && !is_strict {
            objections.push("it can exceed the limit".into());
        }
        if let Some(most) = self.max_p50_ms.filter(|most| outcome.p50_ms > *most) {
            objections.push(format!("half of the decisions take {} ms or more, not {most}", outcome.p50_ms));
        }
        match (self.max_usd, outcome.usd_per_million) {
            (Some(most), Some(usd)) if usd > most => objections.push(format!("${usd:.2} a million, not ${most:.2}")),
            (Some(_), None) => objections.push("its price is not known".into()),
            _ => {}
        }
        let errors: u64 = outcome.errors.values().sum();
        #[expect(clippy::cast_precision_loss, reason = "counts of a run are far below 2^53")]
        if errors as f64 * 100.0 > self.max_errors * outcome.offered as f64 {
            objections.push(format!("{errors} of {} requests got an error", outcome.offered));
        }
        objections
    }
}

/// Reads a number of units.
fn units(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "write a whole number of units, or 0 for none".into())
}

/// What a design does, in one sentence.
fn advice(outcome: &Outcome) -> String {
    let trips = if outcome.round_trips == 1.0 { "round trip" } else { "round trips" };
    format!(
        "Use {}: {} over the limit, p50 {} ms, p99 {} ms, {} {trips} per decision{}.",
        outcome.design,
        percent(outcome.overshoot_percent()),
        outcome.p50_ms,
        outcome.p99_ms,
        outcome.round_trips,
        outcome.usd_per_million.map_or_else(String::new, |usd| format!(", ${usd:.2} a million"))
    )
}
