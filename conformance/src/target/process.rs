//! Processes that end with this one, however it ends: each holds a pipe from it, and ends when the pipe closes.

use std::io::{BufRead as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::Mutex;

/// The longest time until a process prints its first line, or ends once its pipe is closed.
const PATIENCE: Duration = Duration::from_secs(30);

/// A child that ends when its standard input ends: when this is dropped, or this process ends.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    pipes: Mutex<(ChildStdin, Lines<BufReader<ChildStdout>>)>,
}

impl Process {
    pub(super) fn spawn(mut command: Command) -> Result<Self, String> {
        let program = command.as_std().get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // A Ctrl-C must reach the harness only. Its children end when their pipes close, in the right order.
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

    /// Returns the next line that it prints.
    pub(super) async fn line(&self) -> Result<String, String> {
        let mut pipes = self.pipes.lock().await;
        match tokio::time::timeout(PATIENCE, pipes.1.next_line()).await {
            Ok(Ok(Some(line))) => Ok(line),
            Ok(_) => Err("it ended without printing a line; its errors are above".into()),
            Err(_) => Err(format!("it printed nothing within {PATIENCE:?}")),
        }
    }

    /// Sends it a line, and waits for its answer.
    pub(super) async fn tell(&self, word: &str) -> Result<String, String> {
        let written = self.pipes.lock().await.0.write_all(format!("{word}\n").as_bytes()).await;
        written.map_err(|error| error.to_string())?;
        self.line().await
    }
}

impl Process {
    /// Closes its pipe, and waits until it ends.
    pub(super) async fn stop(self) {
        let Self { mut child, pipes } = self;
        drop(pipes);
        let _ended_or_late = tokio::time::timeout(PATIENCE, child.wait()).await;
    }
}

/// Starts a program under [`guard`]. When this process ends, the program ends and its folder is removed.
pub(super) async fn guarded(folder: &Path, program: &str, args: &[String]) -> Result<Process, String> {
    let tidegate = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(tidegate);
    command.arg("guard").arg(folder).arg("--").arg(program).args(args);
    let process = Process::spawn(command)?;
    process.line().await.map_err(|error| format!("{program}: {error}"))?;
    Ok(process)
}

/// Runs a program until standard input ends, then kills it and every process that it started, and removes its folder. On a
/// line `restart` it kills the program without a chance to tidy up, and starts it again.
///
/// So a program that does not watch a pipe still ends with the harness, even if the harness was killed.
///
/// # Errors
/// Whatever keeps the program from starting.
pub fn guard(folder: PathBuf, command: &[String]) -> Result<(), String> {
    let [program, args @ ..] = command else { return Err("no program to guard".into()) };
    let start = || {
        let mut command = std::process::Command::new(program);
        command.args(args).current_dir(&folder).stdin(Stdio::null()).stdout(Stdio::null());
        // A group of its own, so that what it starts can be killed with it: `spin up` is the parent of what serves.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        command.spawn().map_err(|error| format!("{program}: {error}"))
    };
    let mut child = start()?;
    let say = |word: &str| std::io::stdout().write_all(word.as_bytes()).and_then(|()| std::io::stdout().flush());
    let _ = say("started\n");
    for line in std::io::stdin().lock().lines() {
        match line.as_deref() {
            Ok("restart") => {
                kill_group(&mut child);
                child = start()?;
                let _ = say("restarted\n");
            }
            Ok(_) => {}
            Err(_) => break,
        }
    }
    kill_group(&mut child);
    let _ = std::fs::remove_dir_all(folder);
    Ok(())
}

/// Kills a child, and all processes of the group that it leads.
fn kill_group(child: &mut std::process::Child) {
    // Before the child is waited for: until then nothing else can have its id.
    #[cfg(unix)]
    let _ = rustix::process::kill_process_group(rustix::process::Pid::from_child(child), rustix::process::Signal::KILL);
    let _ = child.kill().and_then(|()| child.wait());
}

/// Starts a guest and waits for its address, or its addresses on one line.
pub(super) async fn guest(program: &Path, args: &[String]) -> Result<(Process, String), String> {
    let mut command = Command::new(program);
    // Not killed on drop: it ends when its pipe closes, and then ends what it has started itself.
    command.args(args).arg("--test-mode");
    let process = Process::spawn(command)?;
    let address = process.line().await.map_err(|error| format!("{}: {error}", program.display()))?;
    Ok((process, address))
}
