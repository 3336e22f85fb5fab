//! `replay.html`: one file that needs nothing from the network.

use serde::Serialize;

use super::report::AccessReport;
use super::text::remarks;
use crate::page::Page;

const PAGE: Page<'_> = Page {
    title: "Tidegate replay",
    style: include_str!("page/page.css"),
    body: include_str!("page/body.html"),
    script: concat!(include_str!("page/chart.js"), include_str!("page/view.js")),
};

/// What the page shows.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    report: &'a AccessReport,
    remarks: Vec<String>,
}

/// Renders the report as a page.
///
/// # Errors
/// Fails if the report cannot be serialized.
pub fn page(report: &AccessReport) -> serde_json::Result<String> {
    PAGE.with(&Shown { report, remarks: remarks(report) })
}
