use std::fmt;
use std::str::FromStr;

/// Where an application runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Platform {
    Cloudflare,
    Vercel,
    Netlify,
    Fastly,
    Spin,
    Server,
}

impl Platform {
    const ALL: [(&'static str, Self); 6] = [
        ("cloudflare", Self::Cloudflare),
        ("vercel", Self::Vercel),
        ("netlify", Self::Netlify),
        ("fastly", Self::Fastly),
        ("spin", Self::Spin),
        ("server", Self::Server),
    ];

    /// The platform as the npm package calls it.
    pub(super) const fn in_javascript(self) -> &'static str {
        match self {
            Self::Cloudflare => "cloudflare",
            Self::Vercel => "vercel",
            Self::Netlify => "netlify",
            Self::Fastly | Self::Spin | Self::Server => "direct",
        }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(_, platform)| platform == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

impl FromStr for Platform {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|(name, _)| *name == text).map(|(_, platform)| *platform);
        found.ok_or_else(|| format!("write one of {}", Self::ALL.map(|(name, _)| name).join(", ")))
    }
}
