//! What holds for rules files and requests by chance: no platform counts or denies what Tidegate would not, and each limit is
//! expressed or listed.

use std::cell::Cell;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use tidegate::export::bound::{Counting, largest_count};
use tidegate::export::{Export, Platform, Source, export};
use tidegate_core::gate::{Request, Rules};
use tidegate_core::{Check, Key, MemoryLimiter, Millis, Policy, Quota, UnixMillis};

use super::{Result, all, config, language, vcl};

const NOW: UnixMillis = UnixMillis::new(1_800_000_000_000);

const HOSTS: [&str; 4] = ["", "a.example.com", "*.example.com", "*.com"];
const METHODS: [&[&str]; 4] = [&[], &["GET"], &["POST"], &["GET", "POST"]];

/// Up to three limits for each rule, of which one is in no rule.
fn rules() -> impl Strategy<Value = Value> {
    let path =
        "(/(a|b|\\{x\\}|c\\.d)){0,3}(/\\*)?".prop_map(|path| if path.is_empty() { "/".to_string() } else { path });
    let rule = (
        0..HOSTS.len(),
        path,
        0..METHODS.len(),
        prop::bool::weighted(0.2),
        prop::option::weighted(0.1, 1..9_u8),
        prop::sample::subsequence(vec!["one", "two", "both"], 0..=3),
        prop::sample::select(vec![1_u64, 1, 1, 0, 3]),
    );
    let rule = rule.prop_map(|(host, path, methods, header, score, limits, cost)| {
        let mut rule = json!({ "path": path, "methods": METHODS[methods], "limits": limits, "cost": cost });
        if host > 0 {
            rule["host"] = HOSTS[host].into();
        }
        if header {
            rule["headers"] = json!(["x-a"]);
        }
        if let Some(score) = score {
            rule["bot_score_below"] = score.into();
        }
        rule
    });
    (prop::collection::vec(rule, 1..8), any::<bool>()).prop_map(|(rules, lists)| {
        let window = |name: &str, limit: u64| {
            json!({ "name": name, "algorithm": "fixed_window", "limit": limit, "window_ms": 10_000, "by": "ip" })
        };
        let allow = if lists { json!(["192.0.2.0/24"]) } else { json!([]) };
        json!({
            "lists": { "allow": allow },
            "limits": {
                "one": { "quotas": [window("one", 500)] },
                "two": { "quotas": [window("two", 700)] },
                "both": { "quotas": [window("short", 600), window("long", 900)] },
                "none": { "quotas": [window("none", 5)] },
            },
            "rules": rules,
        })
    })
}

/// A request: the method, the host, the path in some spelling, whether it has the header, its address and its score.
type Asked = (&'static str, &'static str, String, bool, &'static str, Option<u8>);

fn asked() -> impl Strategy<Value = Asked> {
    (
        prop::sample::select(vec!["GET", "HEAD", "POST", "PUT"]),
        prop::sample::select(vec!["a.example.com", "b.example.com", "example.org", "x.a.example.com"]),
        "(/(a|b|c\\.d|e|%61|%2F|%2f|\\.|\\.\\.|%2e%2E|)|\\\\a|//){0,4}/?(\\?/a)?",
        any::<bool>(),
        prop::sample::select(vec!["192.0.2.0", "203.0.113.0"]),
        prop::option::of(0..12_u8),
    )
        .prop_map(|(method, host, path, header, address, score)| {
            let path = if path.starts_with('/') { path } else { format!("/{path}") };
            (method, host, path, header, address, score)
        })
}

/// The limits that Tidegate charges for a request.
fn charged(rules: &Rules, document: &Value, asked: &Asked) -> Vec<String> {
    let (method, host, path, header, address, score) = asked;
    let mut headers = vec![("host", *host)];
    headers.extend(header.then_some(("x-a", "")));
    let mut request = Request::new(method, path, &headers, NOW);
    if let Some(score) = score {
        request = request.bot_score(*score);
    }
    let is_allowed = document["lists"]["allow"] == json!(["192.0.2.0/24"]) && *address == "192.0.2.0";
    let Some(rule) = rules.find(&request).filter(|rule| rule.cost() > 0 && !is_allowed) else { return Vec::new() };
    let place = rules.rules().iter().position(|known| known.name() == rule.name()).unwrap_or_default();
    let limits = document["rules"][place]["limits"].as_array().into_iter().flatten().filter_map(Value::as_str);
    limits.map(ToString::to_string).collect()
}

/// The files of an export, parsed once for many requests. `Null` for Fastly's, which are VCL.
fn read(export: &Export) -> std::result::Result<Vec<Value>, String> {
    let data = |content: &str| match export.platform {
        Platform::Cloudflare | Platform::Vercel => serde_json::from_str(content).map_err(|error| error.to_string()),
        Platform::Netlify => config(content).map_err(|error| error.to_string()),
        Platform::Fastly => Ok(Value::Null),
    };
    export.files.iter().map(|file| data(&file.content)).collect()
}

/// The limits whose rules of the platform count a request. `files` is what [`read`] returns.
fn counted(export: &Export, files: &[Value], asked: &Asked) -> std::result::Result<Vec<String>, String> {
    let (method, host, path, header, address, _) = asked;
    let clean = path.split('?').next().unwrap_or_default();
    let mut found = Vec::new();
    // The name of a limit is the second word of what describes its rule, without its quota.
    let limit = |about: &str| about.split(&[' ', ',', '/'][..]).nth(1).unwrap_or_default().to_string();
    for (file, data) in export.files.iter().zip(files) {
        match export.platform {
            Platform::Cloudflare => {
                // What the zone normalizes.
                let path = normalized(clean);
                let headers: &[&str] = if *header { &["x-a"] } else { &[] };
                let request = language::Request { method, host, path: &path, headers, address };
                for rule in data["rules"].as_array().into_iter().flatten() {
                    if language::matches(rule["expression"].as_str().unwrap_or_default(), &request)? {
                        found.push(limit(rule["description"].as_str().unwrap_or_default()));
                    }
                }
            }
            Platform::Vercel => {
                for rule in data["rules"].as_array().into_iter().flatten() {
                    let groups = rule["conditionGroup"].as_array().into_iter().flatten();
                    let mut groups = groups.map(|group| {
                        let mut conditions = group["conditions"].as_array().into_iter().flatten();
                        conditions.all(|condition| is_met(condition, asked))
                    });
                    if groups.any(|met| met) {
                        found.push(limit(rule["description"].as_str().unwrap_or_default()));
                    }
                }
            }
            Platform::Netlify => {
                let regex = |value: &Value| language::is_match(value.as_str().unwrap_or_default(), clean);
                let list = |name: &str| data[name].as_array().cloned().unwrap_or_default();
                let methods = list("method");
                let has_header = data["header"]["x-a"].as_bool().is_none_or(|wanted| wanted == *header);
                if regex(&data["pattern"])
                    && !list("excludedPattern").iter().any(regex)
                    && (methods.is_empty() || methods.contains(&(*method).into()))
                    && has_header
                {
                    found.push(limit(file.content.lines().nth(1).unwrap_or_default().trim_start_matches("// ")));
                }
            }
            Platform::Fastly => {
                let headers: &[&str] = if *header { &["x-a"] } else { &[] };
                let request = language::Request { method, host, path: clean, headers, address };
                found.extend(vcl::counted(&file.content, &request)?);
            }
        }
    }
    Ok(found)
}

/// Whether a request meets a condition of Vercel.
fn is_met(condition: &Value, (method, host, path, header, _, _): &Asked) -> bool {
    let value = &condition["value"];
    let text = value.as_str().unwrap_or_default();
    let met = match (condition["type"].as_str(), condition["op"].as_str()) {
        (Some("raw_path"), Some("re")) => language::is_match(text, path),
        (Some("host"), Some("eq")) => *host == text,
        (Some("host"), Some("suf")) => host.ends_with(text),
        (Some("method"), Some("inc")) => value.as_array().is_some_and(|all| all.contains(&(*method).into())),
        (Some("header"), Some("ex")) => condition["key"] == "x-a" && *header,
        other => unreachable!("{other:?}"),
    };
    met != condition["neg"].as_bool().unwrap_or(false)
}

/// A path as Cloudflare normalizes it (<https://developers.cloudflare.com/rules/normalization/how-it-works/>).
fn normalized(path: &str) -> String {
    let path =
        path.replace('\\', "/").replace("%61", "a").replace("%2e", ".").replace("%2E", ".").replace("%2f", "%2F");
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/').filter(|segment| !matches!(*segment, "" | ".")) {
        match segment {
            ".." => _ = segments.pop(),
            segment => segments.push(segment),
        }
    }
    let end = if path.ends_with('/') && !segments.is_empty() { "/" } else { "" };
    format!("/{}{end}", segments.join("/"))
}

/// No platform counts a request to a limit that Tidegate does not charge for it.
#[test]
fn what_is_counted_is_charged() -> Result<()> {
    // By platform.
    let (counted_requests, charged_requests) = (Cell::new([0_u32; 4]), Cell::new([0_u32; 4]));
    let add = |counts: &Cell<[u32; 4]>, platform: Platform, more: usize| {
        let mut all = counts.get();
        all[platform as usize] += u32::try_from(more).unwrap_or(0);
        counts.set(all);
    };
    let strategy = (rules(), prop::collection::vec(asked(), 100));
    let mut runner = TestRunner::new(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() });
    runner.run(&strategy, |(document, requests)| {
        let source = Source::parse("rules.json", &document.to_string()).map_err(TestCaseError::fail)?;
        let rules = Rules::parse("rules.json", &document.to_string())
            .map_err(|error| TestCaseError::fail(error.to_string()))?;
        for (platform, plan) in all() {
            let export = export(&source, platform, plan, false).map_err(TestCaseError::fail)?;
            let read = read(&export).map_err(TestCaseError::fail)?;
            for asked in &requests {
                let charged = charged(&rules, &document, asked);
                for limit in counted(&export, &read, asked).map_err(TestCaseError::fail)? {
                    prop_assert!(charged.contains(&limit), "{platform:?} {plan:?} counts {asked:?} to {limit}");
                    add(&counted_requests, platform, 1);
                }
                add(&charged_requests, platform, charged.len());
            }
        }
        Ok(())
    })?;
    for (counted, charged) in counted_requests.get().into_iter().zip(charged_requests.get()) {
        // Otherwise the test would show little.
        assert!(counted > charged / 100 && counted > 100, "{counted} counted of {charged}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Each quota of each rule is either expressed or listed, once.
    #[test]
    fn each_limit_is_expressed_or_listed_once(document in rules()) {
        let source = Source::parse("rules.json", &document.to_string()).map_err(TestCaseError::fail)?;
        let parsed = Rules::parse("rules.json", &document.to_string());
        let parsed = parsed.map_err(|error| TestCaseError::fail(error.to_string()))?;
        let mut expected = vec![(None, "none".to_string())];
        for (place, rule) in document["rules"].as_array().into_iter().flatten().enumerate() {
            for limit in rule["limits"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                let quotas: &[&str] = if limit == "both" { &["both/short", "both/long"] } else { &[limit] };
                expected.extend(quotas.iter().map(|quota| (Some(parsed.rules()[place].name().to_string()), (*quota).to_string())));
            }
        }
        for limit in ["one", "two", "both"] {
            if !expected.iter().any(|(_, known)| known.split('/').next() == Some(limit)) {
                let quotas: &[&str] = if limit == "both" { &["both/short", "both/long"] } else { &[limit] };
                expected.extend(quotas.iter().map(|quota| (None, (*quota).to_string())));
            }
        }
        expected.sort();
        for (platform, plan) in all() {
            let export = export(&source, platform, plan, false).map_err(TestCaseError::fail)?;
            let expressed = export.expressed.into_iter().map(|one| (Some(one.rule), one.limit));
            let listed = export.not_expressed.into_iter().map(|one| (one.rule, one.limit));
            let mut found: Vec<_> = expressed.chain(listed).collect();
            found.sort();
            prop_assert_eq!(&found, &expected, "{:?} {:?}", platform, plan);
        }
    }

    /// A path of any text is a literal that matches itself and ends where it should.
    #[test]
    fn any_path_is_a_literal(path in "/[^{}*?#\u{0}]{0,12}(\"\\}|\\\\|'|\n|%|`|\\$\\{|é)?[^{}*?#]{0,4}(/\\*)?") {
        let document = json!({
            "limits": { "a": { "quotas": [{ "algorithm": "fixed_window", "limit": 900, "window_ms": 10_000, "by": "ip" }] } },
            "rules": [{ "path": path, "limits": ["a"] }],
        });
        let source = Source::parse("rules.json", &document.to_string());
        // What is no path is refused.
        prop_assume!(source.is_ok());
        let source = source.map_err(TestCaseError::fail)?;
        let rules = Rules::parse("rules.json", &document.to_string()).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let pattern = rules.rules()[0].pattern();
        let normal = pattern.path.segments.iter().flatten().fold(String::new(), |text, segment| text + "/" + segment);
        let normal = if normal.is_empty() { "/".into() } else { normal };
        let asked: Asked = ("GET", "a.example.com", normal.clone(), false, "203.0.113.0", None);
        for (platform, plan) in all() {
            let export = export(&source, platform, plan, false).map_err(TestCaseError::fail)?;
            prop_assert_eq!(export.expressed.len(), 1);
            if platform == Platform::Fastly {
                for file in &export.files {
                    let code = outside_of_literals(&file.content).map_err(TestCaseError::fail)?;
                    prop_assert!(code.chars().all(|c| c == '\n' || c == ' ' || c.is_ascii_graphic()), "{}", code);
                    prop_assert_eq!(code.matches('{').count(), code.matches('}').count(), "{}", code);
                }
            }
            let counted = read(&export).and_then(|read| counted(&export, &read, &asked)).map_err(TestCaseError::fail)?;
            prop_assert_eq!(counted, ["a"], "{:?}: {}", platform, normal);
        }
    }

    /// If Tidegate admits all requests, no platform's count passes its limit, however its windows lie.
    #[test]
    fn what_is_admitted_is_within_the_bound(
        algorithm in 0..5_usize,
        limit in 1..20_u64,
        span_s in 1..20_u64,
        refill in 1..20_u64,
        longer_s in 0..30_u64,
        offset_ms in 0..60_000_u64,
        pauses in prop::collection::vec(prop_oneof![Just(0_u64), 1..30_u64, 300..3_000_u64, 5_000..25_000_u64], 1..80),
    ) {
        let span = Millis::from_secs(span_s);
        let quota = match algorithm {
            0 => Quota::fixed_window(limit, span),
            1 => Quota::sliding_window(limit, span),
            2 => Quota::sliding_log(limit, span),
            3 => Quota::token_bucket(limit, refill, span),
            _ => Quota::leaky_bucket(limit, refill, span),
        }.map_err(|error| TestCaseError::fail(error.to_string()))?;
        let period_s = quota.rule().window().get().div_ceil(1_000) + longer_s;
        let period_ms = period_s * 1_000;
        let window = largest_count(quota.rule(), period_s, Counting::Window);
        let estimate = largest_count(quota.rule(), period_s, Counting::Estimate);
        let policy = Policy::new("a", [quota]).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let (limiter, key) = (MemoryLimiter::new(), Key::new("ip:192.0.2.1"));
        let mut admitted: Vec<u64> = Vec::new();
        let mut now = NOW.get();
        for pause in pauses {
            now += pause;
            for _ in 0..limit + 2 {
                let decision = limiter.decide(Check::new(&policy, &key, UnixMillis::new(now)));
                if decision.map_err(|error| TestCaseError::fail(error.to_string()))?.is_allowed() {
                    admitted.push(now);
                }
            }
        }
        for (place, at) in admitted.iter().enumerate() {
            let start = at - (at + offset_ms) % period_ms;
            let since = |first: u64, last: u64| {
                let before = admitted[..=place].iter().filter(|known| **known >= first && **known < last);
                u64::try_from(before.count()).unwrap_or(u64::MAX)
            };
            let (current, previous) = (since(start, at + 1), since(start - period_ms, start));
            prop_assert!(current <= window, "{} in a window, at most {}", current, window);
            let sliding = since(at + 1 - period_ms, at + 1);
            prop_assert!(sliding <= window, "{} in any window, at most {}", sliding, window);
            let weighted = previous * (period_ms - (at - start)) + current * period_ms;
            prop_assert!(weighted <= estimate * period_ms, "{}, at most {}", weighted, estimate * period_ms);
        }
    }
}

/// VCL without its strings and comments, or what has no end.
fn outside_of_literals(text: &str) -> std::result::Result<String, String> {
    let (mut rest, mut code) = (text, String::new());
    while let Some(character) = rest.chars().next() {
        let (skipped, end) = match character {
            '#' => (1, "\n"),
            '"' => (1, "\""),
            '{' if rest.starts_with("{\"") => (2, "\"}"),
            _ => {
                code.push(character);
                rest = &rest[character.len_utf8()..];
                continue;
            }
        };
        let length = rest[skipped..].find(end).ok_or_else(|| format!("no end: {rest}"))?;
        let literal = &rest[skipped..skipped + length];
        if literal.contains('\n') {
            return Err(format!("a line end in a literal: {literal}"));
        }
        rest = &rest[skipped + length + end.len()..];
    }
    Ok(code)
}
