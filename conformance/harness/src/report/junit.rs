//! JUnit XML. It is written without a crate, which would take longer to compile than all other reports.

use std::fmt::Write as _;

use tidegate_conformance::judge::Verdict;
use tidegate_conformance::report::{Status, TargetReport};

use super::Report;

/// The result of a case. A failure contains all reasons.
enum Ended<'a> {
    Passed,
    Failed(String),
    Skipped(&'a str),
}

/// Renders the report as JUnit XML: a suite per target and a case per fixture. Fixtures that did not run are skipped.
#[must_use]
pub fn junit(report: &Report) -> String {
    let mut suites = String::new();
    let (mut tests, mut failures) = (0, 0);
    for target in &report.targets {
        let cases = cases(target);
        let failed = cases.iter().filter(|(.., ended)| matches!(ended, Ended::Failed(_))).count();
        let skipped = cases.iter().filter(|(.., ended)| matches!(ended, Ended::Skipped(_))).count();
        let (name, count) = (escaped(&target.name), cases.len());
        let _ = writeln!(
            suites,
            r#"    <testsuite name="{name}" tests="{count}" skipped="{skipped}" errors="0" failures="{failed}">"#
        );
        for (id, elapsed_ms, ended) in cases {
            let (id, seconds) = (escaped(id), std::time::Duration::from_millis(elapsed_ms).as_secs_f64());
            let _ = write!(suites, r#"        <testcase name="{id}" classname="tidegate.{name}" time="{seconds:.3}""#);
            let _ = match ended {
                Ended::Passed => writeln!(suites, "/>"),
                Ended::Skipped(why) => writeln!(suites, r#"><skipped message="{}"/></testcase>"#, escaped(why)),
                Ended::Failed(why) => {
                    let first = escaped(why.lines().next().unwrap_or_default());
                    writeln!(suites, r#"><failure message="{first}">{}</failure></testcase>"#, escaped(&why))
                }
            };
        }
        suites.push_str("    </testsuite>\n");
        tests += count;
        failures += failed;
    }
    let head = r#"<?xml version="1.0" encoding="UTF-8"?>"#;
    format!(
        "{head}\n<testsuites name=\"tidegate\" tests=\"{tests}\" failures=\"{failures}\" errors=\"0\">\n{suites}</testsuites>\n"
    )
}

/// The id, the duration in milliseconds and the result of each case.
fn cases(target: &TargetReport) -> Vec<(&str, u64, Ended<'_>)> {
    let mut cases = Vec::with_capacity(target.fixtures.len() + 1);
    for one in &target.fixtures {
        let ended = match one.verdict {
            Verdict::Pass => Ended::Passed,
            Verdict::Fail => Ended::Failed(one.reasons.join("\n")),
            _ => Ended::Skipped(one.reason.as_deref().unwrap_or("unsupported")),
        };
        cases.push((one.id.as_str(), one.elapsed_ms, ended));
    }
    // If no fixture failed, a case for the target itself holds the reason.
    let told = target.fixtures.iter().any(|one| one.verdict == Verdict::Fail);
    let reason = target.reason.as_deref().unwrap_or_default();
    match target.status {
        Status::Fail if !told => cases.push(("target", 0, Ended::Failed(reason.into()))),
        Status::Unavailable | Status::NotApplicable | Status::Unverified => {
            cases.push(("target", 0, Ended::Skipped(reason)))
        }
        _ => {}
    }
    cases
}

/// Escapes text for an element or attribute of XML or HTML. Characters that XML does not allow are replaced.
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' => out.push_str("&#10;"),
            '\t' => out.push_str("&#9;"),
            '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn any_text_becomes_valid_xml() {
        assert_eq!(escaped("a<b> & \"c\"\n\u{1}é"), "a&lt;b&gt; &amp; &quot;c&quot;&#10;\u{fffd}é");
    }
}
