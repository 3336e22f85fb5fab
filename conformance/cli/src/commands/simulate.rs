mod scenario;

use std::fs;
use std::num::NonZero;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use comfy_table::Table;
use tidegate_core::internal::Suggestion;
use tidegate_core::{Millis, Policy, Quota};
use tidegate_harness::output::outln;
use tidegate_traffic::page::grouped;
use tidegate_traffic::simulate::{
    Assumed, Design, Faults, Flood, Outcome, Places, Setup, Simulation, Traffic, bars, chart, designs, page, percent,
    simulate_all, waits,
};

use self::scenario::defaults_of;
use super::ask::ask;
use super::quota::in_words;
use crate::program::{Failure, tell};

const EXAMPLES: &str = "\
Examples:
  tidegate simulate                                1,000 requests a minute for each of 50 clients, at three places
  tidegate simulate --scenario tail                20,000 addresses, of which hardly one comes near its limit
  tidegate simulate --scenario login --limit 10 --design redis,redis-leased
  tidegate simulate --limit 100 --places fra,iad,sin,gru,syd --rate 2000
  tidegate simulate --design durable-object --object-at fra
  tidegate simulate --algorithm token_bucket --limit 20 --refill 10 --window-ms 1000
  tidegate simulate --design durable-object-leased,redis --json
  tidegate simulate --design upstash,upstash-fallback --outage 60..90 --loss 0.1

Writes to --out: simulation.html, simulation.json, chart.svg (excess and round trips), waits.svg (excess and p99) and worst.svg
(the most that each design admits). The same --seed gives the same numbers.
Exit codes: 0 success, 2 the command line or an input is wrong.";

/// The most requests of a simulation, which takes about 40 bytes for each, and 1.5 KB while it waits.
const REQUESTS_MAX: f64 = 2e7;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    fleet: FleetArgs,
    /// Simulate only these designs. May be repeated. The default is all that can count by the policy.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    design: Vec<String>,
    /// Simulate designs that lend with a grace, too: so many units of a key are admitted before the store has been asked.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=1_000_000))]
    grace: u64,
    /// The folder of the page, the chart and the numbers.
    #[arg(long, value_name = "DIR", default_value = "target/simulate")]
    out: PathBuf,
    /// Print the numbers as JSON in place of the table.
    #[arg(long)]
    json: bool,
}

/// A limit, and the fleet and the traffic that it meets.
#[derive(Debug, clap::Args)]
pub(super) struct FleetArgs {
    /// A limit and traffic under a name. Options beside it override its values.
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = scenario::names())]
    scenario: String,
    /// A policy as JSON, with all its quotas: { "name": "api", "quotas": [{ "algorithm": "token_bucket", "capacity": 20, "refill": 10,
    /// "per_ms": 1000 }] }. Replaces the next four options.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["algorithm", "limit", "window_ms", "refill"])]
    policy: Option<PathBuf>,
    /// The algorithm of the limit.
    #[arg(long, value_name = "NAME", default_value = "fixed_window", value_parser = ["fixed_window", "sliding_window", "sliding_log", "token_bucket", "leaky_bucket"])]
    algorithm: String,
    /// The limit of each client, or the capacity of its bucket.
    #[arg(long, value_name = "N", default_value_t = 1_000, default_value_ifs = defaults_of("limit"))]
    limit: u64,
    /// The window, or the time in which a bucket gets its refill.
    #[arg(long, value_name = "MS", default_value_t = 60_000)]
    window_ms: u64,
    /// What a bucket gets back. The default is its capacity.
    #[arg(long, value_name = "N")]
    refill: Option<u64>,
    /// Where isolates are. Stores of one place are at the first one.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "iad,fra,sin")]
    places: Vec<String>,
    /// Round trips in milliseconds between places, as CSV with the names in the first line and the first column. Replaces --places.
    #[arg(long, value_name = "FILE")]
    latency: Option<PathBuf>,
    /// The place of all Durable Objects, one of --places, as a location hint or a jurisdiction decides it. The default is where each was
    /// called first.
    #[arg(long, value_name = "PLACE")]
    object_at: Option<String>,
    /// How many isolates serve the requests of a place.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    isolates: u16,
    /// How long an isolate lives.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    isolate_seconds: u64,
    /// How many clients send requests.
    #[arg(long, value_name = "N", default_value_t = 50, default_value_ifs = defaults_of("clients"))]
    clients: u32,
    /// All requests in a second.
    #[arg(long, value_name = "N", default_value_t = 1_000.0, default_value_ifs = defaults_of("rate"))]
    rate: f64,
    /// How unequal clients are: the client of rank r sends in proportion to 1 / r^N.
    #[arg(long, value_name = "N", default_value_t = 1.0, default_value_ifs = defaults_of("skew"))]
    skew: f64,
    /// At how many places a client's requests arrive. The default is all of them.
    #[arg(long, value_name = "N", default_value_ifs = defaults_of("roaming"))]
    roaming: Option<usize>,
    /// How many requests one more client sends at once, from all places. The default is none.
    #[arg(long, value_name = "N", default_value_t = 0, default_value_ifs = defaults_of("flood"))]
    flood: u32,
    /// After which time it sends them again.
    #[arg(long, value_name = "MS", default_value_t = 60_000, default_value_ifs = defaults_of("flood-ms"), value_parser = clap::value_parser!(u32).range(1..=3_600_000))]
    flood_ms: u32,
    /// The share of messages between isolates and stores that are lost.
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0)]
    loss: f64,
    /// How far the clock of an isolate is off at most.
    #[arg(long, value_name = "MS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=3_600_000))]
    clock_skew_ms: u64,
    /// When no store answers, in seconds since the start, such as 60..90. May be repeated.
    #[arg(long, value_name = "FROM..TO", value_parser = seconds)]
    outage: Vec<Range<u32>>,
    /// For how long requests arrive.
    #[arg(long, value_name = "N", default_value_t = 300, default_value_ifs = defaults_of("seconds"), value_parser = clap::value_parser!(u32).range(1..=86_400))]
    seconds: u32,
    /// What the traffic follows from.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let usage = |why: String| Failure::Usage(why);
    let setup = args.fleet.setup().map_err(usage)?;
    let chosen = args.designs().map_err(usage)?;
    let mut simulation = Simulation {
        title: args.fleet.title(&setup),
        setup: args.fleet.in_words(&setup),
        assumptions: setup.assumed.in_words(&setup.faults, &setup.places),
        ..Simulation::default()
    };
    let mut able = Vec::new();
    for design in chosen {
        match design.takes(&setup.policy) {
            Err(why) => simulation.left_out.push((design.name, why)),
            Ok(()) => able.push(design),
        }
    }
    if let ([], [(_, why), ..]) = (able.as_slice(), simulation.left_out.as_slice()) {
        return Err(Failure::Usage(format!("no design can count by this policy: {why}")));
    }
    simulation.outcomes = outcomes(&setup, &able)?;
    simulation.left_out.dedup();
    let json = serde_json::to_string_pretty(&simulation).map_err(|error| usage(error.to_string()))?;
    let page = page(&simulation).map_err(|error| usage(error.to_string()))?;
    let limit = setup.policy.quotas()[0].rule().limit();
    let files = [
        ("simulation.html", page),
        ("simulation.json", json.clone()),
        ("chart.svg", chart(&simulation.outcomes)),
        ("waits.svg", waits(&simulation.outcomes, &simulation.title)),
        ("worst.svg", bars(&simulation.outcomes, limit)),
    ];
    fs::create_dir_all(&args.out).map_err(|error| usage(format!("{}: {error}", args.out.display())))?;
    for (name, text) in files {
        let file = args.out.join(name);
        fs::write(&file, text).map_err(|error| usage(format!("{}: {error}", file.display())))?;
    }
    if args.json {
        outln!("{json}");
    } else {
        outln!("{}", table(&simulation.outcomes));
        outln!("{}", details(&simulation.outcomes));
        for (design, why) in &simulation.left_out {
            outln!("{design} is left out: {why}");
        }
        outln!("simulation.html, simulation.json, chart.svg, waits.svg and worst.svg are in {}", args.out.display());
    }
    Ok(())
}

/// Simulates designs, with progress.
pub(super) fn outcomes(setup: &Setup, designs: &[Design]) -> Result<Vec<Outcome>, Failure> {
    let begun = |nth: usize, design: &Design| {
        let line = format!("simulating {} of {}: {} {}", nth + 1, designs.len(), design.name, design.parameter);
        tell(line.trim_end());
    };
    simulate_all(setup, designs, begun).map_err(Failure::Usage)
}

impl FleetArgs {
    /// Asks for the limit and the traffic.
    pub(super) fn ask(&mut self) -> Result<(), Failure> {
        self.limit = ask("How many requests may a client make?", self.limit)?;
        self.window_ms = ask("In how many milliseconds?", self.window_ms)?;
        self.rate = ask("How many requests arrive in a second, of all clients?", self.rate)?;
        self.clients = ask("Of how many clients?", self.clients)?;
        let places = ask("At which places?", self.places.join(","))?;
        self.places = places.split(',').map(|place| place.trim().to_owned()).collect();
        Ok(())
    }

    /// Asks how many isolates serve the requests of a place.
    pub(super) fn ask_isolates(&mut self) -> Result<(), Failure> {
        let isolates = NonZero::new(self.isolates).unwrap_or(NonZero::<u16>::MIN);
        self.isolates = ask("How many isolates or processes does a place have?", isolates)?.get();
        Ok(())
    }

    pub(super) fn setup(&self) -> Result<Setup, String> {
        let places = match &self.latency {
            Some(file) => {
                let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
                Places::from_csv(&text).map_err(|error| format!("{}: {error}", file.display()))?
            }
            None => Places::named(self.places.iter().map(String::as_str))?,
        };
        let object_at = self.object_at.as_ref().map(|name| places.find(name)).transpose();
        let object_at = object_at.map_err(|why| format!("--object-at: {why}"))?;
        if !(self.rate.is_finite() && self.rate > 0.0 && self.rate <= 1e5) {
            return Err(format!("--rate: {} is out of range; write more than 0, at most 100,000", self.rate));
        }
        if !(1..=1_000_000).contains(&self.clients) {
            return Err(format!("--clients: {} is out of range; write 1 to 1,000,000", self.clients));
        }
        if !(0.0..=10.0).contains(&self.skew) {
            return Err(format!("--skew: {} is out of range; write 0 to 10", self.skew));
        }
        if !(0.0..=100.0).contains(&self.loss) {
            return Err(format!("--loss: {} is out of range; write 0 to 100", self.loss));
        }
        let faults =
            Faults { loss: self.loss / 100.0, clock_skew_ms: self.clock_skew_ms, outages: self.outage.clone() };
        let roaming = self.roaming.unwrap_or(places.count()).clamp(1, places.count());
        let (clients, rate, skew, seconds) = (self.clients, self.rate, self.skew, self.seconds);
        let flood = (self.flood > 0).then_some(Flood { requests: self.flood, every_ms: self.flood_ms });
        let traffic = Traffic { clients, rate, skew, roaming, seconds, flood };
        let requests = traffic.requests();
        if requests > REQUESTS_MAX {
            let of = if flood.is_some() { "--rate, --flood and --seconds" } else { "--rate x --seconds" };
            return Err(format!("{of}: {requests} requests are more than fit in memory; write {REQUESTS_MAX} at most"));
        }
        Ok(Setup {
            policy: self.policy()?,
            traffic,
            places: Arc::new(places),
            isolates: self.isolates.into(),
            isolate_seconds: self.isolate_seconds,
            assumed: Assumed { object_at, ..Assumed::default() },
            faults,
            seed: self.seed,
        })
    }

    fn policy(&self) -> Result<Policy, String> {
        if let Some(file) = &self.policy {
            let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
            return serde_json::from_str(&text).map_err(|error| format!("{}: {error}", file.display()));
        }
        let window = Millis::new(self.window_ms);
        let refill = self.refill.unwrap_or(self.limit);
        let quota = match self.algorithm.as_str() {
            "token_bucket" => Quota::token_bucket(self.limit, refill, window),
            "leaky_bucket" => Quota::leaky_bucket(self.limit, refill, window),
            "sliding_window" => Quota::sliding_window(self.limit, window),
            "sliding_log" => Quota::sliding_log(self.limit, window),
            _ => Quota::fixed_window(self.limit, window),
        };
        quota.and_then(|quota| Policy::new("api", [quota])).map_err(|error| error.to_string())
    }

    /// What is simulated, in a line.
    fn title(&self, setup: &Setup) -> String {
        let Setup { policy, traffic, .. } = setup;
        let limit = grouped(policy.quotas()[0].rule().limit());
        format!("{}: {} clients, each with a limit of {limit}", self.scenario, grouped(traffic.clients))
    }

    fn in_words(&self, setup: &Setup) -> Vec<(&'static str, String)> {
        vec![
            ("limit", format!("{}, for each client", in_words(&setup.policy))),
            (
                "traffic",
                format!(
                    "{} clients, {} requests/s in all, skew {}, {} s{}",
                    self.clients,
                    self.rate,
                    self.skew,
                    self.seconds,
                    setup.traffic.flood.map_or_else(String::new, |Flood { requests, every_ms }| format!(
                        "; one more sends {requests} at once every {every_ms} ms"
                    ))
                ),
            ),
            (
                "places",
                format!("{}; a client's requests arrive at {}", setup.places.names().join(", "), setup.traffic.roaming),
            ),
            ("isolates", format!("{} at each place, each for about {} s", self.isolates, self.isolate_seconds)),
            ("seed", self.seed.to_string()),
            ("scenario", self.scenario.clone()),
        ]
    }
}

/// Reads `FROM..TO`.
fn seconds(text: &str) -> Result<Range<u32>, String> {
    let range = text.split_once("..").and_then(|(from, to)| Some(from.trim().parse().ok()?..to.trim().parse().ok()?));
    range.filter(|range| !range.is_empty()).ok_or_else(|| "write two numbers of seconds, such as 60..90".into())
}

impl Args {
    fn designs(&self) -> Result<Vec<Design>, String> {
        let all = designs(self.grace);
        let with_grace = designs(1);
        let mut names: Vec<&str> = with_grace.iter().map(|design| design.name).collect();
        names.dedup();
        if let Some(unknown) = self.design.iter().find(|name| !names.contains(&name.as_str())) {
            return Err(format!("--design: {unknown:?} is not a design; {}", Suggestion::of(unknown, &names)));
        }
        if let Some(name) = self.design.iter().find(|name| all.iter().all(|design| design.name != name.as_str())) {
            return Err(format!("--design: {name:?} has a grace; write --grace 1, or more"));
        }
        Ok(all
            .into_iter()
            .filter(|design| self.design.is_empty() || self.design.iter().any(|name| name == design.name))
            .collect())
    }
}

pub(super) fn table(outcomes: &[Outcome]) -> Table {
    let columns = [
        "design",
        "",
        "offered",
        "admitted",
        "exact",
        "over",
        "under",
        "worst",
        "p50 ms",
        "p99 ms",
        "round trips",
        "$/million",
        "errors",
    ];
    let mut table = tidegate_traffic::table(columns, 2..columns.len());
    for outcome in outcomes {
        let errors: u64 = outcome.errors.values().sum();
        table.add_row([
            outcome.design.to_owned(),
            outcome.parameter.clone(),
            outcome.offered.to_string(),
            outcome.admitted.to_string(),
            outcome.exact.to_string(),
            percent(outcome.overshoot_percent()),
            percent(outcome.undershoot_percent()),
            outcome.worst.to_string(),
            outcome.p50_ms.to_string(),
            outcome.p99_ms.to_string(),
            outcome.round_trips.to_string(),
            outcome.usd_per_million.map_or_else(String::new, |usd| format!("{usd:.2}")),
            errors.to_string(),
        ]);
    }
    table
}

/// How long requests wait that are slow or new, and what goes over the network for a decision.
fn details(outcomes: &[Outcome]) -> Table {
    let columns = [
        "design",
        "",
        "p99.9 ms",
        "new, %",
        "new p50 ms",
        "new p99 ms",
        "trips",
        "requests",
        "commands",
        "rows read",
        "rows written",
    ];
    let mut table = tidegate_traffic::table(columns, 2..columns.len());
    for Outcome { design, parameter, p999_ms, first, trips, billed, .. } in outcomes {
        let numbers = [
            *p999_ms,
            first.percent,
            first.p50_ms,
            first.p99_ms,
            *trips,
            billed.requests,
            billed.commands,
            billed.rows_read,
            billed.rows_written,
        ];
        let numbers = numbers.map(|number| number.to_string());
        table.add_row([(*design).to_owned(), parameter.clone()].into_iter().chain(numbers));
    }
    table
}
