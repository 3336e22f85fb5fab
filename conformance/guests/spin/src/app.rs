//! A limited page, as a user would write it.

use std::env;
use std::time::{SystemTime, UNIX_EPOCH};

use spin_sdk::http::{IncomingRequest, Response};
use tidegate_core::{
    BodyFormat, Check, ClientIpSource, Identity, Key, Limiter, Platform, Policy, Rejection, ResponseFields, UnixMillis,
};

use crate::reply::{refuse, response};
use crate::switched_on;

/// A page that each client gets as often as the policy allows. If the limiter fails, nobody gets it. To let requests
/// through while the store is down, do so only if `error.kind().is_store_failure()`: a client can cause the other
/// errors.
pub(crate) async fn limited<L: Limiter>(limiter: &L, policy: &str, request: &IncomingRequest) -> Response {
    let policy = env::var(policy).map_err(|error| error.to_string());
    let policy = match policy.and_then(|text| serde_json::from_str::<Policy>(&text).map_err(|error| error.to_string()))
    {
        Ok(policy) => policy,
        Err(error) => {
            eprintln!("the policy in spin.toml: {error}");
            return response(500, [], "misconfigured\n".into());
        }
    };
    let decision = match limiter.check(Check::new(&policy, &key(request), now())).await {
        Ok(decision) => decision,
        Err(error) => {
            eprintln!("{error}");
            return refuse(&Rejection::unavailable(error.kind()));
        }
    };
    match Rejection::denied(&policy, &decision, BodyFormat::Json) {
        Some(rejection) => refuse(&rejection),
        None => response(200, ResponseFields::new(&policy, &decision).iter(), "allowed\n".into()),
    }
}

/// Spin adds the client's address after any field of the same name that the client sent. So this reads all fields in
/// their order; the SDK's own `Request` keeps only one field per name. An app that has verified a token adds its
/// subject here.
fn key(request: &IncomingRequest) -> Key {
    let source = ClientIpSource::new(Platform::Spin).trust_true_client_ip(switched_on("TRUST_TRUE_CLIENT_IP"));
    let client_ip = source.find(request.headers().entries(), None).ok();
    Identity { client_ip, ..Identity::default() }.resolve()
}

fn now() -> UnixMillis {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMillis::new(u64::try_from(since_epoch.as_millis()).unwrap_or_default())
}
