//! Runs a Spin app as Spin would, where there is none: on wasmtime, a fresh instance for each request, with both of Spin's
//! key-value interfaces over SQLite.
//!
//! ```text
//! tidegate-host-spin --manifest=spin.toml --component=app.wasm [--env=NAME=VALUE]...
//!     [--pause-ms=N] [--test-mode]
//! ```
//!
//! It prints its address, and ends when standard input does. To a line `operations` it answers how many operations the stores
//! have seen; on a line `set STORE KEY TEXT` it does what some other program might. Rows are in a temporary SQLite
//! database, which ends with it. With `--pause-ms` each operation waits before it is done. `--test-mode` is a first
//! `--env=TIDEGATE_TEST_MODE=on`.
//!
//! It is as Spin 4 in what an adapter meets there: `spin-client-addr` comes after a client's own; only the stores that the
//! manifest lists are open; and the key-value store has the traps of Spin's ([`key_value`]).

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

mod app;
mod arguments;
mod component;
mod interfaces;
mod key_value;
mod manifest;
mod serve;

use std::process::ExitCode;
use std::sync::Arc;

use tokio::io::{AsyncBufReadExt as _, BufReader, stdin};
use tokio::net::TcpListener;

use crate::app::App;
use crate::arguments::Arguments;
use crate::key_value::Database;

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tidegate-host-spin: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), String> {
    let arguments = Arguments::read(std::env::args().skip(1))?;
    let database = Arc::new(Database::temporary(arguments.pause)?);
    let app = Arc::new(App::load(&arguments, Arc::clone(&database))?);
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|error| error.to_string())?;
    println!("http://{}", listener.local_addr().map_err(|error| error.to_string())?);
    let mut lines = BufReader::new(stdin()).lines();
    let heard = async {
        while let Ok(Some(line)) = lines.next_line().await {
            println!("{}", told(&database, &line));
        }
    };
    tokio::select! {
        () = heard => Ok(()),
        error = serve::serve(listener, app) => Err(error),
    }
}

/// The answer to a line.
fn told(database: &Database, line: &str) -> String {
    let mut words = line.splitn(4, ' ');
    match [words.next(), words.next(), words.next(), words.next()] {
        [Some("operations"), None, ..] => database.operations().to_string(),
        [Some("set"), Some(store), Some(key), Some(text)] => match database.set(store, key, text.as_bytes()) {
            Ok(()) => "set".into(),
            Err(_) => "the store failed".into(),
        },
        _ => format!("{line:?} is none of: operations, set STORE KEY TEXT"),
    }
}
