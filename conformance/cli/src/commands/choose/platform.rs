use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;

/// Where an application runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Platform {
    Cloudflare,
    Vercel,
    Netlify,
    Fastly,
    Spin,
    Server,
}

impl Platform {
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
        f.write_str(&self.to_possible_value().map_or_else(String::new, |value| value.get_name().into()))
    }
}

impl FromStr for Platform {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = || Self::value_variants().iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        <Self as ValueEnum>::from_str(text, false).map_err(|_| format!("write one of {}", known()))
    }
}
