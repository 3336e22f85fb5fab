//! Sends requests with `reqwest` over persistent connections. A request that exceeds its deadline closes its connection.

use std::sync::{Mutex, MutexGuard, PoisonError};

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, Url};
use tidegate_core::{Error, ErrorKind, Millis};
use tidegate_remote::{Deadline, Missed, client_config, system_certificates};
use tokio::sync::Semaphore;
use tokio_rustls::rustls::RootCertStore;

use super::ANSWER_LEN_MAX;
use super::config::RestConfig;
use super::transport::{NoAnswer, Response, Transport};
use crate::settings::invalid;

/// The field in which Upstash reports how far a request's writes have been replicated.
const SYNC_TOKEN: HeaderName = HeaderName::from_static("upstash-sync-token");

/// The most requests in flight. Without HTTP/2, each has a connection, and a flood would take all files of the process. Further
/// requests wait for one of them to end.
const IN_FLIGHT_MAX: usize = 256;

/// A `reqwest` HTTP client.
pub struct Native {
    client: Client,
    url: Url,
    room: Semaphore,
    /// The last [`SYNC_TOKEN`] that was received.
    sync_token: Mutex<Option<HeaderValue>>,
}

impl Native {
    pub(crate) fn new(config: &RestConfig) -> Result<Self, Error> {
        let url = Url::parse(&config.url).map_err(|_| invalid("url: no URL; write https://<database>.upstash.io"))?;
        let roots = if url.scheme() == "https" { system_certificates()? } else { RootCertStore::empty() };
        let client = Client::builder()
            .tls_backend_preconfigured(client_config(roots)?)
            .default_headers(headers(config)?)
            .redirect(Policy::none())
            .retry(reqwest::retry::never())
            .build();
        let client =
            client.map_err(|error| Error::new(ErrorKind::Invalid, "upstash: no HTTP client").with_source(error))?;
        Ok(Self { client, url, room: Semaphore::new(IN_FLIGHT_MAX), sync_token: Mutex::default() })
    }

    async fn send(&self, command: String) -> Result<Response, reqwest::Error> {
        let mut request = self.client.post(self.url.clone()).body(command);
        if let Some(token) = &*self.sync_token() {
            request = request.header(SYNC_TOKEN, token);
        }
        let mut response = request.send().await?;
        if let Some(token) = response.headers().get(SYNC_TOKEN) {
            *self.sync_token() = Some(token.clone());
        }
        let mut read = Response { status: response.status().as_u16(), body: Vec::new() };
        while let Some(chunk) = response.chunk().await? {
            read.body.extend_from_slice(&chunk);
            if read.body.len() > ANSWER_LEN_MAX {
                break;
            }
        }
        Ok(read)
    }

    fn sync_token(&self) -> MutexGuard<'_, Option<HeaderValue>> {
        self.sync_token.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Transport for Native {
    type Deadline = Deadline;

    fn deadline(&self, after: Millis) -> Deadline {
        Deadline::after(after)
    }

    async fn post(&self, command: String, deadline: &Deadline) -> Result<Response, NoAnswer> {
        let answered = async {
            // A closed semaphore would let all pass, but nothing closes it.
            let _room = self.room.acquire().await;
            self.send(command).await
        };
        match deadline.until(answered).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) if error.is_connect() => Err(NoAnswer::NotConnected(error.without_url().into())),
            Ok(Err(error)) => Err(NoAnswer::Lost(error.without_url().into())),
            Err(Missed::Deadline) => Err(NoAnswer::Late),
            Err(Missed::Overload) => Err(NoAnswer::Overload),
        }
    }
}

fn headers(config: &RestConfig) -> Result<HeaderMap, Error> {
    let mut bearer = HeaderValue::from_str(&format!("Bearer {}", config.token))
        .map_err(|_| invalid("token: has a character that no header may have"))?;
    bearer.set_sensitive(true);
    Ok(HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json")), (AUTHORIZATION, bearer)]))
}
