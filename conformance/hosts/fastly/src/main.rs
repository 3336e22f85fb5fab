//! Runs a Compute app on Viceroy, Fastly's own local server, in any number of PoPs.
//!
//!     tidegate-host-fastly --guest=APP.wasm --manifest=fastly.toml [--pops=N] [--test-mode]
//!
//! It prints the PoPs' addresses on one line, and ends when its standard input closes. Each line of standard input is
//! answered with one line:
//!
//! - `lose COUNT`: KV Store makes the next `COUNT` writes, and answers them with an error. Answered as `lost`.
//! - `lost`: how many answers were lost so far.
//!
//! Each PoP has its own stores, filled from the manifest's `local_server`. A PoP never sees another's writes, which is the
//! worst case of an eventually consistent store. One thread runs all instances of a PoP, because Viceroy makes a conditional
//! write in two steps, which are atomic only on one thread. The instances take turns at each call to the platform, and
//! occasionally in between.
//!
//! Test mode adds a config store, `tidegate_test`, with `mode = "on"`.

mod lost;

use std::collections::HashSet;
use std::convert::Infallible;
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::{env, fs, io, thread};

use hyper::server::conn::AddrStream;
use hyper::service::{Service as _, make_service_fn, service_fn};
use tokio::net::TcpSocket;
use viceroy_lib::config::{FastlyConfig, UnknownImportBehavior};
use viceroy_lib::{ExecuteCtx, ProfilingConfig, ViceroyService, WasmFeatures};

use crate::lost::Answers;

/// How many connections may wait until they are accepted. The suite opens one for each request of a burst, and one that finds no room tries
/// again a second later.
const CONNECTIONS_WAITING_MAX: u32 = 4_096;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The setting that opens the suite's routes: to everybody, or to those who have the key in `TIDEGATE_SUITE_KEY`.
fn test_mode_setting() -> String {
    let mode = std::env::var("TIDEGATE_SUITE_KEY").unwrap_or_else(|_| "on".into());
    format!(
        "\n[local_server.config_stores.tidegate_test]\nformat = \"inline-toml\"\n\
         [local_server.config_stores.tidegate_test.contents]\nmode = {mode:?}\n"
    )
}

fn main() -> Result<()> {
    let Args { guest, manifest, pops, test_mode } = Args::parse()?;
    let mut manifest = fs::read_to_string(&manifest).map_err(|error| format!("{}: {error}", manifest.display()))?;
    if test_mode {
        manifest.push_str(&test_mode_setting());
    }
    let (started, addresses) = channel();
    let answers = Arc::<Answers>::default();
    for pop in 0..pops {
        let app = load(&guest, &manifest)?;
        let (started, answers) = (started.clone(), Arc::clone(&answers));
        thread::Builder::new().name(format!("pop {pop}")).spawn(move || {
            if let Err(error) = serve(app, answers, &started) {
                let _ = started.send(Err(error));
            }
        })?;
    }
    let addresses: Vec<_> = addresses.iter().take(pops).collect::<Result<_>>()?;
    println!("{}", addresses.iter().map(|address| format!("http://{address}")).collect::<Vec<_>>().join(" "));
    for line in io::stdin().lines() {
        println!("{}", answers.tell(&line?));
    }
    // The PoPs' threads end with the process.
    std::process::exit(0);
}

/// Loads an app with its own stores.
fn load(guest: &Path, manifest: &str) -> Result<Arc<ExecuteCtx>> {
    let config: FastlyConfig = manifest.parse()?;
    let app = ExecuteCtx::build(
        guest,
        ProfilingConfig::None,
        HashSet::new(),
        UnknownImportBehavior::LinkError,
        false,
        WasmFeatures::default(),
    )?;
    let app = app.with_object_stores(config.object_stores().clone()).with_dictionaries(config.dictionaries().clone());
    // Standard output is for the addresses, so what the app prints goes to standard error.
    Ok(app.with_capture_logs(Arc::new(std::sync::Mutex::new(io::stderr()))).with_log_stdout(true).finish()?)
}

/// Serves a PoP on a free port until the process ends.
fn serve(app: Arc<ExecuteCtx>, answers: Arc<Answers>, started: &Sender<Result<SocketAddr>>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(async {
        let socket = TcpSocket::new_v4()?;
        socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        let listener = socket.listen(CONNECTIONS_WAITING_MAX)?.into_std()?;
        let server = hyper::Server::from_tcp(listener)?.tcp_nodelay(true);
        let mut app = ViceroyService::new(app);
        let server = server.serve(make_service_fn(move |connection: &AddrStream| {
            let (app, answers) = (app.call(connection), Arc::clone(&answers));
            async move {
                let app = app.await?;
                Ok::<_, Infallible>(service_fn(move |request| Arc::clone(&answers).ask(app.clone(), request)))
            }
        }));
        started.send(Ok(server.local_addr()))?;
        Ok(server.await?)
    })
}

struct Args {
    guest: PathBuf,
    manifest: PathBuf,
    pops: usize,
    test_mode: bool,
}

impl Args {
    fn parse() -> Result<Self> {
        let (mut guest, mut manifest, mut pops, mut test_mode) = (None, None, 1, false);
        for arg in env::args().skip(1) {
            match arg.split_once('=') {
                Some(("--guest", file)) => guest = Some(file.into()),
                Some(("--manifest", file)) => manifest = Some(file.into()),
                Some(("--pops", count)) => pops = count.parse().map_err(|error| format!("{arg}: {error}"))?,
                None if arg == "--test-mode" => test_mode = true,
                _ => {
                    return Err(format!(
                        "{arg:?} is not an argument; write --guest=, --manifest=, --pops= or --test-mode"
                    )
                    .into());
                }
            }
        }
        let guest = guest.ok_or("--guest is missing")?;
        Ok(Self { guest, manifest: manifest.ok_or("--manifest is missing")?, pops, test_mode })
    }
}
