//! Who is counted, with which tier and dimensions, and who is on a list, as the page on keys says.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use pollster::block_on;
use serde_json::{Value, json};
use tidegate_core::gate::{Claims, Gate, InvalidToken, Request, Rules, TokenRules, Verdict, VerifyToken};
use tidegate_core::{ClientIpSource, Key, MemoryLimiter, Platform, UnixMillis};

/// Each request has a window of its own.
const START_MS: u64 = 1_800_000_000_000;
const WINDOW_MS: u64 = 60_000;

/// A token is its payload in hexadecimal digits.
#[derive(Debug)]
struct Hex;

impl VerifyToken for Hex {
    fn verify(&self, token: &str, expected: &TokenRules, now: UnixMillis) -> Result<Claims, InvalidToken> {
        let digits = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16);
        let payload = token.as_bytes().chunks(2).map(digits).collect::<Result<Vec<u8>, _>>();
        Claims::of_payload(&payload.map_err(|_| InvalidToken::NOT_SIGNED)?, expected, now)
    }
}

/// The field of a token with these claims, or of an invalid one.
fn field(token: &Value) -> String {
    let Some(claims) = token.as_object() else { return "Bearer invalid".into() };
    let mut claims = claims.clone();
    claims.insert("exp".into(), json!(4_000_000_000_u32));
    let digits = Value::Object(claims).to_string().bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
    format!("Bearer {digits}")
}

/// The table, which the npm package replays, too.
fn table() -> Value {
    serde_json::from_str(include_str!("../data/identities.json")).unwrap()
}

fn gate() -> Gate<'static> {
    let rules = Rules::parse("rules.json", &table()["rules"].to_string()).unwrap().verify_tokens(Hex);
    Gate::new(rules, MemoryLimiter::new(), ClientIpSource::new(Platform::Cloudflare)).unwrap()
}

/// What identifies the sender of a request.
#[derive(Default)]
struct Sent<'a> {
    path: Option<&'a str>,
    address: Option<&'a str>,
    token: Option<&'a str>,
    api_key: Option<&'a str>,
    given_key: Option<&'a str>,
    given_subject: Option<&'a str>,
    given_api_key: Option<&'a str>,
    given_tier: Option<&'a str>,
}

/// What a gate does with the request of this number, in the words of the table.
fn found(gate: &Gate<'_>, sent: &Sent<'_>, nth: u64) -> Value {
    let fields = [("cf-connecting-ip", sent.address), ("x-api-key", sent.api_key), ("authorization", sent.token)];
    let headers: Vec<(&str, &str)> = fields.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    let (now, key) = (UnixMillis::new(START_MS + nth * WINDOW_MS), sent.given_key.map(Key::new));
    let mut request = Request::new("GET", sent.path.unwrap_or("/"), &headers, now);
    if let Some(key) = &key {
        request = request.key(key);
    }
    if let Some(subject) = sent.given_subject {
        request = request.subject(subject);
    }
    if let Some(secret) = sent.given_api_key {
        request = request.api_key(secret);
    }
    if let Some(tier) = sent.given_tier {
        request = request.tier(tier);
    }
    match block_on(gate.check(&request)) {
        Verdict::Refuse(refusal) => json!({ "status": refusal.rejection().status_code() }),
        Verdict::Pass(pass) => pass.decision().map_or(json!("unlimited"), |decision| {
            let rules = gate.rules();
            let explanation = rules.explain(&request, gate.client_ip());
            let [key, org] = &explanation.keys[..] else { panic!("{explanation}") };
            let [key, org] = [key, org].map(|key| key.as_ref().unwrap().as_str());
            json!({ "key": key, "org": org, "limit": decision.quotas()[0].limit() })
        }),
    }
}

#[test]
fn the_table_of_identities_holds() {
    let (table, gate) = (table(), gate());
    let mut wrong = String::new();
    for (nth, row) in table["rows"].as_array().unwrap().iter().enumerate() {
        let text = |place: &str| row.pointer(place).and_then(Value::as_str);
        let token = row.get("token").map(field);
        let sent = Sent {
            path: text("/path"),
            address: if row.get("address").is_some() { text("/address") } else { Some("192.0.2.1") },
            token: token.as_deref(),
            api_key: text("/api_key"),
            given_key: text("/given/key"),
            given_subject: text("/given/subject"),
            given_api_key: text("/given/api_key"),
            given_tier: text("/given/tier"),
        };
        let found = found(&gate, &sent, nth as u64);
        if found != row["expect"] {
            wrong += &format!("{}: {found}, and not {}\n", row["about"], row["expect"]);
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Whom a list of the table's rules has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    Neither,
    Allow,
    Deny,
}
use On::{Allow, Deny, Neither};

/// An identity: its key, its tier, its organization and the list that it is on.
type Known = (&'static str, Option<&'static str>, Option<&'static str>, On);

/// A part of a request: what is sent, and the identity that it is, if it is one.
type Part = (Option<&'static str>, Option<Known>);

/// The ways in which each part of a request may be, most trusted first: the application's key and its subject, the token, the
/// application's API key, that in the field, and the address.
fn parts(tokens: &[&'static str; 5]) -> [Vec<Part>; 6] {
    const PRO: Known = ("key:fd51d1f881ad3e03850010f53348042a", Some("pro"), None, Neither);
    const USUAL: Known = ("key:1e3d52c4b0ba9c6bca8ed8e893236ac6", None, None, Neither);
    const ALLOWED: Known = ("key:805dace707ae4140a8cefd8e1286068b", None, None, Allow);
    const DENIED: Known = ("key:34149418a83ef4dc400f2ba8b5acc770", Some("pro"), None, Deny);
    const UNKNOWN: Known = ("key:4efb69b9e37fc631dca0c80ae9e9339c", None, None, Neither);
    let part = |sent, key, on| (Some(sent), Some((key, None, None, on)));
    let is = |sent, known| (Some(sent), Some(known));
    const NONE: Part = (None, None);
    [
        vec![
            NONE,
            part("account:42", "account:42", Neither),
            part("sub:ops", "sub:ops", Allow),
            part("sub:mallory", "sub:mallory", Deny),
        ],
        vec![
            NONE,
            part("carol", "sub:carol", Neither),
            part("alice", "sub:alice", Neither),
            part("ops", "sub:ops", Allow),
            part("mallory", "sub:mallory", Deny),
        ],
        vec![
            NONE,
            (Some(tokens[0]), None),
            is(tokens[1], ("sub:alice", Some("team"), Some("org:acme"), Neither)),
            is(tokens[2], ("sub:bob", None, None, Neither)),
            is(tokens[3], ("sub:ops", None, None, Allow)),
            is(tokens[4], ("sub:mallory", Some("pro"), None, Deny)),
        ],
        vec![
            NONE,
            is("pro key", PRO),
            is("unknown key", UNKNOWN),
            is("allowed key", ALLOWED),
            is("denied pro key", DENIED),
        ],
        vec![
            NONE,
            (Some("unknown key"), None),
            is("pro key", PRO),
            is("usual key", USUAL),
            is("allowed key", ALLOWED),
            is("denied pro key", DENIED),
        ],
        vec![
            NONE,
            part("192.0.2.1", "ip:192.0.2.1", Neither),
            part("64:ff9b::198.51.100.7", "ip:198.51.100.7", Deny),
            part("2002:cb00:7101::1", "ip:203.0.113.1", Allow),
            part("203.0.113.66", "ip:203.0.113.66", Deny),
            part("64:ff9b::192.0.2.129", "ip:192.0.2.129", Deny),
        ],
    ]
}

/// What has to become of a request, by the page on keys alone.
fn expected(all: &[Part; 6], tier: Option<&'static str>, refuses: bool) -> Value {
    let known = || all.iter().filter_map(|(_, known)| *known);
    let [key, subject, token, api_key, ..] = all.map(|(_, known)| known);
    if known().any(|(.., on)| on == Deny) {
        return json!({ "status": 403 });
    }
    if refuses && all[2].0.is_some() && token.is_none() {
        return json!({ "status": 401 });
    }
    if known().any(|(.., on)| on == Allow) {
        return json!("unlimited");
    }
    let (counted, ..) = known().next().unwrap_or(("ip:unknown", None, None, Neither));
    let same = || known().filter(|(key, ..)| *key == counted);
    // The application's tier is that of the API key that it names, and not that of a token which precedes it.
    let is_of_the_api_key = key.or(subject).is_none() && token.and(api_key).is_some();
    let tier = tier.filter(|_| !is_of_the_api_key).or_else(|| same().find_map(|(_, tier, ..)| tier));
    let limit =
        [("pro", 50), ("team", 20)].into_iter().find(|(name, _)| tier == Some(*name)).map_or(5, |(_, limit)| limit);
    json!({ "key": counted, "org": same().find_map(|(_, _, org, _)| org).unwrap_or(counted), "limit": limit })
}

#[test]
fn every_combination_of_identities_is_decided_as_an_independent_function_says() {
    let claims = [
        json!("invalid"),
        json!({ "sub": "alice", "plan": "team", "org": "acme" }),
        json!({ "sub": "bob" }),
        json!({ "sub": "ops" }),
        json!({ "sub": "mallory", "plan": "pro" }),
    ];
    let tokens = claims.map(|claims| &*field(&claims).leak());
    let (gate, parts) = (gate(), parts(&tokens));
    let count: usize = parts.iter().map(Vec::len).product();
    let mut nth = 0;
    for place in 0..count {
        let mut rest = place;
        let all = parts.each_ref().map(|ways| {
            let way = ways[rest % ways.len()];
            rest /= ways.len();
            way
        });
        for (given_tier, is_strict) in [(None, false), (Some("team"), true), (Some("none"), false), (None, true)] {
            let [given_key, given_subject, token, given_api_key, api_key, address] = all.map(|(sent, _)| sent);
            let path = Some(if is_strict { "/strict" } else { "/" });
            let sent = Sent { path, address, token, api_key, given_key, given_subject, given_api_key, given_tier };
            nth += 1;
            assert_eq!(
                found(&gate, &sent, nth),
                expected(&all, given_tier, is_strict),
                "{all:?}, {given_tier:?}, {is_strict}"
            );
        }
    }
    assert_eq!(nth, 86_400);
}
