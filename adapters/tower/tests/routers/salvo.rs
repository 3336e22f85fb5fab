//! salvo, with the layer by its feature `tower-compat`.

use std::net::SocketAddr;

use salvo::conn::tcp::TcpAcceptor;
use salvo::prelude::*;
use tidegate_evasion::{ROUTES, Seen, http1, routes};
use tidegate_tower::RateLimitLayer;

use crate::gate::gate;

struct Run(Seen, &'static str);

#[salvo::async_trait]
impl Handler for Run {
    async fn handle(&self, _: &mut Request, _: &mut Depot, response: &mut Response, _: &mut FlowCtrl) {
        response.render(self.0.run(self.1));
    }
}

/// The path of a rule as salvo writes it. It decodes the paths of requests.
fn written(path: &str) -> String {
    path.replace('*', "{**rest}").replace("%C3%A9", "é").replace("%20", " ")
}

fn start(service: impl FnOnce() -> Service) -> (SocketAddr, tokio::runtime::Runtime) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    // A hoop of a layer starts a task.
    let service = {
        let _guard = runtime.enter();
        service()
    };
    let acceptor: TcpAcceptor =
        runtime.block_on(async { TcpAcceptor::try_from(tokio::net::TcpListener::bind("127.0.0.1:0").await?) }).unwrap();
    let address = acceptor.inner().local_addr().unwrap();
    runtime.spawn(async move { Server::new(acceptor).serve(service).await });
    (address, runtime)
}

/// All but what salvo cannot write: braces in a text.
fn names() -> Vec<&'static str> {
    ROUTES.iter().map(|(name, _)| *name).filter(|name| *name != "brace").collect()
}

fn limit(seen: &Seen, names: &[&str]) -> RateLimitLayer {
    RateLimitLayer::new(gate(seen, &routes(names))).unwrap()
}

/// The more specific routes come first, because salvo takes the first that matches.
fn routers(seen: &Seen) -> Vec<Router> {
    let own = ROUTES.into_iter().filter(|(name, _)| *name != "brace");
    own.map(|(name, path)| Router::with_path(written(path)).goal(Run(seen.clone(), name))).collect()
}

#[test]
fn a_hoop_on_the_service() {
    let seen = Seen::default();
    let router =
        Router::new().append(&mut routers(&seen)).push(Router::with_path("{**rest}").goal(Run(seen.clone(), "all")));
    let (address, _runtime) = start(|| Service::new(router).hoop(limit(&seen, &names()).compat()));
    http1::attack("salvo, on the service", address, &seen, &names());
}

#[test]
fn hoops_on_nested_routers() {
    let seen = Seen::default();
    let names = ["login", "part", "api", "below", "item", "tenant", "deep"];
    let limit = limit(&seen, &names);
    let run = |path: &str, name| Router::with_path(path).goal(Run(seen.clone(), name));
    let (address, _runtime) = start(|| {
        let hoop = || limit.clone().compat();
        let api = Router::with_path("api").hoop(hoop()).push(run("{id}/parts/{part}", "part")).push(run("{id}", "api"));
        let api = api.push(run("{**rest}", "below"));
        let deep = Router::with_path("ü").hoop(hoop()).push(run("é", "deep"));
        let tenant = Router::with_path("{tenant}").push(run("login", "tenant").hoop(hoop())).push(deep);
        let item = Router::with_path("ü").push(run("{id}", "item").hoop(hoop()));
        let app = Router::new().push(run("login", "login").hoop(hoop())).push(api).push(item).push(tenant);
        Service::new(app.push(run("{**rest}", "all").hoop(hoop())))
    });
    http1::attack("salvo, nested", address, &seen, &names);
}
