//! The service as a process. The tests of `tidegate-guest-redis` use this, too.

#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test binary uses its part of this")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A process that is killed when the test ends.
pub struct Process(pub Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn rules() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../native/rules.toml")
}

/// Starts a service, and returns its address.
pub fn service(program: &str, args: &[&str]) -> (Process, String) {
    let mut service =
        Command::new(program).args(args).arg("--rules").arg(rules()).stdout(Stdio::piped()).spawn().unwrap();
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
