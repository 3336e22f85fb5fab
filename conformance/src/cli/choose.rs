use super::Failure;
use super::progress::tell;
use super::simulate::{FleetArgs, table};
use tidegate_traffic::simulate::{Outcome, designs, percent, simulate};

const EXAMPLES: &str = "\
Examples:
  tidegate choose --platform cloudflare --limit 100
  tidegate choose --platform cloudflare --limit 1000 --max-over 50 --max-p50-ms 1
  tidegate choose --platform vercel --limit 60 --max-usd 5 --places iad,fra

Simulates the designs that the platform has, and prints the one that meets the requirements with the shortest wait, its
numbers and the code to paste. Exit codes: 0 success, 1 no design meets the requirements, 2 the command line is wrong.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Where the application runs.
    #[arg(long, value_name = "NAME", value_parser = ["cloudflare", "vercel", "netlify", "node"])]
    platform: String,
    /// How much more than the limit may be admitted, in percent. With 0, the design must be exact.
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0)]
    max_over: f64,
    /// How long half of the decisions may take.
    #[arg(long, value_name = "MS")]
    max_p50_ms: Option<f64>,
    /// What a million decisions may cost, in US dollars. Designs whose price is not known are left out.
    #[arg(long, value_name = "USD")]
    max_usd: Option<f64>,
    /// Print the outcomes and the choice as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    fleet: FleetArgs,
}

/// A design that an application can use, and where.
struct Candidate {
    design: &'static str,
    platforms: &'static [&'static str],
    /// How to make the limiter in Rust.
    rust: &'static str,
    /// The entry of the npm package, and the options before the policy.
    import: &'static str,
    options: &'static str,
}

/// In their code, SLICE and PLATFORM are replaced.
const CANDIDATES: [Candidate; 7] = [
    Candidate {
        design: "durable-object",
        platforms: &["cloudflare"],
        rust: r#"DurableObjects::from_env(&env, "TIDEGATE", Config::default())?.limiter()"#,
        import: "@tidegate/edge/cloudflare",
        options: "namespace: env.TIDEGATE, ",
    },
    Candidate {
        design: "durable-object-deny-cache",
        platforms: &["cloudflare"],
        rust: r#"DenyCache::new(DurableObjects::from_env(&env, "TIDEGATE", Config::default())?.limiter())"#,
        import: "@tidegate/edge/cloudflare",
        options: "namespace: env.TIDEGATE, denyCache: true, ",
    },
    Candidate {
        design: "durable-object-leased",
        platforms: &["cloudflare"],
        rust: r#"Leases::new(DurableObjects::from_env(&env, "TIDEGATE", Config::default())?, const { NonZero::new(SLICE).unwrap() }, Millis::from_secs(2))?"#,
        import: "@tidegate/edge/cloudflare",
        options: "namespace: env.TIDEGATE, leases: { slice: SLICE }, ",
    },
    Candidate {
        design: "workers-kv",
        platforms: &["cloudflare"],
        rust: r#"SharedKv::from_env(&env, "COUNTS", Config::default())?"#,
        import: "@tidegate/edge/cloudflare-kv",
        options: "namespace: env.COUNTS, ",
    },
    Candidate {
        design: "rate-limit-binding",
        platforms: &["cloudflare"],
        rust: r#"RateLimit::from_env(&env, "LIMITER", LIMIT, Millis::new(WINDOW))?.limiter()"#,
        import: "@tidegate/edge/cloudflare-ratelimit",
        options: "binding: env.LIMITER, ",
    },
    Candidate {
        design: "upstash",
        platforms: &["cloudflare", "vercel", "netlify", "node"],
        rust: "Rest::new(RestConfig::new(url, token))?.limiter()",
        import: "@tidegate/edge",
        options: "url, token, platform: PLATFORM, ",
    },
    Candidate {
        design: "redis",
        platforms: &["node"],
        rust: "Redis::new(Config::new(url))?.limiter()",
        import: "@tidegate/edge/redis",
        options: r#"client, platform: "direct", "#,
    },
];

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let setup = args.fleet.setup().map_err(Failure::Usage)?;
    let here = |design: &str| {
        CANDIDATES.iter().find(|known| known.design == design && known.platforms.contains(&args.platform.as_str()))
    };
    let mut outcomes = Vec::new();
    for design in designs() {
        // Other parameters than the adapters' own only draw the curve.
        if here(design.name).is_some() && design.is_default() && design.takes(&setup.policy).is_ok() {
            tell(&format!("simulating {} {}", design.name, design.parameter));
            outcomes.push(simulate(&setup, &design).map_err(Failure::Usage)?);
        }
    }
    let price = |outcome: &Outcome| outcome.usd_per_million.unwrap_or(f64::INFINITY);
    outcomes.sort_by(|a, b| {
        let waits = a.p50_ms.total_cmp(&b.p50_ms).then(a.p99_ms.total_cmp(&b.p99_ms));
        waits.then(price(a).total_cmp(&price(b)))
    });
    let chosen = outcomes.iter().find(|outcome| args.objections(outcome).is_empty());
    if args.json {
        let choice = chosen.map(|outcome| outcome.design);
        println!("{}", serde_json::json!({ "choice": choice, "outcomes": outcomes }));
    } else {
        println!("{}", table(&outcomes));
        for outcome in &outcomes {
            let objections = args.objections(outcome);
            if !objections.is_empty() {
                println!("not {}: {}", outcome.design, objections.join("; "));
            }
        }
        if let Some(outcome) = chosen
            && let Some(candidate) = here(outcome.design)
        {
            println!("{}", args.advice(outcome, candidate));
        }
    }
    if chosen.is_none() {
        let why = "no design meets the requirements; allow more with --max-over, --max-p50-ms or --max-usd";
        eprintln!("tidegate: {why}");
        return Err(Failure::Failed);
    }
    Ok(())
}

impl Args {
    /// Why an outcome does not meet the requirements.
    fn objections(&self, outcome: &Outcome) -> Vec<String> {
        let mut objections = Vec::new();
        let over = outcome.overshoot_percent();
        if over > self.max_over {
            objections.push(format!("{} over the limit", percent(over)));
        }
        if let Some(most) = self.max_p50_ms.filter(|most| outcome.p50_ms > *most) {
            objections.push(format!("half of the decisions take {} ms or more, not {most}", outcome.p50_ms));
        }
        match (self.max_usd, outcome.usd_per_million) {
            (Some(most), Some(usd)) if usd > most => objections.push(format!("${usd:.2} a million, not ${most:.2}")),
            (Some(_), None) => objections.push("its price is not known".into()),
            _ => {}
        }
        if !outcome.errors.is_empty() {
            objections.push(format!("{} requests got an error", outcome.errors.values().sum::<u64>()));
        }
        objections
    }

    fn advice(&self, outcome: &Outcome, candidate: &Candidate) -> String {
        let (rust, quota) = self.fleet.as_code();
        let slice = outcome.parameter.strip_prefix("slice ").unwrap_or_default();
        let filled = |code: &str| {
            let (limit, window) = self.fleet.limit();
            let code = code.replace("SLICE", slice).replace("PLATFORM", &format!("{:?}", self.js_platform()));
            code.replace("LIMIT", &limit.to_string()).replace("WINDOW", &window.to_string())
        };
        let usd = outcome.usd_per_million.map_or_else(String::new, |usd| format!(", ${usd:.2} a million"));
        format!(
            "\nUse {}: {} over the limit, p50 {} ms, p99 {} ms, {} round trips per decision{usd}.\n\n\
             Rust:\n  let limiter = {};\n  let policy = Policy::new(\"api\", [{rust}])?;\n\n\
             JavaScript:\n  import {{ Tidegate }} from \"{}\";\n  const policy = {{ name: \"api\", quotas: [{quota}] }};\n  \
             const tidegate = new Tidegate({{ {}failMode: \"open\", policy }});",
            outcome.design,
            percent(outcome.overshoot_percent()),
            outcome.p50_ms,
            outcome.p99_ms,
            outcome.round_trips,
            filled(candidate.rust),
            candidate.import,
            filled(candidate.options)
        )
    }

    /// The platform as the npm package calls it.
    fn js_platform(&self) -> &str {
        if self.platform == "node" { "direct" } else { &self.platform }
    }
}
