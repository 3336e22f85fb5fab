//! The setup changes nothing outside the checkout without consent.

#![cfg(unix)]

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The programs that the scripts use. redis-server and Rust are not among them.
const PROGRAMS: &[&str] =
    &["cat", "cmp", "cp", "date", "dirname", "env", "grep", "id", "ls", "mkdir", "printf", "sed", "sh", "tr"];

/// The user who runs the setup.
#[derive(Clone, Copy, PartialEq)]
enum User {
    Root,
    Nobody,
}

/// A checkout on a system without Redis. `sudo` and `apt-get` only record how they were called.
struct System {
    folder: TempDir,
}

impl System {
    fn new() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let (path, setup) = (folder.path().join("path"), folder.path().join("conformance/setup"));
        fs::create_dir_all(&path)?;
        fs::create_dir_all(&setup)?;
        fs::copy(root.join("conformance/setup.sh"), folder.path().join("conformance/setup.sh"))?;
        for file in fs::read_dir(root.join("conformance/setup"))? {
            let file = file?;
            fs::copy(file.path(), setup.join(file.file_name()))?;
        }
        for program in PROGRAMS {
            let found =
                ["/usr/bin", "/bin"].map(|folder| Path::new(folder).join(program)).into_iter().find(|it| it.exists());
            symlink(found.ok_or("a program is missing")?, path.join(program))?;
        }
        for program in ["sudo", "apt-get"] {
            let script = path.join(program);
            fs::write(&script, format!("#!/bin/sh\necho \"{program} $*\" >>{}/calls\n", folder.path().display()))?;
            fs::set_permissions(script, fs::Permissions::from_mode(0o755))?;
        }
        fs::write(folder.path().join("calls"), "")?;
        for (path, mode) in [("calls", 0o666), ("", 0o755)] {
            fs::set_permissions(folder.path().join(path), fs::Permissions::from_mode(mode))?;
        }
        Ok(Self { folder })
    }

    /// Runs the setup for Redis. Returns its output and the recorded calls.
    fn run(&self, user: User, consent: Option<&str>, answer: Option<&str>) -> Result<(String, String)> {
        fs::write(self.folder.path().join("calls"), "")?;
        let script = self.folder.path().join("conformance/setup.sh");
        let mut command = Command::new(if user == User::Nobody && is_root()? { "setpriv" } else { "env" });
        if user == User::Nobody && is_root()? {
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "env"]);
        }
        command.arg("-i").arg(format!("PATH={}", self.folder.path().join("path").display()));
        command.args(consent.map(|consent| format!("TIDEGATE_SETUP={consent}")));
        match answer {
            // `script` provides a terminal.
            Some(_) => command.args(["/usr/bin/script", "--quiet", "--return", "--command"]),
            None => command.arg("/bin/sh").arg("-c"),
        };
        command.arg(format!("{} redis", script.display()));
        if answer.is_some() {
            command.arg("/dev/null");
        }
        let mut running = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn()?;
        let mut stdin = running.stdin.take().ok_or("no pipe")?;
        if let Some(answer) = answer {
            writeln!(stdin, "{answer}")?;
        }
        let output = running.wait_with_output()?;
        drop(stdin);
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok((said, fs::read_to_string(self.folder.path().join("calls"))?))
    }
}

fn is_root() -> Result<bool> {
    Ok(Command::new("id").arg("-u").output()?.stdout == b"0\n")
}

#[test]
fn without_a_terminal_it_prints_the_commands_and_runs_none() -> Result<()> {
    let (said, calls) = System::new()?.run(User::Nobody, None, None)?;
    assert_eq!(calls, "", "{said}");
    assert!(said.contains("need consent") && said.contains("sudo apt-get install redis-server redis-tools"), "{said}");
    assert!(said.contains("setup: redis: done"), "{said}");
    Ok(())
}

#[test]
fn on_a_terminal_it_asks_once_and_obeys_the_answer() -> Result<()> {
    let system = System::new()?;
    let (said, calls) = system.run(User::Nobody, None, Some("n"))?;
    assert_eq!(said.matches("[y/N]").count(), 1, "{said}");
    assert_eq!(calls, "", "{said}");
    let (said, calls) = system.run(User::Nobody, None, Some("y"))?;
    assert_eq!(said.matches("[y/N]").count(), 1, "{said}");
    assert!(calls.contains("sudo -v\n") && calls.contains("apt-get install"), "{calls}");
    Ok(())
}

#[test]
fn the_variable_answers_beforehand() -> Result<()> {
    let system = System::new()?;
    let (said, calls) = system.run(User::Nobody, Some("yes"), None)?;
    assert!(calls.starts_with("sudo -n apt-get update"), "{said}{calls}");
    for user in [User::Nobody, User::Root] {
        let (said, calls) = system.run(user, Some("no"), None)?;
        assert_eq!(calls, "", "{said}");
    }
    Ok(())
}

#[test]
fn root_sees_the_changes_and_is_not_asked() -> Result<()> {
    if !is_root()? {
        return Ok(());
    }
    let (said, calls) = System::new()?.run(User::Root, None, None)?;
    assert!(said.contains("changes outside the checkout, because root runs this"), "{said}");
    assert!(!said.contains("[y/N]") && !calls.contains("sudo"), "{said}{calls}");
    assert!(calls.starts_with("apt-get update -qq\n"), "{calls}");
    Ok(())
}
