//! What users copy opens nothing: no field that a client may write is believed, no login passes uncounted, and no secret is in code.

use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;
use tidegate_core::gate::{OnFailure, Request, Rules};
use tidegate_core::{ClientIpSource, Platform, UnixMillis};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The platforms whose field for the client's address only they set. Code for any host must not read it.
const PLATFORMS: [&str; 5] = ["Cloudflare", "Fastly", "Netlify", "Spin", "Vercel"];

/// What is for any host.
const FOR_ANY_HOST: [&str; 6] =
    ["adapters/tower", "adapters/postgres", "adapters/redis", "core/docs", "core/jwt", "core/rules"];

/// The example apps of hosts that are such a platform.
const ON_PLATFORMS: [(&str, &str); 5] = [
    ("hono-workers", "cloudflare"),
    ("netlify", "netlify"),
    ("next-middleware", "vercel"),
    ("next-proxy", "vercel"),
    ("vercel", "vercel"),
];

/// What is built or installed, and what is not for users.
const LEFT_OUT: [&str; 8] = ["target", "node_modules", "dist", "modules", "tests", "test", "benches", "bench"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The files with one of these ends in a folder.
fn files(folder: &Path, ends: &[&str], found: &mut Vec<(PathBuf, String)>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let (path, name) = {
            let entry = entry?;
            (entry.path(), entry.file_name())
        };
        if path.is_dir() {
            if !LEFT_OUT.iter().any(|left_out| name == *left_out) && !name.to_string_lossy().starts_with('.') {
                files(&path, ends, found)?;
            }
        } else if path.extension().is_some_and(|end| ends.iter().any(|known| end == *known)) {
            found.push((path.clone(), fs::read_to_string(&path)?));
        }
    }
    Ok(())
}

fn all(folders: &[&str], ends: &[&str]) -> Result<Vec<(PathBuf, String)>> {
    let mut found = Vec::new();
    for folder in folders {
        files(&root().join(folder), ends, &mut found)?;
    }
    Ok(found)
}

/// The blocks of code of a page, and all lines of another file.
fn code(path: &Path, text: &str) -> String {
    if path.extension().is_some_and(|end| end != "md") {
        return text.to_string();
    }
    text.split("\n```").skip(1).step_by(2).collect::<Vec<_>>().join("\n")
}

#[test]
fn code_for_any_host_believes_no_field_of_a_platform() -> Result<()> {
    let files = all(&FOR_ANY_HOST, &["md", "rs"])?;
    assert!(files.len() > 30, "{}", files.len());
    let wrong: Vec<_> = files
        .iter()
        .filter(|(path, text)| PLATFORMS.iter().any(|one| code(path, text).contains(&format!("Platform::{one})"))))
        .map(|(path, _)| path)
        .collect();
    assert!(wrong.is_empty(), "write Platform::Direct, or ClientIpSource::behind_proxies: {wrong:?}");
    Ok(())
}

#[test]
fn an_example_app_names_the_platform_that_it_runs_on() -> Result<()> {
    let named = Regex::new(r#"platform: "(\w+)""#)?;
    let apps = root().join("adapters/npm/examples");
    let mut count = 0;
    for (path, text) in all(&["adapters/npm/examples"], &["ts", "js", "mjs"])? {
        let app = path.strip_prefix(&apps)?.iter().next().unwrap_or_default().to_string_lossy().into_owned();
        let expected = ON_PLATFORMS.iter().find(|(name, _)| *name == app).map_or("direct", |(_, platform)| platform);
        for found in named.captures_iter(&text) {
            assert_eq!(&found[1], expected, "{}", path.display());
            count += 1;
        }
    }
    assert!(count > 15, "{count}");
    Ok(())
}

/// The rules files that users copy: those of the examples, and those that pages print.
fn rules() -> Result<Vec<(PathBuf, Rules)>> {
    let mut found = Vec::new();
    for (path, text) in all(&["adapters", "core", "conformance/cli"], &["toml", "json"])? {
        if path.file_name().is_some_and(|name| name == "rules.toml" || name == "rules.json") {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            found.push((
                path.clone(),
                Rules::parse(&name, &text).map_err(|error| format!("{}: {error}", path.display()))?,
            ));
        }
    }
    let block = Regex::new(r"(?ms)^```(toml|json)\n(.*?)^```$")?;
    for (path, text) in all(&["adapters", "core", "conformance/cli"], &["md"])? {
        for found_block in block.captures_iter(&text).filter(|block| block[2].contains("rules")) {
            // Another file, such as that of a package, is none of rules.
            if let Ok(rules) = Rules::parse(&format!("rules.{}", &found_block[1]), &found_block[2]) {
                found.push((path.clone(), rules));
            }
        }
    }
    Ok(found)
}

#[test]
fn no_rule_for_a_login_is_open_while_the_store_is_down() -> Result<()> {
    let (rules, mut logins) = (rules()?, 0);
    let (no_fields, address): ([(&str, &str); 0], _) = ([], ClientIpSource::new(Platform::Direct));
    let request = Request::new("POST", "/login", &no_fields, UnixMillis::new(0)).peer(Some([192, 0, 2, 1].into()));
    for (path, rules) in &rules {
        if rules.rules().iter().any(|rule| rule.name().contains("/login")) {
            logins += 1;
            assert_eq!(rules.explain(&request, &address).on_failure, OnFailure::Closed, "{}", path.display());
        }
    }
    assert!(rules.len() > 15 && logins >= 5, "{} files, {logins} logins", rules.len());
    let policy = Regex::new(r#"failMode: "open"[^\n]*name: "login""#)?;
    for (path, text) in all(&["adapters/npm", "conformance/snippets"], &["md", "ts", "js"])? {
        assert!(!policy.is_match(&text), "{}", path.display());
    }
    Ok(())
}

#[test]
fn no_identity_is_what_a_client_writes() -> Result<()> {
    let believed = Regex::new(
        r#"\b(subject|key|keys|tenant|tier|apiKey|user)\b[^\n]*\bheaders(\(\))?\.get\("x-(user|tenant|tier)"#,
    )?;
    let wrong_of = |files: Vec<(PathBuf, String)>| -> Vec<PathBuf> {
        let says_so = |text: &str| text.contains("which any client can write") || text.contains("believes the client");
        let is_wrong = |(path, text): &(PathBuf, String)| believed.is_match(&code(path, text)) && !says_so(text);
        files.into_iter().filter(is_wrong).map(|(path, _)| path).collect()
    };
    let wrong =
        wrong_of(all(&["adapters", "core/docs", "conformance/snippets"], &["md", "rs", "ts", "js", "tsx", "mjs"])?);
    assert!(wrong.is_empty(), "take it from a verified session or token: {wrong:?}");
    let page = "\n```js\nconst of = (request) => ({ subject: request.headers.get(\"x-user\") });\n```\n";
    assert_eq!(wrong_of(vec![("page.md".into(), page.into())]).len(), 1);
    Ok(())
}

#[test]
fn no_secret_is_in_code_that_users_copy() -> Result<()> {
    let secret = Regex::new(r#"key_secret\(\[|keySecret: "|\btoken: "|password: ""#)?;
    let mut wrong = Vec::new();
    for (path, text) in all(&["adapters", "core/docs", "conformance/snippets"], &["md", "rs", "ts", "js", "json"])? {
        if secret.is_match(&code(&path, &text)) {
            wrong.push(path);
        }
    }
    assert!(wrong.is_empty(), "read it from the environment or a binding: {wrong:?}");
    Ok(())
}
