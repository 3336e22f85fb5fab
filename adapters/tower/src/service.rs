//! A service behind a limiter.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use tidegate_core::{Check, Decision, Error, Limiter, Millis, Rejection, ResponseFields};
use tower_service::Service;

use crate::FailMode;
use crate::layer::Rules;

/// What was made of a request: in the extensions of the request, where the service is called, and of the response.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Verdict {
    /// The limiter decided.
    Decided(Decision),
    /// The limiter failed, and by [`FailMode::Open`] the request went on unlimited.
    FailedOpen(Arc<Error>),
    /// The limiter failed, and by [`FailMode::Closed`] the request was refused.
    FailedClosed(Arc<Error>),
}

/// A service whose requests are limited: what [`RateLimitLayer`](crate::RateLimitLayer) makes of a service.
#[derive(Debug)]
pub struct RateLimit<S, L> {
    inner: S,
    rules: Arc<Rules<L>>,
}

impl<S, L> RateLimit<S, L> {
    pub(crate) const fn new(inner: S, rules: Arc<Rules<L>>) -> Self {
        Self { inner, rules }
    }
}

impl<S: Clone, L> Clone for RateLimit<S, L> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), rules: Arc::clone(&self.rules) }
    }
}

impl<S, L, B, R> Service<Request<B>> for RateLimit<S, L>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    L: Limiter + 'static,
    B: Send + 'static,
    R: From<String>,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The one that was found ready is the one to call.
        let other = self.inner.clone();
        let mut inner = mem::replace(&mut self.inner, other);
        let rules = Arc::clone(&self.rules);
        Box::pin(async move {
            let (mut head, body) = request.into_parts();
            let key = rules.key_extractor.key(&head);
            let decided = rules.limiter.check(Check::new(&rules.policy, &key, (rules.clock)())).await;
            let (verdict, fields, hold) = match rules.judge(decided) {
                Judged::GoOn { verdict, fields, hold } => (verdict, fields, hold),
                Judged::Rejected(verdict, rejection) => return Ok(rejected(verdict, rejection)),
            };
            if hold > Millis::ZERO {
                tokio::time::sleep(Duration::from_millis(hold.get())).await;
            }
            head.extensions.insert(verdict.clone());
            let mut response = inner.call(Request::from_parts(head, body)).await?;
            response.extensions_mut().insert(verdict);
            write(fields, response.headers_mut());
            Ok(response)
        })
    }
}

/// What to do with a request.
enum Judged {
    GoOn { verdict: Verdict, fields: ResponseFields, hold: Millis },
    Rejected(Verdict, Rejection),
}

impl<L> Rules<L> {
    fn judge(&self, decided: Result<Decision, Error>) -> Judged {
        match decided {
            Ok(decision) => match Rejection::denied(&self.policy, &decision, self.body_format) {
                Some(rejection) => Judged::Rejected(Verdict::Decided(decision), rejection),
                None => Judged::GoOn {
                    fields: ResponseFields::new(&self.policy, &decision),
                    hold: decision.delay(),
                    verdict: Verdict::Decided(decision),
                },
            },
            Err(error) => match self.fail_mode {
                FailMode::Open => Judged::GoOn {
                    fields: ResponseFields::failed_open(error.kind()),
                    hold: Millis::ZERO,
                    verdict: Verdict::FailedOpen(Arc::new(error)),
                },
                FailMode::Closed => {
                    let rejection = Rejection::unavailable(error.kind());
                    Judged::Rejected(Verdict::FailedClosed(Arc::new(error)), rejection)
                }
            },
        }
    }
}

fn rejected<R: From<String>>(verdict: Verdict, rejection: Rejection) -> Response<R> {
    let (status_code, fields, body) = rejection.into_parts();
    let mut response = Response::new(R::from(body));
    *response.status_mut() = StatusCode::from_u16(status_code).unwrap_or(StatusCode::TOO_MANY_REQUESTS);
    response.extensions_mut().insert(verdict);
    write(fields, response.headers_mut());
    response
}

/// Writes the fields in the place of any that the service wrote itself.
fn write(fields: ResponseFields, headers: &mut HeaderMap) {
    for (name, value) in fields {
        // All of them are visible ASCII.
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
}
