//! Answers that are lost after a store has done what was asked.

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

/// Loses some answers to the burst that is under way, and none to what comes later. That is all that the host can do.
///
/// It answers two lines with how many answers were lost so far: `lose COUNT`, after which it loses so many, and `lost`.
pub(super) fn disturb(host: &Process, disturb: Disturb) -> LocalBoxFuture<'_, Result<(), String>> {
    async move {
        match disturb {
            Disturb::LoseAnswers => end(host, &begin(host).await?).await,
            other => Err(format!("this host cannot do {}", other.name())),
        }
    }
    .boxed_local()
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
