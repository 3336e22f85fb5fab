//! Runs a Spin app on a machine without `spin`: on wasmtime, with a new instance for each request, Spin's two key-value
//! interfaces over SQLite, and outbound Redis.
//!
//! ```text
//! tidegate-host-spin --manifest=spin.toml --component=app.wasm [--middleware=gate.wasm]
//!     [--env=NAME=VALUE]... [--variable=NAME=VALUE]... [--pause-ms=N] [--state-dir=DIR] [--test-mode]
//! ```
//!
//! A middleware is put in front of the app, as `dependencies.middleware` of the trigger says. Then both speak WASI 0.3
//! ([`middleware`]).
//!
//! It prints its address, and ends when its standard input closes. It answers lines on standard input:
//! - `operations`: the number of operations on the key-value stores so far.
//! - `took`: the microseconds that all reads of them took so far, and all writes.
//! - `set STORE KEY TEXT` writes a row, as another program might.
//! - `lose COUNT`: the next `COUNT` writes are made, and answered with an error. `lost` is how many were so far.
//!
//! The rows are in an SQLite database in `--state-dir`, or in a temporary folder. With `--pause-ms`, each operation waits
//! first, and requests overlap as far as they can ([`overlap`]). `--test-mode` is short for `--env=TIDEGATE_TEST_MODE=on`, or with the key in the variable `TIDEGATE_SUITE_KEY`
//! for that.
//!
//! It behaves like Spin 4 in everything that an adapter can observe:
//! - `spin-client-addr` follows the fields that the client sent.
//! - A field that is not UTF-8 is answered 500 before the app runs.
//! - Sockets do not have `TCP_NODELAY`, so a head and a body that the app writes separately are sent in two segments.
//! - An app can open only the stores, and connect only to the Redis servers, that the manifest lists.
//! - The key-value store is as durable, as slow and as fragile as Spin's ([`key_value`]).

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

mod app;
mod arguments;
mod component;
mod instance;
mod interfaces;
mod key_value;
mod manifest;
mod middleware;
mod outbound;
mod overlap;
mod redis;
mod segments;
mod serve;
mod shared;
mod variables;

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
    let database = Arc::new(Database::open(arguments.state_dir.clone())?);
    let app = Arc::new(App::load(&arguments, Arc::clone(&database))?);
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|error| error.to_string())?;
    println!("http://{}", listener.local_addr().map_err(|error| error.to_string())?);
    let mut lines = BufReader::new(stdin()).lines();
    let commands = async {
        while let Ok(Some(line)) = lines.next_line().await {
            println!("{}", answer(&database, &line));
        }
    };
    tokio::select! {
        () = commands => Ok(()),
        error = serve::serve(listener, app, arguments.no_delay) => Err(error),
    }
}

/// Returns the answer to a line of standard input.
fn answer(database: &Database, line: &str) -> String {
    let mut words = line.splitn(4, ' ');
    match [words.next(), words.next(), words.next(), words.next()] {
        [Some("operations"), None, ..] => database.operations().to_string(),
        [Some("took"), None, ..] => database.took_us().map(|us| us.to_string()).join(" "),
        [Some("set"), Some(store), Some(key), Some(text)] => match database.set(store, key, text.as_bytes()) {
            Ok(()) => "set".into(),
            Err(_) => "the store failed".into(),
        },
        [Some("lose"), Some(count), None, _] if let Ok(count) = count.parse() => database.lose(count).to_string(),
        [Some("lost"), None, ..] => database.lost().to_string(),
        _ => format!(
            "{line:?} is not a command; write `operations`, `took`, `set STORE KEY TEXT`, `lose COUNT` or `lost`"
        ),
    }
}
