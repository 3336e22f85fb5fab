//! HTTP/1.1 and HTTP/2 on one port.

use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;

/// The most concurrent requests on one HTTP/2 connection. A burst must not queue in the client.
const STREAMS_MAX: u32 = 16_384;

/// Serves until the future is dropped.
pub(crate) async fn forever(listener: TcpListener, app: Router) {
    let mut http = Builder::new(TokioExecutor::new());
    http.http2().max_concurrent_streams(STREAMS_MAX);
    loop {
        let Ok((socket, peer)) = listener.accept().await else {
            // Usually the process is out of file descriptors. Wait until others are closed.
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
