//! Serves HTTP with a new instance for each request.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::HeaderValue;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, oneshot};
use wasmtime_wasi_http::p2::WasiHttpView as _;
use wasmtime_wasi_http::p2::bindings::ProxyPre;
use wasmtime_wasi_http::p2::bindings::http::types::{ErrorCode, Scheme};
use wasmtime_wasi_http::p2::body::HyperOutgoingBody;

use crate::app::{App, INSTANCES_MAX, Kind};
use crate::instance::Instance;
use crate::middleware;
use crate::overlap::Unread;
use crate::segments;

/// Answers requests.
pub(crate) async fn serve(listener: TcpListener, app: Arc<App>, no_delay: bool) -> String {
    let places = Arc::new(Semaphore::new(INSTANCES_MAX as usize));
    loop {
        let (stream, client) = match listener.accept().await {
            Ok(accepted) => accepted,
            // The process has too many open files, or the client left early. Neither ends the server.
            Err(error) => {
                eprintln!("accept: {error}");
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
        };
        let _ = stream.set_nodelay(no_delay);
        let (app, places) = (Arc::clone(&app), Arc::clone(&places));
        tokio::spawn(async move {
            let answer = service_fn(move |request| answer(Arc::clone(&app), Arc::clone(&places), request, client));
            let mut server = Builder::new(TokioExecutor::new());
            server.http2().max_concurrent_streams(None);
            // A client that disconnects is not an error.
            let _gone = server.serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}

async fn answer(
    app: Arc<App>,
    places: Arc<Semaphore>,
    mut request: Request<Incoming>,
    client: SocketAddr,
) -> Result<Response<HyperOutgoingBody>, hyper::Error> {
    if let Some((name, _)) = request.headers().iter().find(|(_, value)| str::from_utf8(value.as_bytes()).is_err()) {
        return Ok(failed(&format!("the field {name} is not UTF-8")));
    }
    let Ok(place) = places.acquire_owned().await else { return Ok(failed("the host is closing")) };
    let unread = app.arrives();
    let Ok(address) = HeaderValue::from_str(&client.to_string()) else { return Ok(failed("the client's address")) };
    request.headers_mut().append("spin-client-addr", address);
    let pre = match app.kind() {
        Kind::Once(pre) => pre.clone(),
        Kind::Again(handler) => {
            drop(unread);
            let answered = middleware::answer(handler, request).await;
            return Ok(answered.unwrap_or_else(|error| failed(&format!("{error:#}"))));
        }
    };
    let (sender, receiver) = oneshot::channel();
    // In a task of its own, so that an instance can finish its writes if the client disconnects.
    let handled = tokio::spawn(async move {
        let _place = place;
        handle(&app, &pre, request, unread, sender).await
    });
    match receiver.await {
        Ok(Ok(response)) => Ok(response),
        Ok(Err(code)) => Ok(failed(&format!("{code:?}"))),
        Err(_) => Ok(failed(&match handled.await {
            Ok(Ok(())) => "the component sent no response".into(),
            Ok(Err(error)) => format!("{error:#}"),
            Err(error) => error.to_string(),
        })),
    }
}

async fn handle(
    app: &App,
    pre: &ProxyPre<Instance>,
    request: Request<Incoming>,
    unread: Unread,
    sender: oneshot::Sender<Result<Response<HyperOutgoingBody>, ErrorCode>>,
) -> wasmtime::Result<()> {
    let mut store = app.store(pre.engine(), unread)?;
    let request = request.map(|body| body.map_err(|error| ErrorCode::InternalError(Some(error.to_string()))));
    let request = store.data_mut().http().new_incoming_request(Scheme::Http, request)?;
    let response = store.data_mut().http().new_response_outparam_from_callback(move |response| {
        // A client that disconnects is not an error.
        let _gone = sender.send(response.map(|response| response.map(segments::of)));
    })?;
    let proxy = pre.instantiate_async(&mut store).await?;
    proxy.wasi_http_incoming_handler().call_handle(&mut store, request, response).await
}

fn failed(why: &str) -> Response<HyperOutgoingBody> {
    eprintln!("{why}");
    let body = Full::new(Bytes::new()).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    response
}
