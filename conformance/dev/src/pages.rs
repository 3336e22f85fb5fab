//! Start pages, run as they are printed. Each takes a reader from an empty folder to a limited request.
//!
//! [`Page::read`] takes a page apart into the files that it shows, the commands between them, and what these print. [`Session`] does
//! what a reader does: writes the files, runs the commands, and compares. What a page may contain stands in `conformance/dev/pages/README.md`.

mod prints;
mod session;

use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;

pub use session::{Outcome, Session};

/// A page, taken apart.
#[derive(Debug)]
pub struct Page {
    /// The name of its file, without the end.
    pub name: String,
    /// How many words a reader reads, without the code.
    pub words: usize,
    steps: Vec<Step>,
    /// The ports that it names.
    ports: Vec<String>,
    /// Whether it builds for WebAssembly.
    target: Option<&'static str>,
}

/// What a reader does.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// Writes a file.
    Write { path: String, text: String },
    /// Runs commands, which print this.
    Run { script: String, prints: Option<String> },
    /// Starts a server in another terminal.
    Start { script: String },
}

/// A block of code with the line of prose before it.
struct Block<'a> {
    line: usize,
    before: &'a str,
    /// The language and what else the first line says.
    info: Vec<&'a str>,
    code: String,
}

/// The start pages of a checkout.
///
/// # Errors
///
/// Names the page that says something unreadable.
pub fn all(root: &Path) -> Result<Vec<Page>, String> {
    let mut files = Vec::new();
    for adapter in listed(&root.join("adapters"))? {
        let start = adapter.join("start");
        if start.is_dir() {
            files.extend(listed(&start)?.into_iter().filter(|file| file.extension().is_some_and(|end| end == "md")));
        }
    }
    files.iter().map(|file| Page::read(file)).collect()
}

fn listed(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(folder).and_then(|entries| entries.map(|one| Ok(one?.path())).collect());
    let mut paths: Vec<PathBuf> = entries.map_err(|error| format!("{}: {error}", folder.display()))?;
    paths.sort();
    Ok(paths)
}

impl Page {
    /// Reads a page.
    ///
    /// # Errors
    ///
    /// Names the line of a block that a reader could not follow.
    pub fn read(file: &Path) -> Result<Self, String> {
        let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Self::parse(name, &text).map_err(|why| format!("{}:{why}", file.display()))
    }

    fn parse(name: String, text: &str) -> Result<Self, String> {
        let (blocks, words) = blocks(text)?;
        let mut steps = Vec::new();
        for block in blocks {
            let line = block.line;
            step(block, &mut steps).map_err(|why| format!("{line}: {why}"))?;
        }
        let mut ports: Vec<String> = port().captures_iter(text).map(|found| found[1].to_owned()).collect();
        ports.sort();
        ports.dedup();
        let targets = [("wasm32-wasi", "wasm32-wasip1"), ("worker-build", "wasm32-unknown-unknown")];
        let target = targets.into_iter().find(|(sign, _)| text.contains(sign)).map(|(_, target)| target);
        Ok(Self { name, words, steps, ports, target })
    }

    /// How many files a reader writes.
    #[must_use]
    pub fn files(&self) -> usize {
        self.steps.iter().filter(|step| matches!(step, Step::Write { .. })).count()
    }
}

#[expect(clippy::expect_used, reason = "the pattern is a constant")]
fn port() -> Regex {
    Regex::new(r"(?:localhost|127\.0\.0\.1):(\d+)").expect("a pattern")
}

/// The blocks of code of a page, and the number of words around them.
fn blocks(text: &str) -> Result<(Vec<Block<'_>>, usize), String> {
    let (mut blocks, mut words, mut before) = (Vec::<Block<'_>>::new(), 0, "");
    let mut lines = text.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        let Some(info) = line.strip_prefix("```") else {
            words += if line.starts_with("<!--") { 0 } else { line.split_whitespace().count() };
            before = if line.trim().is_empty() { before } else { line };
            continue;
        };
        let mut block = Block { line: at + 1, before, info: info.split(' ').collect(), code: String::new() };
        loop {
            match lines.next() {
                None => return Err(format!("{}: this block does not end", at + 1)),
                Some((_, "```")) => break,
                Some((_, line)) => block.code += &format!("{line}\n"),
            }
        }
        blocks.push(block);
        before = "";
    }
    Ok((blocks, words))
}

/// Adds what a reader does with a block.
fn step(block: Block<'_>, steps: &mut Vec<Step>) -> Result<(), String> {
    let code = block.code;
    match block.info[..] {
        // Run by nobody here, or part of what stands whole elsewhere.
        [_, "deploy" | "part"] => {}
        ["sh"] => steps.push(Step::Run { script: code, prints: None }),
        ["sh", "server"] => steps.push(Step::Start { script: code }),
        ["text"] => match steps.last_mut() {
            Some(Step::Run { prints: prints @ None, .. }) => *prints = Some(code),
            _ => return Err("this text follows no commands that could print it".into()),
        },
        [_] => steps.push(Step::Write { path: written(block.before)?.into(), text: code }),
        [language, ..] => {
            return Err(format!("write ```{language}, ```sh server, ```sh deploy or ```{language} part here"));
        }
        [] => return Err("this block names no language".into()),
    }
    Ok(())
}

/// The path at the end of a line like "Write `src/main.rs`:".
fn written(before: &str) -> Result<&str, String> {
    let path = before.strip_suffix("`:").and_then(|line| line.rsplit('`').next());
    let path = path.filter(|path| !path.starts_with('/') && !path.contains("..") && !path.contains(' '));
    path.ok_or_else(|| {
        format!("the line before this file must end with its path, as in `src/main.rs`:, and is {before:?}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Page, String> {
        Page::parse("page".into(), text)
    }

    #[test]
    fn a_page_is_files_commands_and_servers() -> Result<(), String> {
        let page = parsed(
            "# Start\n\nIn an empty folder:\n\n```sh\nnpm init -y\n```\n\nIt prints\n\n```text\n…\n```\n\nWrite `a/b.js`:\n\n```js\nlisten(8080);\n```\n\n\
             ```sh server\nnode a/b.js\n```\n\n```sh deploy\nnpx deploy\n```\n\nOpen `localhost:8080`.\n",
        )?;
        assert_eq!(
            page.steps,
            [
                Step::Run { script: "npm init -y\n".into(), prints: Some("…\n".into()) },
                Step::Write { path: "a/b.js".into(), text: "listen(8080);\n".into() },
                Step::Start { script: "node a/b.js\n".into() },
            ]
        );
        assert_eq!((page.ports, page.words), (vec!["8080".to_owned()], 12));
        Ok(())
    }

    #[test]
    fn what_a_reader_cannot_follow_is_named_with_its_line() {
        for (text, line, said) in [
            ("```js\n1\n", 1, "does not end"),
            ("Write this:\n\n```js\n1\n```\n", 3, "must end with its path"),
            ("Write `/etc/passwd`:\n```js\n1\n```\n", 2, "must end with its path"),
            ("```text\n1\n```\n", 1, "follows no commands"),
            ("```sh sever\n1\n```\n", 1, "```sh server"),
        ] {
            let why = parsed(text).err().unwrap_or_default();
            assert!(why.starts_with(&format!("{line}: ")) && why.contains(said), "{text}: {why}");
        }
    }
}
