//! Requests as a hostile client writes them.

use std::time::SystemTime;

/// Random numbers by SplitMix64.
pub struct Chance(u64);

impl Chance {
    /// Numbers of a fresh seed, which is printed, or of that in `TIDEGATE_SEED`.
    pub fn new(test: &str) -> Self {
        let fresh = || SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_micros() & 0xffff_ffff);
        let seed = std::env::var("TIDEGATE_SEED").unwrap_or_else(|_| fresh().to_string());
        println!("{test}: TIDEGATE_SEED={seed}");
        Self(seed.parse().expect("TIDEGATE_SEED is a number"))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below this one.
    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % (end.max(1) as u64)).unwrap()
    }

    /// One time in so many.
    pub fn once(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }

    /// One of these.
    pub fn from<'a, T: ?Sized>(&mut self, choices: &[&'a T]) -> &'a T {
        choices[self.below(choices.len())]
    }
}

/// How many requests a server gets.
pub fn count() -> usize {
    std::env::var("TIDEGATE_REQUESTS").map_or(1_000, |count| count.parse().expect("TIDEGATE_REQUESTS is a number"))
}

/// What a segment of any text may be, and what may stand between others.
const PIECES: [&str; 60] = [
    "7",
    "a.txt",
    "x",
    "t",
    "login",
    "LOGIN",
    "Login",
    "l%6fgin",
    "logi%6E",
    "login;x=1",
    "login%00",
    "login%20",
    "login.",
    "api",
    "%61pi",
    "parts",
    "files",
    "%66iles",
    "files%2Fx",
    "files%5Cx",
    "it's",
    "it%27s",
    "@me",
    "%40me",
    "one",
    "any",
    "caf\u{e9}",
    "caf%C3%A9",
    "caf%c3%a9",
    "caf%C3\u{a9}",
    "cafe\u{301}",
    "cafe%CC%81",
    "CAF\u{c9}",
    "caf%E9",
    "caf%25C3%25A9",
    "\u{fc}",
    "%C3%BC",
    "%c3%bC",
    "\u{e9}",
    "\u{1f600}",
    "%F0%9F%98%80",
    "%f0%9f%98",
    "a\"b",
    "a%22b",
    "a%20b",
    "a+b",
    "{x}",
    "%7Bx%7D",
    "%7bx}",
    "%2F",
    "..%2f",
    "%5C",
    "%5c..",
    "...",
    ".%00",
    "%c0%ae",
    "%c0%af",
    "%uff0e",
    "%",
    "%zz",
];

const DOTS: [&str; 9] = [".", "..", "%2e", "%2E", "%2e%2E", ".%2e", "%2e.", "", ""];

const ENDS: [&str; 16] =
    ["", "", "", "", "", "", "/", "//", "/.", "/..", "?", "?x=/login", "/?y", "?/../login", ";/", "/%2e%2e/"];

/// A method and a target, in bytes as they are sent.
pub struct Line {
    /// Its method.
    pub method: &'static str,
    /// Its target.
    pub target: Vec<u8>,
}

impl Line {
    /// A request that means one of these routes, perhaps.
    pub fn random(chance: &mut Chance, routes: &[(&str, &str)]) -> Self {
        let path = path(chance, routes);
        let target = match chance.below(40) {
            0 => [b"http://a", &path[..]].concat(),
            1 => [b"HTTP://user@B.example.:80", &path[..]].concat(),
            2 => [b"http:///", &path[..]].concat(),
            3 => [b"//a", &path[..]].concat(),
            4 => [b"/a/..", &path[..]].concat(),
            5 => [&path[..], b"#/login"].concat(),
            6 => chance.from(&["*", "a:80", "login", "?/login", "http://a", "http://a?/login", "\\login"]).into(),
            _ => path,
        };
        let methods = ["GET", "GET", "GET", "GET", "GET", "HEAD", "POST", "PUT", "OPTIONS", "TRACE", "PROPFIND"];
        let method = if chance.once(200) { "CONNECT" } else { chance.from(&methods) };
        Self { method, target }
    }
}

/// The path of a route, with any text for its parameters.
pub fn plain(chance: &mut Chance, path: &str) -> String {
    let segments = path.split('/').map(|segment| match segment {
        "*" => ["x", "x/y", "7"][chance.below(3)].to_string(),
        _ if segment.starts_with('{') => ["7", "t", "%C3%A9"][chance.below(3)].to_string(),
        _ => segment.to_string(),
    });
    segments.collect::<Vec<_>>().join("/")
}

/// The same with an escape for each byte that is not in ASCII or is a quote.
pub fn escaped(path: &str) -> String {
    let byte =
        |byte: u8| if byte.is_ascii() && byte != b'"' { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    path.bytes().map(byte).collect()
}

fn path(chance: &mut Chance, routes: &[(&str, &str)]) -> Vec<u8> {
    let (_, route) = routes[chance.below(routes.len())];
    let path = plain(chance, route);
    // Some servers take no other form, and a browser sends none.
    let path = if chance.once(2) { escaped(&path) } else { path };
    if chance.once(3) {
        return path.into();
    }
    let mut segments: Vec<Vec<u8>> = path.split('/').skip(1).map(|segment| segment.as_bytes().to_vec()).collect();
    for _ in 0..=chance.below(3) {
        let at = chance.below(segments.len() + 1);
        match chance.below(8) {
            0 | 1 => segments.insert(at, chance.from(&PIECES).into()),
            2 | 3 => segments.insert(at, chance.from(&DOTS).into()),
            4 if at < segments.len() => _ = segments.remove(at),
            5 if at < segments.len() => segments[at] = chance.from(&PIECES).into(),
            _ if at < segments.len() => rewrite(chance, &mut segments[at]),
            _ => {}
        }
    }
    let mut out = Vec::new();
    for segment in segments {
        let separator = if chance.once(12) { chance.from(&["//", "\\", "%2f", "%5C", "/./", "/;/"]) } else { "/" };
        out.extend_from_slice(separator.as_bytes());
        out.extend_from_slice(&segment);
    }
    if out.is_empty() {
        out.push(b'/');
    }
    out.extend_from_slice(chance.from(&ENDS).as_bytes());
    out
}

/// Writes a segment in another way, or a byte of it.
fn rewrite(chance: &mut Chance, segment: &mut Vec<u8>) {
    let at = chance.below(segment.len());
    let Some(&byte) = segment.get(at) else { return };
    let escaped = |byte: u8, upper: bool| if upper { format!("%{byte:02X}") } else { format!("%{byte:02x}") };
    let upper = chance.once(2);
    match chance.below(7) {
        // An escape of this byte, or of all that are outside ASCII.
        0 | 1 => _ = segment.splice(at..=at, escaped(byte, upper).into_bytes()),
        2 => {
            let all = segment
                .iter()
                .flat_map(|byte| if byte.is_ascii() { vec![*byte] } else { escaped(*byte, upper).into() });
            *segment = all.collect();
        }
        // Without the escapes of bytes outside ASCII, as text or as bytes of another encoding.
        3 => *segment = unescaped(segment),
        // Any byte, escaped or, if it ends no line, as it is.
        4 => {
            let any = u8::try_from(chance.below(256)).unwrap();
            _ = segment.splice(at..at, escaped(any, upper).into_bytes());
        }
        5 => {
            let raw = u8::try_from(0x21 + chance.below(0xdf)).unwrap();
            segment.insert(at, raw);
        }
        _ => {
            segment[at] = if byte.is_ascii_lowercase() { byte.to_ascii_uppercase() } else { byte.to_ascii_lowercase() }
        }
    }
}

fn unescaped(segment: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = segment;
    while let [first, after @ ..] = rest {
        let byte = after.get(..2).and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok());
        match byte.filter(|byte| *first == b'%' && !byte.is_ascii()) {
            Some(byte) => {
                out.push(byte);
                rest = &after[2..];
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    out
}

/// Header fields that change the path, the method or the protocol on some servers.
pub fn fields(chance: &mut Chance) -> &'static str {
    const FIELDS: [&str; 12] = [
        "",
        "",
        "",
        "",
        "x-http-method-override: POST\r\n",
        "x-original-url: /health\r\nx-rewrite-url: /health\r\n",
        "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
        "connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n",
        "origin: http://b\r\naccess-control-request-method: POST\r\n",
        "x-forwarded-prefix: /api\r\nx-forwarded-path: /login\r\n",
        "purpose: prefetch\r\nsec-purpose: prefetch;prerender\r\n",
        "expect: 100-continue\r\n",
    ];
    FIELDS[chance.below(FIELDS.len())]
}
