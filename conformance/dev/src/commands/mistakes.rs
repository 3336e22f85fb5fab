use tidegate::program::{Failure, counted, tell};
use tidegate_harness::output::outln;
use tidegate_harness::target::workspace;

use crate::mistakes::{Copy, Outcome, all};

const EXAMPLES: &str = "\
Examples:
  tidegate-dev mistakes                     put back all, one after another
  tidegate-dev mistakes mount-stripped      one of them";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The names of mistakes. The default is all.
    names: Vec<String>,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let all = all().map_err(Failure::Usage)?;
    if let Some(unknown) = args.names.iter().find(|name| all.iter().all(|one| one.name != **name)) {
        let names: Vec<_> = all.iter().map(|one| &*one.name).collect();
        return Err(Failure::Usage(format!("{unknown}: no such mistake; the mistakes are {}", names.join(", "))));
    }
    let chosen: Vec<_> = all.iter().filter(|one| args.names.is_empty() || args.names.contains(&one.name)).collect();
    let mut copy = Copy::of(&workspace()).map_err(Failure::Usage)?;
    let mut caught = 0;
    for (nth, mistake) in chosen.iter().enumerate() {
        tell(&format!("{} of {}: {}", nth + 1, chosen.len(), mistake.name));
        match copy.try_out(mistake) {
            Outcome::Caught => {
                caught += 1;
                outln!("caught: {}: {}", mistake.name, mistake.about);
            }
            Outcome::Survived => outln!("SURVIVED: {}: {}", mistake.name, mistake.about),
            Outcome::Unknown(why) => outln!("UNKNOWN: {}: {why}", mistake.name),
        }
    }
    outln!("{}, {caught} caught", counted(chosen.len(), "mistake"));
    if caught == chosen.len() { Ok(()) } else { Err(Failure::Failed) }
}
