//! Runs fixtures on targets.

use std::time::Instant;

use tidegate_conformance::declared::Declared;
use tidegate_conformance::reference::Prepared;
use tidegate_conformance::report::{FixtureReport, Status, TargetReport};
use tidegate_conformance::run::Session;
use tidegate_conformance::subject::Subject as _;
use tidegate_traffic::prices;

use crate::target::{Facts, Running, Target, logged};

/// A target that has died this often is not started again.
const DEATHS_MAX: usize = 3;

/// Starts a target, runs fixtures on it, and stops it. Calls `done` after each fixture.
///
/// If the target dies, it is started again for the next fixture, a few times.
pub async fn target(target: &dyn Target, cases: &[Prepared], mut done: impl FnMut(&FixtureReport)) -> TargetReport {
    let Declared { capabilities, stub, .. } = target.declared();
    let Facts { name, runtime, provider, .. } = target.facts();
    let mut report = TargetReport::new(name, &capabilities.accuracy);
    report.runtime = runtime.map(str::to_string);
    match target.emulator() {
        Ok(emulator) => report.emulator = Some(emulator),
        Err(reason) => return report.ended(Status::Unavailable, reason),
    }
    let mut running = match start(target).await {
        Ok(running) => running,
        Err(reason) => return report.ended(Status::Fail, reason),
    };
    // The fixtures show what decisions do at their store. That may cost something.
    let concluded = |session: Session, report: &mut TargetReport| {
        session.conclude(report);
        let counted = provider.filter(|_| !report.operations.is_empty());
        report.cost = counted.and_then(|provider| prices::cost(provider, &report.operations));
    };
    let (began, mut session, mut deaths) = (Instant::now(), Session::default(), 0);
    while let Err(reason) = session.replay(target, &running, cases, &mut report, &mut done).await {
        running.stop().await;
        deaths += 1;
        let end = || Err(format!("it is not started again after {DEATHS_MAX} deaths"));
        running = match if deaths < DEATHS_MAX { start(target).await } else { end() } {
            Ok(running) => running,
            Err(why) => {
                let left = cases.len() - report.fixtures.len();
                concluded(session, &mut report);
                report.elapsed_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
                let reason = format!("died in {reason}; {why}, so {left} fixtures were not tried");
                return report.ended(Status::Fail, reason);
            }
        };
    }
    concluded(session, &mut report);
    running.stop().await;
    report.elapsed_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    report.concluded(&capabilities.accuracy, stub)
}

/// Starts a target, and waits until its guests answer and declare its capabilities.
///
/// # Errors
/// Says what went wrong. Nothing is left running.
pub async fn start(target: &dyn Target) -> Result<Running, String> {
    let running = logged(target.name(), target.start()).await;
    let running = running.map_err(|reason| format!("did not start: {reason}"))?;
    let ready = async {
        running.check(&target.declared().capabilities).await?;
        running.settle().await
    };
    if let Err(reason) = ready.await {
        running.stop().await;
        return Err(reason);
    }
    Ok(running)
}
