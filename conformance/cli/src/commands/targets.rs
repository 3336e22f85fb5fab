use comfy_table::ContentArrangement;
use tidegate_harness::output::outln;
use tidegate_harness::target::ALL;

use crate::program::Failure;

pub(super) const EXAMPLES: &str = "\
Examples:
  tidegate targets                                 which run here, and what the others need
  tidegate targets | grep exact                    the exact ones";

pub(super) fn run() -> Result<(), Failure> {
    let mut table = tidegate_traffic::table(["target", "what it is", "how exact", "here"], 0..0);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    for target in ALL {
        let here = match target.emulator() {
            Ok(emulator) => format!("yes: {} {}", emulator.name, emulator.version),
            Err(reason) => format!("no: {reason}"),
        };
        let accuracy = target.declared().capabilities.accuracy.to_string();
        table.add_row([target.name(), target.facts().about, &accuracy, &here]);
    }
    outln!("{table}");
    Ok(())
}
