//! Where the windows of a calendar begin, which the package finds in other zone data and by other code.

use jiff::tz::TimeZoneDatabase;
use tidegate_core::{Calendar, Every, UnixMillis};
use wasm_bindgen::prelude::*;

use crate::shared::{leave_text, texts};

/// Leaves the names of all zones that this library contains, with commas between them.
#[wasm_bindgen]
pub fn zones() -> i32 {
    let names: Vec<_> = TimeZoneDatabase::bundled().available().map(|name| name.to_string()).collect();
    leave_text(&names.join(","))
}

/// Leaves the boundaries around instants: for each three numbers, all with commas between them. The texts are the name of a unit, that of a
/// zone, an anchor, and the instants with commas between them. If the calendar is wrong, it leaves why.
#[wasm_bindgen]
pub fn boundaries() -> i32 {
    let texts: Vec<String> = texts().into_iter().flatten().collect();
    leave_text(&found(&texts).unwrap_or_else(|error| error.to_string()))
}

fn found(texts: &[String]) -> Result<String, tidegate_core::Error> {
    let [every, zone, anchor, instants] = texts else { return Ok("four texts are needed".into()) };
    let calendar = Calendar::new(Every::of_name(every)?).zone(zone)?.anchor(anchor)?;
    let numbers = instants.split(',').flat_map(|instant| {
        let instant = UnixMillis::new(instant.parse().unwrap_or_default());
        let found = calendar.boundaries(instant);
        found.map_or([0; 3], |bounds| bounds.map(UnixMillis::get))
    });
    Ok(numbers.map(|number| number.to_string()).collect::<Vec<_>>().join(","))
}
