//! The rules of a platform's own firewall, for what they can express of a rules file: an outer ring that runs before any code.
//!
//! # What the outer ring promises
//! As long as Tidegate admits every request of an address, the platform denies none of them. A platform's window is rarely the
//! limit's: it starts at another instant, is longer, or estimates. So the number of requests that a rule allows is not the
//! limit's own, but the most that the limit admits in the platform's window, however both are aligned. [`bound`] has the
//! formula. The outer ring is always the looser one, and Tidegate is still the limit.
//!
//! A platform also counts what Tidegate denies. Once a limit has denied an address, the platform may deny it for longer than
//! Tidegate would. And it counts what Tidegate does not see, because a cache answers it. The part `differs` of an export says
//! so.
//!
//! The promise is for requests that Tidegate decides on as soon as the platform has counted them, and by the costs of the file.
//!
//! # What a rule matches
//! Only requests that certainly count to the limit: see [`select`]. A request that a rule does not count is left to Tidegate.
//!
//! ```
//! use tidegate::export::{Platform, Source, export};
//! # fn main() -> Result<(), String> {
//! let source = Source::parse("rules.json", r#"{
//!     "limits": { "login": { "quotas": [{ "algorithm": "sliding_log", "limit": 3, "window_ms": 60000, "by": "ip" }] } },
//!     "rules": [{ "path": "/login", "limits": ["login"] }]
//! }"#)?;
//! let export = export(&source, Platform::Vercel, None, false)?;
//! assert_eq!(export.expressed[0].requests, 3);
//! assert!(export.files[0].content.contains(r#""value": "^/login/?(\\?|$)""#));
//! # Ok(())
//! # }
//! ```

pub mod bound;
mod cloudflare;
mod fastly;
mod file;
mod netlify;
mod pattern;
mod ring;
pub mod select;
mod vercel;

use std::fmt;

use clap::ValueEnum;
use serde::Serialize;
use tidegate_core::Rule as Algorithm;

pub use self::file::Source;
use self::ring::Rings;

/// A platform with rate-limiting rules of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Platform {
    /// Rate limiting rules of the WAF.
    Cloudflare,
    /// Custom rules of the WAF.
    Vercel,
    /// Edge functions with a rate limit.
    Netlify,
    /// Edge Rate Limiting in VCL.
    Fastly,
}

/// A platform's plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Plan {
    /// Cloudflare, Netlify.
    Free,
    /// Vercel.
    Hobby,
    /// Cloudflare, Vercel, Netlify.
    Pro,
    /// Cloudflare.
    Business,
    /// Cloudflare, Vercel, Netlify.
    Enterprise,
}

/// A platform's files, and what they leave out.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Export {
    /// The platform.
    pub platform: Platform,
    /// The plan. `None` for a platform whose plans do not differ.
    pub plan: Option<Plan>,
    /// The files. Empty if nothing could be expressed.
    pub files: Vec<File>,
    /// The limits that the files have, for each rule.
    pub expressed: Vec<Expressed>,
    /// The limits that they do not have, for each rule.
    pub not_expressed: Vec<NotExpressed>,
    /// How the files differ from what they express.
    pub differs: Vec<Difference>,
}

/// A file of a platform.
#[derive(Debug, Serialize)]
pub struct File {
    /// The name, with a relative folder.
    pub name: String,
    /// The text.
    pub content: String,
}

/// A limit of a rule that a file has.
#[derive(Debug, Serialize)]
pub struct Expressed {
    /// The rule.
    pub rule: String,
    /// The limit. If it has several quotas, `/` and the quota's name follow.
    pub limit: String,
    /// The most requests that the platform allows each address in each location.
    pub requests: u64,
    /// The period in which it does, in seconds.
    #[serde(rename = "periodSeconds")]
    pub period_s: u64,
}

/// A limit of a rule that no file has.
#[derive(Debug, Serialize)]
pub struct NotExpressed {
    /// The rule. `None` if no rule has the limit.
    pub rule: Option<String>,
    /// The limit, as in [`Expressed`].
    pub limit: String,
    /// Why.
    pub reason: String,
}

/// A difference between the files and what they express.
#[derive(Debug, Serialize)]
pub struct Difference {
    /// The limit, as in [`Expressed`]. `None` for all.
    pub limit: Option<String>,
    /// What is different.
    pub difference: String,
}

/// What a platform's rules can do.
struct Profile {
    plan: Option<Plan>,
    periods: Periods,
    counting: bound::Counting,
    /// The most rules.
    rules_max: usize,
    /// Whether each rule of the file takes one of them. Elsewhere, all rules of a limit share one.
    is_rule_each: bool,
    can: select::Can,
    /// Whether it can leave out addresses.
    addresses: bool,
    /// Why the platform cannot express a rule that has everything else.
    refuses: fn(&ring::Ring, &[String]) -> Option<String>,
}

/// The periods over which a platform counts, in seconds.
enum Periods {
    These(&'static [u64]),
    Within(u64, u64),
}

impl Platform {
    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> String {
        named(self)
    }

    /// The plans that differ, the smallest first.
    #[must_use]
    pub const fn plans(self) -> &'static [Plan] {
        match self {
            Self::Cloudflare => &[Plan::Free, Plan::Pro, Plan::Business, Plan::Enterprise],
            Self::Vercel => &[Plan::Hobby, Plan::Pro, Plan::Enterprise],
            Self::Netlify => &[Plan::Free, Plan::Pro, Plan::Enterprise],
            Self::Fastly => &[],
        }
    }

    fn profile(self, plan: Option<Plan>) -> Result<Profile, String> {
        let plans = self.plans();
        let plan = match plan {
            Some(plan) if !plans.contains(&plan) => {
                let known: Vec<_> = plans.iter().map(|plan| plan.name()).collect();
                let known =
                    if known.is_empty() { "leave it out".into() } else { format!("write {}", known.join(", ")) };
                return Err(format!("--plan {}: {} has no such plan; {known}", plan.name(), self.name()));
            }
            // The smallest, so that what is written works on each.
            None => plans.first().copied(),
            known => known,
        };
        Ok(match self {
            Self::Cloudflare => cloudflare::profile(plan),
            Self::Vercel => vercel::profile(plan),
            Self::Netlify => netlify::profile(plan),
            Self::Fastly => fastly::profile(),
        })
    }
}

impl Plan {
    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> String {
        named(self)
    }
}

fn named(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().into())
}

impl Profile {
    /// The plan in a sentence.
    fn plan(&self) -> String {
        self.plan.map_or_else(|| "the platform".into(), |plan| format!("the plan {}", plan.name()))
    }
}

impl Periods {
    /// The shortest period that is at least this long.
    fn at_least(&self, seconds: u64) -> Option<u64> {
        match *self {
            Self::These(periods) => periods.iter().copied().find(|period| *period >= seconds),
            Self::Within(least, most) => Some(seconds.max(least)).filter(|period| *period <= most),
        }
    }

    fn longest(&self) -> u64 {
        match *self {
            Self::These(periods) => periods.last().copied().unwrap_or(0),
            Self::Within(_, most) => most,
        }
    }
}

/// Writes a platform's rules for what they can express of a rules file. The default plan is the smallest. With `anonymous`, the
/// application identifies nobody, so limits that count by sender count by address.
///
/// # Errors
/// If the platform has no such plan.
pub fn export(source: &Source, platform: Platform, plan: Option<Plan>, anonymous: bool) -> Result<Export, String> {
    let profile = platform.profile(plan)?;
    let Rings { rings, not_expressed, mut differs } = Rings::plan(source, &profile, anonymous);
    let allowed = &source.allowed().networks;
    let expressed = rings.iter().flat_map(|ring| {
        ring.selections.iter().map(|selection| Expressed {
            rule: selection.rule.to_string(),
            limit: ring.limit.clone(),
            requests: ring.requests,
            period_s: ring.period_s,
        })
    });
    let expressed: Vec<Expressed> = expressed.collect();
    let mut files = Vec::new();
    if !rings.is_empty() {
        let (written, general) = match platform {
            Platform::Cloudflare => cloudflare::write(&rings, allowed, profile.plan),
            Platform::Vercel => vercel::write(&rings),
            Platform::Netlify => netlify::write(&rings),
            Platform::Fastly => fastly::write(&rings, allowed),
        };
        files = written;
        let general = general.iter().chain(&GENERAL);
        differs.extend(general.map(|text| Difference { limit: None, difference: (*text).to_string() }));
    }
    Ok(Export { platform, plan: profile.plan, files, expressed, not_expressed, differs })
}

/// What is different on every platform.
const GENERAL: [&str; 4] = [
    "The platform also counts requests that Tidegate denies. As long as Tidegate admits every request of an address, the \
     platform denies none of them; once it has denied one, the platform may deny the address for longer.",
    "The platform also counts requests that Tidegate does not see, because a cache or a static file answers them.",
    "The platform does not know of refunds, of settlements, or of costs that the application gives a request: what it \
     counted stays counted.",
    "The platform counts each address. Tidegate counts an IPv6 network of /64 as one sender, so the platform allows each \
     address of it as much.",
];

/// Such as `token_bucket of 5, 1 in 60 s`.
struct Numbers<'a>(&'a Algorithm);

impl fmt::Display for Numbers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [span_ms, refill] = match (self.0, self.0.parameters()) {
            (Algorithm::CalendarWindow(rule), _) => [rule.window().get(), 0],
            (_, [_, span_ms, refill]) => [span_ms, refill],
        };
        write!(f, "{} of {}", self.0.name(), self.0.limit())?;
        if refill > 0 {
            write!(f, ", {refill}")?;
        }
        match span_ms % 1_000 {
            0 => write!(f, " in {} s", span_ms / 1_000),
            _ => write!(f, " in {span_ms} ms"),
        }
    }
}
