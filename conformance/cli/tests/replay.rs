//! Runs `tidegate replay` like a user.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;
use tempfile::TempDir;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const RULES: &str = "[limits.login]\nquotas = [{ algorithm = 'fixed_window', limit = 3, window_ms = 60_000, by = 'ip' }]\n\
    [[rules]]\nname = 'login'\npath = '/login'\nlimits = ['login']\nstore = 'objects'\n";

/// Ten requests of one client within a minute, and one request of each of nine others. One line is cut.
fn log() -> String {
    let line = |client: u8, second: u8, agent: &str| {
        format!(
            "192.0.2.{client} - - [01/Jan/2026:00:00:{second:02} +0000] \"POST /login HTTP/1.1\" 200 5 \"-\" \"{agent}\"\n"
        )
    };
    let attack = (0..10).map(|second| line(66, second, "curl/8"));
    let others = (1..10).map(|client| line(client, 30, "\u{1b}[31mMozilla"));
    attack.chain(others).collect::<String>() + "192.0.2.9 - - [01/Jan/2026:00:00:31 +0000] \"GET /cut"
}

fn folder(files: &[(&str, &str)]) -> Result<TempDir> {
    let folder = tempfile::tempdir()?;
    for (name, text) in files {
        fs::write(folder.path().join(name), text)?;
    }
    Ok(folder)
}

fn replay(folder: &TempDir, args: &[&str]) -> Result<Output> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    Ok(command.arg("replay").args(args).current_dir(folder.path()).output()?)
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
}

#[test]
fn it_says_who_was_denied_and_writes_the_report() -> Result<()> {
    let folder = folder(&[("access.log", &log()), ("rules.toml", RULES)])?;
    let output = replay(&folder, &["--log", "access.log", "--rules", "rules.toml", "--out", "report"])?;
    let told = said(&output);
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert!(told.contains("19 requests of 10 clients from 2026-01-01 00:00:00 to 2026-01-01 00:00:30 UTC"), "{told}");
    assert!(told.contains("denied     7 (36.8 %), of 1 client (10.0 %)"), "{told}");
    assert!(
        told.contains("1 of 20 lines cannot be read; the first is access.log:20, as the combined log format"),
        "{told}"
    );
    assert!(told.contains("replay.html and replay.json are in report"), "{told}");
    // A terminal must not obey a log.
    assert!(!told.contains('\u{1b}'), "{told}");
    let report: Value = serde_json::from_str(&fs::read_to_string(folder.path().join("report/replay.json"))?)?;
    let attacker = &report["denied_most"][0];
    assert_eq!(
        (&attacker["client"], &attacker["requests"], &attacker["denied"]),
        (&"192.0.2.66".into(), &10.into(), &7.into())
    );
    assert_eq!(attacker["by"], serde_json::json!([{ "rule": "login", "limit": "login", "requests": 7 }]));
    assert_eq!(
        (&attacker["first_denied_ms"], &report["schema"]),
        (&1_767_225_603_000_u64.into(), &"tidegate/access-log/v1".into())
    );
    let page = fs::read_to_string(folder.path().join("report/replay.html"))?;
    assert!(page.contains("192.0.2.66") && !page.contains("/*data*/"));
    let output = replay(&folder, &["--log", "access.log", "--rules", "rules.toml", "--format", "json"])?;
    assert_eq!(serde_json::from_slice::<Value>(&output.stdout)?, report);
    Ok(())
}

#[test]
fn more_denied_clients_than_allowed_are_a_failure() -> Result<()> {
    let stricter = RULES.replace("limit = 3", "limit = 3, name = 'n'").replace("'ip'", "'global'");
    let folder = folder(&[("access.log", &log()), ("rules.toml", RULES), ("new.toml", &stricter)])?;
    for (args, code) in [
        (&["--max-denied", "10"][..], 0),
        (&["--max-denied", "9.9%"], 1),
        (&["--max-denied", "9.9", "--shadow", "rules.toml"], 1),
        (&["--max-denied", "10", "--shadow", "rules.toml"], 0),
        (&["--max-denied", "99", "--shadow", "new.toml"], 1),
        (&["--max-denied", "101"], 2),
    ] {
        let output = replay(&folder, &[&["--log", "access.log", "--rules", "rules.toml"], args].concat())?;
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", said(&output));
    }
    let output = replay(&folder, &["--log", "access.log", "--rules", "rules.toml", "--max-denied", "5"])?;
    assert!(
        said(&output).contains("10.000 % of the clients are denied, and --max-denied allows 5 %"),
        "{}",
        said(&output)
    );
    Ok(())
}

#[test]
fn wrong_inputs_are_named() -> Result<()> {
    let garbage = "\n\nfirst\n".to_string() + &"garbage\n".repeat(20) + &log();
    let folder = folder(&[
        ("access.log", &log()),
        ("garbage.log", &garbage),
        ("empty.log", "\n"),
        ("other.jsonl", "{\"when\":1767225600,\"method\":\"GET\",\"path\":\"/\"}\n"),
        ("rules.toml", RULES),
        ("wrong.toml", &RULES.replace("limit = 3", "limit = 0")),
    ])?;
    let good = ["--rules", "rules.toml", "--log"];
    for (args, expected) in [
        (
            &[&good[..], &["garbage.log"]].concat(),
            "22 of 41 lines cannot be read; the first is garbage.log:3, read as the combined log format: it has no time in brackets",
        ),
        (
            &[&good[..], &["other.jsonl"]].concat(),
            "other.jsonl:1, read as JSON lines: it has no known field for the time; name it with --field time=FIELD",
        ),
        (&[&good[..], &["empty.log"]].concat(), "empty.log: there is no request in it"),
        (&[&good[..], &["nowhere.log"]].concat(), "--log nowhere.log: "),
        (&vec!["--rules", "wrong.toml", "--log", "access.log"], "wrong.toml:2:"),
        (
            &[&good[..], &["access.log", "--field", "tmie=at"]].concat(),
            "\"tmie\" is unknown; did you mean \"time\"? Write one of \"time\", \"ip\"",
        ),
        (&[&good[..], &["-", "--log", "-"]].concat(), "standard input can be read once"),
        (&[&good[..], &["access.log", "--out", "rules.toml"]].concat(), "--out rules.toml: "),
    ] {
        let output = replay(&folder, args)?;
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", said(&output));
        assert!(said(&output).contains(expected), "{args:?}: {}", said(&output));
    }
    let output = replay(&folder, &[&good[..], &["other.jsonl", "--field", "time=when"]].concat())?;
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    Ok(())
}

#[test]
fn several_logs_compressed_and_from_standard_input_are_one() -> Result<()> {
    let log = log();
    let (first, second) = log.split_at(log.match_indices('\n').nth(4).map_or(0, |(end, _)| end + 1));
    let folder = folder(&[("rules.toml", RULES)])?;
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(first.as_bytes())?;
    let compressed = encoder.finish()?;
    fs::write(folder.path().join("one.log"), &compressed)?;
    fs::write(folder.path().join("cut.log"), &compressed[..compressed.len() / 2])?;
    let with_input = |args: &[&str]| -> Result<Output> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command
            .args(["replay", "--rules", "rules.toml", "--format", "json", "--log"])
            .args(args)
            .current_dir(folder.path());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        child.stdin.take().ok_or("no input")?.write_all(second.as_bytes())?;
        Ok(child.wait_with_output()?)
    };
    let output = with_input(&["one.log", "--log", "-", "--tune", "0"])?;
    let report: Value = serde_json::from_slice(&output.stdout)?;
    assert_eq!((&report["lines"]["requests"], &report["denied"]), (&19.into(), &7.into()), "{}", said(&output));
    let tuned = &report["tune"]["numbers"][0];
    assert_eq!(
        (&tuned["old"]["number"], &tuned["new"]["number"], &tuned["below"]["clients"]),
        (&3.into(), &10.into(), &1.into())
    );
    assert_eq!(report["tune"]["together"], serde_json::json!({ "clients": 0, "requests": 0 }));
    let output = replay(&folder, &["--log", "cut.log", "--rules", "rules.toml"])?;
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("--log cut.log: after line "), "{}", said(&output));
    Ok(())
}
