//! rate-limiter-flexible on pg, in a process of its own that answers one line for each measurement.

use std::io::{BufRead as _, BufReader, Error, Result, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use tidegate_measured::shortened;

/// Its name, with the version in `package.json`.
pub(crate) const NAME: &str = "rate-limiter-flexible 11.4.0 on pg";

pub(crate) struct Peer {
    child: Child,
    told: ChildStdin,
    tells: BufReader<ChildStdout>,
}

impl Peer {
    /// Installs it if it is missing.
    pub(crate) fn start(url: &str) -> Result<Self> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/peer");
        let mut npm = Command::new("npm");
        npm.args(["ci", "--silent", "--no-audit", "--no-fund"]).current_dir(&folder);
        if !folder.join("node_modules").is_dir() && !npm.status()?.success() {
            return Err(Error::other("npm could not install rate-limiter-flexible"));
        }
        let mut node = Command::new("node");
        node.args(["throughput.mjs", url]).current_dir(&folder);
        let mut child = node.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (told, tells) = pipes.ok_or_else(|| Error::other("no pipes"))?;
        Ok(Self { child, told, tells: BufReader::new(tells) })
    }

    /// Decisions per second of so many keys, after a warm-up of a third of the duration.
    pub(crate) fn per_second(&mut self, in_flight: usize, keys: usize, duration: Duration) -> Result<f64> {
        let ms = shortened(duration).as_millis();
        writeln!(self.told, "{in_flight} {keys} {} {ms}", ms / 3)?;
        let mut answer = String::new();
        self.tells.read_line(&mut answer)?;
        answer.trim().parse().map_err(|_| Error::other(format!("rate-limiter-flexible answered {answer:?}")))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}
