//! `tidegate run --url` checks a server that this repository knows nothing of.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use tidegate_core::{Limiter as _, MemoryLimiter};
use tidegate_harness::target::program;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Starts the native guest as a server. It ends with this test.
async fn server() -> Result<(Child, String)> {
    let program = program("tidegate-guest-native").await?;
    let mut guest = Command::new(program).arg("--test-mode").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut said = BufReader::new(guest.stdout.take().ok_or("no pipe")?).lines();
    let address = said.next_line().await?.ok_or("no address")?;
    Ok((guest, address))
}

/// Runs `tidegate run` with these URLs. Returns the exit code and the output.
async fn run(urls: &[&str], declaration: &str) -> Result<(Option<i32>, String)> {
    run_only(urls, declaration, &[]).await
}

/// Does the same with some of the fixtures.
async fn run_only(urls: &[&str], declaration: &str, filter: &[&str]) -> Result<(Option<i32>, String)> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("declared.json");
    fs::write(&file, declaration)?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.arg("run").args(urls.iter().flat_map(|url| ["--url", url]));
    command.args(filter.iter().flat_map(|pattern| ["--filter", pattern]));
    command.arg("--declares").arg(&file).arg("--out").arg(folder.path());
    let output = command.output().await?;
    let mut said = String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned();
    if let Ok(report) = fs::read_to_string(folder.path().join("report.json")) {
        let report: Value = serde_json::from_str(&report)?;
        said.push_str(&format!("\n{}", report["targets"][0]["status"]));
    }
    Ok((output.status.code(), said))
}

#[tokio::test]
async fn a_server_must_meet_its_declaration() -> Result<()> {
    let (mut guest, url) = server().await?;
    let trips = MemoryLimiter::new().capabilities().round_trips;
    let exact =
        format!(r#"{{ "accuracy": "exact", "round_trips": {trips}, "grant": true, "forgets_on_virtual_time": true }}"#);
    let (code, said) = run(&[&url], &exact).await?;
    assert_eq!(code, Some(0), "{said}");
    assert!(said.ends_with("\"pass\"") && said.contains("0 failed"), "{said}");
    let drifting = format!(
        r#"{{ "accuracy": "approximate", "ceiling": "limit x locations", "grant": true, "round_trips": {trips} }}"#
    );
    let (code, said) = run(&[&url], &drifting).await?;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("the guest declares other capabilities: accuracy is"), "{said}");
    guest.kill().await?;
    Ok(())
}

/// Starts a server in Python on a free port. It ends with this test.
async fn server_in_python(program: &Path) -> Result<(Child, String)> {
    let mut command = Command::new("python3");
    command.arg(program).arg("0").stdout(Stdio::piped()).kill_on_drop(true);
    let started = command.spawn();
    let mut server = started
        .map_err(|error| format!("python3 is needed ({error}); install it with: sudo apt-get install python3"))?;
    let mut said = BufReader::new(server.stdout.take().ok_or("no pipe")?).lines();
    let url = said.next_line().await?.ok_or("no address")?;
    Ok((server, url))
}

/// The blocks of this language in a page, without their indentation of three spaces.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let fence = format!("   ```{language}\n");
    let inside = page.split(&fence).skip(1).filter_map(|rest| rest.split_once("   ```\n"));
    let plain = |line: &str| format!("{}\n", line.strip_prefix("   ").unwrap_or(line));
    inside.map(|(block, _)| block.lines().map(plain).collect()).collect()
}

#[tokio::test]
async fn the_server_in_the_page_passes_all_fixtures_that_it_declares() -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    let (program, page) = (folder.join("server.py"), fs::read_to_string(folder.join("README.md"))?);
    let code = fs::read_to_string(&program)?;
    assert_eq!(blocks(&page, "python"), [code.as_str()], "copy fixtures/server.py into fixtures/README.md");
    let declarations = blocks(&page, "json");
    let [declaration] = declarations.as_slice() else { return Err("not one declaration".into()) };
    let (_server, url) = server_in_python(&program).await?;
    let (code_of_run, said) = run(&[&url], declaration).await?;
    assert_eq!(code_of_run, Some(0), "{said}");
    let passed = said.lines().find_map(|line| line.split_once(" passed, 0 failed")?.0.parse::<u64>().ok());
    assert!(passed.is_some_and(|passed| passed >= 80), "{said}");

    // One that gives up its lock between reading and writing fails, and one that declares more than it does.
    let broken = tempfile::tempdir()?;
    let racing =
        code.replace("used += cost", "import time; lock.release(); time.sleep(0.001); lock.acquire(); used += cost");
    for (changed, declaration, fixture) in [
        (racing, declaration.clone(), "race/fixed-window"),
        (
            code.replace("\"block\": False", "\"block\": True"),
            declaration.replace("\"block\": false", "\"block\": true"),
            "blocks/until-the-millisecond",
        ),
    ] {
        assert_ne!((&changed, &declaration), (&code, &declarations[0]));
        let program = broken.path().join("server.py");
        fs::write(&program, changed)?;
        let (_server, url) = server_in_python(&program).await?;
        let (code_of_run, said) = run_only(&[&url], &declaration, &[fixture]).await?;
        assert_eq!(code_of_run, Some(1), "{said}");
        assert!(said.contains(fixture), "{said}");
    }
    Ok(())
}

#[tokio::test]
async fn a_server_without_a_gate_must_say_so() -> Result<()> {
    let (mut guest, url) = server().await?;
    let trips = MemoryLimiter::new().capabilities().round_trips;
    let ungated = format!(
        r#"{{ "accuracy": "exact", "round_trips": {trips}, "grant": true, "forgets_on_virtual_time": true, "gate": false }}"#
    );
    // This one has a gate.
    let (code, said) = run_only(&[&url], &ungated, &["gate/costs"]).await?;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("no step was answered with unsupported"), "{said}");
    guest.kill().await?;
    Ok(())
}

#[tokio::test]
async fn a_wrong_declaration_or_url_is_reported() -> Result<()> {
    let exact = r#"{ "accuracy": "exact" }"#;
    for (url, declaration, right) in [
        ("http://127.0.0.1:1", r#"{ "accuracy": "exactly" }"#, "declared.json: accuracy: unknown variant `exactly`"),
        (
            "http://127.0.0.1:1",
            r#"{ "accuracy": "approximate" }"#,
            "declared.json: ceiling: an approximate limiter has one",
        ),
        ("http://127.0.0.1:1", "no JSON", "declared.json: expected"),
        ("ftp://127.0.0.1", exact, "--url \"ftp://127.0.0.1\" is not an http:// or https:// URL"),
        ("here", exact, "--url \"here\" is not an http:// or https:// URL"),
        ("http://127.0.0.1:1", exact, "--url: http://127.0.0.1:1/_tidegate/capabilities: "),
    ] {
        let (code, said) = run(&[url], declaration).await?;
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(right), "{said}");
    }
    let alone =
        Command::new(env!("CARGO_BIN_EXE_tidegate")).args(["run", "--url", "http://127.0.0.1:1"]).output().await?;
    assert_eq!(alone.status.code(), Some(2));
    Ok(())
}
