//! The service that a layer makes: asks the gate, then calls the inner service or rejects the request.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::mem;
use std::ops::{Deref, Range};
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use pin_project_lite::pin_project;
use tidegate_core::gate::{Pending, Prepared};
use tidegate_core::{Millis, ResponseFields, gate};
use tower_service::Service;

use crate::layer::Settings;
use crate::{Charge, ResponseBody, grpc};

/// The gate's [verdict](gate::Verdict) on a request. The layer inserts it into the extensions of the request if the inner service is
/// called, and into those of the response otherwise, or [always](crate::RateLimitLayer::verdict_in_responses).
#[derive(Clone, Debug)]
pub struct Verdict(gate::Verdict);

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

impl<S: fmt::Debug> fmt::Debug for RateLimit<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
    type Future = ResponseFuture<S::Future, R, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (mut head, body) = request.into_parts();
        if self.settings.is_exempt(&head) {
            return ResponseFuture::passed(self.inner.call(Request::from_parts(head, body)), None);
        }
        let asked = match Asked::of(&self.settings, &head) {
            Asked::Decided(decided) if decided.delay() == Millis::ZERO => {
                return match decided.passed(&self.settings, &mut head) {
                    Ok(passed) => {
                        ResponseFuture::passed(self.inner.call(Request::from_parts(head, body)), Some(passed))
                    }
                    Err(rejected) => ResponseFuture::rejected(rejected.into_response()),
                };
            }
            asked => asked,
        };
        // `poll_ready` made this instance ready; the clone left in its place is not.
        let other = self.inner.clone();
        let mut inner = mem::replace(&mut self.inner, other);
        let settings = Arc::clone(&self.settings);
        ResponseFuture::boxed(async move {
            let decided = asked.decided(&settings, &head).await;
            let delay = decided.delay();
            if delay > Millis::ZERO {
                tokio::time::sleep(Duration::from_millis(delay.get())).await;
            }
            match decided.passed(&settings, &mut head) {
                Ok(passed) => Ok(passed.finish(inner.call(Request::from_parts(head, body)).await?)),
                Err(rejected) => Ok(rejected.into_response()),
            }
        })
    }
}

/// A request that was shown to the gate.
enum Asked {
    Decided(Decided),
    /// A store has to decide, which may take its time.
    Pending(Box<Pending>, Option<Charge>),
}

/// A request with its verdict, which was told.
struct Decided {
    verdict: gate::Verdict,
    /// If its cost is an estimate or it takes a slot. An error does not tell whether the request was charged, so it comes with a charge, too.
    charge: Option<Charge>,
    is_estimate: bool,
}

impl Asked {
    fn of(settings: &Arc<Settings>, head: &Parts) -> Self {
        let decided =
            |verdict, charge, is_estimate| Self::Decided(Decided::new(settings, head, verdict, charge, is_estimate));
        let mut pending = match settings.prepare(head) {
            Prepared::Decided(verdict) => return decided(verdict, None, false),
            Prepared::Pending(pending) => pending,
        };
        let is_estimate = settings.estimates() || pending.estimates();
        if let Err(error) = settings.price(&mut pending, head) {
            return decided(settings.gate.failed(&pending, error), None, is_estimate);
        }
        // It exists before the check, because the server may drop the request while the store answers.
        let charge = pending.hold().map(|hold| Charge::new(Arc::clone(settings), hold));
        match settings.gate.decide_at_once(&pending, &*settings.clock) {
            Some(verdict) => decided(verdict, charge, is_estimate),
            None => Self::Pending(Box::new(pending), charge),
        }
    }

    async fn decided(self, settings: &Arc<Settings>, head: &Parts) -> Decided {
        let (pending, charge) = match self {
            Self::Decided(decided) => return decided,
            Self::Pending(pending, charge) => (pending, charge),
        };
        let mut ahead = settings.ask_ahead(&pending);
        let verdict = settings.gate.decide_at(&pending, &*settings.clock).await;
        if let Some(ahead) = &mut ahead {
            ahead.is_decided = true;
        }
        Decided::new(settings, head, verdict, charge, settings.estimates() || pending.estimates())
    }
}

impl Decided {
    fn new(
        settings: &Settings,
        head: &Parts,
        verdict: gate::Verdict,
        charge: Option<Charge>,
        is_estimate: bool,
    ) -> Self {
        if let Some(charge) = &charge {
            charge.answered(&verdict);
        }
        settings.tell(head, &verdict);
        Self { verdict, charge, is_estimate }
    }

    /// How long the request waits before it is passed on.
    fn delay(&self) -> Millis {
        match &self.verdict {
            gate::Verdict::Pass(pass) => pass.delay(),
            gate::Verdict::Refuse(_) => Millis::ZERO,
        }
    }

    /// What is to be done with the response of the inner service, whose request has this head.
    fn passed(self, settings: &Settings, head: &mut Parts) -> Result<Passed, Box<Rejected>> {
        let Self { verdict, charge, is_estimate } = self;
        let fields = match &verdict {
            gate::Verdict::Pass(pass) => pass.fields(),
            gate::Verdict::Refuse(_) => return Err(Box::new(Rejected { verdict, is_grpc: grpc::is_call(head) })),
        };
        let verdict = Verdict(verdict);
        let in_response = settings.tells_responses().then(|| Box::new(verdict.clone()));
        head.extensions.insert(verdict);
        // A charge without an estimate would hide that of an outer layer.
        if let (Some(charge), true) = (&charge, is_estimate) {
            head.extensions.insert(charge.clone());
        }
        Ok(Passed { fields, verdict: in_response, charge })
    }
}

/// A request that was passed on.
struct Passed {
    fields: ResponseFields,
    /// If the extensions of the response are to have it.
    verdict: Option<Box<Verdict>>,
    charge: Option<Charge>,
}

impl Passed {
    /// Adds to the response what the verdict says.
    fn finish<R>(self, mut response: Response<R>) -> Response<ResponseBody<R>> {
        let Self { fields, verdict, charge } = self;
        if let Some(charge) = &charge {
            charge.responded(response.status());
        }
        write(fields, response.headers_mut());
        if let Some(verdict) = verdict {
            response.extensions_mut().insert(*verdict);
        }
        response.map(|body| ResponseBody::new(body, charge.filter(Charge::may_hold)))
    }
}

/// A request that was refused.
struct Rejected {
    verdict: gate::Verdict,
    is_grpc: bool,
}

impl Rejected {
    fn into_response<R>(self) -> Response<ResponseBody<R>> {
        let Self { verdict, is_grpc } = self;
        let mut response = Response::new(ResponseBody::of_text(Box::default()));
        if let gate::Verdict::Refuse(refusal) = &verdict {
            let rejection = refusal.rejection();
            write(rejection.fields().clone(), response.headers_mut());
            if is_grpc {
                grpc::write(refusal, response.headers_mut());
            } else {
                let code = StatusCode::from_u16(rejection.status_code());
                *response.status_mut() = code.unwrap_or(StatusCode::TOO_MANY_REQUESTS);
                *response.body_mut() = ResponseBody::of_text(rejection.body().into());
            }
        }
        response.extensions_mut().insert(Verdict(verdict));
        response
    }
}

pin_project! {
    /// The response of a [`RateLimit`].
    ///
    /// It is in no box if the gate decides at once, as it does where the counts are in memory and nothing delays the request.
    pub struct ResponseFuture<F, R, E> {
        #[pin]
        state: State<F, R, E>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F, R, E> {
        Passed { #[pin] inner: F, passed: Option<Passed> },
        Rejected { response: Option<Response<ResponseBody<R>>> },
        Boxed { future: BoxFuture<R, E> },
    }
}

type BoxFuture<R, E> = Pin<Box<dyn Future<Output = Result<Response<ResponseBody<R>>, E>> + Send>>;

impl<F, R, E> ResponseFuture<F, R, E> {
    /// `None` for a request that the gate was not asked about.
    const fn passed(inner: F, passed: Option<Passed>) -> Self {
        Self { state: State::Passed { inner, passed } }
    }

    const fn rejected(response: Response<ResponseBody<R>>) -> Self {
        Self { state: State::Rejected { response: Some(response) } }
    }

    fn boxed(future: impl Future<Output = Result<Response<ResponseBody<R>>, E>> + Send + 'static) -> Self {
        Self { state: State::Boxed { future: Box::pin(future) } }
    }
}

impl<F: Future<Output = Result<Response<R>, E>>, R, E> Future for ResponseFuture<F, R, E> {
    type Output = Result<Response<ResponseBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProj::Passed { inner, passed } => inner.poll(cx).map_ok(|response| match passed.take() {
                Some(passed) => passed.finish(response),
                None => response.map(|body| ResponseBody::new(body, None)),
            }),
            StateProj::Rejected { response } => {
                response.take().map_or(Poll::Pending, |response| Poll::Ready(Ok(response)))
            }
            StateProj::Boxed { future } => future.as_mut().poll(cx),
        }
    }
}

impl<F, R, E> fmt::Debug for ResponseFuture<F, R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResponseFuture(…)")
    }
}

/// Sets the fields, replacing those of the inner service. Their values share memory.
pub(crate) fn write(fields: ResponseFields, headers: &mut HeaderMap) {
    static NAMES: LazyLock<[(HeaderName, bool); ResponseFields::NAMES.len()]> =
        LazyLock::new(|| ResponseFields::NAMES.map(|name| (HeaderName::from_static(name), REPEATED.contains(&name))));
    let (text, fields) = fields.into_text();
    let text = Bytes::from(text);
    for (place, span) in fields {
        let (name, is_repeated) = &NAMES[place];
        let value = if *is_repeated { repeated(place, &text, span) } else { value(&text, span) };
        if let Some(value) = value {
            headers.insert(name, value);
        }
    }
}

/// The fields whose values one response after another has: those of a policy, and the second in which a window ends.
const REPEATED: [&str; 4] = [
    ResponseFields::X_RATELIMIT_LIMIT,
    ResponseFields::X_RATELIMIT_RESET,
    ResponseFields::RATELIMIT_POLICY,
    ResponseFields::RATELIMIT_LIMIT,
];

/// A value of such a field: that of the last response of this thread, if it is the same. A value for all threads would have one count of its
/// users, for which they would wait for each other.
fn repeated(place: usize, text: &Bytes, span: Range<usize>) -> Option<HeaderValue> {
    thread_local! {
        static LAST: RefCell<[Option<HeaderValue>; ResponseFields::NAMES.len()]> = const {
            RefCell::new([const { None }; ResponseFields::NAMES.len()])
        };
    }
    LAST.with_borrow_mut(|last| {
        let last = last.get_mut(place)?;
        if last.as_ref().is_none_or(|last| text.get(span.clone()) != Some(last.as_bytes())) {
            *last = value(text, span);
        }
        last.clone()
    })
}

/// Every value is visible ASCII, so there always is one.
fn value(text: &Bytes, span: Range<usize>) -> Option<HeaderValue> {
    HeaderValue::from_maybe_shared(text.slice(span)).ok()
}
