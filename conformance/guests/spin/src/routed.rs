//! An app with routes, as users write it: a gate, and the SDK's router behind it. Compare-and-swap counts.

use std::cell::RefCell;
use std::env;

use spin_sdk::http::conversions::TryFromIncomingRequest as _;
use spin_sdk::http::{IncomingRequest, Params, Request, Response, Router};
use tidegate_guest_protocol::routed::{ALL, CHARGED, RAN, ROUTED_RULES, Told, routes};
use tidegate_spin::{ClientIpSource, Error, ErrorKind, Gate, Platform, Rules, SpinAtomics, check, with_fields};

use crate::reply::response;

/// The rules, if the app is this one.
pub(crate) fn rules() -> Option<String> {
    env::var(ROUTED_RULES).ok()
}

pub(crate) async fn answer(rules: &str, request: IncomingRequest) -> Response {
    let answer = limited(rules, request).await;
    answer.unwrap_or_else(|error| response(500, [], format!("{error}\n").into()))
}

async fn limited(rules: &str, request: IncomingRequest) -> Result<Response, Error> {
    let store = SpinAtomics::open(&env::var("STORE").unwrap_or_default())?.limiter();
    let charged = RefCell::new(Vec::new());
    let store = Told::new(store, |limit: &str| charged.borrow_mut().push(limit.to_string()));
    let gate = Gate::new(Rules::parse("rules.json", rules)?, store, ClientIpSource::new(Platform::Spin))?;
    match check(&gate, &request).await {
        Ok(pass) => {
            let request = Request::try_from_incoming_request(request).await;
            let request = request.map_err(|error| Error::new(ErrorKind::Invalid, error.to_string()))?;
            let mut response = router(rules)?.handle_async(request).await;
            response.set_header(CHARGED, charged.borrow().join(" "));
            Ok(with_fields(response, &pass.fields()))
        }
        Err(refused) => Ok(refused),
    }
}

fn router(rules: &str) -> Result<Router, Error> {
    let mut router = Router::new();
    router.any_async("/*", handler(ALL.into()));
    for (name, path) in routes(rules)? {
        router.any_async(&path.replace('{', ":").replace('}', ""), handler(name));
    }
    Ok(router)
}

/// The handler of a route.
fn handler(name: String) -> impl Fn(Request, Params) -> std::future::Ready<Response> {
    move |_, _| std::future::ready(response(200, [(RAN, name.as_str())], name.clone().into()))
}
