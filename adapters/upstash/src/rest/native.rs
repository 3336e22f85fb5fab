//! Requests by `reqwest`, over connections that are kept. A request whose deadline passes takes its connection with it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, Url};
use tokio::time::{Duration, Instant, timeout_at};
use tokio_rustls::rustls::RootCertStore;
use tollgate_core::{Error, ErrorKind, Millis};

use super::config::RestConfig;
use super::{ANSWER_LEN_MAX, HEADERS, Response, SYNC_TOKEN, error};
use crate::settings::invalid;
use crate::trust;

pub(crate) struct Http {
    client: Client,
    url: Url,
    deadline: Millis,
}

/// When a call, its second request included, must be done.
pub(crate) struct Deadline(Instant);

impl Http {
    pub(crate) fn new(config: &RestConfig) -> Result<Self, Error> {
        let url = Url::parse(&config.url).map_err(|_| invalid("url: no URL; write https://<database>.upstash.io"))?;
        let roots = if url.scheme() == "https" { trust::system_certificates()? } else { RootCertStore::empty() };
        let client = Client::builder()
            .tls_backend_preconfigured(trust::client_config(roots)?)
            .default_headers(headers(config)?)
            .redirect(Policy::none())
            .retry(reqwest::retry::never())
            .build();
        let client =
            client.map_err(|error| Error::new(ErrorKind::Invalid, "upstash: no HTTP client").with_source(error))?;
        Ok(Self { client, url, deadline: config.deadline })
    }

    pub(crate) fn deadline(&self) -> Deadline {
        Deadline(Instant::now() + Duration::from_millis(self.deadline.get()))
    }

    /// Sends one request, once.
    pub(crate) async fn post(
        &self,
        body: String,
        sync_token: Option<&str>,
        deadline: &Deadline,
    ) -> Result<Response, Error> {
        match timeout_at(deadline.0, self.send(body, sync_token)).await {
            Ok(Ok(Some(response))) => Ok(response),
            Ok(Ok(None)) => Err(error::nonsense("an answer of more than a megabyte")),
            Ok(Err(error)) if error.is_connect() => Err(error::not_connected(error.without_url())),
            Ok(Err(error)) => Err(error::lost(error.without_url())),
            Err(_) => Err(error::timeout(self.deadline)),
        }
    }

    /// The response; none where it is longer than any answer.
    async fn send(&self, body: String, sync_token: Option<&str>) -> Result<Option<Response>, reqwest::Error> {
        let mut request = self.client.post(self.url.clone()).body(body);
        if let Some(token) = sync_token {
            request = request.header(SYNC_TOKEN, token);
        }
        let mut response = request.send().await?;
        let told = response.headers().get(SYNC_TOKEN).and_then(|token| token.to_str().ok()).map(ToOwned::to_owned);
        let mut read = Response { status: response.status().as_u16(), sync_token: told, body: Vec::new() };
        while let Some(chunk) = response.chunk().await? {
            if read.body.len() + chunk.len() > ANSWER_LEN_MAX {
                return Ok(None);
            }
            read.body.extend_from_slice(&chunk);
        }
        Ok(Some(read))
    }
}

fn headers(config: &RestConfig) -> Result<HeaderMap, Error> {
    let mut headers: HeaderMap =
        HEADERS.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect();
    let mut bearer = HeaderValue::from_str(&format!("Bearer {}", config.token))
        .map_err(|_| invalid("token: has a character that no header may have"))?;
    bearer.set_sensitive(true);
    headers.insert(AUTHORIZATION, bearer);
    Ok(headers)
}

pub(crate) fn from_base64(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}
