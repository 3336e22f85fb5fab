//! A gate in front of a Worker.

use std::sync::LazyLock;
use std::time::Duration;

use tidegate_core::gate::{Gate, Headers, LogLimit, Pass, Request as GateRequest, Verdict};
use tidegate_core::internal::begin;
use tidegate_core::lending::PAUSE;
use tidegate_core::{Error, Rejection, ResponseFields, UnixMillis};
use worker::{BotManagement, Context, Date, Delay, Request, Response, console_error};

/// Decides on a request. The inner `Err` has the response to send in place of the Worker's.
///
/// The gate needs [`Platform::Cloudflare`](tidegate_core::Platform::Cloudflare). A request that a leaky bucket admits is held
/// until its turn.
///
/// # Errors
/// The platform cannot make the response.
pub async fn check(gate: &Gate<'_>, request: &Request) -> worker::Result<Result<Pass, Response>> {
    outcome(gate.check(&Incoming::new(request).asked()).await).await
}

/// Asks for the next leases, if the gate's rules have a [lease](tidegate_core::gate::Rules#leases). The response does not wait for
/// it: see [`Gate::after`]. Call this for each request, and [`Gate::in_background`] where the gate is made.
///
/// ```ignore
/// let outcome = check(gate, &request).await?;
/// after(gate, &context);
/// ```
pub fn after(gate: &'static Gate<'static>, context: &Context) {
    let pause = async { Delay::from(Duration::from_millis(PAUSE.get())).await };
    if let Some(rest) = begin(gate.after(now, pause)) {
        context.wait_until(rest);
    }
}

/// What a gate reads of a request, for a Worker that knows more of it than the platform.
///
/// ```ignore
/// let incoming = Incoming::new(&request);
/// let verdict = gate.check(&incoming.asked().subject("alice").cost(5)).await;
/// match outcome(verdict).await? { … }
/// ```
pub struct Incoming<'a> {
    request: &'a Request,
    method: String,
    path: String,
    bot_score: Option<u8>,
    /// The fingerprint of its TLS handshake.
    ja4: Option<String>,
}

impl<'a> Incoming<'a> {
    /// Reads a request.
    #[must_use]
    pub fn new(request: &'a Request) -> Self {
        let bot = request.cf().and_then(|cf| cf.bot_management());
        // The platform has no score for requests from its own network, and reports 0.
        let bot_score = bot.as_ref().and_then(|bot| u8::try_from(bot.score()).ok()).filter(|score| *score > 0);
        let ja4 = bot.as_ref().and_then(BotManagement::ja4);
        Self { request, method: request.method().to_string(), path: request.path(), bot_score, ja4 }
    }

    /// The request as the gate sees it, now.
    #[must_use]
    pub fn asked(&self) -> GateRequest<'_> {
        let asked = GateRequest::new(&self.method, &self.path, self, now()).clock(&now);
        let asked = asked.ja4(self.ja4.as_deref().unwrap_or_default());
        match self.bot_score {
            Some(score) => asked.bot_score(score),
            None => asked,
        }
    }
}

impl Headers for Incoming<'_> {
    fn values(&self, name: &str, read: &mut dyn FnMut(&[u8])) {
        if let Ok(Some(value)) = self.request.headers().get(name) {
            read(value.as_bytes());
        }
    }
}

/// The pass of a verdict, or the response to send in place of the Worker's. What the gate has to [tell](Verdict::notice) goes to the
/// log: one line when a store goes down and one when it is back, for each isolate that keeps its gate.
///
/// # Errors
/// The platform cannot make the response.
pub async fn outcome(verdict: Verdict) -> worker::Result<Result<Pass, Response>> {
    if let Some(notice) = verdict.notice() {
        console_error!("tidegate: {notice}");
    }
    match verdict {
        Verdict::Pass(pass) => {
            let delay = pass.delay().get();
            if delay > 0 {
                Delay::from(Duration::from_millis(delay)).await;
            }
            Ok(Ok(pass))
        }
        Verdict::Refuse(refusal) => rejected(refusal.into_rejection()).map(Err),
    }
}

/// The response while there is no gate, because a binding is missing for example: a 503, whatever the rules say. The error, which says what
/// to write, goes to the log, at most once a second for each kind.
///
/// # Errors
/// The platform cannot make the response.
pub fn unavailable(error: &Error) -> worker::Result<Response> {
    static LOG: LazyLock<LogLimit> = LazyLock::new(LogLimit::default);
    if LOG.admit(error.kind(), now()).is_some() {
        console_error!("tidegate: {error}");
    }
    rejected(Rejection::unavailable(error.kind()))
}

fn rejected(rejection: Rejection) -> worker::Result<Response> {
    let (status, fields, body) = rejection.into_parts();
    with_fields(Response::error(body, status)?, &fields)
}

/// Adds the fields of a [pass](Pass::fields) to a response, in place of those of the same names.
///
/// # Errors
/// The response is immutable: pass [`Response::cloned`] of one that was fetched.
pub fn with_fields(mut response: Response, fields: &ResponseFields) -> worker::Result<Response> {
    for (name, value) in fields.iter() {
        response.headers_mut().set(name, value)?;
    }
    Ok(response)
}

fn now() -> UnixMillis {
    UnixMillis::new(Date::now().as_millis())
}
