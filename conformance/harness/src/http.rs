//! Guests over HTTP.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tidegate_conformance::subject::Place;
use tidegate_guest_protocol::{Mode, Reply, Route};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// The timeout of a request.
const PATIENCE: Duration = Duration::from_secs(30);

/// A burst is spread over at least this many connections.
const CONNECTIONS_MIN: usize = 8;

/// How long a connection may be idle before it is used again.
const IDLE_MAX: Duration = Duration::from_secs(1);

/// The most idle connections of a lane.
const POOLED_MAX: usize = 256;

/// The version of HTTP that a guest speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.1, with a connection for each request in flight.
    Http1,
    /// HTTP/2 without TLS, with many requests per connection.
    Http2,
}

/// Guests over HTTP: one or several processes of one target.
#[derive(Debug)]
pub struct Http {
    /// The connections to each process.
    processes: Vec<Vec<Lane>>,
    /// Whether each process counts on its own.
    apart: bool,
}

#[derive(Debug)]
struct Lane {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    base: String,
    /// The key of guests that others can reach.
    key: Option<String>,
}

impl Http {
    /// A client of the processes at these addresses (`http://127.0.0.1:1234`, or `https://`, where a connection may have
    /// HTTP/2).
    #[must_use]
    pub fn new(bases: &[String], version: Version) -> Self {
        let lanes = CONNECTIONS_MIN.div_ceil(bases.len().max(1));
        let processes = bases.iter().map(|base| (0..lanes).map(|_| Lane::new(base, version)).collect());
        Self { processes: processes.collect(), apart: false }
    }

    /// Sends this key with each request. See [`Mode`].
    #[must_use]
    pub fn keyed(mut self, key: &str) -> Self {
        self.processes.iter_mut().flatten().for_each(|lane| lane.key = Some(key.into()));
        self
    }

    /// Treats each process as a location that counts on its own. Requests without a location go to the first.
    #[must_use]
    pub fn apart(self) -> Self {
        Self { apart: true, ..self }
    }

    /// The number of processes.
    #[must_use]
    pub fn processes(&self) -> usize {
        self.processes.len()
    }

    /// The number of processes that share the requests without a location.
    #[must_use]
    pub fn sharing(&self) -> usize {
        if self.apart { 1 } else { self.processes.len() }
    }

    /// Opens every connection, so that a burst does not wait for one.
    ///
    /// # Errors
    /// Fails if a guest does not answer.
    pub async fn warm_up(&self) -> Result<(), String> {
        for lane in self.processes.iter().flatten() {
            lane.send(Route::Capabilities, Bytes::new()).await?;
        }
        Ok(())
    }

    /// Sends a request over the connection that `place` selects.
    ///
    /// # Errors
    /// Fails if the guest does not answer.
    pub async fn send(&self, route: Route, body: Bytes, place: Place) -> Result<Reply, String> {
        let location = place.location.or(self.apart.then_some(0));
        let process = usize::try_from(location.unwrap_or(place.nth)).unwrap_or(0) % self.processes.len();
        let turn = usize::try_from(place.nth).unwrap_or(0);
        let turn = if location.is_some() { turn } else { turn / self.processes.len() };
        let lanes = &self.processes[process];
        lanes[turn % lanes.len()].send(route, body).await
    }
}

impl Lane {
    fn new(base: &str, version: Version) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.enforce_http(false);
        let secured = HttpsConnectorBuilder::new().with_tls_config(trusting(base)).https_or_http();
        let connector = secured.enable_all_versions().wrap_connector(connector);
        let mut client = Client::builder(TokioExecutor::new());
        if version == Version::Http1 {
            // A server may close an idle connection just as a request is sent over it, and that request would be lost.
            // Servers wait for at least five seconds, so connections that idled for less are safe to use.
            client.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE_MAX).pool_max_idle_per_host(POOLED_MAX);
        }
        let client = client.http2_only(version == Version::Http2).build(connector);
        Self { client, base: base.to_string(), key: None }
    }

    async fn send(&self, route: Route, body: Bytes) -> Result<Reply, String> {
        let asked = tokio::time::timeout(PATIENCE, self.exchange(route, body)).await;
        asked.unwrap_or_else(|_| Err(format!("{}{}: no answer within {PATIENCE:?}", self.base, route.path())))
    }

    async fn exchange(&self, route: Route, body: Bytes) -> Result<Reply, String> {
        let failed = |error: &dyn std::error::Error| format!("{}{}: {}", self.base, route.path(), with_causes(error));
        let request = Request::post(format!("{}{}", self.base, route.path()));
        let request = request.header("content-type", "application/json");
        let request = match &self.key {
            Some(key) => request.header(Mode::FIELD, key),
            None => request,
        };
        let request = request.body(Full::new(body)).map_err(|error| failed(&error))?;
        let response = self.client.request(request).await.map_err(|error| failed(&error))?;
        let (head, body) = response.into_parts();
        let body = body.collect().await.map_err(|error| failed(&error))?.to_bytes().to_vec();
        let field = |(name, value): (&hyper::header::HeaderName, &hyper::header::HeaderValue)| {
            (name.as_str().to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        Ok(Reply { status: head.status.as_u16(), headers: head.headers.iter().map(field).collect(), body })
    }
}

/// TLS that trusts the certificates of the system. They are not loaded for an address without TLS.
fn trusting(base: &str) -> ClientConfig {
    static SYSTEM: LazyLock<RootCertStore> = LazyLock::new(|| {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        roots
    });
    let roots = if base.starts_with("https:") { SYSTEM.clone() } else { RootCertStore::empty() };
    let versions = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let versions = versions.with_safe_default_protocol_versions().expect("ring has TLS 1.2 and 1.3");
    versions.with_root_certificates(roots).with_no_client_auth()
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
