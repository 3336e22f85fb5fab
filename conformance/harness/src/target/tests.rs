//! Tests of a target that dies.

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use tidegate_conformance::declared::{Declared, Declares};
use tidegate_conformance::fixture;
use tidegate_conformance::judge::Verdict;
use tidegate_conformance::operation::Operations;
use tidegate_conformance::report::{Emulator, Status, TargetReport};
use tidegate_conformance::run::prepare;

use super::memory::{Memory, NATIVE_GUEST};
use super::{Facts, Running, Store, Target, build, process};
use crate::http::{Http, Version};
use crate::run;

/// The memory, in a process that is killed when its first fixture begins, in each of its first lives.
struct Mortal {
    deaths: usize,
    starts: AtomicUsize,
}

impl Declares for Mortal {
    fn declared(&self) -> Declared {
        Memory.declared()
    }
}

impl Target for Mortal {
    fn facts(&self) -> Facts<'_> {
        Memory.facts()
    }

    fn emulator(&self) -> Result<Emulator, String> {
        Memory.emulator()
    }

    fn start(&self) -> LocalBoxFuture<'_, Result<Running, String>> {
        async {
            let program = build::program(NATIVE_GUEST).await?;
            let (guest, address) = process::guest(&program, &[]).await?;
            let is_doomed = self.starts.fetch_add(1, Ordering::Relaxed) < self.deaths;
            let life = Life { guest: RefCell::new(Some(guest)), is_doomed };
            Ok(Running::new(Http::new(&[address], Version::Http2), Vec::new(), Some(Box::new(life))))
        }
        .boxed_local()
    }
}

struct Life {
    guest: RefCell<Option<process::Process>>,
    is_doomed: bool,
}

impl Store for Life {
    /// Asked before each fixture.
    fn operations(&self) -> LocalBoxFuture<'_, Result<Operations, String>> {
        async {
            let doomed = if self.is_doomed { self.guest.take() } else { None };
            if let Some(guest) = doomed {
                guest.kill().await?;
            }
            Ok(Operations::new())
        }
        .boxed_local()
    }

    fn stop(self: Box<Self>) -> LocalBoxFuture<'static, ()> {
        async move {
            if let Some(guest) = self.guest.take() {
                guest.stop().await;
            }
        }
        .boxed_local()
    }
}

async fn report(deaths: usize) -> Result<TargetReport, String> {
    let all = fixture::load(fixture::shipped(), None).map_err(|problems| format!("{problems:?}"))?;
    let cases = all.into_iter().filter(|case| case.id().starts_with("fixed-window/")).collect();
    let cases = prepare(cases).await.map_err(|wrong| wrong.join("\n"))?;
    let target = Mortal { deaths, starts: AtomicUsize::new(0) };
    Ok(run::target(&target, &cases, |_| {}).await)
}

#[tokio::test]
async fn a_target_that_dies_is_started_again_for_the_next_fixture() -> Result<(), String> {
    let report = report(2).await?;
    let failed = report.fixtures.iter().map(|one| one.verdict == Verdict::Fail);
    let expected = [true, true].into_iter().chain(std::iter::repeat(false)).take(report.fixtures.len());
    assert!(report.fixtures.len() > 4 && failed.eq(expected), "{:?}", report.fixtures);
    let last = report.fixtures[1].reasons.last().map_or("", String::as_str);
    assert!(last.starts_with("after it, a guest does not answer: "), "{last}");
    Ok(())
}

#[tokio::test]
async fn a_target_that_dies_again_and_again_ends() -> Result<(), String> {
    let report = report(usize::MAX).await?;
    assert_eq!((report.status, report.fixtures.len()), (Status::Fail, 3));
    let reason = report.reason.unwrap_or_default();
    assert!(reason.starts_with("died in fixed-window/"), "{reason}");
    assert!(reason.contains("; it is not started again after 3 deaths, so "), "{reason}");
    Ok(())
}
