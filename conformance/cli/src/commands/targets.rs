use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{ContentArrangement, Table};
use tidegate_conformance::output::outln;
use tidegate_conformance::target::ALL;

use crate::program::Failure;

pub(super) fn run() -> Result<(), Failure> {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(["target", "what it is", "how exact", "here"]);
    for target in ALL {
        let here = match target.emulator() {
            Ok(emulator) => format!("yes: {} {}", emulator.name, emulator.version),
            Err(reason) => format!("no: {reason}"),
        };
        let accuracy = target.capabilities().accuracy.to_string();
        table.add_row([target.name(), target.about(), &accuracy, &here]);
    }
    outln!("{table}");
    Ok(())
}
