//! Badges for a README.

use tidegate_conformance::judge::Verdict;
use tidegate_conformance::report::{Status, TargetReport};
use tidegate_harness::report::{Report, escaped_xml};

/// Renders an SVG that shows the result of a report, or of one of its targets.
#[must_use]
pub fn badge(report: &Report, target: Option<&TargetReport>) -> String {
    let (label, said, status) = match target {
        Some(target) => {
            let said = match target.status {
                Status::Pass => format!("{}, {} passed", target.class.replace('_', " "), target.count(Verdict::Pass)),
                Status::Fail => format!("{} failed", target.count(Verdict::Fail)),
                Status::Unverified => "unverified".into(),
                Status::NotApplicable => "not applicable".into(),
                Status::Unavailable => "unavailable".into(),
            };
            (target.name.as_str(), said, target.status)
        }
        None => {
            let of = |status| report.targets.iter().filter(|target| target.status == status).count();
            let (failed, passed) = (of(Status::Fail), of(Status::Pass));
            let (count, what, status) = match failed {
                0 if passed == 0 => (0, "passed", Status::Unverified),
                0 => (passed, "passed", Status::Pass),
                _ => (failed, "failed", Status::Fail),
            };
            ("tidegate", format!("{count} of {} targets {what}", report.targets.len()), status)
        }
    };
    // The colours have a contrast of at least 4.5 to 1 with white.
    let colour = match status {
        Status::Pass => "#17703a",
        Status::Fail => "#b3261e",
        _ => "#5c656e",
    };
    let width = |text: &str| 7 * text.chars().count() + 12;
    let (left, right) = (width(label), width(&said));
    let (all, middle, start) = (left + right, left / 2, left + right / 2);
    let (label, said) = (escaped_xml(label), escaped_xml(&said));
    format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="{all}" height="20" role="img" aria-label="{label}: {said}"><title>{label}: {said}</title><rect width="{all}" height="20" rx="3" fill="#3d444b"/><path fill="{colour}" d="M{left} 0H{}a3 3 0 0 1 3 3V17a3 3 0 0 1-3 3H{left}z"/><g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11"><text x="{middle}" y="14">{label}</text><text x="{start}" y="14">{said}</text></g></svg>
"##,
        all - 3
    )
}
