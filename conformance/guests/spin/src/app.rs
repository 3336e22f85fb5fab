//! A limited page, as a user would write it.

use std::env;

use spin_sdk::http::{IncomingRequest, Response};
use tidegate_core::gate::{Gate, OnFailure, Rules};
use tidegate_core::{ClientIpSource, Error, ErrorKind, Limiter, Platform};
use tidegate_spin::{check, with_fields};

use crate::reply::response;
use crate::switched_on;

/// A page that each client gets as often as the policy allows. If the limiter fails, nobody gets it.
pub(crate) async fn limited<L: Limiter>(limiter: &L, policy: &str, request: &IncomingRequest) -> Response {
    let source = ClientIpSource::new(Platform::Spin).trust_true_client_ip(switched_on("TRUST_TRUE_CLIENT_IP"));
    let gate = match rules(policy).and_then(|rules| Gate::new(rules, limiter, source)) {
        Ok(gate) => gate,
        Err(error) => {
            eprintln!("{error}");
            return response(500, [], "misconfigured\n".into());
        }
    };
    match check(&gate, request).await {
        Ok(pass) => with_fields(response(200, [], "allowed\n".into()), &pass.fields()),
        Err(refused) => refused,
    }
}

/// One rule for all requests, with the policy in this variable of spin.toml.
fn rules(policy: &str) -> Result<Rules, Error> {
    let invalid =
        |error: &dyn std::fmt::Display| Error::new(ErrorKind::Invalid, format!("spin.toml: {policy}: {error}"));
    let text = env::var(policy).map_err(|error| invalid(&error))?;
    let policy = serde_json::from_str(&text).map_err(|error| invalid(&error))?;
    Ok(Rules::all(policy, OnFailure::Closed))
}
