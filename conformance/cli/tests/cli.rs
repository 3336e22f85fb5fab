//! Runs the program `tidegate` like a user.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const BURST: &str = r#"{ "id": "a/burst", "about": "A burst of 40 on a limit of 3.", "policy": { "name": "p", "quotas":
    [{ "algorithm": "fixed_window", "limit": 3, "window_ms": 1000 }] },
    "steps": [{ "at_ms": 0, "burst": 40, "key": "k", "expect": { "admitted": 3, "retry_after_ms": 1000 } }] }"#;

const REQUEST: &str = r#"{ "id": "requests/direct", "about": "The peer.", "platform": "direct", "peer": "192.0.2.1",
    "headers": [["x-forwarded-for", "203.0.113.1"]], "expect": { "key": "ip:192.0.2.1", "source": "client_ip" } }"#;

fn folder(files: &[(&str, &str)]) -> Result<TempDir> {
    let folder = tempfile::tempdir()?;
    for (name, text) in files {
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().ok_or("no folder")?)?;
        fs::write(file, text)?;
    }
    Ok(folder)
}

fn tidegate(args: &[&str], fixtures: Option<&Path>) -> Result<Output> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(args);
    if let Some(fixtures) = fixtures {
        command.arg("--fixtures").arg(fixtures);
    }
    Ok(command.output()?)
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
}

#[test]
fn memory_passes_and_reports() -> Result<()> {
    let fixtures = folder(&[("a/burst.json", BURST), ("requests/direct.json", REQUEST)])?;
    let out = tempfile::tempdir()?;
    let out_path = out.path().to_string_lossy();
    let run = ["run", "--target", "memory", "--require", "all", "--out", &out_path];
    let output = tidegate(&run, Some(fixtures.path()))?;
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let report: Value = serde_json::from_str(&fs::read_to_string(out.path().join("report.json"))?)?;
    assert_eq!(report["schema"], "tidegate/report/v1");
    let target = &report["targets"][0];
    assert_eq!(
        (&target["name"], &target["class"], &target["status"]),
        (&"memory".into(), &"exact".into(), &"pass".into())
    );
    let burst = &target["fixtures"][0];
    assert_eq!((&burst["id"], &burst["verdict"]), (&"a/burst".into(), &"pass".into()));
    assert_eq!((&burst["offered"], &burst["admitted"], &burst["floor"]), (&40.into(), &3.into(), &3.into()));
    assert_eq!((&burst["ceiling_tested"], &burst["in_flight_peak"]), (&true.into(), &40.into()));
    assert!(fs::read_to_string(out.path().join("junit.xml"))?.contains("tests=\"2\""));
    let steps = &report["fixtures"]["a/burst"]["steps"];
    assert_eq!(steps[0]["reference"], serde_json::json!([3, 37, 0, 3, 3]));
    let summary = fs::read_to_string(out.path().join("report.md"))?;
    assert!(summary.starts_with("# Conformance: 1 target, none failed\n"), "{summary}");
    assert!(summary.contains("| `memory` | exact | ✅ pass | 2 | 0 | 0 | 0 | 0 | 0 |"), "{summary}");

    Ok(())
}

#[test]
fn an_interrupted_run_reports_the_targets_that_have_ended() -> Result<()> {
    let out = tempfile::tempdir()?;
    // A server is killed and hangs, which takes seconds.
    let filters = ["--filter", "store/*", "--filter", "token-bucket/*"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["run", "--target", "memory,redis", "--jobs", "1"]).args(filters).arg("--out").arg(out.path());
    let mut run = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut said = BufReader::new(run.stderr.take().ok_or("no pipe")?).lines();
    while !said.next().ok_or("it did not run the first target")??.starts_with("memory: ") {}
    assert!(Command::new("kill").args(["-INT", &run.id().to_string()]).status()?.success());
    let rest = said.collect::<std::io::Result<Vec<_>>>()?.join("\n");
    let output = run.wait_with_output()?;
    assert_eq!(output.status.code(), Some(130), "{rest}");
    assert!(rest.contains("report.html, report.md, report.json and junit.xml are in"), "{rest}");
    assert!(rest.ends_with("tidegate: interrupted"), "{rest}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("interrupted before its end"), "{output:?}");
    let report: Value = serde_json::from_str(&fs::read_to_string(out.path().join("report.json"))?)?;
    let of = |place: usize| [&report["targets"][place]["name"], &report["targets"][place]["status"]];
    assert_eq!([of(0), of(1)], [["memory", "pass"], ["redis", "unavailable"]]);
    Ok(())
}

/// Runs one fixture on the memory store. Returns the folder with `good.json` and `worse.json`, a report that is not true.
fn two_reports() -> Result<TempDir> {
    let fixtures = folder(&[("a/burst.json", BURST)])?;
    let out = tempfile::tempdir()?;
    let run = ["run", "--target", "memory", "--out", &out.path().to_string_lossy()];
    assert!(tidegate(&run, Some(fixtures.path()))?.status.success());
    let good = fs::read_to_string(out.path().join("report.json"))?;
    let reports = tempfile::tempdir()?;
    fs::write(reports.path().join("1-good.json"), &good)?;
    let worse =
        good.replace("\"verdict\":\"pass\"", "\"verdict\":\"fail\"").replace("\"admitted\":3", "\"admitted\":4");
    fs::write(reports.path().join("2-worse.json"), worse)?;
    Ok(reports)
}

#[test]
fn compare_fails_only_on_a_regression() -> Result<()> {
    let reports = two_reports()?;
    let path = |name: &str| reports.path().join(name).to_string_lossy().into_owned();
    let (good, worse) = (path("1-good.json"), path("2-worse.json"));
    let compare = |args: &[&str]| -> Result<(Option<i32>, String)> {
        let output = tidegate(&[&["compare"], args].concat(), None)?;
        Ok((output.status.code(), said(&output)))
    };
    assert_eq!(compare(&[&good, &good])?, (Some(0), "0 changes, 0 of them worse\n".into()));
    let (code, said) = compare(&[&good, &worse])?;
    assert_eq!(code, Some(1));
    assert!(said.contains("worse   memory a/burst: pass became fail"), "{said}");
    assert!(said.contains("worse   memory a/burst: drift 0 became 1"), "{said}");
    assert_eq!(compare(&[&worse, &good])?.0, Some(0));
    let (code, said) = compare(&[&good, &worse, "--allow", "memory a/*"])?;
    assert_eq!(code, Some(0));
    assert!(said.contains("allowed memory a/burst: drift 0 became 1"), "{said}");
    // A folder is a history. What was corrected since is no regression.
    fs::copy(&good, path("3-good.json"))?;
    let (code, said) = compare(&[&path("")])?;
    assert_eq!((code, said.matches(" -> ").count()), (Some(0), 2), "{said}");
    // Targets of one report can be compared, too.
    let same = format!("{good}#memory");
    assert_eq!(compare(&[&same, &format!("{worse}#memory")])?.0, Some(1));
    let (code, said) = compare(&[&same, &format!("{good}#redis")])?;
    assert_eq!(code, Some(2));
    assert!(said.contains("has no target \"redis\"; write one of \"memory\""), "{said}");
    Ok(())
}

#[test]
fn compare_writes_every_form() -> Result<()> {
    let reports = two_reports()?;
    let [good, worse] =
        ["1-good.json", "2-worse.json"].map(|name| reports.path().join(name).to_string_lossy().into_owned());
    for (format, expected) in [
        ("markdown", "| ✗ worse | memory | a/burst | drift 0 became 1 |"),
        ("html", "<td class=fail>✗ worse<td>memory<td>a/burst<td>drift 0 became 1"),
        ("json", r#"{"target":"memory","fixture":"a/burst","what":"drift 0 became 1","worse":true,"allowed":false}"#),
    ] {
        let output = tidegate(&["compare", &good, &worse, "--format", format], None)?;
        assert_eq!(output.status.code(), Some(1));
        assert!(said(&output).contains(expected), "{}", said(&output));
    }
    let text = fs::read_to_string(&good)?.replace("\"emulator\":", "\"runtime\":\"node\",\"emulator\":");
    fs::write(&worse, text)?;
    let exactness: Value = serde_json::from_slice(&tidegate(&["exactness", &worse], None)?.stdout)?;
    let memory = &exactness["runtimes"]["node"]["memory"];
    assert_eq!(
        (&memory["class"], &memory["bound"], &memory["passed"]),
        (&"exact".into(), &"admitted = limit".into(), &1.into())
    );
    let output = tidegate(&["badge", &good], None)?;
    assert!(said(&output).contains("<title>tidegate: 1 of 1 targets passed</title>"), "{}", said(&output));
    let output = tidegate(&["badge", &good, "--target", "memory"], None)?;
    assert!(said(&output).contains("<title>memory: exact, 1 passed</title>"), "{}", said(&output));
    Ok(())
}

#[test]
fn soak_reports_what_it_did_and_rejects_what_it_cannot_test() -> Result<()> {
    let round = ["soak", "--target", "memory", "--seed", "3", "--round", "5", "--json"];
    let output = tidegate(&round, None)?;
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let tally: Value = serde_json::from_slice(&output.stdout)?;
    assert_eq!((&tally["rounds"], &tally["violations"]), (&1.into(), &0.into()));
    assert_eq!(tidegate(&round, None)?.stdout, output.stdout);
    for args in [["--target", "fastly-erl"], ["--target", "nowhere"], ["--minutes", "0"]] {
        let output = tidegate(&[&["soak"], &args[..]].concat(), None)?;
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    }
    Ok(())
}

#[test]
fn a_run_fails_if_it_is_worse_than_its_baseline() -> Result<()> {
    let reports = two_reports()?;
    let fixtures = folder(&[("a/burst.json", BURST)])?;
    let out = reports.path().join("out").to_string_lossy().into_owned();
    let good = reports.path().join("1-good.json").to_string_lossy().into_owned();
    let baseline = reports.path().join("baseline.json");
    fs::write(&baseline, tidegate(&["summary", &good], None)?.stdout)?;
    let run_with = |baseline: &Path, options: &[&str]| {
        let run = ["run", "--target", "memory", "--out", &out, "--baseline", &baseline.to_string_lossy()];
        tidegate(&[&run, options].concat(), Some(fixtures.path()))
    };
    let run = |baseline: &Path| run_with(baseline, &[]);
    let output = run(&baseline)?;
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(said(&output).contains("0 changes, 0 of them worse"), "{}", said(&output));
    let better = fs::read_to_string(&baseline)?
        .replace("\"exact: admitted = limit\"", "\"other\"")
        .replace("\"round_trips\": 0", "\"round_trips\": -1");
    fs::write(&baseline, better)?;
    let output = run(&baseline)?;
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("worse   memory: -1 round trips per decision became 0"), "{}", said(&output));
    let output = run_with(&baseline, &["--allow", "memory"])?;
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(said(&output).contains("allowed memory: -1 round trips per decision became 0"), "{}", said(&output));
    // A wrong baseline is reported before the run.
    fs::write(&baseline, "{")?;
    let output = run(&baseline)?;
    assert_eq!(output.status.code(), Some(2));
    assert!(
        said(&output).contains("is it a whole report.json?") && !said(&output).contains("passed"),
        "{}",
        said(&output)
    );
    Ok(())
}

#[test]
fn a_report_that_cannot_be_compared_is_named() -> Result<()> {
    let reports = two_reports()?;
    let path = |name: &str| reports.path().join(name).to_string_lossy().into_owned();
    let good = path("1-good.json");
    let text = fs::read_to_string(&good)?;
    fs::create_dir(path("empty"))?;
    for (name, text, right) in [
        ("truncated", &text[..text.len() / 2], "is it a whole report.json?"),
        ("newer", &*text.replace("report/v1", "report/v9"), "schema is \"tidegate/report/v9\"; this version reads"),
        ("other", "{}", "schema is missing"),
        (
            "odd",
            &*text.replace("\"offered\":40", "\"offered\":\"many\""),
            "targets[0].fixtures[0].offered: invalid type",
        ),
    ] {
        fs::write(path(name), text)?;
        let output = tidegate(&["compare", &good, &path(name)], None)?;
        assert_eq!(output.status.code(), Some(2), "{name}: {}", said(&output));
        assert!(said(&output).contains(right), "{name}: {}", said(&output));
    }
    for args in [&[good.as_str()][..], &[&path("empty"), &good]] {
        assert_eq!(tidegate(&[&["compare"], args].concat(), None)?.status.code(), Some(2));
    }
    Ok(())
}

#[test]
fn a_target_to_which_no_fixture_applies_is_not_a_failure_but_no_test_either() -> Result<()> {
    let restart = BURST.replace("\"key\": \"k\"", "\"key\": \"k\", \"disturb\": \"restart\"");
    let restart =
        restart.replace("a/burst", "a/restart").replace(r#", "expect": { "admitted": 3, "retry_after_ms": 1000 }"#, "");
    let fixtures = folder(&[("a/restart.json", &restart)])?;
    let out = tempfile::tempdir()?;
    let run = ["run", "--target", "memory", "--out", &out.path().to_string_lossy()];
    let output = tidegate(&run, Some(fixtures.path()))?;
    let said = said(&output);
    assert!(said.contains("memory not applicable: it declares that it supports none of the fixtures"), "{said}");
    assert!(said.contains("tidegate: no target was tested"), "{said}");
    assert_eq!(output.status.code(), Some(1));
    Ok(())
}

#[test]
fn fixtures_test_a_rules_file_of_ones_own() -> Result<()> {
    let fixture = r#"{ "id": "gate/login", "about": "Three attempts.", "platform": "direct", "steps": [
        { "at_ms": 0, "burst": 9, "method": "POST", "path": "/login", "peer": "192.0.2.1",
          "expect": { "passed": 3, "remaining": 0 } }] }"#;
    let rules = "[limits.login]\nquotas = [{ algorithm = 'fixed_window', limit = 3, window_ms = 60_000, by = 'ip' }]\n\
        [[rules]]\npath = '/login'\nlimits = ['login']\nstore = 'strict'\n";
    let (fixtures, out) = (folder(&[("gate/login.json", fixture)])?, tempfile::tempdir()?);
    let file = out.path().join("rules.toml");
    let run = |rules: Option<&str>| {
        let path = file.to_string_lossy();
        let out = out.path().to_string_lossy();
        let mut args = vec!["run", "--target", "memory", "--out", &out];
        if let Some(text) = rules {
            fs::write(&file, text)?;
            args.extend(["--rules", &path]);
        }
        tidegate(&args, Some(fixtures.path()))
    };
    let output = run(Some(rules))?;
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let output = run(Some(&rules.replace("limit = 3", "limit = 4")))?;
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("expected 3 to pass, found 4"), "{}", said(&output));
    let output = run(Some(&rules.replace("limit = 3", "limit = 0")))?;
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("rules.toml:2"), "{}", said(&output));
    let output = run(None)?;
    assert_eq!(output.status.code(), Some(2));
    assert!(
        said(&output).contains("rules: is missing; write the rules, or name their file with --rules"),
        "{}",
        said(&output)
    );
    Ok(())
}

/// Every store of the file is the target's, also that which a near limit counts in. What is around the stores cannot change an answer.
#[test]
fn a_rules_file_with_a_table_of_stores_counts_in_the_store_of_the_target() -> Result<()> {
    let step = |path: &str, passed: u64, remaining: &str| {
        format!(
            r#"{{ "at_ms": 0, "burst": 9, "path": "{path}", "peer": "192.0.2.1",
                "expect": {{ "passed": {passed}, "remaining": {remaining} }} }}"#
        )
    };
    let steps = [step("/login", 3, "0"), step("/export", 4, "4"), step("/", 5, "0")].join(", ");
    let fixture = format!(r#"{{ "id": "gate/stores", "about": "Stores.", "platform": "direct", "steps": [{steps}] }}"#);
    let rules = r#"
[stores.main]
fallback = { store = "memory", percent = 50 }
deny_cache = true
shadow = { site = "login" }
[stores.exports]
near = { store = "location", limit = "flood" }
[limits]
login.quotas = [{ algorithm = "fixed_window", limit = 3, window_ms = 60_000, by = "ip" }]
export.quotas = [{ algorithm = "fixed_window", limit = 8, window_ms = 60_000, by = "ip" }]
flood.quotas = [{ algorithm = "fixed_window", limit = 4, window_ms = 60_000, by = "ip" }]
site.quotas = [{ algorithm = "fixed_window", limit = 5, window_ms = 60_000, by = "ip" }]
[[rules]]
path = "/login"
limits = ["login"]
store = "main"
[[rules]]
path = "/export"
limits = ["export"]
store = "exports"
[[rules]]
limits = ["site"]
"#;
    let fixtures = folder(&[("rules.toml", rules), ("gate/stores.json", &fixture)])?;
    let (rules, out) = (fixtures.path().join("rules.toml"), tempfile::tempdir()?);
    let (rules, out) = (rules.to_string_lossy(), out.path().to_string_lossy());
    let run = ["run", "--target", "memory", "--rules", &rules, "--out", &out];
    fs::create_dir(fixtures.path().join("fixtures"))?;
    fs::rename(fixtures.path().join("gate"), fixtures.path().join("fixtures/gate"))?;
    let output = tidegate(&run, Some(&fixtures.path().join("fixtures")))?;
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(said(&output).contains("1 passed, 0 failed, 0 skipped"), "{}", said(&output));
    Ok(())
}

#[test]
fn an_unwritable_folder_is_reported_before_the_run() -> Result<()> {
    let fixtures = folder(&[("a/burst.json", BURST)])?;
    let file = fixtures.path().join("a/burst.json");
    let output = tidegate(&["run", "--target", "memory", "--out", &file.to_string_lossy()], Some(fixtures.path()))?;
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("tidegate: --out ") && !said(&output).contains("passed"), "{}", said(&output));
    Ok(())
}

#[test]
fn all_problems_with_fixtures_are_reported_at_once() -> Result<()> {
    let fixtures = folder(&[
        ("a/burst.json", &BURST.replace("\"burst\"", "\"bust\"")),
        ("a/named.json", BURST),
        ("a/text.json", "no JSON"),
    ])?;
    let output = tidegate(&["run", "--target", "memory"], Some(fixtures.path()))?;
    let said = said(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("3 problems in the fixtures"), "{said}");
    assert!(said.contains("burst.json: steps[0].bust: unknown field `bust`"), "{said}");
    assert!(said.contains("did you mean `burst`?"), "{said}");
    assert!(said.contains("id: is \"a/burst\", but the file name gives \"a/named\""), "{said}");
    Ok(())
}

#[test]
fn a_fixture_that_contradicts_the_reference_is_rejected() -> Result<()> {
    let fixtures = folder(&[("a/burst.json", &BURST.replace("\"admitted\": 3", "\"admitted\": 4"))])?;
    let output = tidegate(&["fixtures"], Some(fixtures.path()))?;
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("a/burst: steps[0] (0 ms, check x40, \"k\"): expect.admitted: expected 4, found 3"));
    Ok(())
}

#[test]
fn a_changed_limit_fails_its_fixtures_and_is_in_the_report() -> Result<()> {
    let fixtures = folder(&[
        ("a/burst.json", BURST),
        (
            "gate/login.json",
            r#"{ "id": "gate/login", "about": "Three attempts.", "platform": "direct", "steps": [
                { "at_ms": 0, "burst": 9, "method": "POST", "path": "/login", "peer": "192.0.2.1", "expect": { "passed": 3 } }] }"#,
        ),
    ])?;
    let out = tempfile::tempdir()?;
    let (rules, out_path) = (fixtures.path().join("rules.toml"), out.path().to_string_lossy());
    let rules_path = rules.to_string_lossy();
    let run = ["run", "--target", "memory", "--rules", &rules_path, "--out", &out_path];
    for (limit, code) in [(3, 0), (5, 1)] {
        let quota = format!("{{ algorithm = 'fixed_window', limit = {limit}, window_ms = 60000, by = 'ip' }}");
        fs::write(
            &rules,
            format!("limits.login.quotas = [{quota}]\n[[rules]]\npath = '/login'\nlimits = ['login']\n"),
        )?;
        let output = tidegate(&run, Some(fixtures.path()))?;
        assert_eq!(output.status.code(), Some(code), "{}", said(&output));
    }
    let junit = fs::read_to_string(out.path().join("junit.xml"))?;
    assert!(
        junit.contains("whichever store counts: steps[0] (POST /login at 0 ms): expected 3 to pass, found 5"),
        "{junit}"
    );
    // A run that cannot start leaves no report of an earlier one.
    fs::write(fixtures.path().join("a/burst.json"), "{")?;
    assert_eq!(tidegate(&run, Some(fixtures.path()))?.status.code(), Some(2));
    assert!(!out.path().join("junit.xml").exists());
    Ok(())
}

#[test]
fn fixtures_of_rules_may_have_claims_and_tokens_and_leave_out_what_they_do_not_compare() -> Result<()> {
    let rules = r#"
[tokens]
algorithms = ["RS256"]
keys = { tenant = "org_id" }
[limits.api]
quotas = [{ algorithm = "fixed_window", limit = 2, window_ms = 60000, by = "tenant" }]
[limits.slots]
quotas = [{ algorithm = "concurrency", limit = 3, lifetime_ms = 60000 }]
[[rules]]
limits = ["api"]
[[rules]]
path = "/slots"
limits = ["slots"]
"#;
    let fixture = |expect: &str| {
        format!(
            r#"{{ "id": "gate/tokens", "about": "Tokens.", "platform": "direct", "steps": [
            {{ "at_ms": 0, "burst": 3, "path": "/", "claims": {{ "sub": "alice", "org_id": "acme" }}, "expect": {{ "passed": 2 }} }},
            {{ "at_ms": 0, "path": "/", "claims": {{ "sub": "bob", "org_id": 7 }}, "expect": {{ "passed": 1, "remaining": 1 }} }},
            {{ "at_ms": 0, "path": "/", "peer": "192.0.2.1", "expect": {{ "passed": 1, "remaining": 1 }} }},
            {{ "at_ms": 0, "burst": 9, "path": "/slots", "peer": "192.0.2.1", "token": "job-{{n}}", "expect": {{ "passed": {expect} }} }},
            {{ "at_ms": 0, "path": "/slots", "peer": "192.0.2.2", "expect": {{ "passed": 0, "status": 503, "remaining": null }} }}] }}"#
        )
    };
    let fixtures = folder(&[("rules.toml", rules), ("gate/tokens.json", &fixture("3"))])?;
    let out = tempfile::tempdir()?;
    let (rules, out_path) = (fixtures.path().join("rules.toml"), out.path().to_string_lossy());
    let rules_path = rules.to_string_lossy();
    let run = ["run", "--target", "memory", "--rules", &rules_path, "--out", &out_path];
    let output = tidegate(&run, Some(fixtures.path()))?;
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    // A request that is not decided says why.
    fs::write(fixtures.path().join("gate/tokens.json"), fixture("3").replace("\"token\": \"job-{n}\", ", ""))?;
    let output = tidegate(&run, Some(fixtures.path()))?;
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("needs a token, which names the slot"), "{}", said(&output));
    Ok(())
}

/// What a program prints into a pipe that somebody else has made non-blocking, and that is full.
#[cfg(target_os = "linux")]
#[test]
fn a_full_pipe_that_does_not_block_is_waited_for() -> Result<()> {
    use std::io::Read as _;
    let expected = tidegate(&["fixtures"], None)?.stdout;
    let (mut reader, mut writer) = std::io::pipe()?;
    let filled = vec![b'.'; 60_000];
    writer.write_all(&filled)?;
    rustix::fs::fcntl_setfl(&writer, rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::NONBLOCK)?;
    let mut child =
        Command::new(env!("CARGO_BIN_EXE_tidegate")).arg("fixtures").stdout(writer).stderr(Stdio::piped()).spawn()?;
    std::thread::sleep(std::time::Duration::from_secs(2));
    let mut found = Vec::new();
    reader.read_to_end(&mut found)?;
    assert_eq!(child.wait()?.code(), Some(0));
    assert!(found[filled.len()..] == expected[..], "{} bytes of {}", found.len() - filled.len(), expected.len());
    Ok(())
}

#[cfg(unix)]
#[test]
fn a_reader_that_has_gone_ends_the_program_quietly() -> Result<()> {
    let (reader, writer) = std::io::pipe()?;
    drop(reader);
    let output =
        Command::new(env!("CARGO_BIN_EXE_tidegate")).arg("fixtures").stdout(writer).stderr(Stdio::piped()).output()?;
    assert_eq!((output.status.code(), said(&output)), (Some(141), String::new()));
    Ok(())
}

#[test]
fn a_wrong_command_line_lists_the_valid_values() -> Result<()> {
    let fixtures = folder(&[("a/burst.json", BURST)])?;
    for (args, right) in [
        (["run", "--target", "memroy"], "did you mean \"memory\"? Write one of \"memory\", \"redis\""),
        (["run", "--target", "memory,rediss"], "\"rediss\" is not a target; did you mean \"redis\"?"),
        (["run", "--require", "memroy"], "did you mean \"memory\"? Write one of \"memory\", \"redis\""),
        (["run", "--filter", "b/*"], "the groups are a (`tidegate fixtures` lists all)"),
    ] {
        let output = tidegate(&args, Some(fixtures.path()))?;
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains(right), "{}", said(&output));
    }
    assert_eq!(tidegate(&["compare", "nowhere.json", "nowhere.json"], None)?.status.code(), Some(2));
    Ok(())
}

#[test]
fn help_lists_the_exit_codes_and_targets_lists_the_accuracy() -> Result<()> {
    let help = said(&tidegate(&["--help"], None)?);
    assert!(help.contains("Exit codes: 0 success") && help.contains("Servers:"), "{help}");
    let targets = tidegate(&["targets"], None)?;
    assert_eq!(targets.status.code(), Some(0));
    assert!(said(&targets).contains("exact: admitted = limit"));
    Ok(())
}

const SMALL: [&str; 8] = ["--seconds", "5", "--rate", "200", "--clients", "5", "--limit", "20"];

#[test]
fn a_simulation_writes_its_page_its_chart_and_its_numbers() -> Result<()> {
    let out = tempfile::tempdir()?;
    let out_path = out.path().to_string_lossy();
    let output = tidegate(&[&["simulate", "--out", &out_path], SMALL.as_slice()].concat(), None)?;
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let numbers: Value = serde_json::from_str(&fs::read_to_string(out.path().join("simulation.json"))?)?;
    let outcomes = numbers["outcomes"].as_array().ok_or("no outcomes")?;
    let over =
        |design: &str| outcomes.iter().find(|outcome| outcome["design"] == design).map(|outcome| &outcome["over"]);
    assert_eq!(over("durable-object"), Some(&0.into()));
    assert_ne!(over("rate-limit-binding"), Some(&0.into()));
    // Waits of a few requests, and what is billed, are beside the numbers of old.
    let of = |design: &str| outcomes.iter().find(|outcome| outcome["design"] == design).ok_or("no such design");
    let (object, upstash) = (of("durable-object")?, of("upstash")?);
    assert!(object["p999_ms"].as_f64() >= object["p99_ms"].as_f64() && object["first"]["p99_ms"].as_f64() > Some(50.0));
    assert_eq!(
        (&object["trips"], &object["billed"]["requests"], &upstash["billed"]["requests"]),
        (&1.0.into(), &1.0.into(), &0.0.into())
    );
    assert!(
        upstash["billed"]["commands"].as_f64() > Some(3.0) && object["billed"]["rows_written"].as_f64() > Some(0.1)
    );
    assert!(said(&output).contains("p99.9 ms") && said(&output).contains("rows written"), "{}", said(&output));
    let page = fs::read_to_string(out.path().join("simulation.html"))?;
    for placeholder in ["/*style*/", "/*script*/", "/*data*/", "<!--body-->", "<!--chart-->"] {
        assert!(!page.contains(placeholder), "{placeholder}");
    }
    assert!(fs::read_to_string(out.path().join("waits.svg"))?.contains("default: 5 clients, each with a limit of 20"));
    let policy = out.path().join("policy.json");
    let two = r#"{ "name": "api", "quotas": [{ "algorithm": "token_bucket", "capacity": 5, "refill": 2, "per_ms": 1000 },
        { "algorithm": "sliding_window", "limit": 20, "window_ms": 60000 }] }"#;
    fs::write(&policy, two)?;
    let file = policy.to_string_lossy();
    let by_policy = ["simulate", "--policy", &file, "--json", "--seconds", "5", "--rate", "50", "--out", &out_path];
    let output = tidegate(&by_policy, None)?;
    let numbers: Value = serde_json::from_slice(&output.stdout)?;
    assert_eq!(
        (&numbers["outcomes"][0]["over"], &numbers["outcomes"][0]["errors"]),
        (&0.into(), &serde_json::json!({}))
    );
    assert!(
        numbers["left_out"].to_string().contains("does not support a policy of 2 quotas"),
        "{}",
        numbers["left_out"]
    );
    fs::write(&policy, two.replace("token_bucket", "tokens"))?;
    let output = tidegate(&by_policy, None)?;
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("policy.json: ") && said(&output).contains("tokens"), "{}", said(&output));
    fs::write(&policy, r#"{ "name": "api", "quotas": [{ "algorithm": "concurrency", "limit": 5, "ttl_ms": 1000 }] }"#)?;
    let output = tidegate(&by_policy, None)?;
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));

    assert!(page.contains("<svg") && fs::read_to_string(out.path().join("chart.svg"))?.contains("workers-kv"));
    assert!(fs::read_to_string(out.path().join("worst.svg"))?.contains("where the limit is"));

    // A scenario is other defaults, and what is written beside it overrides it.
    let few = [
        "simulate",
        "--scenario",
        "login",
        "--clients",
        "500",
        "--seconds",
        "10",
        "--design",
        "memory,redis",
        "--json",
    ];
    let output = tidegate(&[&few, ["--out", &out_path].as_slice()].concat(), None)?;
    let numbers: Value = serde_json::from_slice(&output.stdout)?;
    let setup = numbers["setup"].to_string();
    for part in
        ["fixed_window of 5 in", "500 clients, 200 requests/s", "one more sends 50 at once every 1000 ms", "login"]
    {
        assert!(setup.contains(part), "{part}: {setup}");
    }
    assert_eq!((&numbers["outcomes"][1]["worst"], &numbers["outcomes"][1]["over"]), (&5.into(), &0.into()));
    assert!(numbers["outcomes"][0]["worst"].as_u64() > Some(30), "{numbers}");
    let help = said(&tidegate(&["simulate", "--help"], None)?);
    for part in ["- tail:", "--clients 20000", "- login:", "- burst:"] {
        assert!(help.contains(part), "{part}: {help}");
    }

    for (wrong, why) in [
        (["--places", "iad,nowhere"], "\"nowhere\" is not a known place"),
        (["--design", "redis,memry"], "\"memry\" is not a design; did you mean \"memory\"?"),
        (["--design", "redis-leased-grace"], "\"redis-leased-grace\" has a grace; write --grace 1, or more"),
        (["--design", "durable-objects"], "did you mean \"durable-object\"? Write one of \"durable-object\", "),
        (["--scenario", "tial"], "a similar value exists: 'tail'"),
        (["--flood", "4000000000"], "--rate, --flood and --seconds: "),
        (["--rate", "0"], "--rate: 0 is out of range"),
        (["--limit", "0"], "0 is out of range"),
        (["--latency", "no-such.csv"], "no-such.csv: "),
        (["--loss", "101"], "--loss: 101 is out of range"),
        (["--outage", "3..2"], "write two numbers of seconds"),
    ] {
        let output = tidegate(&[["simulate", "--out", &out_path].as_slice(), &wrong].concat(), None)?;
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains(why), "{}", said(&output));
    }
    Ok(())
}

#[test]
fn objects_are_simulated_at_a_place_and_an_unknown_one_is_named() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let out = folder.path().to_string_lossy().into_owned();
    let simulate = |place: &str| {
        let fleet = [
            "simulate",
            "--places",
            "iad,fra",
            "--object-at",
            place,
            "--roaming",
            "1",
            "--seconds",
            "10",
            "--rate",
            "50",
        ];
        tidegate(&[&fleet[..], &["--design", "durable-object", "--out", &out, "--json"]].concat(), None)
    };
    let output = simulate("fra")?;
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(fs::read_to_string(folder.path().join("simulation.html"))?.contains("Every object lives at fra"));
    let wrong = simulate("frb")?;
    assert_eq!(wrong.status.code(), Some(2), "{}", said(&wrong));
    let message = "--object-at: \"frb\" is none of the places; did you mean \"fra\"?";
    assert!(said(&wrong).contains(message), "{}", said(&wrong));
    Ok(())
}

#[test]
fn choose_recommends_what_meets_the_requirements_or_fails() -> Result<()> {
    let choose = |more: &[&str]| tidegate(&[["choose"].as_slice(), more, &SMALL].concat(), None);
    let exact = choose(&["--platform", "cloudflare"])?;
    assert_eq!(exact.status.code(), Some(0), "{}", said(&exact));
    assert!(said(&exact).contains("not rate-limit-binding: ") && said(&exact).contains("@tidegate/edge/cloudflare"));
    let quick = choose(&["--platform", "cloudflare", "--max-over", "1000", "--max-p50-ms", "1", "--json"])?;
    let choice: Value = serde_json::from_slice(&quick.stdout)?;
    assert_eq!(choice["choice"], "rate-limit-binding");
    let quick = said(&choose(&["--platform", "cloudflare", "--max-over", "1000", "--max-p50-ms", "1"])?);
    assert!(quick.contains(r#"RateLimit::from_env(env, "LIMITER", 20, Millis::new(60000))?.limiter()"#), "{quick}");
    // A run in which nobody reaches the limit does not make a design exact.
    let lucky = said(&tidegate(&["choose", "--platform", "cloudflare", "--limit", "1000000", "--seconds", "2"], None)?);
    assert!(lucky.contains("not rate-limit-binding: it can exceed the limit"), "{lucky}");
    let sliding = tidegate(
        &[
            "choose",
            "--platform",
            "server",
            "--algorithm",
            "sliding_window",
            "--seconds",
            "130",
            "--rate",
            "200",
            "--limit",
            "20",
        ],
        None,
    )?;
    assert_eq!(sliding.status.code(), Some(0), "{}", said(&sliding));
    for wrong in [
        ["--max-over", "nan"],
        ["--max-over=-1", "--json"],
        ["--max-usd", "nan"],
        ["--isolate-seconds", "288230376151711744"],
    ] {
        let output = choose(&[&["--platform", "vercel"], &wrong[..]].concat())?;
        assert_eq!(output.status.code(), Some(2), "{wrong:?}: {}", said(&output));
    }
    let none = choose(&["--platform", "vercel", "--max-usd", "0.01"])?;
    assert_eq!(none.status.code(), Some(1), "{}", said(&none));
    assert!(said(&none).contains("no design meets the requirements"));
    let nowhere = choose(&[])?;
    assert_eq!(nowhere.status.code(), Some(2), "{}", said(&nowhere));
    assert!(said(&nowhere).contains("write --platform, or --ask"), "{}", said(&nowhere));
    Ok(())
}

/// An excess becomes the grace of a lease, with its ceiling, or an error says what to write.
#[test]
fn choose_turns_an_excess_into_a_grace() -> Result<()> {
    let choose = |more: &[&str]| {
        let fleet = ["--places", "fra,iad", "--isolates", "3", "--clients", "500", "--rate", "100", "--seconds", "20"];
        tidegate(&[["choose"].as_slice(), &fleet, more].concat(), None)
    };
    let output = choose(&["--platform", "server", "--limit", "60", "--excess", "17", "--json"])?;
    let choice: Value = serde_json::from_slice(&output.stdout)?;
    assert_eq!(choice["choice"], "redis-leased-grace");
    assert_eq!(choice["grace"], serde_json::json!({ "units": 2, "borrowers": 6, "ceilings": [72] }));
    let code = &choice["code"]["redis-leased-grace"];
    for (part, expected) in [("rust", "grace: 2, "), ("javascript", "leases: { grace: 2 }"), ("rules", "{ grace = 2 }")]
    {
        assert!(code[part].as_str().is_some_and(|code| code.contains(expected)), "{part}: {code}");
    }
    assert_eq!(
        choice["code"]["redis-leased"]["rules"].as_str().map(|rules| rules.contains("lease = true")),
        Some(true)
    );
    let numbers = choice["outcomes"].as_array().ok_or("no outcomes")?;
    let of = |name: &str| numbers.iter().find(|one| one["design"] == name).ok_or("no outcome");
    let (with, without) = (of("redis-leased-grace")?, of("redis-leased")?);
    assert!(with["p99_ms"].as_f64() < without["p99_ms"].as_f64() && with["worst"].as_u64() <= Some(72), "{with}");

    let advised = said(&choose(&["--platform", "cloudflare", "--limit", "60", "--excess", "6"])?);
    for part in
        ["Use durable-object-leased-grace: ", "With a grace of 1, at most", "60 + 1 x 6 = 66", " trips per decision"]
    {
        assert!(advised.contains(part), "{part}: {advised}");
    }
    // An isolate that takes the place of another is one more: each lives for ten minutes, and the window is an hour.
    let hour = ["--limit", "1000", "--window-ms", "3600000", "--excess", "42", "--json"];
    let hour: Value = serde_json::from_slice(&choose(&[&["--platform", "vercel"], &hour[..]].concat())?.stdout)?;
    assert_eq!(hour["grace"], serde_json::json!({ "units": 1, "borrowers": 42, "ceilings": [1042] }));
    // None admits more by grace than it may borrow.
    let many = ["--platform", "netlify", "--limit", "100000", "--excess", "90000", "--json"];
    let many: Value = serde_json::from_slice(&choose(&many)?.stdout)?;
    assert_eq!(many["grace"], serde_json::json!({ "units": 50, "borrowers": 6, "ceilings": [100_300] }));
    let one = ["--platform", "server", "--limit", "60", "--places", "fra", "--isolates", "1", "--excess", "1"];
    let one = said(&tidegate(&[&["choose", "--seconds", "20"], &one[..]].concat(), None)?);
    assert!(one.contains("Use memory: ") && one.contains("--excess is not needed: memory has no grace"), "{one}");

    for (wrong, why) in [
        (["--excess", "5", "--limit", "60"], "5 is less than one unit for each of 6 isolates"),
        (
            ["--excess", "5", "--limit", "60"],
            "(--places, --isolates, --isolate-seconds); write 6 to 60, or leave --excess out",
        ),
        (["--excess", "61", "--limit", "60"], "61 is more than the limit of 60; write 6 to 60, or leave"),
        (["--excess", "5", "--limit", "5"], "the limit of 5 is less than one unit for each of 6 isolates"),
        (
            ["--excess", "-6", "--limit", "60"],
            "'-6' for '--excess <UNITS>': write a whole number of units, or 0 for none",
        ),
        (["--excess", "6.5", "--limit", "60"], "'6.5' for '--excess <UNITS>': write a whole number of units"),
        (
            ["--excess", "6", "--algorithm", "sliding_log"],
            "sliding_log cannot be lent; write token_bucket, fixed_window",
        ),
    ] {
        let output = choose(&[&["--platform", "server"], &wrong[..]].concat())?;
        assert_eq!(output.status.code(), Some(2), "{wrong:?}: {}", said(&output));
        assert!(said(&output).contains(why), "{why}: {}", said(&output));
    }
    let output = choose(&["--platform", "fastly", "--excess", "6"])?;
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("no design of fastly lends"), "{}", said(&output));
    Ok(())
}

#[test]
fn choose_asks_until_an_answer_is_one() -> Result<()> {
    let asked = |answers: &str| -> Result<Output> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.args(["choose", "--ask", "--seconds", "5"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        child.stdin.take().ok_or("no input")?.write_all(answers.as_bytes())?;
        Ok(child.wait_with_output()?)
    };
    let output = asked("azure\nfastly\n20\n\n200\nfive\n5\niad,fra\n1000\n\n\n")?;
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let said_all = said(&output);
    for part in ["\"azure\": write one of cloudflare", "\"five\": ", "Use fastly-kv", "Quota::fixed_window(20,"] {
        assert!(said_all.contains(part), "{part}: {said_all}");
    }
    // How many isolates there are is asked for where it matters.
    let output = asked("server\n100\n\n200\n50\nfra\n0\n7\n3\n\n\n")?;
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    for part in ["so that its first request waits for no store?", "have? [4]", "100 + 2 x 3 = 106", "grace: 2"] {
        assert!(said(&output).contains(part), "{part}: {}", said(&output));
    }
    let ended = asked("fastly\n20\n")?;
    assert_eq!(ended.status.code(), Some(2), "{}", said(&ended));
    assert!(said(&ended).contains("standard input has ended"), "{}", said(&ended));
    Ok(())
}
