//! Follows a cluster's redirections, and never repeats a command that may have run.

use std::time::Duration;

use redis::aio::ConnectionLike as _;
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{RoutingInfo, SingleNodeRoutingInfo};
use redis::{Cmd, ConnectionInfo, ErrorKind, RedisError, ServerErrorKind, Value};
use tidegate_core::{Error, Millis};

use crate::error;

/// Creates a client that does not retry by itself, because it would replay a command whose connection was lost. [`send`]
/// follows redirections instead.
pub(crate) fn client(nodes: Vec<ConnectionInfo>, deadline: Millis) -> Result<ClusterClient, Error> {
    let deadline = Duration::from_millis(deadline.get());
    #[cfg(feature = "tls-rustls")]
    if nodes.iter().any(|node| matches!(node.addr(), redis::ConnectionAddr::TcpTls { .. })) {
        // Has no effect if the application has chosen a provider. Without a provider, connecting would panic.
        let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
    }
    ClusterClient::builder(nodes)
        .retries(0)
        .connection_timeout(deadline)
        .response_timeout(deadline)
        .build()
        .map_err(error::not_connected)
}

/// Sends a command, and follows one redirection. A node that redirects has not run the command.
pub(crate) async fn send(connection: &mut ClusterConnection, command: &Cmd) -> Result<Value, RedisError> {
    let error = match connection.req_packed_command(command).await {
        Err(error) if error.redirect_node().is_some() => error,
        other => return other,
    };
    let Some(node) = error.redirect_node().and_then(|(address, _)| by_address(address)) else {
        return Err(error);
    };
    if error.kind() == ErrorKind::Server(ServerErrorKind::Moved) {
        return connection.route_command(command.clone(), RoutingInfo::SingleNode(node)).await;
    }
    let mut asking = redis::pipe();
    asking.cmd("ASKING").ignore().add_command(command.clone());
    let mut answers = connection.route_pipeline(asking, 0, 2, node).await?;
    answers.pop().ok_or(error)
}

/// Whether the connection to the whole cluster has ended, not just the connection to one node.
pub(crate) fn is_over(error: &RedisError) -> bool {
    error.kind() == ErrorKind::ClusterConnectionNotFound || error.to_string().contains("redis_cluster: Unable to send")
}

fn by_address(address: &str) -> Option<SingleNodeRoutingInfo> {
    let (host, port) = address.rsplit_once(':')?;
    Some(SingleNodeRoutingInfo::ByAddress { host: host.to_owned(), port: port.parse().ok()? })
}
