//! The service admits uncounted requests only while its store is down. It runs against a real redis-server.

#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A process that is killed when the test ends.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn redis() -> (Process, String) {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let port = address.port().to_string();
    let server = Command::new("redis-server")
        .args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while TcpStream::connect(address).is_err() {
        assert!(Instant::now() < deadline, "redis-server does not accept connections");
        std::thread::yield_now();
    }
    (Process(server), address.to_string())
}

fn service(redis: &str) -> (Process, String) {
    let rules = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("rules.toml");
    let mut service = Command::new(env!("CARGO_BIN_EXE_tidegate-guest-native"))
        .args(["--store", "redis", "--url", &format!("redis://{redis}"), "--rules"])
        .arg(rules)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(service.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (Process(service), line.trim().trim_start_matches("http://").to_string())
}

/// Sends `text`, and returns everything that is received until the connection closes.
fn exchange(address: &str, text: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn get(address: &str) -> String {
    exchange(address, "GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n")
}

#[test]
fn requests_are_admitted_uncounted_only_while_the_store_is_down() {
    let (redis_server, redis) = redis();
    let (_service, address) = service(&redis);
    let first = get(&address);
    assert!(first.starts_with("HTTP/1.1 200 ") && first.contains("x-ratelimit-remaining"), "{first}");

    // A corrupt row is not an outage.
    let keys = exchange(&redis, "KEYS *\r\nQUIT\r\n");
    let row = keys.lines().find(|line| line.contains("tg1:")).expect(&keys);
    exchange(&redis, &format!("SET {row} garbage\r\nQUIT\r\n"));
    let corrupt = get(&address);
    assert!(corrupt.starts_with("HTTP/1.1 503 ") && corrupt.contains(r#""kind":"corrupt""#), "{corrupt}");

    drop(redis_server);
    let down = get(&address);
    assert!(down.starts_with("HTTP/1.1 200 ") && down.contains("x-tidegate-failed-open: unavailable"), "{down}");
}
