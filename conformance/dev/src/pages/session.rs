//! A reader: an empty folder, a shell, and the servers of other terminals.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use regex::Regex;
use tidegate_harness::target::apart_from_this;

use super::prints::difference;
use super::{Page, Step};

/// How many seconds commands may take, or a server until it listens: a first build on a busy machine.
const PATIENCE_SECS: u64 = 900;

/// What frameworks would ask, show or send elsewhere.
const QUIET: [(&str, &str); 7] = [
    ("CI", "1"),
    ("NO_COLOR", "1"),
    ("DO_NOT_TRACK", "1"),
    ("NEXT_TELEMETRY_DISABLED", "1"),
    ("NETLIFY_TELEMETRY_DISABLED", "1"),
    ("WRANGLER_SEND_METRICS", "false"),
    ("npm_config_fund", "false"),
];

/// What a page took.
#[derive(Debug)]
pub struct Outcome {
    /// From the empty folder to the first 429, downloads included. `None` if nothing printed one.
    pub limited_after: Option<Duration>,
}

/// Follows one page.
#[derive(Debug)]
pub struct Session<'a> {
    page: &'a Page,
    root: &'a Path,
    /// Holds the page's folder, and beside it what the shell carries from one block to the next.
    place: PathBuf,
    /// The page's ports, and the free ones in their place.
    ports: Vec<(Regex, u16)>,
    servers: Vec<Child>,
    tell: fn(&str),
}

impl<'a> Session<'a> {
    /// Makes the empty folder in `place`, for a checkout in `root`.
    ///
    /// # Errors
    ///
    /// Says what could not be made.
    pub fn new(page: &'a Page, root: &'a Path, place: &Path, tell: fn(&str)) -> Result<Self, String> {
        let place = place.join(&page.name);
        let folder = place.join("app");
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        // All at once, so that no two are the same.
        let listeners: Result<Vec<_>, _> =
            page.ports.iter().map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).collect();
        let listeners = listeners.map_err(|error| format!("no free port: {error}"))?;
        let free = |(port, listener): (&String, TcpListener)| {
            let free = listener.local_addr().map_err(|error| error.to_string())?.port();
            let pattern = Regex::new(&format!(r"\b{port}\b")).map_err(|error| error.to_string())?;
            Ok((pattern, free))
        };
        let ports = page.ports.iter().zip(listeners).map(free).collect::<Result<_, String>>()?;
        Ok(Self { page, root, place, ports, servers: Vec::new(), tell })
    }

    /// Does all that the page says.
    ///
    /// # Errors
    ///
    /// Says which command failed, or printed something else.
    pub fn follow(&mut self) -> Result<Outcome, String> {
        let (began, mut limited_after) = (Instant::now(), None);
        for step in &self.page.steps {
            let printed = match step {
                Step::Write { path, text } => self.write(path, text).map(|()| String::new()),
                Step::Start { script } => self.start(script).map(|()| String::new()),
                Step::Run { script, prints } => self.run(script, prints.as_deref()),
            }?;
            if limited_after.is_none() && printed.contains("429") {
                limited_after = Some(began.elapsed());
            }
        }
        Ok(Outcome { limited_after })
    }

    fn write(&self, path: &str, text: &str) -> Result<(), String> {
        let file = self.folder().join(path);
        let text = self.with_free_ports(text);
        let made = file.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&file, text));
        made.map_err(|error| format!("{}: {error}", file.display()))
    }

    /// Where the shell is now.
    fn folder(&self) -> PathBuf {
        let kept = fs::read_to_string(self.place.join("folder")).ok();
        kept.map_or_else(|| self.place.join("app"), |folder| PathBuf::from(folder.trim_end()))
    }

    fn with_free_ports(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (port, free) in &self.ports {
            text = port.replace_all(&text, free.to_string()).into_owned();
        }
        text
    }

    fn run(&self, script: &str, prints: Option<&str>) -> Result<String, String> {
        let first = script.lines().next().unwrap_or_default();
        (self.tell)(&format!("{}: {first}", self.page.name));
        let script = self.with_free_ports(script);
        let keep = format!("pwd >'{0}/folder'; export -p >'{0}/exports'", self.place.display());
        let mut shell = self.shell(&format!("{script}\n{keep}"));
        let (printed, complained) = (self.place.join("printed"), self.place.join("complained"));
        let file = |path: &Path| File::create(path).map_err(|error| format!("{}: {error}", path.display()));
        shell.stdin(Stdio::null()).stdout(file(&printed)?).stderr(file(&complained)?);
        let status = shell.status().map_err(|error| format!("timeout: {error}"))?;
        let (printed, complained) = (said(&printed), said(&complained));
        let differs = match prints {
            _ if !status.success() => Some(format!("{status}\n{}", tail(&printed))),
            Some(shown) => difference(&self.with_free_ports(shown), &printed),
            None => None,
        };
        match differs {
            None => Ok(printed),
            Some(why) => Err(format!("{script}{why}\n{}{}", tail(&complained), self.what_servers_said())),
        }
    }

    /// Starts a server, and waits until another port of the page is open.
    fn start(&mut self, script: &str) -> Result<(), String> {
        (self.tell)(&format!("{}: {}", self.page.name, script.lines().next().unwrap_or_default()));
        let script = self.with_free_ports(script);
        // The reader has ended the server that it replaces.
        if self.open_ports().iter().any(|port| script.contains(&port.to_string())) {
            self.stop();
            self.wait_while(|ports| !ports.is_empty());
        }
        let open_before = self.open_ports();
        let (log, ended) = (self.log(self.servers.len()), self.place.join("ended"));
        let out = File::create(&log).map_err(|error| format!("{}: {error}", log.display()))?;
        let err = out.try_clone().map_err(|error| error.to_string())?;
        // The server, and all that it starts, ends with the pipe to this program.
        let served = format!("set +e; ( set -e; {script} ) </dev/null; touch '{}'", ended.display());
        let mut shell = self.shell(&format!("{{ {served}; }} & cat >/dev/null; kill -KILL 0"));
        shell.stdin(Stdio::piped()).stdout(out).stderr(err);
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut shell, 0);
        self.servers.push(shell.spawn().map_err(|error| format!("timeout: {error}"))?);
        self.wait_while(|ports| ports == open_before && !ended.exists());
        if self.open_ports() == open_before {
            return Err(format!("{script}listens on no port of the page\n{}", self.what_servers_said()));
        }
        Ok(())
    }

    /// Waits for the ports of the page, but not for ever.
    fn wait_while(&self, is_early: impl Fn(Vec<u16>) -> bool) {
        let began = Instant::now();
        while is_early(self.open_ports()) && began.elapsed().as_secs() <= PATIENCE_SECS {
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Ends all servers.
    fn stop(&mut self) {
        for server in &mut self.servers {
            drop(server.stdin.take());
            _ = server.wait();
        }
    }

    fn log(&self, server: usize) -> PathBuf {
        self.place.join(format!("server-{server}.log"))
    }

    fn open_ports(&self) -> Vec<u16> {
        let open = |port: &u16| {
            TcpStream::connect((Ipv4Addr::LOCALHOST, *port)).is_ok() || TcpStream::connect(("::1", *port)).is_ok()
        };
        self.ports.iter().map(|(_, free)| *free).filter(open).collect()
    }

    /// A shell where the last block left it.
    fn shell(&self, script: &str) -> Command {
        let exports = self.place.join("exports");
        let resumed = if exports.exists() { format!(". '{}'\n", exports.display()) } else { self.for_webassembly() };
        let mut shell = Command::new("timeout");
        let patience = (PATIENCE_SECS * 2).to_string();
        apart_from_this(&mut shell).args(["--foreground", &patience, "bash", "-c"]);
        shell.arg(format!("set -eo pipefail\n{resumed}{script}")).current_dir(self.folder());
        let tools = [self.root.join("conformance/dev/pages/bin"), self.root.join("target/tools/bin")];
        let path = std::env::var("PATH").unwrap_or_default();
        shell.env("PATH", format!("{}:{}:{path}", tools[0].display(), tools[1].display()));
        shell.env("TIDEGATE", self.root).env("CARGO_TARGET_DIR", self.root.join("target/pages/target")).envs(QUIET);
        for variable in ["RUSTUP_TOOLCHAIN", "CARGO", "RUSTFLAGS"] {
            shell.env_remove(variable);
        }
        shell
    }

    fn for_webassembly(&self) -> String {
        let file = self.root.join("conformance/setup/rust.sh");
        self.page.target.map_or_else(String::new, |target| format!(". '{}' && use_rust_for {target}\n", file.display()))
    }

    fn what_servers_said(&self) -> String {
        (0..self.servers.len()).map(|server| format!("a server said:\n{}", tail(&said(&self.log(server))))).collect()
    }
}

/// What a program wrote into a file.
fn said(file: &Path) -> String {
    fs::read(file).map(|said| String::from_utf8_lossy(&said).into_owned()).unwrap_or_default()
}

/// The last lines of it.
fn tail(said: &str) -> String {
    let lines: Vec<_> = said.lines().collect();
    lines[lines.len().saturating_sub(40)..].iter().map(|line| format!("  | {line}\n")).collect()
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.stop();
    }
}
