//! Live runs, as far as they need no account: dry runs, the key, and what is removed after a failure.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs `tidegate run --live` with these arguments. Returns what it printed, and its report.
fn live(arguments: &[&str], path: Option<&Path>) -> Result<(Output, String, Value)> {
    let out = tempfile::tempdir()?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["run", "--live"]).args(arguments).args(["--filter", "token-bucket/burst-then-refill", "--out"]);
    command.arg(out.path());
    if let Some(first) = path {
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", first.display()));
    }
    let output = command.output()?;
    let said = String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned();
    let report = fs::read_to_string(out.path().join("report.json")).unwrap_or_else(|_| "null".into());
    Ok((output, said, serde_json::from_str(&report)?))
}

/// The verdict of each target on the fixture.
fn verdicts(report: &Value) -> Vec<(&str, &str)> {
    let targets = report["targets"].as_array().into_iter().flatten();
    let texts = targets.map(|target| (target["name"].as_str(), target["fixtures"][0]["verdict"].as_str()));
    texts.map(|(name, verdict)| (name.unwrap_or_default(), verdict.unwrap_or_default())).collect()
}

#[test]
fn a_dry_run_deploys_nothing_and_verifies_nothing() -> Result<()> {
    let (output, said, report) = live(&["spin", "--dry-run"], None)?;
    assert!(output.status.success(), "{said}");
    assert!(said.contains("would run: spin aka deploy --create-name tidegate-suite-"), "{said}");
    assert!(said.contains("0 passed, 0 failed, 1 skipped"), "{said}");
    assert_eq!(verdicts(&report), [("spin-kv", "unverified")]);
    assert_eq!(report["targets"][0]["emulator"]["version"], "dry run");
    Ok(())
}

#[test]
fn wrangler_accepts_what_would_be_deployed() -> Result<()> {
    let (output, said, report) = live(&["cloudflare", "--dry-run", "--target", "cloudflare-do"], None)?;
    assert!(output.status.success(), "{said}");
    assert!(said.contains("-- wrangler deploy --config wrangler.json --secrets-file secrets.json --dry-run"), "{said}");
    assert_eq!(verdicts(&report), [("cloudflare-do", "unverified")]);
    Ok(())
}

#[test]
fn the_package_of_this_checkout_is_what_netlify_would_get() -> Result<()> {
    let (output, said, report) = live(&["netlify", "--dry-run"], None)?;
    assert!(output.status.success(), "{said}");
    assert!(said.contains("live: npm pack ") && said.contains(" -- netlify deploy --build"), "{said}");
    assert_eq!(verdicts(&report), [("netlify-blobs", "unverified")]);
    Ok(())
}

#[test]
fn a_target_of_another_platform_and_a_missing_token_are_errors() -> Result<()> {
    let (output, said, _) = live(&["fastly", "--target", "cloudflare-do"], None)?;
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("not a target of --live fastly; write one of \"fastly-kv\", \"fastly-erl\""), "{said}");
    let (output, said, _) = live(&["vercel"], None)?;
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("set VERCEL_TOKEN and UPSTASH_REDIS_REST_URL and UPSTASH_REDIS_REST_TOKEN"), "{said}");
    Ok(())
}

/// A `spin` that writes down how it is called, and cannot deploy.
fn failing_spin(folder: &TempDir) -> Result<PathBuf> {
    let (program, calls) = (folder.path().join("spin"), folder.path().join("calls"));
    let script = format!(
        "#!/bin/sh\necho \"$*\" >>{calls}\n[ \"$2\" = app ] || {{ echo 'quota exceeded' >&2; exit 1; }}\n",
        calls = calls.display()
    );
    fs::write(&program, script)?;
    let executable = Command::new("chmod").arg("+x").arg(&program).status()?;
    assert!(executable.success());
    Ok(calls)
}

#[test]
fn what_a_failed_deployment_has_created_is_removed() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let calls = failing_spin(&folder)?;
    let (output, said, _) = live(&["spin"], Some(folder.path()))?;
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("quota exceeded"), "{said}");
    let calls = fs::read_to_string(calls)?;
    let calls: Vec<&str> = calls.lines().filter(|call| call.starts_with("aka ")).collect();
    let name = calls[0].split_whitespace().nth(3).ok_or("no name")?;
    assert_eq!(
        calls,
        [
            format!("aka deploy --create-name {name} --no-confirm"),
            format!("aka app delete --app-name {name} --no-confirm")
        ]
    );
    Ok(())
}

#[test]
fn only_the_key_opens_the_routes_of_a_deployed_guest() -> Result<()> {
    // The run above may build it at the same time; cargo waits.
    let (output, said, _) = live(&["spin", "--dry-run"], None)?;
    assert!(output.status.success(), "{said}");
    let built = root().join("target/wasm32-wasip1/release/tidegate_guest_spin.wasm");
    let mut deployment = Command::new("node")
        .arg(root().join("conformance/live/deploy.mjs"))
        .args(["spin", "--dry-run", "--built"])
        .arg(built)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut line = String::new();
    let stdout = deployment.stdout.take().ok_or("no pipe")?;
    BufReader::new(stdout).read_line(&mut line)?;
    let deployed: Value = serde_json::from_str(&line)?;
    let url = deployed["urls"]["spin-kv"].as_str().ok_or("no URL")?.to_owned();
    let key = deployed["key"].as_str().ok_or("no key")?.to_owned();
    let (host, path) = url.strip_prefix("http://").and_then(|url| url.split_once('/')).ok_or("no address")?;
    let asked = |key: &str| -> Result<String> {
        let mut socket = TcpStream::connect(host)?;
        let field = if key.is_empty() { String::new() } else { format!("x-tidegate-suite-key: {key}\r\n") };
        write!(
            socket,
            "POST /{path}/_tidegate/capabilities HTTP/1.1\r\nhost: {host}\r\n{field}content-length: 0\r\nconnection: close\r\n\r\n"
        )?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer)?;
        Ok(answer.split(' ').nth(1).unwrap_or_default().into())
    };
    assert_eq!(asked(&key)?, "200");
    for wrong in ["", "on", &key[1..], &format!("{key}0")] {
        assert_eq!(asked(wrong)?, "404", "{wrong:?}");
    }
    drop(deployment.stdin.take());
    assert!(deployment.wait()?.success());
    Ok(())
}

const SECRET: &str = "secret-of-the-account";

/// A folder with programs that write down their arguments. They deploy nothing: a command that is the last of a plan fails.
fn recording() -> Result<(TempDir, PathBuf)> {
    let folder = tempfile::tempdir()?;
    let calls = folder.path().join("calls");
    let node = Command::new("node").args(["-p", "process.execPath"]).output()?;
    let node = String::from_utf8(node.stdout)?;
    let found = r#"{ "id": "0123456789abcdef0123456789abcdef", "site_id": "0123" } Created service 0123456789 x.tgz"#;
    let scripts = [
        ("npm", format!("echo '{found}'")),
        ("npx", format!("case \"$*\" in *--dry-run*) ;; *' deploy'*|*' activate'*) exit 1;; esac; echo '{found}'")),
        ("spin", "exit 1".to_string()),
        // A host, or the script itself.
        (
            "node",
            format!(
                "case \"$1\" in */hosts/*) echo http://127.0.0.1:9; exec cat;; *) exec {} \"$@\";; esac",
                node.trim()
            ),
        ),
    ];
    for (name, does) in scripts {
        let program = folder.path().join(name);
        fs::write(&program, format!("#!/bin/sh\necho \"{name} $*\" >>{}\n{does}\n", calls.display()))?;
        assert!(Command::new("chmod").arg("+x").arg(&program).status()?.success());
    }
    Ok((folder, calls))
}

/// Runs the plan of a platform with programs that only write down their arguments, which it returns with what was said.
fn recorded(platform: &str, dry: bool) -> Result<(String, String)> {
    let (folder, calls) = recording()?;
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH")?);
    let mut command = Command::new("node");
    command.arg(root().join("conformance/live/deploy.mjs")).arg(platform).arg("--built").arg(folder.path());
    command.args(dry.then_some("--dry-run")).env("PATH", path).stdin(Stdio::null());
    for variable in [
        "CLOUDFLARE_API_TOKEN",
        "FASTLY_API_TOKEN",
        "NETLIFY_AUTH_TOKEN",
        "UPSTASH_REDIS_REST_TOKEN",
        "UPSTASH_REDIS_REST_URL",
        "VERCEL_TOKEN",
    ] {
        command.env(variable, SECRET);
    }
    let output = command.output()?;
    let said = String::from_utf8(output.stderr)?;
    Ok((fs::read_to_string(calls).unwrap_or_default(), said))
}

/// Whether a text has the key of a guest, which is random.
fn has_key(text: &str) -> bool {
    text.split(|char: char| !char.is_ascii_hexdigit()).any(|word| word.len() >= 48)
}

#[test]
fn no_process_gets_a_secret_as_an_argument() -> Result<()> {
    for platform in ["cloudflare", "fastly", "netlify", "spin", "vercel"] {
        for dry in [false, true] {
            let (calls, said) = recorded(platform, dry)?;
            assert!(!calls.contains(SECRET) && !has_key(&calls), "{platform}: {calls}");
            // What is said of a command has a placeholder for a secret.
            assert!(said.contains("live: ") && !said.contains("<secret>"), "{platform}: {said}");
        }
    }
    Ok(())
}

#[test]
fn each_tool_of_a_platform_has_an_exact_version() -> Result<()> {
    let exact = |version: &str| {
        let numbers: Vec<&str> = version.split('.').collect();
        numbers.len() == 3 && numbers.iter().all(|number| number.parse::<u32>().is_ok())
    };
    let manifest: Value = serde_json::from_str(&fs::read_to_string(root().join("conformance/live/package.json"))?)?;
    let versions = manifest["dependencies"].as_object().ok_or("no dependencies")?;
    assert!(versions.values().all(|version| version.as_str().is_some_and(exact)), "{versions:?}");
    for (platform, program) in
        [("cloudflare", "wrangler"), ("fastly", "fastly"), ("netlify", "netlify"), ("vercel", "vercel")]
    {
        let (calls, said) = recorded(platform, false)?;
        let tools: Vec<&str> = calls.lines().filter_map(|call| call.strip_prefix("npx ")).collect();
        assert!(tools.len() > 1, "{platform}: {calls}{said}");
        for call in tools {
            let words: Vec<&str> = call.split(' ').collect();
            assert_eq!((words[0], words[1], words[3], words[4]), ("--yes", "--package", "--", program), "{call}");
            let (_, version) = words[2].rsplit_once('@').ok_or("no version")?;
            assert!(exact(version), "{call}");
        }
    }
    Ok(())
}
