use std::time::{Duration, Instant};

use tidegate_conformance::judge::Verdict;
use tidegate_conformance::report::FixtureReport;
use tidegate_core::UnixMillis;
use tidegate_harness::output::{errln, outln};
use tidegate_harness::run;
use tidegate_harness::soak::{Round, Tally};
use tidegate_harness::target::Target;

use super::run::target;
use crate::program::{Failure, block_on, counted, tell};

const EXAMPLES: &str = "\
Examples:
  tidegate soak --target redis --minutes 10        random traffic with faults
  tidegate soak --target redis --seed 7 --round 12 play one round again, as a violation names it";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The target.
    #[arg(long, value_name = "NAME")]
    target: String,
    /// How long new rounds begin.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    minutes: u64,
    /// The seed of the traffic. The default is the current time; every run prints it.
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Play only this round of the seed, as a violation names it.
    #[arg(long, value_name = "N", requires = "seed")]
    round: Option<u64>,
    /// Stop after this many violations.
    #[arg(long, value_name = "N", default_value_t = 5)]
    violations: u64,
    /// Print the summary as JSON.
    #[arg(long)]
    json: bool,
}

/// The time between two lines of progress.
const TOLD_EVERY: Duration = Duration::from_secs(15);

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let target = target(&args.target)?;
    if let Some(reason) = target.declared().stub {
        return Err(Failure::Usage(format!("{}: {reason}, so there is nothing to test", args.target)));
    }
    target.emulator().map_err(|missing| Failure::Usage(format!("{}: {missing}", args.target)))?;
    let seed = args.seed.unwrap_or_else(|| UnixMillis::now().get() / 1_000);
    let mut tally = Tally::default();
    let done = block_on(async {
        tokio::select! {
            done = soak(args, target, seed, &mut tally) => done,
            _ = tokio::signal::ctrl_c() => Err(Failure::Interrupted),
        }
    })?;
    if args.json {
        outln!("{}", serde_json::to_string(&tally).unwrap_or_default());
    } else {
        outln!("{}, seed {seed}: {}", args.target, in_words(&tally));
    }
    done?;
    if tally.violations > 0 { Err(Failure::Failed) } else { Ok(()) }
}

async fn soak(args: &Args, target: &dyn Target, seed: u64, tally: &mut Tally) -> Result<(), Failure> {
    let failed = |reason| Failure::Usage(format!("{}: {reason}", args.target));
    let running = run::start(target).await.map_err(failed)?;
    errln!("{}: random traffic with seed {seed}", args.target);
    let (began, mut told) = (Instant::now(), Instant::now());
    let until = Duration::from_secs(60 * args.minutes);
    let mut number = args.round.unwrap_or(0);
    let mut played = Ok(());
    while began.elapsed() < until && tally.violations < args.violations {
        match (Round { seed, number }).play(target, &running, tally).await {
            Ok(report) if report.verdict == Verdict::Fail => violation(args, seed, number, &report),
            Ok(_) => {}
            Err(reason) => {
                played = Err(failed(reason));
                break;
            }
        }
        if args.round.is_some() {
            break;
        }
        number += 1;
        if told.elapsed() > TOLD_EVERY {
            told = Instant::now();
            tell(&format!("{} s: {}", began.elapsed().as_secs(), in_words(tally)));
        }
    }
    running.stop().await;
    played
}

fn violation(args: &Args, seed: u64, number: u64, report: &FixtureReport) {
    outln!("violation in round {number}; tidegate soak --target {} --seed {seed} --round {number}", args.target);
    for reason in report.reasons.iter().take(3) {
        outln!("  {reason}");
    }
    if let Some(smallest) = &report.smallest {
        outln!("  in its smallest form: {}\n  {}", smallest.reason, smallest.fixture);
    }
}

fn in_words(tally: &Tally) -> String {
    let faults: Vec<_> = tally.faults.iter().map(|(name, times)| format!("{name} {times} times")).collect();
    let faults = if faults.is_empty() { "none".into() } else { faults.join(", ") };
    format!(
        "{} decisions on {} in {}, {} admitted, {} errors; faults: {faults}; {}",
        tally.decisions,
        counted(tally.keys, "key"),
        counted(tally.rounds, "round"),
        tally.admitted,
        tally.errors,
        counted(tally.violations, "violation"),
    )
}
