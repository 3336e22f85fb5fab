//! A client of HTTP/2 that sends any `:path`.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use tidegate_evasion::requests::{Chance, Line, count, plain};
use tidegate_evasion::{Seen, routes};

const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

/// Sends random requests, and compares what each reaches with what it is charged.
pub(crate) fn attack(server: &str, address: SocketAddr, seen: &Seen, names: &[&'static str]) {
    let mut chance = Chance::new(server);
    let mut client = Client::new(address);
    let meant = routes(names);
    for (_, path) in &meant {
        let target = plain(&mut chance, path);
        client.ask("GET", target.as_bytes(), false);
        seen.judge(target.as_bytes());
    }
    for _ in 0..count() / 2 {
        let line = Line::random(&mut chance, &meant);
        client.ask(line.method, &line.target, chance.once(50));
        seen.judge(&[line.method.as_bytes(), b" ", &line.target].concat());
    }
    seen.assert_nothing_evaded(server, names, 1);
}

pub(crate) struct Client {
    address: SocketAddr,
    stream: TcpStream,
    next: u32,
}

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.set_nodelay(true).unwrap();
        (&stream).write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        let client = Self { address, stream, next: 1 };
        client.send(SETTINGS, 0, 0, &[]);
        client
    }

    /// Sends a request and waits until its stream or the connection ends. `connects` asks for a websocket (RFC 8441).
    pub(crate) fn ask(&mut self, method: &str, path: &[u8], connects: bool) {
        let mut block = Vec::new();
        let method = if connects { "CONNECT" } else { method };
        for (name, value) in [(":method", method.as_bytes()), (":authority", b"a")] {
            field(&mut block, name, value);
        }
        if method != "CONNECT" || connects {
            field(&mut block, ":scheme", b"http");
            field(&mut block, ":path", path);
        }
        if connects {
            field(&mut block, ":protocol", b"websocket");
        }
        field(&mut block, "content-type", b"application/grpc");
        field(&mut block, "te", b"trailers");
        let stream = self.next;
        self.next += 2;
        self.send(HEADERS, END_STREAM | END_HEADERS, stream, &block);
        if !self.ended(stream) {
            *self = Self::new(self.address);
        }
    }

    fn send(&self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let head = [&len[1..], &[kind, flags], &stream.to_be_bytes()].concat();
        // A server that has closed the connection is seen when its answer is read.
        let _ = (&self.stream).write_all(&[&head, payload].concat());
    }

    /// Reads until a stream has ended. Returns whether the connection is still there.
    fn ended(&self, sought: u32) -> bool {
        let mut head = [0; 9];
        while (&self.stream).read_exact(&mut head).is_ok() {
            let [a, b, c, kind, flags, stream @ ..] = head;
            let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
            if (&self.stream).read_exact(&mut payload).is_err() {
                return false;
            }
            match kind {
                SETTINGS | PING if flags & ACK == 0 => {
                    self.send(kind, ACK, 0, if kind == PING { &payload } else { &[] });
                }
                GOAWAY => return false,
                RST_STREAM if u32::from_be_bytes(stream) == sought => return true,
                0 | HEADERS if u32::from_be_bytes(stream) == sought && flags & END_STREAM != 0 => return true,
                _ => {}
            }
        }
        false
    }
}

/// A field without Huffman coding that no table keeps (RFC 7541, section 6.2.2).
fn field(block: &mut Vec<u8>, name: &str, value: &[u8]) {
    block.push(0);
    for text in [name.as_bytes(), value] {
        match u8::try_from(text.len()) {
            Ok(len) if len < 127 => block.push(len),
            _ => {
                // The length less 127, seven bits at a time.
                let rest = text.len() - 127;
                block.extend([127, u8::try_from(rest & 0x7f).unwrap() | 0x80, u8::try_from(rest >> 7).unwrap()]);
            }
        }
        block.extend_from_slice(text);
    }
}
