//! `memory`: the reference store in one process.

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use tidegate_conformance::declared::{Declared, Declares};
use tidegate_conformance::operation::Operations;
use tidegate_conformance::report::Emulator;
use tidegate_core::{Limiter as _, MemoryLimiter};

use super::{Facts, Running, Store, Target, build, process};
use crate::http::{Http, Version};

/// The package of the native guest.
pub(super) const NATIVE_GUEST: &str = "tidegate-guest-native";

#[derive(Debug)]
pub(super) struct Memory;

impl Declares for Memory {
    fn declared(&self) -> Declared {
        let capabilities = MemoryLimiter::with_shards(1).capabilities();
        Declared { forgets_on_virtual_time: true, ..Declared::new(capabilities) }
    }
}

impl Target for Memory {
    fn facts(&self) -> Facts<'_> {
        Facts::new("memory", "the reference store, one process")
    }

    fn emulator(&self) -> Result<Emulator, String> {
        Ok(Emulator { name: NATIVE_GUEST.into(), version: env!("CARGO_PKG_VERSION").into() })
    }

    fn start(&self) -> LocalBoxFuture<'_, Result<Running, String>> {
        async {
            let program = build::program(NATIVE_GUEST).await?;
            let (guest, address) = process::guest(&program, &[]).await?;
            let http = Http::new(&[address], Version::Http2);
            Ok(Running::new(http, vec![guest], Some(Box::new(SameProcess))))
        }
        .boxed_local()
    }
}

/// The guest's memory. It takes no round trips and cannot be disturbed from outside.
pub(super) struct SameProcess;

impl Store for SameProcess {
    fn operations(&self) -> LocalBoxFuture<'_, Result<Operations, String>> {
        async { Ok(Operations::new()) }.boxed_local()
    }

    fn stop(self: Box<Self>) -> LocalBoxFuture<'static, ()> {
        async {}.boxed_local()
    }
}
