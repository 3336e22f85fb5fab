use tidegate_core::{Accuracy, Capabilities};

use super::{Cause, Group};

/// What is known of a target before it runs.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The stable name.
    pub name: &'a str,
    /// A short description.
    pub about: &'a str,
    /// The capabilities that the adapter declares. The guest must declare the same.
    pub capabilities: Capabilities,
    /// Whether the store expires idempotency tokens by the caller's clock. If it uses its own clock, fixtures that let a token
    /// expire are unverified.
    pub forgets_on_virtual_time: bool,
    /// Whether the adapter makes a token for a request that needs one and has none. Then no request without one reaches the
    /// store, and fixtures that send one are unverified.
    pub makes_tokens: bool,
    /// Whether the guest has a gate. One without answers `unsupported` to every request for a gate.
    pub has_gate: bool,
    /// Why the emulator cannot show what the platform admits, if it cannot. Its answers must still be well-formed.
    pub stub: Option<&'static str>,
    /// The platform's JavaScript runtime, by [WinterTC's runtime key](https://runtime-keys.proposal.wintertc.org/), if it has
    /// one.
    pub runtime: Option<&'static str>,
    /// The platform whose prices apply, as in `prices.json`.
    pub provider: Option<&'static str>,
    /// What has to be set up for the target.
    pub needs: &'static [Group],
}

impl<'a> Facts<'a> {
    /// Of an ordinary target.
    #[must_use]
    pub const fn new(name: &'a str, about: &'a str, capabilities: Capabilities) -> Self {
        Self {
            name,
            about,
            capabilities,
            forgets_on_virtual_time: false,
            makes_tokens: false,
            has_gate: true,
            stub: None,
            runtime: None,
            provider: None,
            needs: &[],
        }
    }

    /// Whether the platform or the adapter is the reason for what the capabilities lack.
    #[must_use]
    pub const fn limited_by(&self) -> Cause {
        match self.capabilities.accuracy {
            Accuracy::PerLocation => Cause::Platform,
            _ => Cause::Adapter,
        }
    }
}
