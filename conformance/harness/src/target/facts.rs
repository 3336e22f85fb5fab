use super::Group;

/// What is known of a target before it runs, besides what it [declares](tidegate_conformance::declared::Declares).
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The stable name.
    pub name: &'a str,
    /// A short description.
    pub about: &'a str,
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
    pub const fn new(name: &'a str, about: &'a str) -> Self {
        Self { name, about, runtime: None, provider: None, needs: &[] }
    }
}
