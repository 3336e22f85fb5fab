//! `spin-middleware`: the gate for any Spin component, in front of an app that knows nothing of it.

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use tidegate_conformance::declared::{Declared, Declares};
use tidegate_conformance::fixture::Disturb;
use tidegate_conformance::report::Emulator;

use super::{HOST, Host, NO_DELAY, WASM, build, wasm};
use crate::http::{Http, Version};
use crate::target::{Facts, Group, Running, Target};

/// The gate, composed with an app.
pub(in crate::target) const MIDDLEWARE: Middleware = Middleware;

const GATE: &str = "tidegate-spin-gate";

const APP: &str = "tidegate-guest-spin-behind";

const MANIFEST: &str = "conformance/guests/spin-behind/spin.toml";

#[derive(Debug)]
pub(in crate::target) struct Middleware;

impl Declares for Middleware {
    fn declared(&self) -> Declared {
        Declared { forgets_on_virtual_time: true, ..Declared::new(tidegate_spin::atomics::CAPABILITIES) }
    }

    fn can(&self, disturb: Disturb) -> bool {
        disturb == Disturb::LoseAnswers
    }
}

impl Target for Middleware {
    fn facts(&self) -> Facts<'_> {
        let about = "the gate for any Spin component, which counts on wasi:keyvalue atomics, in front of an app that knows nothing of it";
        Facts { needs: &[Group::Spin], ..Facts::new("spin-middleware", about) }
    }

    /// Our host, also if `spin` is installed: its versions before 4.1 compose nothing.
    fn emulator(&self) -> Result<Emulator, String> {
        wasm::toolchain(WASM)?;
        Ok(Emulator { name: format!("{HOST} on wasmtime"), version: build::locked(build::HOSTS, "wasmtime")? })
    }

    fn start(&self) -> LocalBoxFuture<'_, Result<Running, String>> {
        async {
            let args = [NO_DELAY.into(), "--variable=tidegate_test_mode=on".into()];
            let host = Host::start_composed(Some(GATE), APP, MANIFEST, &args).await?;
            let http = Http::new(&[host.base().to_string()], Version::Http2);
            Ok(Running::new(http, Vec::new(), Some(Box::new(host))))
        }
        .boxed_local()
    }
}
