//! A Spin app behind a gate: `rules.json` says which limits apply to which requests, and Spin's SQLite store counts.
#![cfg(target_arch = "wasm32")]
#![expect(unsafe_code, reason = "the expansion of `http_component`")]

use spin_sdk::http::{IncomingRequest, Response, ResponseOutparam};
use spin_sdk::http_component;
use tidegate_rules::rules;
use tidegate_spin::{ClientIpSource, Error, Gate, Platform, SpinAtomics, check, respond, with_fields};

#[http_component]
async fn handle(request: IncomingRequest, out: ResponseOutparam) {
    let answer = answer(&request).await;
    let answer = answer.unwrap_or_else(|error| Response::new(500, format!("misconfigured: {error}\n")));
    if let Err(error) = respond(out, answer) {
        eprintln!("{error}");
    }
}

async fn answer(request: &IncomingRequest) -> Result<Response, Error> {
    let rules = rules!("../rules.json")?;
    let gate = Gate::new(rules, SpinAtomics::open("default")?.limiter(), ClientIpSource::new(Platform::Spin))?;
    Ok(match check(&gate, request).await {
        Ok(pass) => with_fields(Response::new(200, "hello\n"), &pass.fields()),
        Err(refused) => refused,
    })
}
