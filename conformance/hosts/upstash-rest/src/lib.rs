//! Upstash's REST protocol (<https://upstash.com/docs/redis/features/restapi>) over a real redis-server, to run
//! programs for Upstash locally.
//!
//! It supports `POST /` with a command, `/pipeline`, `/multi-exec`, commands in the path, answers in base64, and the
//! token as a header or a parameter. It accepts the script flag `allow-key-locking`, which stock Redis rejects.
//! Commands that would change or block the shared connection to Redis are rejected; Upstash does not support most of
//! them either. There is one server with one copy of the data, so it does not emulate the replicas of a global
//! database.
//!
//! ```no_run
//! use tidegate_host_upstash_rest::Front;
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//! Front::new("redis://127.0.0.1:6379", "a token")?.serve(listener).await;
//! # Ok(())
//! # }
//! ```

mod answer;
mod link;
mod request;
mod scripts;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use axum::Json;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::serve::ListenerExt as _;
use redis::{RedisError, Value};
use serde_json::{Value as JsonValue, json};
use tokio::net::TcpListener;

use crate::answer::{Encoding, of_value};
use crate::link::Link;
use crate::request::{Command, Refused, Wanted};
use crate::scripts::Scripts;

/// A REST endpoint in front of a Redis server.
#[derive(Clone)]
pub struct Front(Arc<Shared>);

struct Shared {
    token: String,
    link: Link,
    scripts: Scripts,
    requests: AtomicU64,
    script_requests: AtomicU64,
    loses_answers: AtomicBool,
    lost: AtomicU64,
}

impl Front {
    /// Creates an endpoint in front of the server at `redis_url`. Requests need the token.
    ///
    /// # Errors
    /// Fails if the URL is not a Redis URL.
    pub fn new(redis_url: &str, token: impl Into<String>) -> Result<Self, RedisError> {
        Ok(Self(Arc::new(Shared {
            token: token.into(),
            link: Link::new(redis_url)?,
            scripts: Scripts::default(),
            requests: AtomicU64::new(0),
            script_requests: AtomicU64::new(0),
            loses_answers: AtomicBool::new(false),
            lost: AtomicU64::new(0),
        })))
    }

    /// Serves HTTP/1.1 until the future is dropped.
    pub async fn serve(self, listener: TcpListener) {
        let listener = listener.tap_io(|socket| {
            let _ = socket.set_nodelay(true);
        });
        let _never_fails = axum::serve(listener, Router::new().fallback(answer).with_state(self)).await;
    }

    /// The number of requests so far.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.0.requests.load(Ordering::Relaxed)
    }

    /// The number of requests so far that ran a script.
    #[must_use]
    pub fn script_requests(&self) -> u64 {
        self.0.script_requests.load(Ordering::Relaxed)
    }

    /// Loses the answers to all requests for a time: they are carried out, and then their connections end. Returns the number
    /// of lost answers.
    pub async fn lose_answers(&self, time: Duration) -> u64 {
        self.0.lost.store(0, Ordering::Relaxed);
        self.0.loses_answers.store(true, Ordering::Relaxed);
        tokio::time::sleep(time).await;
        self.0.loses_answers.store(false, Ordering::Relaxed);
        self.0.lost.load(Ordering::Relaxed)
    }

    async fn carry_out(&self, wanted: Wanted, encoding: Encoding) -> Result<JsonValue, Refused> {
        match wanted {
            Wanted::One(command) => {
                let [answer] = &self.run(vec![command], false).await?[..] else { return Err(Refused::no_answer()) };
                answer_or_error(answer, encoding)
            }
            Wanted::Pipeline(commands) => {
                let answers = self.run(commands, false).await?;
                Ok(answers.iter().map(|answer| told(answer, encoding)).collect())
            }
            Wanted::MultiExec(commands) => match &self.run(commands, true).await?[..] {
                [Value::Array(answers)] => Ok(answers.iter().map(|answer| told(answer, encoding)).collect()),
                [aborted] => answer_or_error(aborted, encoding),
                _ => Err(Refused::no_answer()),
            },
        }
    }

    /// Returns the answer to each command, or one answer if they are a transaction.
    async fn run(&self, commands: Vec<Command>, atomic: bool) -> Result<Vec<Value>, Refused> {
        if commands.iter().any(Command::is_script) {
            self.0.script_requests.fetch_add(1, Ordering::Relaxed);
        }
        let (commands, hashes): (Vec<_>, Vec<_>) = commands
            .into_iter()
            .map(|mut command| {
                let hash = self.0.scripts.translate(&mut command);
                (command, hash)
            })
            .unzip();
        let mut answers = self.0.link.send(&commands, atomic).await.map_err(|error| Refused::redis(&error))?;
        let each = match &mut answers[..] {
            [Value::Array(each)] if atomic => each,
            each => each,
        };
        // `SCRIPT LOAD` returns the hash of the original script, not of the one that Redis received.
        for (answer, hash) in each.iter_mut().zip(hashes) {
            if let (Value::BulkString(text), Some(hash)) = (answer, hash) {
                *text = hash.into_bytes();
            }
        }
        Ok(answers)
    }
}

async fn answer(State(front): State<Front>, uri: Uri, headers: HeaderMap, request: Request) -> Response {
    let nth = front.0.requests.fetch_add(1, Ordering::Relaxed) + 1;
    let encoding = Encoding::asked_for(&headers);
    let answered = match request::read(&front.0.token, &uri, &headers, request).await {
        Ok(wanted) => front.carry_out(wanted, encoding).await,
        Err(refused) => Err(refused),
    };
    if front.0.loses_answers.load(Ordering::Relaxed) {
        front.0.lost.fetch_add(1, Ordering::Relaxed);
        return lost();
    }
    let (status, body) = match answered {
        Ok(body) => (StatusCode::OK, body),
        Err(Refused { status, text }) => (status, json!({ "error": text })),
    };
    // There is one copy of the data, so any token is correct.
    (status, [("upstash-sync-token", format!("front:{nth}"))], Json(body)).into_response()
}

/// A response whose body fails, so that the connection ends before the client has an answer.
fn lost() -> Response {
    let failure = Err::<&[u8], _>(io::Error::from(io::ErrorKind::ConnectionReset));
    Body::from_stream(futures_util::stream::iter([failure])).into_response()
}

fn answer_or_error(answer: &Value, encoding: Encoding) -> Result<JsonValue, Refused> {
    match of_value(answer, encoding) {
        Ok(result) => Ok(json!({ "result": result })),
        Err(text) => Err(Refused { status: StatusCode::BAD_REQUEST, text }),
    }
}

fn told(answer: &Value, encoding: Encoding) -> JsonValue {
    match of_value(answer, encoding) {
        Ok(result) => json!({ "result": result }),
        Err(error) => json!({ "error": error }),
    }
}
