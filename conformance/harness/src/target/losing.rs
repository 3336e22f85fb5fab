//! Answers that are lost after a store has done what was asked.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use tidegate_conformance::fixture::Disturb;

use super::process::Process;

/// How many answers are lost at most.
const COUNT: u64 = 20;

/// How long to wait for the first answer that is lost, and for how long then to lose more.
const PATIENCE: Duration = Duration::from_secs(5);
const LOSS: Duration = Duration::from_millis(50);

/// Loses some answers to one burst, and none to what comes later.
///
/// The host answers two lines with how many answers were lost so far: `lose COUNT`, after which it loses so many, and `lost`.
#[derive(Debug, Default)]
pub(super) struct Losing {
    /// What the host had said before the burst.
    before: RefCell<String>,
}

impl Losing {
    /// Begins before the burst, which may have written all that it writes when the host reads the line.
    pub(super) fn prepare<'a>(&'a self, host: &'a Process, disturb: Disturb) -> LocalBoxFuture<'a, Result<(), String>> {
        async move {
            if disturb == Disturb::LoseAnswers {
                self.before.replace(host.tell(&format!("lose {COUNT}")).await?);
            }
            Ok(())
        }
        .boxed_local()
    }

    /// Waits until answers have been lost, and ends it. Losing them is all that the host can do.
    pub(super) fn disturb<'a>(&'a self, host: &'a Process, disturb: Disturb) -> LocalBoxFuture<'a, Result<(), String>> {
        async move {
            if disturb != Disturb::LoseAnswers {
                return Err(format!("this host cannot do {}", disturb.name()));
            }
            let before = self.before.take();
            let (began, mut is_losing) = (Instant::now(), false);
            while !is_losing && began.elapsed() < PATIENCE {
                tokio::time::sleep(Duration::from_millis(10)).await;
                is_losing = host.tell("lost").await? != before;
            }
            if is_losing {
                tokio::time::sleep(LOSS).await;
            }
            host.tell("lose 0").await?;
            is_losing.then_some(()).ok_or_else(|| "nothing was written, so no answer was lost".into())
        }
        .boxed_local()
    }
}
