//! Parses requests.

use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use percent_encoding::percent_decode_str;
use redis::RedisError;
use serde_json::Value as JsonValue;

/// The maximum size of a body, as in Upstash's smallest plan.
const BODY_LEN_MAX: usize = 1 << 20;

/// Commands that would change or block the shared connection, or stop the server.
const UNAVAILABLE: &str = "\
    ACL AUTH BGREWRITEAOF BGSAVE BLMOVE BLMPOP BLPOP BRPOP BRPOPLPUSH BZMPOP BZPOPMAX BZPOPMIN CLIENT CLUSTER \
    CONFIG DEBUG DISCARD EXEC FAILOVER HELLO MIGRATE MODULE MONITOR MULTI PSUBSCRIBE PSYNC PUNSUBSCRIBE QUIT \
    REPLCONF REPLICAOF RESET SAVE SELECT SHUTDOWN SLAVEOF SSUBSCRIBE SUBSCRIBE SUNSUBSCRIBE SYNC UNSUBSCRIBE \
    WAIT WAITAOF WATCH";

/// A parsed request.
pub(crate) enum Wanted {
    One(Command),
    Pipeline(Vec<Command>),
    MultiExec(Vec<Command>),
}

/// The error with which a request is answered.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) status: StatusCode,
    pub(crate) text: String,
}

/// A command: the name and the arguments.
pub(crate) struct Command(Vec<Vec<u8>>);

impl Refused {
    fn bad(text: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, text: text.into() }
    }

    /// Redis rejected a transaction, cannot be reached, or was lost during the command.
    pub(crate) fn redis(error: &RedisError) -> Self {
        match error.code() {
            Some(code) => Self::bad(format!("{code} {}", error.detail().unwrap_or_default())),
            None => {
                let text = format!("ERR the database does not answer: {error}");
                Self { status: StatusCode::SERVICE_UNAVAILABLE, text }
            }
        }
    }

    pub(crate) fn no_answer() -> Self {
        Self { status: StatusCode::BAD_GATEWAY, text: "ERR the database gave no answer".into() }
    }
}

impl Command {
    fn new(words: Vec<Vec<u8>>) -> Result<Self, Refused> {
        let command = Self(words);
        let name = command.name();
        let says = |what: &[u8]| command.0.iter().any(|word| word.eq_ignore_ascii_case(what));
        let holds = name.starts_with("XREAD") && says(b"block") || name == "SCRIPT" && says(b"debug");
        if name.is_empty() {
            return Err(Refused::bad("ERR empty command"));
        }
        if holds || UNAVAILABLE.split(' ').any(|unavailable| unavailable == name) {
            let rest = "See https://upstash.com/docs/redis/overall/rediscompatibility for details";
            return Err(Refused::bad(format!("ERR Command is not available: '{name}'. {rest}")));
        }
        Ok(command)
    }

    /// The name in upper case.
    pub(crate) fn name(&self) -> String {
        self.0.first().map(|name| String::from_utf8_lossy(name).to_uppercase()).unwrap_or_default()
    }

    pub(crate) fn is_script(&self) -> bool {
        matches!(self.name().as_str(), "EVAL" | "EVALSHA" | "EVAL_RO" | "EVALSHA_RO" | "FCALL" | "FCALL_RO")
    }

    pub(crate) fn words(&self) -> &[Vec<u8>] {
        &self.0
    }

    pub(crate) fn word_mut(&mut self, place: usize) -> Option<&mut Vec<u8>> {
        self.0.get_mut(place)
    }
}

/// Parses a request, and checks its token.
pub(crate) async fn read(token: &str, uri: &Uri, headers: &HeaderMap, request: Request) -> Result<Wanted, Refused> {
    let parameters = parameters(uri);
    let given = headers.get("authorization").and_then(|header| header.as_bytes().strip_prefix(b"Bearer "));
    let given = given.or_else(|| parameters.iter().find(|(name, _)| name == b"_token").map(|(_, token)| &token[..]));
    if given != Some(token.as_bytes()) {
        let text = "WRONGPASS invalid or missing auth token".into();
        return Err(Refused { status: StatusCode::UNAUTHORIZED, text });
    }
    let is_post = request.method() == Method::POST;
    let body = to_bytes(request.into_body(), BODY_LEN_MAX).await.map_err(|_| Refused {
        status: StatusCode::PAYLOAD_TOO_LARGE,
        text: format!("ERR max request size exceeded. Limit: {BODY_LEN_MAX} bytes"),
    })?;
    match uri.path() {
        "/" if is_post => command(parse(&body)?).map(Wanted::One),
        "/pipeline" if is_post => commands(parse(&body)?).map(Wanted::Pipeline),
        "/multi-exec" if is_post => commands(parse(&body)?).map(Wanted::MultiExec),
        path => in_path(path, &body, parameters).map(Wanted::One),
    }
}

/// Parses a path like `/set/key/value?ex=100`. The body of a `POST` is the last argument before the parameters.
fn in_path(path: &str, body: &[u8], parameters: Vec<(Vec<u8>, Vec<u8>)>) -> Result<Command, Refused> {
    let mut words: Vec<Vec<u8>> =
        path.trim_start_matches('/').split('/').map(|word| percent_decode_str(word).collect()).collect();
    if !body.is_empty() {
        words.push(body.to_vec());
    }
    for (name, value) in parameters.into_iter().filter(|(name, _)| name != b"_token") {
        words.push(name);
        if !value.is_empty() {
            words.push(value);
        }
    }
    Command::new(words)
}

fn parameters(uri: &Uri) -> Vec<(Vec<u8>, Vec<u8>)> {
    let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    let decoded = |text: &str| percent_decode_str(text).collect();
    pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| (decoded(name), decoded(value)))
        .collect()
}

fn parse(body: &[u8]) -> Result<JsonValue, Refused> {
    serde_json::from_slice(body).map_err(|error| Refused::bad(format!("ERR failed to parse request body: {error}")))
}

fn commands(body: JsonValue) -> Result<Vec<Command>, Refused> {
    let JsonValue::Array(each) = body else {
        return Err(Refused::bad("ERR failed to parse pipeline request: expected an array of commands"));
    };
    if each.is_empty() {
        return Err(Refused::bad("ERR empty pipeline request"));
    }
    each.into_iter().map(command).collect()
}

fn command(words: JsonValue) -> Result<Command, Refused> {
    let JsonValue::Array(words) = words else {
        return Err(Refused::bad("ERR failed to parse command: expected an array"));
    };
    let word = |word| match word {
        JsonValue::String(text) => Ok(text.into_bytes()),
        JsonValue::Number(number) => Ok(number.to_string().into_bytes()),
        JsonValue::Bool(yes) => Ok(yes.to_string().into_bytes()),
        _ => Err(Refused::bad("ERR failed to parse command: arguments must be strings, numbers or booleans")),
    };
    Command::new(words.into_iter().map(word).collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::extract::Request;
    use axum::http::HeaderMap;
    use proptest::prelude::*;

    use super::{Wanted, read};

    /// Parses a request. An error has the status and the text of the answer.
    fn understood(path: &str, body: Vec<u8>) -> Option<Result<Wanted, (u16, String)>> {
        let request = Request::post(path).body(Body::from(body)).ok()?;
        let uri = request.uri().clone();
        let headers = HeaderMap::from_iter([("authorization".parse().ok()?, "Bearer token".parse().ok()?)]);
        let read = pollster::block_on(read("token", &uri, &headers, request));
        Some(read.map_err(|refused| (refused.status.as_u16(), refused.text)))
    }

    proptest! {
        #[test]
        fn any_request_is_parsed_or_rejected(
            path in r"/(|pipeline|multi-exec|[a-z%0-9/&=?_.+-]{0,30})",
            body in prop_oneof![
                prop::collection::vec(any::<u8>(), 0..200),
                r#"(\[|\]|,|"[a-zA-Z]*"|[0-9.eE-]{1,5}|null|true|\{|\}|:)*"#.prop_map(String::into_bytes),
            ],
        ) {
            if let Some(Err((status, text))) = understood(&path, body) {
                prop_assert_eq!(status, 400);
                prop_assert!(!text.is_empty());
            }
        }
    }

    #[test]
    fn commands_that_block_the_connection_are_rejected() {
        for command in [
            r#"["subscribe","a"]"#,
            r#"["Unsubscribe","a","b"]"#,
            r#"["MULTI"]"#,
            r#"["BLPOP","a",0]"#,
            r#"["XREAD","block",0,"STREAMS","a","$"]"#,
            r#"["script","debug","yes"]"#,
            r#"["CLIENT","REPLY","OFF"]"#,
        ] {
            let refused = understood("/", command.into());
            assert!(matches!(refused, Some(Err((400, text))) if text.contains("not available")), "{command}");
        }
        assert!(matches!(understood("/", r#"["XREAD","STREAMS","a","0"]"#.into()), Some(Ok(Wanted::One(_)))));
    }
}
