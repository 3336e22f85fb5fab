//! A Spin app of WASI 0.3 behind a gate: `rules.json` says which limits apply to which requests, and Spin's SQLite store counts.
#![cfg(target_arch = "wasm32")]

use spin_sdk::http::{Request, Response, StatusCode};
use spin_sdk::http_service;
use tidegate_rules::rules;
use tidegate_spin::sdk_7::{check, with_fields};
use tidegate_spin::{ClientIpSource, Error, Gate, Platform, SpinAtomics};

#[http_service]
async fn handle(request: Request) -> Response<String> {
    answer(&request).await.unwrap_or_else(|error| {
        let mut response = Response::new(format!("misconfigured: {error}\n"));
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        response
    })
}

async fn answer(request: &Request) -> Result<Response<String>, Error> {
    let rules = rules!("../rules.json")?;
    let gate = Gate::new(rules, SpinAtomics::open("default")?.limiter(), ClientIpSource::new(Platform::Spin))?;
    Ok(match check(&gate, request).await {
        Ok(pass) => with_fields(Response::new("hello\n".into()), &pass.fields()),
        Err(refused) => refused,
    })
}
