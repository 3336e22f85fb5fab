//! Runs a Spin app as Spin would, where there is none: on wasmtime, a fresh instance for each request, with both of Spin's
//! key-value interfaces over SQLite.
//!
//! ```text
//! tollgate-host-spin --manifest=spin.toml --component=app.wasm [--env=NAME=VALUE]... [--pause-ms=N]
//!     [--test-mode]
//! ```
//!
//! It prints its address, and ends when standard input does. On a line `operations` it prints how many operations the store has
//! seen. Rows are in a temporary SQLite database, which ends with it. With
//! `--pause-ms` each operation waits before it is done. `--test-mode` is `--env=TOLLGATE_TEST_MODE=on`.
//!
//! It is as Spin 4 in what an adapter meets there: `spin-client-addr` comes after a client's own; only the stores that the
//! manifest lists are open; and the key-value store has the traps of Spin's ([`key_value`]).

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
            eprintln!("tollgate-host-spin: {error}");
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
    let told = async {
        while let Ok(Some(line)) = lines.next_line().await {
            if line == "operations" {
                println!("{}", database.operations());
            }
        }
    };
    tokio::select! {
        () = told => Ok(()),
        error = serve::serve(listener, app) => Err(error),
    }
}
