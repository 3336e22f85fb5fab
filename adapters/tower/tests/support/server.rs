//! An axum server over HTTP.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use http::request::Builder;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;

/// A server of a router, and a client of it.
pub struct Server {
    address: SocketAddr,
    client: Client<HttpConnector, Body>,
}

impl Server {
    pub async fn start(app: Router) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let service = app.into_make_service_with_connect_info::<SocketAddr>();
        tokio::spawn(async move { axum::serve(listener, service).await });
        Self { address, client: Client::builder(TokioExecutor::new()).build_http() }
    }

    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    pub async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Response<String> {
        self.send(Request::get(format!("http://{}{path}", self.address)), headers).await
    }

    pub async fn post(&self, path: &str) -> Response<String> {
        self.send(Request::post(format!("http://{}{path}", self.address)), &[]).await
    }

    async fn send(&self, request: Builder, headers: &[(&str, &str)]) -> Response<String> {
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let (head, body) = self.client.request(request.body(Body::empty()).unwrap()).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Response::from_parts(head, String::from_utf8(body.to_vec()).unwrap())
    }
}
