//! The service that a layer makes: asks the limiter, then calls the inner service or rejects the request.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use tidegate_core::{Check, Decision, Error, ErrorKind, Limiter, Millis, Rejection, ResponseFields};
use tower_service::Service;

use crate::charge::token;
use crate::layer::Rules;
use crate::{Charge, FailMode, ResponseBody};

/// The outcome of the limiter's check. The layer inserts it into the extensions of the request, if the inner service
/// is called, and into those of the response.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Verdict {
    /// The limiter allowed or denied the request.
    Decided(Decision),
    /// The store failed and [`FailMode::Open`] admitted the request without counting it.
    FailedOpen(Arc<Error>),
    /// The limiter returned an error and the request was rejected with a 503.
    FailedClosed(Arc<Error>),
}

/// A service whose requests are limited. [`RateLimitLayer`](crate::RateLimitLayer) creates it.
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
        let rules = Arc::clone(&self.rules);
        Box::pin(async move {
            let (mut head, body) = request.into_parts();
            let (decided, charge) = Rules::decide(&rules, &head).await;
            let (verdict, fields, hold) = match rules.judge(decided) {
                Judged::GoOn { verdict, fields, hold } => (verdict, fields, hold),
                Judged::Rejected(verdict, rejection) => return Ok(rejected(verdict, rejection)),
            };
            if hold > Millis::ZERO {
                tokio::time::sleep(Duration::from_millis(hold.get())).await;
            }
            head.extensions.insert(verdict.clone());
            // A charge without an estimate would hide that of an outer layer.
            if let (Some(charge), Some(_)) = (&charge, &rules.estimate) {
                head.extensions.insert(charge.clone());
            }
            let mut response = inner.call(Request::from_parts(head, body)).await?;
            response.extensions_mut().insert(verdict);
            write(&fields, response.headers_mut());
            let slot = charge.filter(|_| rules.policy.has_slots());
            Ok(response.map(|body| ResponseBody::new(body, slot)))
        })
    }
}

enum Judged {
    GoOn { verdict: Verdict, fields: ResponseFields, hold: Millis },
    Rejected(Verdict, Rejection),
}

impl<L: Limiter + 'static> Rules<L> {
    /// Decides on a request. If its cost is an estimate or it takes a slot, also returns the charge. An error does not tell
    /// whether the request was charged, so it comes with a charge, too. The charge exists before the check, because the server
    /// may drop this future while the store answers.
    async fn decide(rules: &Arc<Self>, head: &Parts) -> (Result<Decision, Error>, Option<Charge>) {
        let key = rules.key_extractor.key(head);
        let check = Check::new(&rules.policy, &key, (rules.clock)());
        let (estimated, ttl) = match &rules.estimate {
            Some(estimate) => (estimate.of(head), rules.settle_within),
            // The store remembers the charge for as long as the slot may be held.
            None if rules.policy.has_slots() => (token().map(|token| (1, token)), Millis::ZERO),
            None => return (rules.limiter.check(check).await, None),
        };
        let (cost, token) = match estimated {
            Ok(estimated) => estimated,
            Err(error) => return (Err(error), None),
        };
        let charge = Charge::new(Arc::clone(rules), key.clone(), token.clone());
        let decided = rules.limiter.check(check.cost(cost).idempotent(&token, ttl)).await;
        charge.answered(&decided);
        (decided, Some(charge))
    }
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
            Err(error) => self.judge_error(error),
        }
    }

    /// Admits a request after a store failure if [`FailMode::Open`] is set, and rejects it in all other cases: a client
    /// can cause every other error.
    fn judge_error(&self, error: Error) -> Judged {
        let kind = error.kind();
        let opens = self.fail_mode == FailMode::Open && kind.is_store_failure();
        self.warn(kind, if opens { "admitted" } else { "rejected" });
        if opens {
            let fields = ResponseFields::failed_open(kind);
            return Judged::GoOn { fields, hold: Millis::ZERO, verdict: Verdict::FailedOpen(Arc::new(error)) };
        }
        Judged::Rejected(Verdict::FailedClosed(Arc::new(error)), Rejection::unavailable(kind))
    }

    /// Logs an error. Its message and its source stay out of the log: a store may put an address or a credential into them.
    pub(crate) fn warn(&self, kind: ErrorKind, outcome: &'static str) {
        tracing::warn!(
            target: "tidegate",
            policy = self.policy.name(),
            kind = kind.name(),
            outcome,
            "rate limiter failed"
        );
    }
}

fn rejected<R: From<String>>(verdict: Verdict, rejection: Rejection) -> Response<ResponseBody<R>> {
    let (status_code, fields, body) = rejection.into_parts();
    let mut response = Response::new(ResponseBody::from(body));
    *response.status_mut() = StatusCode::from_u16(status_code).unwrap_or(StatusCode::TOO_MANY_REQUESTS);
    response.extensions_mut().insert(verdict);
    write(&fields, response.headers_mut());
    response
}

/// Sets the fields, replacing those of the inner service.
fn write(fields: &ResponseFields, headers: &mut HeaderMap) {
    for (name, value) in fields.iter() {
        // Every value is visible ASCII, so this does not fail.
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
}
