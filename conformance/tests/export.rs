//! `tidegate export`: what each platform gets, and that it never counts or denies what Tidegate would not.

#[path = "export/boolean.rs"]
mod boolean;
#[path = "export/language.rs"]
mod language;
#[path = "export/vcl.rs"]
mod vcl;

use std::cell::Cell;
use std::fs;
use std::process::{Command, Output};

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use tidegate_conformance::export::bound::{Counting, largest_count};
use tidegate_conformance::export::{Export, Plan, Platform, Source, export};
use tidegate_conformance::target::workspace;
use tidegate_core::gate::{Request, Rules};
use tidegate_core::{Check, Key, MemoryLimiter, Millis, Policy, Quota, UnixMillis};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const NOW: UnixMillis = UnixMillis::new(1_800_000_000_000);

/// Each platform with each of its plans.
fn all() -> Vec<(Platform, Option<Plan>)> {
    let platforms = [Platform::Cloudflare, Platform::Vercel, Platform::Netlify, Platform::Fastly];
    let with_plans = platforms.iter().flat_map(|platform| platform.plans().iter().map(|plan| (*platform, Some(*plan))));
    with_plans.chain([(Platform::Fastly, None)]).collect()
}

fn rich() -> Result<String> {
    Ok(fs::read_to_string(workspace().join("conformance/tests/export/rules.toml"))?)
}

fn example() -> Result<String> {
    Ok(fs::read_to_string(workspace().join("adapters/tower/examples/rules.toml"))?)
}

/// The rules without lists, which some platforms cannot express.
fn without_lists(text: &str) -> String {
    text.lines()
        .filter(|line| !line.starts_with("[lists]") && !line.starts_with("allow = "))
        .fold(String::new(), |text, line| text + line + "\n")
}

fn tidegate(text: &str, args: &[&str]) -> Result<Output> {
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("rules.toml"), text)?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    Ok(command.current_dir(folder.path()).args(["export", "--rules", "rules.toml", "--for"]).args(args).output()?)
}

/// The exit code, standard output and standard error.
fn printed(text: &str, args: &[&str]) -> Result<String> {
    let output = tidegate(text, args)?;
    let code = output.status.code().ok_or("a signal")?;
    let (out, err) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
    Ok(format!("exit code {code}\n---- standard output\n{out}---- standard error\n{err}"))
}

#[test]
fn each_platform_gets_what_it_can_express() -> Result<()> {
    let (example, rich) = (example()?, rich()?);
    let open = without_lists(&rich);
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("export/snapshots");
    settings.set_prepend_module_to_snapshot(false);
    let _guard = settings.bind_to_scope();
    insta::assert_snapshot!("example-cloudflare", printed(&example, &["cloudflare", "--plan", "business"])?);
    insta::assert_snapshot!("example-vercel", printed(&example, &["vercel"])?);
    insta::assert_snapshot!("example-netlify", printed(&example, &["netlify"])?);
    insta::assert_snapshot!("example-fastly", printed(&example, &["fastly"])?);
    insta::assert_snapshot!("rich-cloudflare", printed(&rich, &["cloudflare", "--plan", "enterprise"])?);
    insta::assert_snapshot!("rich-vercel", printed(&open, &["vercel", "--plan", "pro", "--anonymous"])?);
    insta::assert_snapshot!("rich-netlify", printed(&open, &["netlify", "--plan", "pro"])?);
    insta::assert_snapshot!("rich-fastly", printed(&rich, &["fastly"])?);
    Ok(())
}

#[test]
fn the_readme_shows_what_is_written() -> Result<()> {
    let readme = fs::read_to_string(workspace().join("README.md"))?;
    assert!(readme.contains("--rules adapters/tower/examples/rules.toml --for cloudflare --plan business\n```"));
    let written = String::from_utf8(tidegate(&example()?, &["cloudflare", "--plan", "business"])?.stdout)?;
    assert!(readme.contains(&format!("```json\n{written}```\n")), "copy this into the README:\n{written}");
    Ok(())
}

#[test]
fn files_are_written_to_a_folder_and_json_has_everything() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let out = folder.path().to_string_lossy();
    let output = tidegate(&without_lists(&rich()?), &["netlify", "--plan", "pro", "--format", "json", "--out", &out])?;
    assert_eq!(output.status.code(), Some(0));
    let export: Value = serde_json::from_slice(&output.stdout)?;
    assert_eq!((&export["platform"], &export["plan"]), (&"netlify".into(), &"pro".into()));
    let files = export["files"].as_array().ok_or("no files")?;
    assert!(!files.is_empty());
    for file in files {
        let (name, content) = (file["name"].as_str().ok_or("name")?, file["content"].as_str().ok_or("content")?);
        assert_eq!(fs::read_to_string(folder.path().join(name))?, content);
    }
    let reason = |limit: &str| {
        let all = export["notExpressed"].as_array()?;
        all.iter().find(|one| one["limit"] == limit)?["reason"].as_str().map(ToString::to_string)
    };
    assert_eq!(reason("unused").as_deref(), Some("no rule has it"));
    assert_eq!(reason("tenant").as_deref(), Some("it counts by \"tenant\", and the platform knows the address only"));
    assert!(export["differs"].as_array().is_some_and(|all| all.iter().any(|one| one["limit"].is_null())));
    Ok(())
}

#[test]
fn wrong_input_is_an_error_that_says_what_to_write() -> Result<()> {
    let example = example()?;
    for (text, args, code, expected) in [
        (&*example, &["fastly"][..], 1, "Fastly takes no less than 10"),
        (
            &*example,
            &["vercel", "--plan", "free"],
            2,
            "--plan free: vercel has no such plan; write hobby, pro, enterprise",
        ),
        (&*example, &["fastly", "--plan", "pro"], 2, "--plan pro: fastly has no such plan; leave it out"),
        (&*example, &["heroku"], 2, "possible values: cloudflare, vercel, netlify, fastly"),
        ("[[rules]]\nlimits = [\"a\"]", &["vercel"], 2, "rules.toml:2:11: \"a\" is not a limit; the file has none"),
        (&*example, &["vercel", "--out", "rules.toml"], 2, "rules.toml"),
    ] {
        let output = tidegate(text, args)?;
        let said = String::from_utf8(output.stderr)?;
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(expected), "{said}");
    }
    Ok(())
}

/// What limits count by, if nobody is identified.
#[test]
fn a_sender_is_an_address_only_if_nobody_is_identified() -> Result<()> {
    let text = "[limits.a]\nquotas = [{ algorithm = \"fixed_window\", limit = 9, window_ms = 10_000 }]\n\
                [[rules]]\nlimits = [\"a\"]\n";
    let reason = |text: &str, anonymous| -> Result<Option<String>> {
        let export = export(&Source::parse("rules.toml", text)?, Platform::Vercel, None, anonymous)?;
        Ok(export.not_expressed.into_iter().next().map(|one| one.reason))
    };
    assert!(reason(text, false)?.is_some_and(|reason| reason.contains("write --anonymous")));
    assert_eq!(reason(text, true)?, None);
    let tokens = format!("tokens.algorithms = [\"ES256\"]\n{text}");
    assert!(reason(&tokens, true)?.is_some_and(|reason| reason.contains("a token of the file may identify")));
    let keys = format!("lists.allow = [\"sub:alice\"]\n{text}");
    assert!(reason(&keys, true)?.is_some_and(|reason| reason.contains("has keys")));
    let tiers = text.replace("[[rules]]", "tiers.a.unlimited = true\n[[rules]]");
    assert!(reason(&tiers, true)?.is_some_and(|reason| reason.contains("has tiers")));
    Ok(())
}

#[test]
fn a_plan_has_no_more_rules_than_it_may() -> Result<()> {
    let limit = |name: &str| {
        format!(
            "[limits.{name}]\nquotas = [{{ algorithm = \"sliding_log\", limit = 9, window_ms = 10_000, by = \"ip\" }}]\n\
             [[rules]]\npath = \"/{name}\"\nlimits = [\"{name}\"]\n"
        )
    };
    let names: Vec<String> = (0..120).map(|number| format!("l{number}")).collect();
    let text: String = names.iter().map(|name| limit(name)).collect();
    let source = Source::parse("rules.toml", &text)?;
    for (platform, plan, most) in [
        (Platform::Cloudflare, Plan::Free, 1),
        (Platform::Cloudflare, Plan::Pro, 2),
        (Platform::Cloudflare, Plan::Business, 5),
        (Platform::Cloudflare, Plan::Enterprise, 100),
        (Platform::Vercel, Plan::Hobby, 1),
        (Platform::Vercel, Plan::Pro, 40),
        (Platform::Vercel, Plan::Enterprise, 120),
        (Platform::Netlify, Plan::Free, 2),
        (Platform::Netlify, Plan::Pro, 5),
    ] {
        let export = export(&source, platform, Some(plan), false)?;
        // The first ones of the file.
        let expressed: Vec<&str> = export.expressed.iter().map(|one| one.limit.as_str()).collect();
        assert_eq!(expressed, names[..most], "{platform:?} {plan:?}");
        let listed = export.not_expressed.first().map(|one| one.reason.as_str()).unwrap_or_default();
        assert!(most == names.len() || listed.starts_with("it takes 1 rule, and of the "), "{listed}");
    }
    Ok(())
}

/// A platform counts each request as one, so a limit allows as many as the cheapest of its requests.
#[test]
fn the_cheapest_request_decides_how_many_are_allowed() -> Result<()> {
    let text = "[limits.a]\nquotas = [{ algorithm = \"sliding_log\", limit = 100, window_ms = 10_000, by = \"ip\" }]\n\
                [[rules]]\nlimits = [\"a\"]\ncost = 5\n";
    let requests = |text: &str| -> Result<u64> {
        let export = export(&Source::parse("rules.toml", text)?, Platform::Vercel, None, false)?;
        Ok(export.expressed.first().ok_or("nothing")?.requests)
    };
    assert_eq!(requests(text)?, 20);
    // The platform cannot match the score, so it counts these requests as those of the other rule.
    let cheaper = format!("{text}[[rules]]\nlimits = [\"a\"]\nbot_score_below = 9\ncost = 2\n");
    assert_eq!(requests(&cheaper)?, 50);
    let free = format!("{text}[[rules]]\npath = \"/b\"\nlimits = [\"a\"]\ncost = 0\n");
    assert_eq!(requests(&free)?, 20);
    Ok(())
}

/// The files of all plans have the form that the platforms' own packages describe.
#[test]
fn the_files_have_the_published_form() -> Result<()> {
    let file = fs::read_to_string(workspace().join("conformance/tests/export/forms.json"))?;
    let forms: Value = serde_json::from_str(&file)?;
    let mut checked = 0;
    for text in [rich()?, without_lists(&rich()?), example()?] {
        for (platform, plan) in all() {
            let export = export(&Source::parse("rules.toml", &text)?, platform, plan, true)?;
            for file in &export.files {
                let data = match platform {
                    Platform::Cloudflare | Platform::Vercel => serde_json::from_str(&file.content)?,
                    Platform::Netlify => config(&file.content)?,
                    Platform::Fastly => continue,
                };
                let form = json!({ "$ref": format!("#/$defs/{}", platform.name()), "$defs": forms["$defs"] });
                let validator = jsonschema::draft202012::new(&form)?;
                let wrong: Vec<String> = validator.iter_errors(&data).map(|error| error.to_string()).collect();
                assert!(wrong.is_empty(), "{platform:?} {plan:?}: {wrong:?}");
                checked += 1;
            }
        }
    }
    assert!(checked > 12, "{checked}");
    Ok(())
}

/// The exported `config` of an edge function.
fn config(content: &str) -> Result<Value> {
    let text = content.split_once("export const config = ").and_then(|(_, text)| text.strip_suffix(";\n"));
    Ok(serde_json::from_str(text.ok_or("no config")?)?)
}

// Rules files and requests by chance.

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

/// The limits whose rules of the platform count a request, and how many there are.
fn counted(export: &Export, asked: &Asked) -> std::result::Result<Vec<String>, String> {
    let (method, host, path, header, address, _) = asked;
    let clean = path.split('?').next().unwrap_or_default();
    let mut found = Vec::new();
    // The name of a limit is the second word of what describes its rule, without its quota.
    let limit = |about: &str| about.split(&[' ', ',', '/'][..]).nth(1).unwrap_or_default().to_string();
    for file in &export.files {
        match export.platform {
            Platform::Cloudflare => {
                let data: Value = serde_json::from_str(&file.content).map_err(|error| error.to_string())?;
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
                let data: Value = serde_json::from_str(&file.content).map_err(|error| error.to_string())?;
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
                let config = config(&file.content).map_err(|error| error.to_string())?;
                let regex = |value: &Value| language::is_match(value.as_str().unwrap_or_default(), clean);
                let list = |name: &str| config[name].as_array().cloned().unwrap_or_default();
                let methods = list("method");
                let has_header = config["header"]["x-a"].as_bool().is_none_or(|wanted| wanted == *header);
                if regex(&config["pattern"])
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
    let strategy = (rules(), prop::collection::vec(asked(), 40));
    let mut runner = TestRunner::new(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() });
    runner.run(&strategy, |(document, requests)| {
        let source = Source::parse("rules.json", &document.to_string()).map_err(TestCaseError::fail)?;
        let rules = Rules::parse("rules.json", &document.to_string())
            .map_err(|error| TestCaseError::fail(error.to_string()))?;
        for (platform, plan) in all() {
            let export = export(&source, platform, plan, false).map_err(TestCaseError::fail)?;
            for asked in &requests {
                let charged = charged(&rules, &document, asked);
                for limit in counted(&export, asked).map_err(TestCaseError::fail)? {
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
        assert!(counted > charged / 50 && counted > 100, "{counted} counted of {charged}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Each quota of each rule is either expressed or listed, once.
    #[test]
    fn each_limit_is_expressed_or_listed_once(document in rules()) {
        let source = Source::parse("rules.json", &document.to_string()).map_err(TestCaseError::fail)?;
        let mut expected = vec![(None, "none".to_string())];
        for (place, rule) in document["rules"].as_array().into_iter().flatten().enumerate() {
            for limit in rule["limits"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                let quotas: &[&str] = if limit == "both" { &["both/short", "both/long"] } else { &[limit] };
                expected.extend(quotas.iter().map(|quota| (Some(format!("rules[{place}]")), (*quota).to_string())));
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
            let counted = counted(&export, &asked).map_err(TestCaseError::fail)?;
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
