//! A client that sends bytes as they are.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use tidegate_guest_protocol::routed::{ALL, CHARGED, RAN};

use crate::requests::{Chance, Line, count, escaped, fields, plain};
use crate::seen::{ROUTES, Seen, routes};

/// Sends random requests, and compares what each reaches with what it is charged, which the server notes.
pub fn attack(server: &str, address: SocketAddr, seen: &Seen, names: &[&'static str]) {
    attack_and_read(server, address, seen, names, |_| {});
}

/// The same for a [guest](tidegate_guest_protocol::routed), whose answers say which handler has run and what was charged.
pub fn attack_guest(server: &str, base: &str, names: &[&'static str]) {
    let seen = Seen::default();
    let address = base.trim_start_matches("http://").parse().unwrap();
    let read = |head: &[u8]| {
        let head = String::from_utf8_lossy(head);
        let values = |name: &'static str| {
            head.lines()
                .filter_map(move |line| line.split_once(": ").filter(|(found, _)| found.eq_ignore_ascii_case(name)))
        };
        for (_, charged) in values(CHARGED) {
            seen.charge(charged.split(' ').map(ToString::to_string));
        }
        for (_, ran) in values(RAN) {
            let (name, _) = ROUTES.into_iter().chain([(ALL, "")]).find(|(name, _)| *name == ran).unwrap();
            seen.run(name);
        }
    };
    attack_and_read(server, address, &seen, names, read);
}

fn attack_and_read(server: &str, address: SocketAddr, seen: &Seen, names: &[&'static str], read: impl Fn(&[u8])) {
    let mut chance = Chance::new(server);
    let mut client = Client { address, stream: None };
    // Without these, the others would mean little.
    let meant = routes(names);
    for (name, path) in &meant {
        let target = plain(&mut chance, path);
        // Some servers take no other bytes than those of ASCII, and some decode no escapes.
        let answers = [target.clone(), escaped(&target)].map(|target| client.ask("GET", target.as_bytes(), ""));
        answers.iter().for_each(|answer| read(answer));
        let is_served = answers.iter().any(|answer| answer.starts_with(b"HTTP/1.1 200"));
        assert!(is_served, "{server} {name} {target}: {}", answers.concat().escape_ascii());
        seen.judge(target.as_bytes());
    }
    for _ in 0..count() {
        let line = Line::random(&mut chance, &meant);
        read(&client.ask(line.method, &line.target, fields(&mut chance)));
        seen.judge(&[line.method.as_bytes(), b" ", &line.target].concat());
    }
    seen.assert_nothing_evaded(server, names, count() / 500);
}

struct Client {
    address: SocketAddr,
    stream: Option<TcpStream>,
}

impl Client {
    /// Sends a request and returns the head of the answer, which is empty if there is none.
    fn ask(&mut self, method: &str, target: &[u8], fields: &str) -> Vec<u8> {
        let stream = self.stream.take().unwrap_or_else(|| {
            let stream = TcpStream::connect(self.address).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            stream.set_nodelay(true).unwrap();
            stream
        });
        let head = format!(" HTTP/1.1\r\nhost: a\r\n{fields}\r\n");
        let request = [method.as_bytes(), b" ", target, head.as_bytes()].concat();
        if (&stream).write_all(&request).is_err() {
            return Vec::new();
        }
        let (answer, is_open) = answer(&stream, method);
        // A connection that was refused or changed is not used again.
        self.stream = Some(stream).filter(|_| is_open && !fields.contains("upgrade") && method != "CONNECT");
        answer
    }
}

/// The head of an answer, and whether its body has an end after which another answer may follow.
fn answer(mut stream: &TcpStream, method: &str) -> (Vec<u8>, bool) {
    let (mut read, mut chunk) = (Vec::new(), [0; 4_096]);
    loop {
        let end = |read: &[u8]| read.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4);
        while let Some(at) = end(&read) {
            let head = String::from_utf8_lossy(&read[..at]).to_lowercase();
            if head.starts_with("http/1.1 100") {
                read.drain(..at);
                continue;
            }
            let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split('\r').next());
            let has_body = method != "HEAD" && !head.starts_with("http/1.1 204") && !head.starts_with("http/1.1 1");
            let done = match length.and_then(|length| length.parse::<usize>().ok()) {
                _ if !has_body => true,
                Some(length) => read.len() >= at + length,
                None if head.contains("transfer-encoding: chunked") => read.ends_with(b"0\r\n\r\n"),
                None => false,
            };
            if done {
                let is_open = !head.contains("connection: close") && !["101", "400"].contains(&&head[9..12]);
                read.truncate(at);
                return (read, is_open);
            }
            break;
        }
        match stream.read(&mut chunk) {
            Ok(0) => return (read, false),
            Ok(count) => read.extend_from_slice(&chunk[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return (read, false),
            Err(error) => panic!("no end of the answer after {}: {error}", read.escape_ascii()),
        }
    }
}
