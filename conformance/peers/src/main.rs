//! Answers the suite's checks with a peer:
//!
//! ```text
//! tidegate-peers governor|limitador|rate-net|throttlecrab --test-mode
//! ```
//!
//! It prints its address, and ends when standard input closes. Requests are answered on all cores.
//!
//! `tidegate-peers reservations` prints what becomes of estimates by limitador, and by Tidegate.

mod limiters;
mod reservations;

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use tidegate_core::{Quota, Rule};
use tidegate_guest_protocol::{Answer, Call, Decided, Failure, Outcome};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

use crate::limiters::{Limiter, Said};

/// Makes a peer's limiter of a quota.
type Make = fn(&Quota) -> Result<Box<dyn Limiter>, String>;

/// The limiters so far. Each fixture has its own, because its keys have a prefix of their own.
struct Made {
    make: Make,
    limiters: Mutex<HashMap<(String, String), Arc<dyn Limiter>>>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let name = std::env::args().nth(1).unwrap_or_default();
    if name == "reservations" {
        print!("{}", reservations::table().await?);
        return Ok(());
    }
    let make = limiters::maker(&name).ok_or_else(|| format!("{name:?} is no peer"))?;
    let made = Arc::new(Made { make, limiters: Mutex::default() });
    let app = Router::new()
        .route("/_tidegate/check", post(check))
        .route("/_tidegate/capabilities", post(|| async {}))
        .with_state(made);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}", listener.local_addr()?);
    tokio::select! {
        served = axum::serve(listener, app) => served?,
        () = stdin_ends() => {}
    }
    Ok(())
}

async fn check(State(made): State<Arc<Made>>, body: Bytes) -> (StatusCode, String) {
    let answer = decide(&made, &body).unwrap_or_else(|message| Answer::Error(Failure { kind: "peer".into(), message }));
    let status = match &answer {
        Answer::Decision(decided) if decided.status == Outcome::Allowed => StatusCode::OK,
        Answer::Decision(_) => StatusCode::TOO_MANY_REQUESTS,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    (status, serde_json::to_string(&answer).unwrap_or_default())
}

fn decide(made: &Made, body: &[u8]) -> Result<Answer, String> {
    let call = serde_json::from_slice::<Call>(body).map_err(|error| error.to_string())?;
    let prefix = call.key.split('.').next().unwrap_or_default();
    let limiter = {
        let mut limiters = made.limiters.lock().unwrap_or_else(PoisonError::into_inner);
        let name = (call.policy.id().to_string(), prefix.to_string());
        match limiters.get(&name) {
            Some(limiter) => Arc::clone(limiter),
            None => {
                let limiter = Arc::from((made.make)(&call.policy.quotas()[0])?);
                limiters.insert(name, Arc::clone(&limiter));
                limiter
            }
        }
    };
    let said = limiter.check(&call.key, call.cost, call.now_ms)?;
    let (status, retry_after_ms) = match said {
        Said::Allowed => (Outcome::Allowed, None),
        Said::Denied(wait) => {
            (Outcome::Denied, wait.map(|wait| u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)))
        }
        Said::Never => (Outcome::NeverAdmissible, None),
    };
    Ok(Answer::Decision(Decided {
        status,
        binding: 0,
        quotas: Vec::new(),
        retry_after_ms,
        delay_ms: 0,
        from_balance: 0,
        replayed: false,
    }))
}

/// What a peer needs of a quota, unless its rule is another.
fn bucket(quota: &Quota) -> Result<(u64, u64, u64), String> {
    match quota.rule() {
        Rule::TokenBucket(rule) => Ok((rule.capacity(), rule.refill(), rule.per().get())),
        other => Err(format!("no such limiter: {other:?}")),
    }
}

/// Returns when standard input closes, which it does however the parent process ends.
async fn stdin_ends() {
    let (mut stdin, mut rest) = (tokio::io::stdin(), [0; 64]);
    while stdin.read(&mut rest).await.is_ok_and(|read| read > 0) {}
}
