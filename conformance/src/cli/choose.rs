use std::fmt::{self, Write as _};
use std::io::{self, IsTerminal as _};
use std::str::FromStr;

use tidegate_core::Policy;
use tidegate_traffic::simulate::{Outcome, designs, percent};

use super::Failure;
use super::ask::ask;
use super::quota::as_code;
use super::simulate::{FleetArgs, outcomes, table};
use crate::output::{errln, outln};

const EXAMPLES: &str = "\
Examples:
  tidegate choose                                                     asks for what it needs
  tidegate choose --platform cloudflare --limit 100
  tidegate choose --platform cloudflare --limit 1000 --max-over 50 --max-p50-ms 1
  tidegate choose --platform vercel --limit 60 --max-usd 5 --places iad,fra

Simulates the designs that the platform has, and prints the one that meets the requirements with the shortest wait, its
numbers and the code to paste. Exit codes: 0 success, 1 no design meets the requirements, 2 the command line is wrong.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Where the application runs: cloudflare, vercel, netlify, fastly, spin (Akamai Functions, or Spin), or server (anywhere else). On
    /// a terminal, it is asked for.
    #[arg(long, value_name = "NAME")]
    platform: Option<Platform>,
    /// Ask on standard input, even if it is not a terminal.
    #[arg(long, conflicts_with = "platform")]
    ask: bool,
    /// How much more than the limit may be admitted, in percent. With 0, only designs are considered that never exceed it.
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0)]
    max_over: f64,
    /// How long half of the decisions may take.
    #[arg(long, value_name = "MS")]
    max_p50_ms: Option<f64>,
    /// What a million decisions may cost, in US dollars. Designs whose price is not known are left out.
    #[arg(long, value_name = "USD")]
    max_usd: Option<f64>,
    /// How many decisions may end in an error, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0)]
    max_errors: f64,
    /// Print the outcomes and the choice as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    fleet: FleetArgs,
}

/// Where an application runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Platform {
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
    const fn in_javascript(self) -> &'static str {
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

/// A design that an application can use, and where.
struct Candidate {
    design: &'static str,
    platforms: &'static [Platform],
    /// How to make the limiter in Rust.
    rust: &'static str,
    /// The entry of the npm package and the options before the policy, if JavaScript has it.
    javascript: Option<(&'static str, &'static str)>,
}

/// In their code, what is in angle brackets is replaced.
const CANDIDATES: [Candidate; 10] = [
    Candidate {
        design: "durable-object",
        platforms: &[Platform::Cloudflare],
        rust: r#"DurableObjects::from_env(&env, "TIDEGATE", Config::default())?.limiter()"#,
        javascript: Some(("@tidegate/edge/cloudflare", "namespace: env.TIDEGATE, ")),
    },
    Candidate {
        design: "durable-object-deny-cache",
        platforms: &[Platform::Cloudflare],
        rust: r#"DenyCache::new(DurableObjects::from_env(&env, "TIDEGATE", Config::default())?.limiter())"#,
        javascript: Some(("@tidegate/edge/cloudflare", "namespace: env.TIDEGATE, denyCache: true, ")),
    },
    Candidate {
        design: "durable-object-leased",
        platforms: &[Platform::Cloudflare],
        rust: r#"Leases::new(DurableObjects::from_env(&env, "TIDEGATE", Config::default())?, const { NonZero::new(<slice>).unwrap() }, Millis::from_secs(2))?"#,
        javascript: Some(("@tidegate/edge/cloudflare", "namespace: env.TIDEGATE, leases: { slice: <slice> }, ")),
    },
    Candidate {
        design: "workers-kv",
        platforms: &[Platform::Cloudflare],
        rust: r#"SharedKv::from_env(&env, "COUNTS", Config::default())?"#,
        javascript: Some(("@tidegate/edge/cloudflare-kv", "namespace: env.COUNTS, ")),
    },
    Candidate {
        design: "rate-limit-binding",
        platforms: &[Platform::Cloudflare],
        rust: r#"RateLimit::from_env(&env, "LIMITER", <limit>, Millis::new(<window>))?.limiter()"#,
        javascript: Some(("@tidegate/edge/cloudflare-ratelimit", "binding: env.LIMITER, ")),
    },
    Candidate {
        design: "upstash",
        platforms: &[Platform::Cloudflare, Platform::Vercel, Platform::Netlify, Platform::Server],
        rust: "Rest::new(RestConfig::new(url, token))?.limiter()",
        javascript: Some(("@tidegate/edge", "url, token, platform: <platform>, ")),
    },
    Candidate {
        design: "fastly-kv",
        platforms: &[Platform::Fastly],
        rust: r#"tidegate_fastly::Kv::open("tidegate")?.limiter()"#,
        javascript: None,
    },
    Candidate {
        design: "akamai-kv",
        platforms: &[Platform::Spin],
        rust: r#"SpinKv::open("default")?.limiter()"#,
        javascript: None,
    },
    Candidate {
        design: "redis",
        platforms: &[Platform::Spin],
        rust: "SpinRedis::new(RedisConnection::open(url)?).limiter()",
        javascript: None,
    },
    Candidate {
        design: "redis",
        platforms: &[Platform::Server],
        rust: "Redis::new(Config::new(url))?.limiter()",
        javascript: Some(("@tidegate/edge/redis", r#"client, platform: "direct", "#)),
    },
];

pub(super) fn run(mut args: Args) -> Result<(), Failure> {
    let platform = match args.platform {
        Some(platform) => platform,
        None if args.ask || io::stdin().is_terminal() => args.questions()?,
        None => return Err(Failure::Usage("write --platform, or --ask to be asked".into())),
    };
    let maxima = [
        ("--max-over", Some(args.max_over)),
        ("--max-p50-ms", args.max_p50_ms),
        ("--max-usd", args.max_usd),
        ("--max-errors", Some(args.max_errors)),
    ];
    for (option, most) in maxima {
        if let Some(most) = most
            && (most.is_nan() || most < 0.0)
        {
            return Err(Failure::Usage(format!("{option}: {most} is out of range; write 0 or more")));
        }
    }
    let setup = args.fleet.setup().map_err(Failure::Usage)?;
    let here =
        |design: &str| CANDIDATES.iter().find(|known| known.design == design && known.platforms.contains(&platform));
    let (mut candidates, mut reasons) = (Vec::new(), Vec::new());
    // Other parameters than the adapters' own only draw the curve.
    for design in designs().into_iter().filter(|design| here(design.name).is_some() && design.is_default()) {
        match design.takes(&setup.policy) {
            Ok(()) => candidates.push(design),
            Err(why) => reasons.push(format!("{}: {why}", design.name)),
        }
    }
    if candidates.is_empty() {
        let reasons = reasons.join("; ");
        return Err(Failure::Usage(format!("no design of the platform can count by this policy ({reasons})")));
    }
    let mut outcomes = outcomes(&setup, &candidates)?;
    // A server of one's own has no price for each decision.
    let price = |outcome: &Outcome| outcome.usd_per_million.unwrap_or_default();
    outcomes.sort_by(|a, b| {
        let waits = a.p50_ms.total_cmp(&b.p50_ms).then(a.p99_ms.total_cmp(&b.p99_ms));
        waits.then(price(a).total_cmp(&price(b)))
    });
    let is_strict = |outcome: &Outcome| candidates.iter().any(|one| one.name == outcome.design && one.is_strict());
    let objections = |outcome: &Outcome| args.objections(outcome, is_strict(outcome));
    let chosen = outcomes.iter().find(|outcome| objections(outcome).is_empty());
    if args.json {
        let choice = chosen.map(|outcome| outcome.design);
        outln!("{}", serde_json::json!({ "choice": choice, "outcomes": outcomes }));
    } else {
        outln!("{}", table(&outcomes));
        for outcome in &outcomes {
            let objections = objections(outcome);
            if !objections.is_empty() {
                outln!("not {}: {}", outcome.design, objections.join("; "));
            }
        }
        if let Some(outcome) = chosen
            && let Some(candidate) = here(outcome.design)
        {
            outln!("{}", Args::advice(&setup.policy, outcome, candidate, platform));
        }
    }
    if chosen.is_none() {
        let why =
            "no design meets the requirements; allow more with --max-over, --max-p50-ms, --max-usd or --max-errors";
        errln!("tidegate: {why}");
        return Err(Failure::Failed);
    }
    Ok(())
}

impl Args {
    /// Asks for the platform, the limit, the traffic and the requirements.
    fn questions(&mut self) -> Result<Platform, Failure> {
        let platform = ask("Where does the application run?", Platform::Cloudflare)?;
        self.fleet.ask()?;
        self.max_over = ask("How much more than the limit may be admitted, in percent? 0 is exact", self.max_over)?;
        let never = f64::INFINITY;
        let p50 = ask("How many milliseconds may half of the decisions take?", self.max_p50_ms.unwrap_or(never))?;
        let usd = ask("How many US dollars may a million decisions cost?", self.max_usd.unwrap_or(never))?;
        let bounded = |most: f64| most.is_finite().then_some(most);
        (self.max_p50_ms, self.max_usd) = (bounded(p50), bounded(usd));
        Ok(platform)
    }

    /// Why an outcome does not meet the requirements.
    fn objections(&self, outcome: &Outcome, is_strict: bool) -> Vec<String> {
        let mut objections = Vec::new();
        let over = outcome.overshoot_percent();
        if over > self.max_over {
            objections.push(format!("{} over the limit", percent(over)));
        } else if self.max_over == 0.0 && !is_strict {
            objections.push("it can exceed the limit".into());
        }
        if let Some(most) = self.max_p50_ms.filter(|most| outcome.p50_ms > *most) {
            objections.push(format!("half of the decisions take {} ms or more, not {most}", outcome.p50_ms));
        }
        match (self.max_usd, outcome.usd_per_million) {
            (Some(most), Some(usd)) if usd > most => objections.push(format!("${usd:.2} a million, not ${most:.2}")),
            (Some(_), None) => objections.push("its price is not known".into()),
            _ => {}
        }
        let errors: u64 = outcome.errors.values().sum();
        #[expect(clippy::cast_precision_loss, reason = "counts of a run are far below 2^53")]
        if errors as f64 * 100.0 > self.max_errors * outcome.offered as f64 {
            objections.push(format!("{errors} of {} requests got an error", outcome.offered));
        }
        objections
    }

    fn advice(policy: &Policy, outcome: &Outcome, candidate: &Candidate, platform: Platform) -> String {
        let (rust, quotas) = as_code(policy);
        let name = policy.name();
        let (denials, charges) =
            if policy.charges_denied() { (".charge_denied(true)", ", chargeDenied: true") } else { ("", "") };
        let slice = outcome.parameter.strip_prefix("slice ").unwrap_or_default();
        let filled = |code: &str| {
            let rule = policy.quotas()[0].rule();
            let (limit, window) = (rule.limit(), rule.window().get());
            let code = code.replace("<slice>", slice).replace("<platform>", &format!("{:?}", platform.in_javascript()));
            code.replace("<limit>", &limit.to_string()).replace("<window>", &window.to_string())
        };
        let usd = outcome.usd_per_million.map_or_else(String::new, |usd| format!(", ${usd:.2} a million"));
        let mut advice = format!(
            "\nUse {}: {} over the limit, p50 {} ms, p99 {} ms, {} round trips per decision{usd}.\n\n\
             Rust:\n  let limiter = {};\n  let policy = Policy::new({name:?}, [{rust}])?{denials};",
            outcome.design,
            percent(outcome.overshoot_percent()),
            outcome.p50_ms,
            outcome.p99_ms,
            outcome.round_trips,
            filled(candidate.rust)
        );
        if let Some((import, options)) = candidate.javascript {
            let options = filled(options);
            let _ = write!(
                advice,
                "\n\nJavaScript:\n  import {{ Tidegate }} from \"{import}\";\n  \
                 const policy = {{ name: {name:?}, quotas: [{quotas}]{charges} }};\n  \
                 const tidegate = new Tidegate({{ {options}failMode: \"open\", policy }});"
            );
        }
        advice
    }
}
