//! The fixtures of one subject, which may die in between.

use std::time::Duration;

use super::{case, prefix, shrink};
use crate::declared::Declares;
use crate::fixture::Case;
use crate::judge::Verdict;
use crate::reference::Prepared;
use crate::report::{Bucket, FixtureReport, TargetReport};
use crate::subject::Subject;

/// The most failed fixtures of a subject that are reduced. The others usually fail for the same reason.
const REDUCED_MAX: usize = 5;

/// How far the fixtures of a subject have come.
#[derive(Debug, Default)]
pub struct Session {
    /// The place of the next fixture.
    next: usize,
    reduced: usize,
    latencies: Vec<Duration>,
}

impl Session {
    /// Replays the fixtures that are left, and adds the results to the report.
    ///
    /// # Errors
    /// Says in which fixture the subject has died. That fixture has failed, and the others are left.
    pub async fn replay(
        &mut self,
        limiter: &dyn Declares,
        subject: &impl Subject,
        cases: &[Prepared],
        report: &mut TargetReport,
        done: &mut impl FnMut(&FixtureReport),
    ) -> Result<(), String> {
        let declared = limiter.declared().capabilities;
        while let Some(prepared) = cases.get(self.next) {
            let prefix = prefix(self.next);
            self.next += 1;
            let mut one = case(limiter, &declared, subject, prepared, &prefix, &mut self.latencies).await;
            let life = if one.verdict == Verdict::Fail { subject.alive().await } else { Ok(()) };
            match (&life, &prepared.case) {
                (Err(reason), _) => one.reasons.push(format!("after it, a guest does not answer: {reason}")),
                (Ok(()), Case::Decision(fixture)) if one.verdict == Verdict::Fail && self.reduced < REDUCED_MAX => {
                    self.reduced += 1;
                    one.smallest = shrink::smallest(&declared, fixture, subject, &prefix).await;
                }
                _ => {}
            }
            done(&one);
            let life = life.map_err(|reason| format!("{}: {reason}", one.id));
            report.fixtures.push(one);
            life?;
        }
        Ok(())
    }

    /// Adds what all fixtures show together.
    pub fn conclude(self, report: &mut TargetReport) {
        report.latency = Bucket::of(&self.latencies);
        report.count_operations();
    }
}
