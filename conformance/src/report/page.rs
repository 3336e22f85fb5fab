//! `report.html`: one file that needs nothing from the network.

use tidegate_traffic::page::Page;

use super::Report;

const PAGE: Page<'_> = Page {
    title: "Tidegate conformance report",
    style: "",
    body: include_str!("page/body.html"),
    script: concat!(include_str!("page/model.js"), include_str!("page/charts.js"), include_str!("page/view.js")),
};

/// Renders the report as a page.
///
/// # Errors
/// Fails if the report cannot be serialized.
pub fn page(report: &Report) -> serde_json::Result<String> {
    PAGE.with(report)
}
