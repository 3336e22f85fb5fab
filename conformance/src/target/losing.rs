//! Answers that are lost after a store has done what was asked.

use std::time::{Duration, Instant};

use super::process::Process;

/// How many answers are lost at most.
const COUNT: u64 = 20;

/// How long to wait for the first answer that is lost, and for how long then to lose more.
const PATIENCE: Duration = Duration::from_secs(5);
const LOSS: Duration = Duration::from_millis(50);

/// Loses some answers to the burst that is under way, and none to what comes later.
///
/// The host answers two lines with how many answers were lost so far: `lose COUNT`, after which it loses so many, and `lost`.
pub(super) async fn lose_answers(host: &Process) -> Result<(), String> {
    end(host, &begin(host).await?).await
}

/// Begins to lose answers, and returns what [`end`] needs. For a store that a burst writes only once: before the burst.
pub(super) async fn begin(host: &Process) -> Result<String, String> {
    host.tell(&format!("lose {COUNT}")).await
}

/// Waits until answers have been lost since `before`, and loses no more.
pub(super) async fn end(host: &Process, before: &str) -> Result<(), String> {
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
