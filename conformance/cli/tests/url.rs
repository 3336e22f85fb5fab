//! `tidegate run --url` checks a server that this repository knows nothing of.

use std::process::Stdio;

use serde_json::Value;
use tidegate_conformance::target::program;
use tidegate_core::{Limiter as _, MemoryLimiter};
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
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("declared.json");
    std::fs::write(&file, declaration)?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.arg("run").args(urls.iter().flat_map(|url| ["--url", url]));
    command.arg("--declares").arg(&file).arg("--out").arg(folder.path());
    let output = command.output().await?;
    let mut said = String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned();
    if let Ok(report) = std::fs::read_to_string(folder.path().join("report.json")) {
        let report: Value = serde_json::from_str(&report)?;
        said.push_str(&format!("\n{}", report["targets"][0]["status"]));
    }
    Ok((output.status.code(), said))
}

#[tokio::test]
async fn a_server_must_meet_its_declaration() -> Result<()> {
    let (mut guest, url) = server().await?;
    let trips = MemoryLimiter::new().capabilities().round_trips;
    let exact = format!(r#"{{ "accuracy": "exact", "round_trips": {trips}, "forgets_on_virtual_time": true }}"#);
    let (code, said) = run(&[&url], &exact).await?;
    assert_eq!(code, Some(0), "{said}");
    assert!(said.ends_with("\"pass\"") && said.contains("0 failed"), "{said}");
    let drifting =
        format!(r#"{{ "accuracy": "approximate", "ceiling": "limit x locations", "round_trips": {trips} }}"#);
    let (code, said) = run(&[&url], &drifting).await?;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("the guest declares other capabilities: accuracy is"), "{said}");
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
