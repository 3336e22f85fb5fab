//! A redis-server and the service, as processes.

#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test binary uses its part of this")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A process that is killed when the test ends.
pub struct Process(pub Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

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
    let rules = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("rules.toml");
    let mut service = Command::new(env!("CARGO_BIN_EXE_tidegate-guest-native"))
        .args(["--store", "redis", "--url", &format!("redis://{redis}"), "--rules"])
        .arg(rules)
        .args(args)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(service.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (Process(service), line.trim().trim_start_matches("http://").to_string())
}

/// Sends `text`, and returns everything that is received until the connection closes.
pub fn exchange(address: &str, text: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

pub fn get(address: &str) -> String {
    exchange(address, "GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n")
}
