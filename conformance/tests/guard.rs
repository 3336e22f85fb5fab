//! `tidegate guard` ends a program together with every process that it started.
#![cfg(unix)]

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const PATIENCE: Duration = Duration::from_secs(10);

/// Like `spin up`: a parent that starts the process which serves, and does not end it if it is killed itself.
const SPIN: &str = "#!/bin/sh\nsleep 600 &\necho $! >> \"$1\"\nwait\n";

/// The guard over a program named `spin`, and the file in which that writes its children's ids.
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

/// The ids of the children, once there are so many.
fn children(ids: &Path, many: usize) -> Result<Vec<String>> {
    let began = Instant::now();
    loop {
        let found = fs::read_to_string(ids).unwrap_or_default();
        if found.lines().count() >= many {
            return Ok(found.lines().map(ToString::to_string).collect());
        }
        if began.elapsed() > PATIENCE {
            return Err("the program starts no child".into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process ends soon: a kill takes a moment.
fn ends(id: &str) -> bool {
    let began = Instant::now();
    while is_alive(id) && began.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(5));
    }
    !is_alive(id)
}

fn is_alive(id: &str) -> bool {
    let state = Command::new("ps").args(["-o", "stat=", "-p", id]).output().map(|output| output.stdout);
    // A process that has ended and that nobody has waited for is a zombie.
    state.is_ok_and(|state| !state.is_empty() && !state.starts_with(b"Z"))
}

#[test]
fn the_guard_ends_what_its_program_started() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (mut guard, ids) = guard(folder.path())?;
    let mut lines = BufReader::new(guard.stdout.take().ok_or("no pipe")?).lines();
    let mut stdin = guard.stdin.take().ok_or("no pipe")?;
    assert_eq!(lines.next().ok_or("no line")??, "started");
    let first = children(&ids, 1)?.remove(0);
    assert!(is_alive(&first));

    writeln!(stdin, "restart")?;
    assert_eq!(lines.next().ok_or("no line")??, "restarted");
    assert!(ends(&first), "the first child outlives a restart");
    let second = children(&ids, 2)?.remove(1);
    assert!(is_alive(&second));

    drop(stdin);
    assert!(guard.wait()?.success());
    assert!(ends(&second), "the second child outlives the guard");
    assert!(!folder.path().join("state").exists());
    Ok(())
}
