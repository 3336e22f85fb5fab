//! Starts peers: other rate limiters, in their own languages.

use super::build;
use super::checkout::workspace;
use super::redis::GUESTS;
use super::redis::server::{self, Servers};
use super::upstash_rest::{Fronted, TOKEN};
use super::{Running, Store, Target as _, javascript, postgres, process, redis, wasm};
use crate::http::{Http, Version};

/// The folder of the programs that run the peers.
const FOLDER: &str = "conformance/peers";

/// The limit of open files of each process: more than twice the largest burst.
const FILES: u64 = 8_192;

/// What a peer runs in, and what it counts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// A package from npm in three processes that share a store, or in one process that counts in its memory.
    Node {
        /// The package.
        package: &'static str,
        /// The store.
        over: Over,
    },
    /// A crate in one process, on all cores.
    Native {
        /// The crate.
        package: &'static str,
    },
    /// A Worker in three isolates on workerd, with this binding.
    Workerd {
        /// `kv` or `objects`.
        store: &'static str,
    },
}

/// What a package from npm counts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// Its own memory.
    Memory,
    /// A real redis-server.
    Redis,
    /// Upstash's REST protocol over a real redis-server.
    Rest,
    /// A real PostgreSQL server.
    Postgres,
}

/// Whether several processes or isolates share the counts.
#[must_use]
pub const fn is_shared(host: Host) -> bool {
    matches!(host, Host::Workerd { .. } | Host::Node { over: Over::Redis | Over::Rest | Over::Postgres, .. })
}

/// Returns the version of a peer, or nothing if it is code of this workspace.
///
/// # Errors
/// Says what is missing and how to install it.
pub fn version(host: Host) -> Result<Option<String>, String> {
    match host {
        Host::Node { package, over } => {
            wasm::said(std::process::Command::new("node").arg("--version"))
                .ok_or("node is not on the path; install it with: sudo apt-get install nodejs npm")?;
            match over {
                Over::Memory => {}
                Over::Postgres => drop(postgres::server::version()?),
                Over::Redis | Over::Rest => {
                    redis::SINGLE.emulator()?;
                    server::faketime()?;
                }
            }
            javascript::installed(FOLDER, package).map(Some)
        }
        Host::Native { package } => build::locked(&format!("{FOLDER}/Cargo.lock"), package).map(Some),
        Host::Workerd { .. } => wasm::tool("conformance/hosts/cloudflare/node_modules/.bin/workerd").map(|_| None),
    }
}

/// Starts a peer.
///
/// # Errors
/// Fails if the peer does not start.
pub async fn start(host: Host) -> Result<Running, String> {
    // Each request in flight has a connection.
    let _as_it_was = rlimit::increase_nofile_limit(FILES);
    let running = match host {
        Host::Node { package, over } => {
            let mut args = vec![file("serve.mjs"), "--peer".into(), package.into()];
            let (store, guests): (Option<Box<dyn Store>>, usize) = match over {
                Over::Memory => (None, 1),
                Over::Postgres => {
                    // Its clock is of no account: the statements have the time of the guests.
                    let server = postgres::server::Server::start().await?;
                    args.extend(["--postgres".into(), server.url()]);
                    (Some(Box::new(server)), GUESTS)
                }
                Over::Redis | Over::Rest => {
                    let (servers, clock) = Servers::at_the_time_in_a_file().await?;
                    args.extend(["--clock".into(), clock.to_string_lossy().into_owned()]);
                    if over == Over::Redis {
                        args.extend(servers.urls().flat_map(|url| ["--redis".to_string(), url]));
                        (Some(Box::new(servers)), GUESTS)
                    } else {
                        let (front, url) = Fronted::over(servers).await?;
                        args.extend(["--url".into(), url, "--token".into(), TOKEN.into()]);
                        (Some(Box::new(front)), GUESTS)
                    }
                }
            };
            let (guests, addresses) = process::guests(guests, "node".as_ref(), &args).await?;
            Running::new(Http::new(&addresses, Version::Http1), guests, store)
        }
        Host::Native { package } => {
            let program = build::peers().await?;
            let (guest, address) = process::guest(&program, &[package.to_string()]).await?;
            Running::new(Http::new(&[address], Version::Http1), vec![guest], None)
        }
        Host::Workerd { store } => {
            let args = [file("workerd.mjs"), "--store".into(), store.into()];
            let (guest, addresses) = process::guest("node".as_ref(), &args).await?;
            let addresses: Vec<_> = addresses.split(' ').map(str::to_string).collect();
            Running::new(Http::new(&addresses, Version::Http1), vec![guest], None)
        }
    };
    match running.http.warm_up().await {
        Ok(()) => Ok(running),
        Err(reason) => {
            running.stop().await;
            Err(reason)
        }
    }
}

fn file(name: &str) -> String {
    workspace().join(FOLDER).join(name).to_string_lossy().into_owned()
}
