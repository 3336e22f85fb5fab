//! tonic, with the layer around a server and around a service.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use http::{HeaderValue, Request, Response};
use tidegate_evasion::Seen;
use tidegate_evasion::requests::{Chance, Line, count};
use tidegate_tower::RateLimitLayer;
use tokio::net::TcpListener;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tower_layer::Layer as _;
use tower_service::Service;

use crate::gate::gate;
use crate::http2::Client;

/// The methods of a service, as generated code chooses them.
#[derive(Clone)]
struct Shop(Seen);

const METHODS: [(&str, &str); 3] =
    [("buy", "/shop.v1.Shop/Buy"), ("look", "/shop.v1.Shop/Look"), ("unknown", "/shop.v1.Shop/*")];

impl NamedService for Shop {
    const NAME: &'static str = "shop.v1.Shop";
}

impl<B> Service<Request<B>> for Shop {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let path = request.uri().path();
        let known = METHODS.iter().find(|(_, method)| *method == path);
        self.0.run(known.map_or("unknown", |(name, _)| name));
        let mut response = Response::new(Body::empty());
        response.headers_mut().insert("grpc-status", HeaderValue::from_static("0"));
        std::future::ready(Ok(response))
    }
}

fn attack(server: &str, seen: &Seen, address: SocketAddr) {
    let mut chance = Chance::new(server);
    let mut client = Client::new(address);
    for at in 0..count() {
        let line = match METHODS.get(at) {
            Some((_, path)) => Line { method: "POST", target: path.as_bytes().into() },
            None => Line::random(&mut chance, &METHODS),
        };
        client.ask(line.method, &line.target, chance.once(50));
        seen.judge(&[line.method.as_bytes(), b" ", &line.target].concat());
    }
    seen.assert_nothing_evaded(server, &["buy", "look", "unknown"], count() / 100);
}

#[test]
fn a_layer_around_a_server_and_around_a_service() {
    for is_outside in [true, false] {
        let seen = Seen::default();
        let limit = RateLimitLayer::new(gate(&seen, &METHODS)).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let shop = Shop(seen.clone());
        runtime.spawn(async move {
            let incoming = TcpIncoming::from(listener);
            if is_outside {
                Server::builder().layer(limit).add_service(shop).serve_with_incoming(incoming).await
            } else {
                Server::builder().add_service(Inside(limit.layer(shop))).serve_with_incoming(incoming).await
            }
        });
        attack(if is_outside { "tonic" } else { "tonic, one service" }, &seen, address);
    }
}

/// A service in a layer keeps its name.
#[derive(Clone)]
struct Inside<S>(S);

impl<S> NamedService for Inside<S> {
    const NAME: &'static str = Shop::NAME;
}

impl<S, B, R> Service<Request<B>> for Inside<S>
where
    S: Service<Request<B>, Response = Response<R>, Error = Infallible>,
    S::Future: Send + 'static,
    R: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    R::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let response = self.0.call(request);
        Box::pin(async move { Ok(response.await?.map(Body::new)) })
    }
}
