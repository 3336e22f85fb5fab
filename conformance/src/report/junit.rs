use std::time::Duration;

use quick_junit::{NonSuccessKind, Report as JunitReport, TestCase, TestCaseStatus, TestSuite};

use super::{Report, Status};
use crate::judge::Verdict;

/// The report as JUnit XML: a suite a target, a case a fixture. What did not run is skipped, not passed.
///
/// # Errors
/// Text that XML cannot hold.
pub fn junit(report: &Report) -> Result<String, String> {
    let mut out = JunitReport::new("tidegate");
    for target in &report.targets {
        let mut suite = TestSuite::new(target.name.as_str());
        for one in &target.fixtures {
            let reason = one.reasons.join("\n");
            let status = match one.verdict {
                Verdict::Pass => TestCaseStatus::success(),
                Verdict::Fail => failed(&reason),
                _ => skipped(one.reason.as_deref().unwrap_or("unsupported")),
            };
            suite.add_test_case(case(&one.id, &target.name, status, one.elapsed_ms));
        }
        // Where no fixture tells what went wrong, the target itself does.
        let told = target.fixtures.iter().any(|one| one.verdict == Verdict::Fail);
        let reason = target.reason.as_deref().unwrap_or_default();
        let status = match target.status {
            Status::Fail if !told => Some(failed(reason)),
            Status::Unavailable | Status::Unverified => Some(skipped(reason)),
            _ => None,
        };
        suite.add_test_cases(status.map(|status| case("target", &target.name, status, 0)));
        out.add_test_suite(suite);
    }
    out.to_string().map_err(|error| error.to_string())
}

fn case(name: &str, target: &str, status: TestCaseStatus, elapsed_ms: u64) -> TestCase {
    let mut case = TestCase::new(name, status);
    case.set_classname(format!("tidegate.{target}")).set_time(Duration::from_millis(elapsed_ms));
    case
}

fn failed(reason: &str) -> TestCaseStatus {
    let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
    status.set_message(reason.lines().next().unwrap_or_default()).set_description(reason);
    status
}

fn skipped(reason: &str) -> TestCaseStatus {
    let mut status = TestCaseStatus::skipped();
    status.set_message(reason);
    status
}
