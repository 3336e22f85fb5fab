//! A redis-server, and the service that counts in it, as processes.

#![allow(dead_code, unreachable_pub, missing_docs, unused_imports, reason = "each test binary uses its part of this")]

#[path = "../../../native/tests/support/mod.rs"]
mod native;

use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub use native::{Process, exchange, get};

pub fn redis() -> (Process, String) {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let port = address.port().to_string();
    let server = Command::new("redis-server")
        .args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while TcpStream::connect(address).is_err() {
        assert!(Instant::now() < deadline, "redis-server does not accept connections");
        std::thread::yield_now();
    }
    (Process(server), address.to_string())
}

pub fn service(redis: &str, args: &[&str]) -> (Process, String) {
    let url = format!("redis://{redis}");
    native::service(env!("CARGO_BIN_EXE_tidegate-guest-redis"), &[&["--url", &url], args].concat())
}
