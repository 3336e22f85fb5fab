//! `tidegate export`: what each platform gets, and what the command writes and says.

#[path = "export/boolean.rs"]
mod boolean;
#[path = "export/language.rs"]
mod language;
#[path = "export/properties.rs"]
mod properties;
#[path = "export/vcl.rs"]
mod vcl;

use std::fs;
use std::process::{Command, Output};

use serde_json::{Value, json};
use tidegate::export::{Plan, Platform, Source, export};
use tidegate_harness::target::workspace;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Each platform with each of its plans.
fn all() -> Vec<(Platform, Option<Plan>)> {
    let platforms = [Platform::Cloudflare, Platform::Vercel, Platform::Netlify, Platform::Fastly];
    let with_plans = platforms.iter().flat_map(|platform| platform.plans().iter().map(|plan| (*platform, Some(*plan))));
    with_plans.chain([(Platform::Fastly, None)]).collect()
}

fn rich() -> Result<String> {
    Ok(fs::read_to_string(workspace().join("conformance/cli/tests/export/rules.toml"))?)
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
fn the_page_of_the_tool_shows_what_is_written() -> Result<()> {
    let page = fs::read_to_string(workspace().join("conformance/cli/README.md"))?;
    assert!(page.contains("--rules adapters/tower/examples/rules.toml --for cloudflare --plan business\n```"));
    let written = String::from_utf8(tidegate(&example()?, &["cloudflare", "--plan", "business"])?.stdout)?;
    assert!(page.contains(&format!("```json\n{written}```\n")), "copy this into README.md:\n{written}");
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
    let file = fs::read_to_string(workspace().join("conformance/cli/tests/export/forms.json"))?;
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
