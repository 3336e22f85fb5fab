//! Processes that end with this one, however it ends: each holds a pipe from it and goes when the pipe closes.

use std::io::{BufRead as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::Mutex;

/// A process says its first word within this time, or it is taken for dead.
const PATIENCE: Duration = Duration::from_secs(30);

/// A child that ends when its standard input does: when this is dropped, or this process ends.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    pipes: Mutex<(ChildStdin, Lines<BufReader<ChildStdout>>)>,
}

impl Process {
    pub(super) fn spawn(mut command: Command) -> Result<Self, String> {
        let program = command.as_std().get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // A Ctrl-C is for the harness alone; what it started ends by its pipes, in its own order.
        #[cfg(unix)]
        command.process_group(0);
        let mut child = command.spawn().map_err(|error| format!("{program}: {error}"))?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(stdin), Some(stdout)) => {
                Ok(Self { child, pipes: Mutex::new((stdin, BufReader::new(stdout).lines())) })
            }
            _ => Err(format!("{program}: no pipes")),
        }
    }

    /// The next line that it prints.
    pub(super) async fn line(&self) -> Result<String, String> {
        let mut pipes = self.pipes.lock().await;
        match tokio::time::timeout(PATIENCE, pipes.1.next_line()).await {
            Ok(Ok(Some(line))) => Ok(line),
            Ok(_) => Err("it ended without a word; what it said is above".into()),
            Err(_) => Err(format!("it said nothing within {PATIENCE:?}")),
        }
    }

    /// Tells it something, and waits for its answer.
    pub(super) async fn tell(&self, word: &str) -> Result<String, String> {
        let written = self.pipes.lock().await.0.write_all(format!("{word}\n").as_bytes()).await;
        written.map_err(|error| error.to_string())?;
        self.line().await
    }
}

impl Process {
    /// Closes its pipe, and waits until it has ended.
    pub(super) async fn stop(self) {
        let Self { mut child, pipes } = self;
        drop(pipes);
        let _ended_or_late = tokio::time::timeout(PATIENCE, child.wait()).await;
    }
}

/// Starts a program under [`guard`]. It ends with this process, and then its folder is removed.
pub(super) async fn guarded(folder: &Path, program: &str, args: &[String]) -> Result<Process, String> {
    let tidegate = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(tidegate);
    command.arg("guard").arg(folder).arg("--").arg(program).args(args);
    let process = Process::spawn(command)?;
    process.line().await.map_err(|error| format!("{program}: {error}"))?;
    Ok(process)
}

/// Runs a program until standard input ends, then kills it and removes its folder. On a line `restart` it kills the
/// program at once, with no chance to tidy up, and starts it again.
///
/// A program that knows nothing of pipes so ends with the harness even when that was killed.
///
/// # Errors
/// Whatever keeps the program from starting.
pub fn guard(folder: PathBuf, command: &[String]) -> Result<(), String> {
    let [program, args @ ..] = command else { return Err("no program to guard".into()) };
    let start = || {
        let mut command = std::process::Command::new(program);
        command.args(args).current_dir(&folder).stdin(Stdio::null()).stdout(Stdio::null());
        command.spawn().map_err(|error| format!("{program}: {error}"))
    };
    let mut child = start()?;
    let say = |word: &str| std::io::stdout().write_all(word.as_bytes()).and_then(|()| std::io::stdout().flush());
    let _ = say("started\n");
    for line in std::io::stdin().lock().lines() {
        match line.as_deref() {
            Ok("restart") => {
                let _ = child.kill().and_then(|()| child.wait());
                child = start()?;
                let _ = say("restarted\n");
            }
            Ok(_) => {}
            Err(_) => break,
        }
    }
    let _ = child.kill().and_then(|()| child.wait());
    let _ = std::fs::remove_dir_all(folder);
    Ok(())
}

/// Starts a guest and waits for its address, or its addresses on one line.
pub(super) async fn guest(program: &Path, args: &[String]) -> Result<(Process, String), String> {
    let mut command = Command::new(program);
    // Not killed when dropped: it ends by its pipe, and so ends what it started itself.
    command.args(args).arg("--test-mode");
    let process = Process::spawn(command)?;
    let address = process.line().await.map_err(|error| format!("{}: {error}", program.display()))?;
    Ok((process, address))
}
