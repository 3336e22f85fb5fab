//! An app with routes, as users write it: a gate, and the router of the crate `worker` behind it. Durable Objects count.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate_cloudflare::{ClientIpSource, Error, Gate, PerIsolate, Platform, Rules, check, unavailable, with_fields};
use tidegate_guest_protocol::routed::{ALL, CHARGED, RAN, ROUTED_RULES, Told, routes};
use worker::wasm_bindgen::JsValue;
use worker::{Env, Request, Response, RouteContext, Router, web_sys};

use crate::limiters::objects;
use crate::policies::variable;
use crate::reply::response;

/// The rules, if the Worker is this app.
pub(crate) fn rules(env: &Env) -> Option<String> {
    Some(variable(env, ROUTED_RULES)).filter(|rules| !rules.is_empty())
}

pub(crate) async fn answer(rules: &str, request: web_sys::Request, env: Env) -> JsValue {
    match limited(rules, Request::from(request), env).await {
        Ok(response) => web_sys::Response::from(response).into(),
        Err(error) => response(500, [], &format!("{error}\n")),
    }
}

async fn limited(rules: &str, request: Request, env: Env) -> worker::Result<Response> {
    static GATE: PerIsolate<Gate<'static>> = PerIsolate::new();
    let gate = match GATE.get_or_make(|| gate(rules, &env)) {
        Ok(gate) => gate,
        Err(error) => return unavailable(&error),
    };
    match check(gate, &request).await? {
        Ok(pass) => {
            let mut response = router(rules)?.run(request, env).await?;
            let charged = std::mem::take(&mut *charged()).join(" ");
            response.headers_mut().set(CHARGED, &charged)?;
            with_fields(response, &pass.fields())
        }
        Err(refused) => Ok(refused),
    }
}

fn gate(rules: &str, env: &Env) -> Result<Gate<'static>, Error> {
    let rules = Rules::parse("rules.json", rules)?;
    let limiter = Told::new(objects(env)?.limiter(), |limit: &str| charged().push(limit.to_string()));
    Gate::new(rules, limiter, ClientIpSource::new(Platform::Cloudflare))
}

fn router(rules: &str) -> worker::Result<Router<'static, ()>> {
    let mut router = Router::new().or_else_any_method_async("/*rest", handler(ALL.into()));
    for (name, path) in routes(rules).map_err(|error| error.to_string())? {
        let path = path.replace('{', ":").replace('}', "").replace('*', "*rest");
        router = router.on_async(&path, handler(name));
    }
    Ok(router)
}

/// The handler of a route.
fn handler(name: String) -> impl Fn(Request, RouteContext<()>) -> std::future::Ready<worker::Result<Response>> {
    move |_, _| {
        let ran = || {
            let mut response = Response::ok(name.as_str())?;
            response.headers_mut().set(RAN, &name)?;
            Ok(response)
        };
        std::future::ready(ran())
    }
}

/// The names of the limits that a request is charged to. The test sends one after another.
static CHARGED_LIMITS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn charged() -> MutexGuard<'static, Vec<String>> {
    CHARGED_LIMITS.lock().unwrap_or_else(PoisonError::into_inner)
}
