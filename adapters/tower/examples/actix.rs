//! A rate-limited service on actix-web, which has no tower layers: a middleware asks the gate itself. Its rules are in
//! `rules.toml`.
//!
//! ```text
//! cargo run -p tidegate-tower --example actix
//! curl -i http://127.0.0.1:8080/
//! ```
//!
//! Rules with a concurrency limit or an estimate are settled at the end of the response, which this middleware does not see.

use std::time::Duration;

use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};
use actix_web::middleware::{Next, from_fn};
use actix_web::web::{self, Data};
use actix_web::{App, HttpResponse, HttpServer};
use tidegate_core::gate::{Gate, Headers, Request, Rules, Verdict};
use tidegate_core::{ClientIpSource, Error, Limiter, MemoryLimiter, Platform, ResponseFields, UnixMillis};

/// The gate. Pass another limiter, for example `tidegate_redis::RedisLimiter`, to count in another store.
pub fn gate(limiter: impl Limiter + 'static, platform: Platform) -> Result<Gate<'static>, Error> {
    Gate::new(Rules::parse("rules.toml", include_str!("rules.toml"))?, limiter, ClientIpSource::new(platform))
}

/// The routes, behind the gate.
pub fn routes(config: &mut web::ServiceConfig) {
    let scope = web::scope("").wrap(from_fn(limit));
    config.service(
        scope
            .route("/", web::get().to(async || "hello\n"))
            .route("/login", web::post().to(async || "hello\n"))
            .route("/health", web::get().to(async || "ok\n")),
    );
}

/// Asks the gate about each request.
pub async fn limit(
    gate: Data<Gate<'static>>,
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, actix_web::Error> {
    let verdict = {
        let fields = Fields(request.headers());
        let asked = Request::new(request.method().as_str(), request.path(), &fields, UnixMillis::now());
        gate.check(&asked.peer(request.peer_addr().map(|peer| peer.ip()))).await
    };
    if let Some(notice) = verdict.notice() {
        eprintln!("tidegate: {notice}");
    }
    match verdict {
        Verdict::Pass(pass) => {
            // A request that a leaky bucket admits waits for its turn.
            actix_web::rt::time::sleep(Duration::from_millis(pass.delay().get())).await;
            let mut response = next.call(request).await?.map_into_boxed_body();
            add(response.headers_mut(), &pass.fields());
            Ok(response)
        }
        Verdict::Refuse(refusal) => {
            let (status, fields, body) = refusal.into_rejection().into_parts();
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            let mut response = HttpResponse::with_body(status, BoxBody::new(body));
            add(response.headers_mut(), &fields);
            Ok(request.into_response(response))
        }
    }
}

/// The header fields of a request.
struct Fields<'a>(&'a HeaderMap);

impl Headers for Fields<'_> {
    fn values(&self, name: &str, read: &mut dyn FnMut(&[u8])) {
        self.0.get_all(name).for_each(|value| read(value.as_bytes()));
    }
}

fn add(headers: &mut HeaderMap, fields: &ResponseFields) {
    for (name, value) in fields.iter() {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_str(value)) {
            headers.insert(name, value);
        }
    }
}

#[actix_web::main]
async fn main() -> std::io::Result<()> {
    let gate = Data::new(gate(MemoryLimiter::new(), Platform::Direct).map_err(std::io::Error::other)?);
    HttpServer::new(move || App::new().app_data(gate.clone()).configure(routes)).bind("127.0.0.1:8080")?.run().await
}
