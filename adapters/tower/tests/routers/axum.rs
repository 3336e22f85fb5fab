//! axum, with the layer at every place where a router takes one.

use std::convert::Infallible;
use std::net::SocketAddr;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use axum::routing::{MethodRouter, any, get, post};
use axum::{Router, ServiceExt as _};
use serde_json::json;
use tidegate_evasion::{ROUTES, Seen, http1, routes, rules};
use tidegate_tower::RateLimitLayer;
use tokio::net::TcpListener;
use tower::service_fn;
use tower_layer::Layer as _;

use crate::gate::{gate, gate_of};
use crate::http2;

/// The names of all routes but these.
fn names_without(others: &[&str]) -> Vec<&'static str> {
    ROUTES.iter().map(|(name, _)| *name).filter(|name| !others.contains(name)).collect()
}

/// A layer with rules for these routes.
fn layer(seen: &Seen, names: &[&str]) -> RateLimitLayer {
    RateLimitLayer::new(gate(seen, &routes(names))).unwrap()
}

/// The handler of a route.
fn handler(seen: &Seen, name: &'static str) -> MethodRouter {
    let seen = seen.clone();
    any(move || async move { seen.run(name) })
}

/// The path of a rule as axum writes it: `{*rest}` for a star.
fn written(path: &str) -> String {
    path.replace('*', "{*rest}")
}

/// A router of the routes below a prefix, without it.
fn router(seen: &Seen, prefix: &str, is_own: impl Fn(&str) -> bool) -> Router {
    let mut router = Router::new();
    for (name, path) in ROUTES {
        if let Some(path) = path.strip_prefix(prefix).filter(|path| path.starts_with('/') && is_own(name)) {
            router = router.route(&written(path), handler(seen, name));
        }
    }
    router
}

fn start<S>(service: S) -> (SocketAddr, tokio::runtime::Runtime)
where
    S: tower_service::Service<Request, Response = Response, Error = Infallible, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static,
{
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    runtime.spawn(async move { axum::serve(listener, service.into_make_service()).await });
    (address, runtime)
}

/// Sends random requests to a router, by both versions of HTTP. `all` is the rule of what has no route of its own.
fn attack(name: &str, seen: &Seen, app: Router, routes: &[&'static str]) {
    let (address, _runtime) = start(app);
    http1::attack(name, address, seen, routes);
    http2::attack(&format!("{name}, HTTP/2"), address, seen, routes);
}

#[test]
fn a_layer_on_a_router() {
    let seen = Seen::default();
    // axum takes no star beside longer paths.
    let names = names_without(&["below"]);
    let app = router(&seen, "", |name| name != "below").fallback(handler(&seen, "all")).layer(layer(&seen, &names));
    attack("axum", &seen, app, &names);
}

#[test]
fn a_layer_around_a_router() {
    let seen = Seen::default();
    let app = router(&seen, "", |name| name != "below").fallback(handler(&seen, "all"));
    let names = names_without(&["below"]);
    let limit = layer(&seen, &names);
    let (address, _runtime) = start(service_fn(move |request: Request| {
        let mut service = limit.layer(app.clone());
        async move {
            let response = tower_service::Service::call(&mut service, request).await?;
            Ok(response.map(Body::new))
        }
    }));
    http1::attack("axum, around the router", address, &seen, &names);
}

#[test]
fn layers_in_nested_routers() {
    let seen = Seen::default();
    let names = names_without(&[]);
    let limit = layer(&seen, &names);
    let inner = |prefix: &str, names: &'static [&str]| router(&seen, prefix, |name| names.contains(&name));
    let api = inner("/api", &["part", "api"]).fallback(handler(&seen, "below"));
    let item = inner("/ü", &["item"]).fallback(handler(&seen, "all"));
    // A parameter and what is outside ASCII in a prefix, one router in another, and one without a fallback.
    let tenant = inner("/{tenant}", &["tenant"]).nest("/ü", inner("/{tenant}/ü", &["deep"]).layer(limit.clone()));
    let rest = |name: &&str| !["part", "api", "below", "item", "tenant", "deep"].contains(name);
    let app = router(&seen, "", |name| rest(&name))
        .layer(limit.clone())
        .nest("/api", api.layer(limit.clone()))
        .nest("/ü", item.layer(limit.clone()))
        .nest("/{tenant}", tenant.route_layer(limit.clone()))
        .fallback_service(limit.layer(handler(&seen, "all")));
    attack("axum, nested", &seen, app, &names);
}

#[test]
fn layers_on_single_routes() {
    let seen = Seen::default();
    let names = ["files", "login", "cafe", "escaped", "quote", "space", "brace", "one", "any"];
    let limit = layer(&seen, &names);
    let nested = |path: &str, name| Router::new().route(path, handler(&seen, name).layer(limit.clone()));
    let files = seen.clone();
    let files = service_fn(move |_: Request| {
        let files = files.clone();
        async move { Ok::<_, Infallible>(Response::new(Body::from(files.run("files")))) }
    });
    let app = Router::new()
        .nest_service("/files", limit.layer(files))
        .nest("/one", nested("/{id}", "one").fallback_service(limit.layer(handler(&seen, "all"))))
        .nest("/any", nested("/{first}/{second}", "any"))
        .merge(router(&seen, "", |name| ["login", "cafe", "escaped"].contains(&name)).route_layer(limit.clone()))
        .merge(router(&seen, "", |name| ["quote", "space", "brace"].contains(&name)).layer(limit.clone()));
    attack("axum, single routes", &seen, app, &names);
}

/// A route for GET runs for HEAD, and so does a rule for GET. A route for POST runs for no other method, whatever a field says.
#[test]
fn a_rule_for_a_method_has_all_requests_that_reach_its_route() {
    let seen = Seen::default();
    let mut file = rules(&routes(&["login", "cafe"]));
    for rule in file["rules"].as_array_mut().unwrap() {
        match rule["path"].as_str() {
            Some("/login") => rule["methods"] = json!(["GET"]),
            Some("/café") => rule["methods"] = json!(["POST"]),
            _ => {}
        }
    }
    let (login, cafe) = (seen.clone(), seen.clone());
    let app = Router::new()
        .route("/login", get(move || async move { login.run("login") }))
        .route("/café", post(move || async move { cafe.run("cafe") }))
        .layer(RateLimitLayer::new(gate_of(&seen, &file)).unwrap());
    attack("axum, methods", &seen, app, &["login"]);
}
