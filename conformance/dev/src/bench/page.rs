//! `bench.html`: one file that needs nothing from the network.

use tidegate_traffic::page::Page;

use super::BenchReport;

const PAGE: Page<'_> = Page {
    title: "Tidegate benchmarks",
    style: include_str!("page/page.css"),
    body: include_str!("page/body.html"),
    script: concat!(include_str!("page/charts.js"), include_str!("page/view.js")),
};

/// Renders the measurements as a page.
///
/// # Errors
/// Fails if the report cannot be serialized.
pub fn page(report: &BenchReport) -> serde_json::Result<String> {
    PAGE.with(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_holds_the_report_and_no_text_of_it_becomes_markup() {
        let name = "</script><img src=x>";
        let line = format!(r#"{{"group":"g","name":"{name}","unit":"KiB","ours":[1.5]}}"#);
        let report = BenchReport::read(&line).expect("a line");
        let page = page(&report).expect("a page");
        assert!(!page.contains("<img"), "{page}");
        let (_, data) = page.split_once(r#"<script id="data" type="application/json">"#).expect("data");
        let (data, _) = data.split_once("</script>").expect("an end");
        assert_eq!(serde_json::from_str::<BenchReport>(data).expect("a report"), report);
        for placeholder in ["<!--title-->", "/*style*/", "<!--body-->", "/*script*/", "/*data*/"] {
            assert!(!page.contains(placeholder), "{placeholder}");
        }
        // The names of SVG and of a pattern in the page itself are not requested.
        let requested = page.replace("http://www.w3.org/2000/svg", "").replace("url(#", "");
        for outside in ["http://", "https://", "url(", "@import", "src=\""] {
            assert!(!requested.contains(outside), "{outside}");
        }
    }
}
