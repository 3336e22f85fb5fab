//! HTTP/1.1 and HTTP/2 on one port.

use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;

/// Requests that one HTTP/2 connection may have under way: a burst must not wait in the client for its turn.
const STREAMS_MAX: u32 = 16_384;

/// Serves until it is dropped.
pub(crate) async fn forever(listener: TcpListener, app: Router) {
    let mut http = Builder::new(TokioExecutor::new());
    http.http2().max_concurrent_streams(STREAMS_MAX);
    loop {
        let Ok((socket, peer)) = listener.accept().await else {
            // Out of file descriptors, as a rule: others are about to be given back.
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let _ = socket.set_nodelay(true);
        let service = TowerToHyperService::new(app.clone().layer(axum::Extension(peer)));
        let http = http.clone();
        tokio::spawn(async move {
            let _closed_by_the_client = http.serve_connection(TokioIo::new(socket), service).await;
        });
    }
}
