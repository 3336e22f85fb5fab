//! Child processes that always end with this one: each reads from a pipe to it, and ends when the pipe closes.

use std::io::{BufRead as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use futures_util::future::try_join_all;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::Mutex;

use super::logs::Log;

/// How long to wait for an answer from a process, or for its end after its pipe is closed.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long to wait for the first line of a process. A host compiles its app first, which takes long on a busy machine. If the process
/// exits, nobody waits.
const START_PATIENCE: Duration = Duration::from_secs(180);

/// The least free space of a folder in memory.
#[cfg(target_os = "linux")]
const MEMORY_MIN: u64 = 1 << 30;

/// Where stores keep their files: in `TMPDIR`, or else in memory if there is room, or else in the folder for temporary files.
///
/// Stores sync each write. On a disk, that is most of what a fixture would take. The suite kills programs and not the machine, so
/// what they have written outlives them in memory, too.
fn in_memory_or_on_disk() -> PathBuf {
    #[cfg(target_os = "linux")]
    if std::env::var_os("TMPDIR").is_none()
        && let Ok(memory) = rustix::fs::statvfs("/dev/shm")
        && memory.f_bavail.saturating_mul(memory.f_frsize) >= MEMORY_MIN
        && rustix::fs::access("/dev/shm", rustix::fs::Access::WRITE_OK).is_ok()
    {
        return "/dev/shm".into();
    }
    std::env::temp_dir()
}

/// Creates a folder there. [`guard`] removes it.
pub(super) fn folder(prefix: &str) -> Result<PathBuf, String> {
    let folder = tempfile::Builder::new().prefix(prefix).tempdir_in(in_memory_or_on_disk());
    folder.map(tempfile::TempDir::keep).map_err(|error| error.to_string())
}

/// A child process that ends when its standard input closes: when this value is dropped, or when this process ends.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    log: Log,
    pipes: Mutex<(ChildStdin, Lines<BufReader<ChildStdout>>)>,
}

impl Process {
    pub(super) fn spawn(mut command: Command) -> Result<Self, String> {
        let program = command.as_std().get_program().to_string_lossy().into_owned();
        let unwritable = |error: std::io::Error| format!("{program}: no file for what it prints: {error}");
        let log = Log::open().map_err(unwritable)?;
        // Never this program's own: a child can make a pipe that they share non-blocking.
        command.stderr(log.end().map_err(unwritable)?);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).env("TMPDIR", in_memory_or_on_disk());
        // Ctrl-C must reach the suite only. Its children end when their pipes close, in the right order.
        #[cfg(unix)]
        command.process_group(0);
        let mut child = command.spawn().map_err(|error| format!("{program}: {error}"))?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(stdin), Some(stdout)) => {
                Ok(Self { child, log, pipes: Mutex::new((stdin, BufReader::new(stdout).lines())) })
            }
            _ => Err(format!("{program}: no pipes")),
        }
    }

    /// Returns the first line that the process prints.
    pub(super) async fn first_line(&self) -> Result<String, String> {
        self.line(START_PATIENCE).await
    }

    /// Returns the next line that the process prints.
    async fn line(&self, patience: Duration) -> Result<String, String> {
        let mut pipes = self.pipes.lock().await;
        match tokio::time::timeout(patience, pipes.1.next_line()).await {
            Ok(Ok(Some(line))) => Ok(line),
            Ok(_) => Err(format!("it exited without printing a line{}", self.log.last_lines())),
            Err(_) => Err(format!("it printed nothing within {patience:?}{}", self.log.last_lines())),
        }
    }

    /// What the process has printed to standard error, such as the log of an app.
    pub(super) fn log(&self) -> Result<String, String> {
        self.log.text().map_err(|error| error.to_string())
    }

    /// How the process has ended, and what it said last. `None` while it runs.
    pub(super) fn ended(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok().flatten()?;
        Some(format!("its process has ended ({status}){}", self.log.last_lines()))
    }

    /// Sends a line to the process, and waits for the answer.
    pub(super) async fn tell(&self, word: &str) -> Result<String, String> {
        let written = self.pipes.lock().await.0.write_all(format!("{word}\n").as_bytes()).await;
        written.map_err(|error| error.to_string())?;
        self.line(PATIENCE).await
    }
}

impl Process {
    /// Closes the pipe, and waits until the process ends.
    pub(super) async fn stop(self) {
        let Self { mut child, pipes, .. } = self;
        drop(pipes);
        let _ended_or_late = tokio::time::timeout(PATIENCE, child.wait()).await;
    }

    /// Kills the process, and waits until it has ended.
    pub(super) async fn kill(mut self) -> Result<(), String> {
        self.child.kill().await.map_err(|error| error.to_string())
    }
}

/// Starts a program under [`guard`]. When this process ends, the program ends and its folder is removed.
pub(super) async fn guarded(folder: &Path, program: &str, args: &[String]) -> Result<Process, String> {
    let tidegate = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(tidegate);
    command.arg("guard").arg(folder).arg("--").arg(program).args(args);
    let process = Process::spawn(command)?;
    process.first_line().await.map_err(|error| format!("{program}: {error}"))?;
    Ok(process)
}

/// Runs a program until standard input closes, then kills it with every process that it started, and removes its
/// folder. On a line `restart`, it kills the program with SIGKILL and starts it again. On a line `halt`, it halts the program
/// until a line `resume`.
///
/// This way, a program that does not watch a pipe still ends with the suite, even if the suite is killed.
///
/// # Errors
/// Fails if the program does not start.
pub fn guard(folder: PathBuf, command: &[String]) -> Result<(), String> {
    let [program, args @ ..] = command else { return Err("no program to guard".into()) };
    let start = || {
        let mut command = std::process::Command::new(program);
        command.args(args).current_dir(&folder).stdin(Stdio::null()).stdout(Stdio::null());
        // The program gets its own process group, so that its children can be killed with it: `spin up` starts a child
        // that serves.
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
            Ok("halt") => {
                halt(&child, true);
                let _ = say("halted\n");
            }
            Ok("resume") => {
                halt(&child, false);
                let _ = say("resumed\n");
            }
            Ok(_) => {}
            Err(_) => break,
        }
    }
    kill_group(&mut child);
    let _ = std::fs::remove_dir_all(folder);
    Ok(())
}

/// Kills a child and all processes in its group.
fn kill_group(child: &mut std::process::Child) {
    // Do this before waiting for the child. After that, another process may get the same id.
    #[cfg(unix)]
    let _ = rustix::process::kill_process_group(rustix::process::Pid::from_child(child), rustix::process::Signal::KILL);
    let _ = child.kill().and_then(|()| child.wait());
}

/// Halts a child as if its machine did not answer, or lets it continue.
#[cfg_attr(not(unix), expect(unused_variables, reason = "there are no signals"))]
fn halt(child: &std::process::Child, halted: bool) {
    #[cfg(unix)]
    {
        use rustix::process::{Pid, Signal, kill_process};
        let signal = if halted { Signal::STOP } else { Signal::CONT };
        let _ = kill_process(Pid::from_child(child), signal);
    }
}

/// Passes on each line that a process prints.
pub(crate) async fn told(printed: impl AsyncRead + Unpin, tell: fn(&str)) {
    let mut lines = BufReader::new(printed).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        tell(&line);
    }
}

/// Starts several guests that share one store. Returns their addresses, too.
pub(super) async fn guests(
    count: usize,
    program: &Path,
    args: &[String],
) -> Result<(Vec<Process>, Vec<String>), String> {
    Ok(try_join_all((0..count).map(|_| guest(program, args))).await?.into_iter().unzip())
}

/// How to start guests again, each at its address.
#[derive(Debug)]
pub(super) struct Again {
    program: PathBuf,
    args: Vec<String>,
    addresses: Vec<String>,
}

impl Again {
    /// Guests that take an address with `--listen`.
    pub(super) fn new(program: &Path, args: &[String], addresses: &[String]) -> Self {
        Self { program: program.into(), args: args.into(), addresses: addresses.into() }
    }

    /// Kills guests, and starts others in their places.
    pub(super) async fn replace(&self, guests: Vec<Process>) -> Result<Vec<Process>, String> {
        try_join_all(guests.into_iter().map(Process::kill)).await?;
        let start = async |address: &String| {
            let listen = ["--listen", address.trim_start_matches("http://")].map(str::to_string);
            let (process, _) = guest(&self.program, &[&self.args[..], &listen].concat()).await?;
            Ok(process)
        };
        try_join_all(self.addresses.iter().map(start)).await
    }
}

/// Starts a guest and waits for its address, or its addresses on one line.
pub(super) async fn guest(program: &Path, args: &[String]) -> Result<(Process, String), String> {
    let mut command = Command::new(program);
    // Do not kill it on drop. It ends when its pipe closes, and then ends its own children.
    command.args(args).arg("--test-mode");
    let process = Process::spawn(command)?;
    let address = process.first_line().await.map_err(|error| format!("{}: {error}", program.display()))?;
    Ok((process, address))
}
