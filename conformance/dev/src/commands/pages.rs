use tidegate::program::{Failure, counted, tell};
use tidegate_harness::output::outln;
use tidegate_harness::target::workspace;

use crate::pages::{Session, all};

const EXAMPLES: &str = "\
Examples:
  tidegate-dev pages              follow all pages, one after another
  tidegate-dev pages axum --keep  one of them, and keep its folder";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The names of pages, which are those of their files in `adapters/*/start`. The default is all.
    names: Vec<String>,
    /// Keep the folders of the pages.
    #[arg(long)]
    keep: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let root = workspace();
    let all = all(&root).map_err(Failure::Usage)?;
    if let Some(unknown) = args.names.iter().find(|name| all.iter().all(|page| page.name != **name)) {
        let names: Vec<_> = all.iter().map(|page| &*page.name).collect();
        return Err(Failure::Usage(format!("{unknown}: no such page; the pages are {}", names.join(", "))));
    }
    let chosen: Vec<_> = all.iter().filter(|page| args.names.is_empty() || args.names.contains(&page.name)).collect();
    // Outside the workspace, as a reader's folder is.
    let place = tempfile::Builder::new().prefix("tidegate-pages-").tempdir();
    let mut place = place.map_err(|error| Failure::Usage(format!("no temporary folder: {error}")))?;
    place.disable_cleanup(args.keep);
    let mut table = tidegate_traffic::table(["page", "result", "seconds to the first 429", "files", "words"], 2..5);
    let mut failed = 0;
    for page in &chosen {
        let followed = Session::new(page, &root, place.path(), tell).and_then(|mut session| session.follow());
        let (result, seconds) = match followed {
            Ok(outcome) => ("works", outcome.limited_after.map_or("none".into(), |after| after.as_secs().to_string())),
            Err(why) => {
                tell(&format!("{}: FAILED: {why}", page.name));
                failed += 1;
                ("FAILED", "-".into())
            }
        };
        table.add_row([&*page.name, result, &seconds, &page.files().to_string(), &page.words.to_string()]);
    }
    outln!("{table}\n{}, {failed} failed", counted(chosen.len(), "page"));
    if args.keep {
        outln!("the folders are in {}", place.path().display());
    }
    if failed == 0 { Ok(()) } else { Err(Failure::Failed) }
}
