//! Runs `tidegate-dev bench-report` like `cargo make bench`, on lines of the benchmarks' own writers.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tidegate_measured::{Aim, At, Measurement, Unit};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// A measurement at two places, as the benchmarks in Rust write it.
fn lines() -> Result<String> {
    let what = Measurement::new("redis", "decisions a second", Unit::PerSecond).aim(Aim::Ratio(1.5));
    let theirs = ("a peer 2.0", &[100.0, 100.0, 200.0, 100.0, 100.0][..]);
    let few = what.clone().at(At::InFlight(1)).line(&[90.0, 80.0, 220.0, 100.0, 100.0], Some(theirs))?;
    Ok(few + &what.at(At::InFlight(64)).line(&[300.0, 200.0, 400.0, 100.0, 200.0], Some(theirs))?)
}

fn report(file: &Path, args: &[&str]) -> Result<(Option<i32>, String)> {
    let folder = file.parent().ok_or("no folder")?.join("out");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate-dev"));
    Ok(said(&command.arg("bench-report").arg(file).arg("--out").arg(folder).args(args).output()?))
}

fn said(output: &Output) -> (Option<i32>, String) {
    let said = [output.stdout.as_slice(), &output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn lines_become_a_table_and_two_files() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("bench.jsonl");
    fs::write(&file, lines()?)?;
    let (code, said) = report(&file, &[])?;
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("2 measurements; 1 of 2 aims reached"), "{said}");
    let row = said.lines().find(|line| line.contains("64 in flight")).ok_or("no row")?;
    assert!(row.contains("2.00") && row.contains("1.00 to 3.00") && row.contains("✓ at least 1.50"), "{row}");
    let written: Value = serde_json::from_str(&fs::read_to_string(folder.path().join("out/bench.json"))?)?;
    assert_eq!(written["schema"], "tidegate/bench/v1");
    assert!(written["failed"].is_null());
    let few = &written["measurements"][0];
    assert_eq!(few["ratio"], json!({ "median": 1.0, "min": 0.8, "max": 1.1 }));
    assert_eq!(few["aim"], json!({ "ratio": 1.5, "at_least": true, "reached": false }));
    assert_eq!(few["peer"]["rounds"], json!([100.0, 100.0, 200.0, 100.0, 100.0]));
    let page = fs::read_to_string(folder.path().join("out/bench.html"))?;
    assert!(page.contains(r#""name":"decisions a second""#));
    Ok(())
}

#[test]
fn both_writers_write_what_the_report_reads() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("bench.jsonl");
    fs::write(&file, lines()?)?;
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("../measured/measured.mjs");
    let script = format!(
        "import {{ inTurn, record }} from '{}';
        const {{ ours, theirs }} = await inTurn({{ ours: () => 3, theirs: () => 4 }});
        record({{ group: 'npm', name: 'a decision', unit: 'us', at: {{ in_flight: 8 }}, ours, peer: {{ name: 'p', values: theirs }} }});",
        module.display()
    );
    let mut node = Command::new("node");
    let node = node.args(["--input-type=module", "--eval", &script]).env("TIDEGATE_BENCH", &file).output()?;
    assert!(node.status.success(), "{}", self::said(&node).1);
    let (code, said) = report(&file, &[])?;
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("3 measurements") && said.contains("0.75"), "{said}");
    Ok(())
}

#[test]
fn a_failed_benchmark_fails_the_command_and_keeps_the_others() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("bench.jsonl");
    fs::write(&file, lines()?)?;
    let (code, said) = report(&file, &["--failed", "spin", "--failed", "npm", "--quick"])?;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("2 measurements") && said.contains("failed: spin, npm"), "{said}");
    let written: Value = serde_json::from_str(&fs::read_to_string(folder.path().join("out/bench.json"))?)?;
    assert_eq!((&written["failed"], &written["quick"]), (&json!(["spin", "npm"]), &json!(true)));
    Ok(())
}

#[test]
fn a_line_that_is_wrong_is_named() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("bench.jsonl");
    let good = lines()?;
    for (text, right) in [
        (String::new(), "bench.jsonl:1: there is no measurement"),
        (format!("{good}{{"), "bench.jsonl:3: EOF while parsing an object, in column 1"),
        (format!("{good}\n"), "bench.jsonl:3: EOF while parsing"),
        (format!("{good}{good}"), "bench.jsonl:3: the same group, name and place as in line 1"),
        (good.replace("1/s", "per s"), "bench.jsonl:1: unit: unknown variant `per s`"),
        (good.replace(",200.0]", "]"), "bench.jsonl:2: ours has 4 rounds; a measurement in 1/s needs at least 5"),
    ] {
        fs::write(&file, text)?;
        let (code, said) = report(&file, &[])?;
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(right), "{said}");
    }
    let (code, said) = report(&folder.path().join("nothing.jsonl"), &[])?;
    assert_eq!((code, said.contains("nothing.jsonl: No such file")), (Some(2), true), "{said}");
    fs::write(&file, good)?;
    fs::write(folder.path().join("out"), "no folder")?;
    let (code, said) = report(&file, &[])?;
    assert_eq!((code, said.contains("--out ")), (Some(2), true), "{said}");
    Ok(())
}

#[test]
fn a_single_benchmark_is_piped_into_it() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate-dev"));
    command.args(["bench-report", "-", "--out"]).arg(folder.path());
    let mut running = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    running.stdin.take().ok_or("no pipe")?.write_all(lines()?.as_bytes())?;
    let (code, said) = said(&running.wait_with_output()?);
    assert_eq!((code, said.contains("2 measurements")), (Some(0), true), "{said}");
    Ok(())
}
