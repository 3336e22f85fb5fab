//! A limited page, as a user would write it, and a page that shows what a client has left.

use fastly::{Request, Response};
use pollster::block_on;
use tidegate_core::gate::{Gate, OnFailure, Rules};
use tidegate_core::{
    Check, ClientIpSource, Error, ErrorKind, Identity, Key, Limiter, LimiterExt, Platform, Policy, Rejection,
    ResponseFields, UnixMillis,
};
use tidegate_fastly::{check, with_fields};

use crate::limiters;
use crate::response::response;
use crate::settings::{setting, switched_on};

/// Answers a request by the limiter that its path names.
pub(crate) fn answer(request: Request) -> Response {
    let path = request.get_path().to_owned();
    let (store, rest) = path.trim_start_matches('/').split_once('/').unwrap_or((path.trim_start_matches('/'), ""));
    let answered = match (store, rest) {
        ("health", "") => Ok(Response::from_body("well\n")),
        #[cfg(feature = "suite")]
        ("kv" | "erl", route) if crate::suite::asks(&request, route) => crate::suite::answer(store, route, request),
        ("kv", "") => limiters::kv().and_then(|limiter| {
            let response = limited(&limiter, policy()?, &request)?;
            let refused = limiter.store().stats().refused;
            if refused > 0 {
                // This goes to the service's log, `fastly log-tail`.
                println!("KV Store refused {refused} writes");
            }
            Ok(response)
        }),
        ("erl", "") => limiters::erl().and_then(|erl| {
            let policy = Policy::new("api", [erl.quota().clone()])?;
            limited(&erl.limiter(), policy, &request)
        }),
        ("debug", "kv") if switched_on("tidegate", "debug") => {
            limiters::kv().and_then(|limiter| left(&limiter, &policy()?, &request))
        }
        _ => Ok(Response::from_body("not found\n").with_status(404)),
    };
    answered.unwrap_or_else(|error| unavailable(&error))
}

/// A page that each client gets as often as the policy allows. If the limiter fails, nobody gets it.
fn limited(limiter: &impl Limiter, policy: Policy, request: &Request) -> Result<Response, Error> {
    let gate = Gate::new(Rules::all(policy, OnFailure::Closed), limiter, ClientIpSource::new(Platform::Fastly))?;
    Ok(match check(&gate, request) {
        Ok(pass) => with_fields(Response::from_body("allowed\n"), &pass.fields()),
        Err(refused) => refused,
    })
}

/// Shows what the client has left, and charges nothing.
fn left(limiter: &impl Limiter, policy: &Policy, request: &Request) -> Result<Response, Error> {
    let key = key(request);
    let decision = block_on(limiter.peek(Check::new(policy, &key, UnixMillis::now())))?;
    let fields = ResponseFields::new(policy, &decision);
    Ok(response(200, fields.iter(), format!("{}: {decision:?}\n", key.as_str())))
}

/// Only the platform's API knows the client's address. An app that has verified a token adds its subject here.
fn key(request: &Request) -> Key {
    let peer = request.get_client_ip_addr();
    let client_ip = ClientIpSource::new(Platform::Fastly).find(request.get_headers(), peer).ok();
    Identity { client_ip, ..Identity::default() }.resolve()
}

/// Reads the policy of `/kv`.
fn policy() -> Result<Policy, Error> {
    let invalid = |why: String| Error::new(ErrorKind::Invalid, format!("config store tidegate: policy: {why}"));
    let text = setting("tidegate", "policy").ok_or_else(|| invalid("it is missing".into()))?;
    serde_json::from_str(&text).map_err(|error| invalid(error.to_string()))
}

/// Logs an error. The client does not get its message.
fn unavailable(error: &Error) -> Response {
    println!("{error:?}");
    refuse(&Rejection::unavailable(error.kind()))
}

fn refuse(rejection: &Rejection) -> Response {
    response(rejection.status_code(), rejection.fields().iter(), rejection.body())
}
