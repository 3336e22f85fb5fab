//! What a target needs to be installed.

/// A group of programs that the setup installs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// `redis-server` and `redis-cli`.
    Redis,
    /// PostgreSQL's server.
    Postgres,
    /// The tools that build and run the npm package.
    Npm,
    /// The tools that build and run a Worker.
    Cloudflare,
    /// The tools that build and run a Spin app.
    Spin,
    /// The tools that build and run a Compute app.
    Fastly,
}

impl Group {
    /// All groups in the order of their setup, the quickest first.
    pub const ALL: &[Self] = &[Self::Redis, Self::Postgres, Self::Npm, Self::Cloudflare, Self::Spin, Self::Fastly];

    /// The name on the command line of `conformance/setup.sh`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Postgres => "postgres",
            Self::Npm => "npm",
            Self::Cloudflare => "cloudflare",
            Self::Spin => "spin",
            Self::Fastly => "fastly",
        }
    }
}
