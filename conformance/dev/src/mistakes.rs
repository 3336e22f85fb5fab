//! Past mistakes, put back into the code one after another. The test that was written for each must fail.
//!
//! `mistakes.toml` lists them: the code as it is, the code as it was, and the test. A copy of the tree is changed, so the tree itself stays
//! as it is. [`Mistake::problem`] is cheap. It finds an entry that the code has left behind.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

/// The list.
const LIST: &str = include_str!("../mistakes.toml");

/// A mistake that the code once had.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mistake {
    /// The name of the mistake.
    pub name: String,
    /// What is wrong with it, as in the title of a bug report.
    pub about: String,
    /// The file that is changed.
    file: PathBuf,
    /// The code as it is. It stands once in the file.
    right: String,
    /// The code with the mistake.
    wrong: String,
    /// The test that must fail.
    test: Test,
}

/// The test of a mistake.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Test {
    /// The arguments of `cargo test`, as `-p tidegate-core --all-features --test all lists`.
    Cargo(String),
    /// The arguments of `node --test` in `adapters/npm`, as `test/gate.test.mjs`.
    Npm(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    mistake: Vec<Mistake>,
}

/// Returns all mistakes.
///
/// # Errors
///
/// Says what is wrong with the list.
pub fn all() -> Result<Vec<Mistake>, String> {
    let list: List = toml::from_str(LIST).map_err(|error| format!("mistakes.toml: {error}"))?;
    Ok(list.mistake)
}

/// What became of a mistake that was put back.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its test fails.
    Caught,
    /// Its test passes.
    Survived,
    /// The test could not run, or fails without the mistake, too. The text says why.
    Unknown(String),
}

impl Mistake {
    /// Why the mistake cannot be put back into a tree. `None` if it can.
    #[must_use]
    pub fn problem(&self, root: &Path) -> Option<String> {
        let code = match fs::read_to_string(root.join(&self.file)) {
            Ok(code) => code,
            Err(error) => return Some(format!("{}: {error}", self.file.display())),
        };
        match code.matches(&self.right).count() {
            _ if self.right == self.wrong => Some("it changes nothing".into()),
            1 => self.test.problem(root),
            count => Some(format!(
                "{}: has the right code {count} times; write code that stands there once",
                self.file.display()
            )),
        }
    }
}

impl Test {
    /// Whether the file that it names is there.
    fn problem(&self, root: &Path) -> Option<String> {
        let Self::Npm(arguments) = self else { return None };
        let file = arguments.split(' ').find(|argument| argument.ends_with(".mjs"));
        let is_there = file.is_some_and(|file| root.join("adapters/npm").join(file).exists());
        (!is_there).then(|| format!("{arguments}: names no file of tests"))
    }

    /// The command that compiles it, and the one that runs it.
    fn commands(&self) -> (String, String) {
        match self {
            Self::Cargo(arguments) => {
                (format!("cargo test --quiet --no-run {arguments}"), format!("cargo test --quiet {arguments}"))
            }
            Self::Npm(arguments) => {
                let tsc = "node node_modules/typescript/bin/tsc";
                let compile = format!(
                    "{tsc} --outDir modules --declarationDir dist && {tsc} --project ts/program --outDir modules && node bundle.mjs modules dist"
                );
                (format!("cd adapters/npm && {compile}"), format!("cd adapters/npm && node --test {arguments}"))
            }
        }
    }
}

/// A copy of a tree, in which mistakes are put back.
#[derive(Debug)]
pub struct Copy {
    root: PathBuf,
    /// The tests that pass without a mistake.
    sound: Vec<Test>,
}

impl Copy {
    /// Copies what git knows of the tree, and what its setup and its build have made of the npm package.
    ///
    /// # Errors
    ///
    /// Says what could not be copied.
    pub fn of(tree: &Path) -> Result<Self, String> {
        let copy = Self { root: tree.join("target/mistakes/tree"), sound: Vec::new() };
        let made = if copy.root.exists() { fs::remove_dir_all(&copy.root) } else { Ok(()) };
        let made = made.and_then(|()| fs::create_dir_all(&copy.root));
        made.map_err(|error| format!("{}: {error}", copy.root.display()))?;
        // What cargo compiles is kept, and files have their times, so that it compiles only what has changed.
        let mut script =
            "from=../../..; git -C $from ls-files -z --cached --others --exclude-standard --full-name >files &&
            mkdir -p ../target && ln -s ../target target && ln -sfn ../../tools target/tools && ln -sfn ../../hosts target/hosts &&
            (cd $from && xargs -0 cp --parents --no-dereference --preserve=timestamps -t target/mistakes/tree) <files"
                .to_string();
        for made in ["node_modules", "reference", "dist", "modules"] {
            let made = format!("adapters/npm/{made}");
            _ = write!(script, " && {{ [ ! -e $from/{made} ] || cp -a $from/{made} {made}; }}");
        }
        copy.shell(&script)?;
        if !copy.root.join("adapters/npm/reference").exists() {
            return Err(
                "the npm package is not built; run cargo make setup, and adapters/npm/build.sh --for-tests".into()
            );
        }
        Ok(copy)
    }

    /// Puts a mistake back, runs its test, and takes the mistake out again.
    pub fn try_out(&mut self, mistake: &Mistake) -> Outcome {
        self.tried(mistake).unwrap_or_else(Outcome::Unknown)
    }

    fn tried(&mut self, mistake: &Mistake) -> Result<Outcome, String> {
        if let Some(problem) = mistake.problem(&self.root) {
            return Err(problem);
        }
        let (compile, run) = mistake.test.commands();
        if !self.sound.contains(&mistake.test) {
            self.shell(&compile)?;
            self.shell(&run).map_err(|said| format!("the test fails without the mistake:\n{said}"))?;
            self.sound.push(mistake.test.clone());
        }
        let file = self.root.join(&mistake.file);
        let write = |code: &str| fs::write(&file, code).map_err(|error| format!("{}: {error}", file.display()));
        let right = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        write(&right.replacen(&mistake.right, &mistake.wrong, 1))?;
        let outcome = self.shell(&compile).map(|_| match self.shell(&run) {
            Ok(_) => Outcome::Survived,
            Err(_) => Outcome::Caught,
        });
        write(&right)?;
        outcome.map_err(|said| format!("it does not compile:\n{said}"))
    }

    /// Runs a script in the copy. Returns what it printed, as an error if it failed.
    fn shell(&self, script: &str) -> Result<String, String> {
        let mut command = Command::new("sh");
        command.args(["-c", script]).current_dir(&self.root);
        let output = command.output().map_err(|error| format!("sh: {error}"))?;
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        if output.status.success() { Ok(said) } else { Err(said) }
    }
}
