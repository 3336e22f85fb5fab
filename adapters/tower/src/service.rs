//! The service that a layer makes: asks the gate, then calls the inner service or rejects the request.

use std::future::Future;
use std::mem;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use tidegate_core::gate::{Prepared, Refusal};
use tidegate_core::{Millis, ResponseFields, gate};
use tower_service::Service;

use crate::layer::Settings;
use crate::{Charge, ResponseBody, grpc};

/// The gate's [verdict](gate::Verdict) on a request. The layer inserts it into the extensions of the request, if the inner
/// service is called, and into those of the response.
#[derive(Clone, Debug)]
pub struct Verdict(Arc<gate::Verdict>);

impl Deref for Verdict {
    type Target = gate::Verdict;

    fn deref(&self) -> &gate::Verdict {
        &self.0
    }
}

/// A service whose requests are limited. [`RateLimitLayer`](crate::RateLimitLayer) creates it.
#[derive(Clone)]
pub struct RateLimit<S> {
    inner: S,
    settings: Arc<Settings>,
}

impl<S> RateLimit<S> {
    pub(crate) const fn new(inner: S, settings: Arc<Settings>) -> Self {
        Self { inner, settings }
    }
}

impl<S: std::fmt::Debug> std::fmt::Debug for RateLimit<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RateLimit").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<S, B, R> Service<Request<B>> for RateLimit<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // `poll_ready` made this instance ready; the clone left in its place is not.
        let other = self.inner.clone();
        let mut inner = mem::replace(&mut self.inner, other);
        let settings = Arc::clone(&self.settings);
        Box::pin(async move {
            let (mut head, body) = request.into_parts();
            if settings.is_exempt(&head) {
                let response = inner.call(Request::from_parts(head, body)).await?;
                return Ok(response.map(|body| ResponseBody::new(body, None)));
            }
            let (verdict, charge, is_estimate) = decide(&settings, &head).await;
            settings.tell(&head, &verdict);
            let verdict = Verdict(Arc::new(verdict));
            let pass = match &*verdict {
                gate::Verdict::Refuse(refusal) => return Ok(rejected(&verdict, refusal, grpc::is_call(&head))),
                gate::Verdict::Pass(pass) => pass,
            };
            if pass.delay() > Millis::ZERO {
                tokio::time::sleep(Duration::from_millis(pass.delay().get())).await;
            }
            head.extensions.insert(verdict.clone());
            // A charge without an estimate would hide that of an outer layer.
            if let (Some(charge), true) = (&charge, is_estimate) {
                head.extensions.insert(charge.clone());
            }
            let mut response = inner.call(Request::from_parts(head, body)).await?;
            if let (Some(charge), true) = (&charge, settings.refunds(response.status())) {
                charge.clone().cancel();
            }
            write(pass.fields(), response.headers_mut());
            response.extensions_mut().insert(verdict.clone());
            let slot = charge.filter(Charge::may_hold);
            Ok(response.map(|body| ResponseBody::new(body, slot)))
        })
    }
}

/// Decides on a request. If its cost is an estimate or it takes a slot, also returns the charge. An error does not tell whether
/// the request was charged, so it comes with a charge, too. The charge exists before the check, because the server may drop
/// this future while the store answers.
async fn decide(settings: &Arc<Settings>, head: &Parts) -> (gate::Verdict, Option<Charge>, bool) {
    let mut pending = match settings.prepare(head) {
        Prepared::Decided(verdict) => return (verdict, None, false),
        Prepared::Pending(pending) => pending,
    };
    let (verdict, charge) = match settings.price(&mut pending, head) {
        Ok(()) => {
            let charge = pending.hold().map(|hold| Charge::new(Arc::clone(settings), hold));
            let mut ahead = settings.ask_ahead(&pending);
            let verdict = settings.gate.decide_at(&pending, &*settings.clock).await;
            if let Some(ahead) = &mut ahead {
                ahead.is_decided = true;
            }
            if let Some(charge) = &charge {
                charge.answered(&verdict);
            }
            (verdict, charge)
        }
        Err(error) => (settings.gate.failed(&pending, error), None),
    };
    (verdict, charge, settings.estimates() || pending.estimates())
}

fn rejected<R>(verdict: &Verdict, refusal: &Refusal, is_grpc: bool) -> Response<ResponseBody<R>> {
    let rejection = refusal.rejection();
    let text = if is_grpc { String::new() } else { rejection.body().to_string() };
    let mut response = Response::new(ResponseBody::of_text(text));
    response.extensions_mut().insert(verdict.clone());
    write(rejection.fields().clone(), response.headers_mut());
    if is_grpc {
        grpc::write(refusal, response.headers_mut());
    } else {
        let code = StatusCode::from_u16(rejection.status_code());
        *response.status_mut() = code.unwrap_or(StatusCode::TOO_MANY_REQUESTS);
    }
    response
}

/// Sets the fields, replacing those of the inner service. Their values share memory.
pub(crate) fn write(fields: ResponseFields, headers: &mut HeaderMap) {
    let (text, fields) = fields.into_text();
    let text = Bytes::from(text);
    for (name, span) in fields {
        // Every value is visible ASCII, so this does not fail.
        if let Ok(value) = HeaderValue::from_maybe_shared(text.slice(span)) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
}
