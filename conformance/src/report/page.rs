//! `report.html`: one file that needs nothing from the network.

use super::Report;

const PAGE: &str = include_str!("page/page.html");
/// The style of the pages.
pub(crate) const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str =
    concat!(include_str!("page/model.js"), include_str!("page/charts.js"), include_str!("page/view.js"));

/// Renders the report as a page.
///
/// # Errors
/// Fails if the report cannot be serialized.
pub fn page(report: &Report) -> serde_json::Result<String> {
    // In JSON, `<` occurs only in strings. Escaped, no text of a report can end the element that holds it.
    let data = serde_json::to_string(report)?.replace('<', "\\u003c");
    Ok(PAGE.replace("/*style*/", STYLE).replace("/*script*/", SCRIPT).replace("/*report*/", &data))
}
