//! actix-web, with the middleware of the example at every place where it takes one.

#[allow(dead_code, unreachable_pub, missing_docs, reason = "the tests do not run its main function")]
#[path = "../../examples/actix.rs"]
mod example;

use std::net::{SocketAddr, TcpListener};
use std::thread;

use actix_web::middleware::{NormalizePath, TrailingSlash, from_fn};
use actix_web::web::{self, Data, ServiceConfig};
use actix_web::{App, HttpServer, Route};
use tidegate_evasion::{ROUTES, Seen, http1, routes as named};

use crate::gate::gate;

/// The handler of a route.
fn handler(seen: &Seen, name: &'static str) -> Route {
    let seen = seen.clone();
    web::to(move || {
        let seen = seen.clone();
        async move { seen.run(name) }
    })
}

/// The path of a rule as actix writes it. It decodes the paths of requests.
fn written(path: &str) -> String {
    path.replace('*', "{rest:.*}").replace("%C3%A9", "é").replace("%20", " ")
}

/// All but what actix cannot write: braces in a text.
fn names() -> Vec<&'static str> {
    ROUTES.iter().map(|(name, _)| *name).filter(|name| *name != "brace").collect()
}

/// The routes below a prefix, without it. The more specific ones come first, because actix takes the first that matches.
fn routes(seen: &Seen, prefix: &'static str, config: &mut ServiceConfig) {
    for (name, path) in ROUTES.into_iter().filter(|(name, _)| *name != "brace") {
        if let Some(path) = path.strip_prefix(prefix).filter(|path| path.starts_with('/')) {
            config.route(&written(path), handler(seen, name));
        }
    }
}

fn start<F>(seen: &Seen, names: &[&str], app: F) -> SocketAddr
where
    F: Fn(&mut ServiceConfig) + Clone + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let gate = Data::new(gate(seen, &named(names)));
    thread::spawn(move || {
        let server = HttpServer::new(move || {
            App::new()
                .app_data(gate.clone())
                .configure(&app)
                .default_service(web::to(actix_web::HttpResponse::NotFound))
        });
        actix_web::rt::System::new().block_on(server.workers(1).disable_signals().listen(listener).unwrap().run())
    });
    address
}

#[test]
fn a_middleware_on_a_scope() {
    let seen = Seen::default();
    let own = seen.clone();
    let address = start(&seen, &names(), move |config| {
        let scope = web::scope("").wrap(from_fn(example::limit));
        config.service(scope.configure(|config| routes(&own, "", config)).default_service(handler(&own, "all")));
    });
    http1::attack("actix", address, &seen, &names());
}

#[test]
fn middlewares_on_nested_scopes_and_resources() {
    let seen = Seen::default();
    let own = seen.clone();
    let names = ["login", "part", "api", "below", "item", "tenant", "deep"];
    let address = start(&seen, &names, move |config| {
        let seen = &own;
        let resource =
            |path: &str, name| web::resource(path.to_string()).wrap(from_fn(example::limit)).route(handler(seen, name));
        let api = web::scope("/api").wrap(from_fn(example::limit)).configure(|config| routes(seen, "/api", config));
        let deep = web::scope("/ü").wrap(from_fn(example::limit)).route("/é", handler(seen, "deep"));
        let tenant = web::scope("/{tenant}").service(deep).service(resource("/login", "tenant"));
        config.service(resource("/login", "login")).service(api.default_service(handler(seen, "below")));
        config.service(web::scope("/ü").service(resource("/{id:[^/]+}", "item")));
        config.service(tenant);
    });
    http1::attack("actix, nested", address, &seen, &names);
}

/// A middleware that changes the path runs around or inside the gate.
#[test]
fn a_middleware_beside_one_that_normalizes_paths() {
    for (name, is_outside) in [("actix, normalized before", true), ("actix, normalized after", false)] {
        let seen = Seen::default();
        let own = seen.clone();
        let address = start(&seen, &names(), move |config| {
            let seen = own.clone();
            let inner =
                web::scope("").configure(|config| routes(&seen, "", config)).default_service(handler(&seen, "all"));
            let normalize = || NormalizePath::new(TrailingSlash::Trim);
            // The one that is added last runs first.
            if is_outside {
                config.service(web::scope("").wrap(normalize()).service(inner.wrap(from_fn(example::limit))));
            } else {
                config.service(web::scope("").wrap(from_fn(example::limit)).service(inner.wrap(normalize())));
            }
        });
        http1::attack(name, address, &seen, &names());
    }
}
