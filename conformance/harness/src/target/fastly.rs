//! The targets on Fastly Compute: a real app on Viceroy, Fastly's own local server.

mod host;

pub use host::Host;

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use tidegate_conformance::declared::{Declared, Declares, OWN_CLOCK};
use tidegate_conformance::fixture::{Disturb, Fixture, Step};
use tidegate_conformance::operation::Operations;
use tidegate_conformance::report::{Cause, Emulator};
use tidegate_core::{Capabilities, Millis, Policy, Rule};

use super::build;
use super::checkout::workspace;
use super::{Facts, Running, Store, Target, wasm};
use crate::http::{Http, Version};
use crate::target::Group;

/// The most locations of any fixture.
const POPS: usize = 3;

/// The manifest that the app is deployed with.
pub const MANIFEST: &str = "conformance/guests/fastly/fastly.toml";

/// The argument that enables the suite's routes.
pub const TEST_MODE: &str = "--test-mode";

/// The target that a Compute app is compiled for.
const WASI: &str = "wasm32-wasip1";

/// Counts in KV Store.
pub(super) const KV: Fastly = Fastly {
    name: "fastly-kv",
    about: "KV Store on Viceroy, three PoPs that never see each other's writes",
    route: "kv",
    capabilities: tidegate_fastly::kv::CAPABILITIES,
};

/// The platform's own limiter.
pub(super) const ERL: Fastly = Fastly {
    name: "fastly-erl",
    about: "Edge Rate Limiting on Viceroy, which has only a stub of it",
    route: "erl",
    capabilities: tidegate_fastly::erl::CAPABILITIES,
};

/// One of the app's routes.
#[derive(Debug)]
pub(super) struct Fastly {
    name: &'static str,
    about: &'static str,
    route: &'static str,
    capabilities: Capabilities,
}

impl Fastly {
    fn is_the_platforms_own(&self) -> bool {
        self.route == ERL.route
    }
}

impl Declares for Fastly {
    fn declared(&self) -> Declared {
        let stub = "Viceroy's Edge Rate Limiting counts nothing and never limits; `tidegate run --live fastly --target \
                    fastly-erl` asks the platform";
        Declared { stub: self.is_the_platforms_own().then_some(stub), ..Declared::new(self.capabilities) }
    }

    fn can(&self, disturb: Disturb) -> bool {
        !self.is_the_platforms_own() && disturb == Disturb::LoseAnswers
    }

    fn takes(&self, policy: &Policy) -> bool {
        let rule = policy.quotas()[0].rule();
        !self.is_the_platforms_own() || is_an_average(rule)
    }

    fn unverified(&self, fixture: &Fixture) -> Option<(Cause, &'static str)> {
        let converges = |step: &Step| step.expect.as_ref().is_some_and(|expect| expect.admitted_max.is_some());
        if fixture.steps.iter().any(converges) {
            let reason = "PoPs never see each other's writes here, so convergence cannot be shown";
            return Some((Cause::Emulator, reason));
        }
        fixture.outlives_a_token().then_some((Cause::Emulator, OWN_CLOCK))
    }
}

impl Target for Fastly {
    fn facts(&self) -> Facts<'_> {
        Facts { runtime: Some("fastly"), needs: &[Group::Fastly], ..Facts::new(self.name, self.about) }
    }

    fn emulator(&self) -> Result<Emulator, String> {
        wasm::toolchain(WASI)?;
        Ok(Emulator { name: "viceroy".into(), version: build::locked(build::HOSTS, "viceroy-lib")? })
    }

    fn start(&self) -> LocalBoxFuture<'_, Result<Running, String>> {
        async {
            let pops = format!("--pops={POPS}");
            let host = Host::start(&workspace().join(MANIFEST), &[&pops, TEST_MODE]).await?;
            let addresses: Vec<_> = host.addresses().map(|address| format!("{address}/{}", self.route)).collect();
            Ok(Running::new(Http::new(&addresses, Version::Http1).apart(), Vec::new(), Some(Box::new(host))))
        }
        .boxed_local()
    }
}

/// Whether Edge Rate Limiting can express a rule: a whole number of requests per second, averaged over 1, 10 or 60 s.
fn is_an_average(rule: &Rule) -> bool {
    [1, 10, 60].into_iter().any(|seconds| {
        let average = rule.limit() / seconds;
        let in_range = (10..=70_000_000).contains(&average) && rule.limit().is_multiple_of(seconds);
        rule.window() == Millis::from_secs(seconds) && in_range
    })
}

impl Store for Host {
    fn prepare(&self, disturb: Disturb) -> LocalBoxFuture<'_, Result<(), String>> {
        self.losing.prepare(&self.process, disturb)
    }

    fn disturb(&self, disturb: Disturb) -> LocalBoxFuture<'_, Result<(), String>> {
        self.losing.disturb(&self.process, disturb)
    }

    fn operations(&self) -> LocalBoxFuture<'_, Result<Operations, String>> {
        async { Err("Viceroy counts no operations".into()) }.boxed_local()
    }

    fn stop(self: Box<Self>) -> LocalBoxFuture<'static, ()> {
        (*self).stop().boxed_local()
    }
}
