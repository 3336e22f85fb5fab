//! `tidegate guard` ends a program and every process that it started.
#![cfg(unix)]

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const PATIENCE: Duration = Duration::from_secs(10);

/// Like `spin up`: a parent that starts a serving process, which survives if the parent is killed.
const SPIN: &str = "#!/bin/sh\nsleep 600 &\necho $! >> \"$1\"\nwait\n";

/// Starts the guard with a program named `spin`. Returns it with the file to which the program writes its children's
/// ids.
fn guard(folder: &Path) -> Result<(Child, PathBuf)> {
    let (spin, ids) = (folder.join("spin"), folder.join("ids"));
    fs::write(&spin, SPIN)?;
    fs::set_permissions(&spin, fs::Permissions::from_mode(0o755))?;
    let state = folder.join("state");
    fs::create_dir(&state)?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.arg("guard").arg(state).arg("--").arg(spin).arg(&ids);
    Ok((command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?, ids))
}

/// Waits until there are `many` children, and returns their ids.
fn children(ids: &Path, many: usize) -> Result<Vec<String>> {
    let began = Instant::now();
    loop {
        let found = fs::read_to_string(ids).unwrap_or_default();
        if found.lines().count() >= many {
            return Ok(found.lines().map(ToString::to_string).collect());
        }
        if began.elapsed() > PATIENCE {
            return Err("the program started no child".into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until a process ends, because a kill takes a moment. Returns whether it did.
fn ends(id: &str) -> bool {
    let began = Instant::now();
    while is_alive(id) && began.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(5));
    }
    !is_alive(id)
}

fn is_alive(id: &str) -> bool {
    let state = Command::new("ps").args(["-o", "stat=", "-p", id]).output().map(|output| output.stdout);
    // A zombie has ended, but nobody has waited for it.
    state.is_ok_and(|state| !state.is_empty() && !state.starts_with(b"Z"))
}

#[test]
fn the_guard_ends_every_process_that_its_program_started() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (mut guard, ids) = guard(folder.path())?;
    let mut lines = BufReader::new(guard.stdout.take().ok_or("no pipe")?).lines();
    let mut stdin = guard.stdin.take().ok_or("no pipe")?;
    assert_eq!(lines.next().ok_or("no line")??, "started");
    let first = children(&ids, 1)?.remove(0);
    assert!(is_alive(&first));

    writeln!(stdin, "restart")?;
    assert_eq!(lines.next().ok_or("no line")??, "restarted");
    assert!(ends(&first), "the first child survived a restart");
    let second = children(&ids, 2)?.remove(1);
    assert!(is_alive(&second));

    drop(stdin);
    assert!(guard.wait()?.success());
    assert!(ends(&second), "the second child survived the guard");
    assert!(!folder.path().join("state").exists());
    Ok(())
}
