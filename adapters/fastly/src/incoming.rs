//! A gate in front of an app.

use std::thread::sleep;
use std::time::Duration;

use fastly::{Request, Response};
use pollster::block_on;
use tidegate_core::gate::{Gate, Headers, Pass, Request as GateRequest, Verdict};
use tidegate_core::{ResponseFields, UnixMillis};

/// Decides on a request. `Err` has the response to send in place of the app's.
///
/// The gate needs [`Platform::Fastly`](tidegate_core::Platform::Fastly). A request that a leaky bucket admits is held until its
/// turn.
///
/// ```no_run
/// # #[cfg(target_os = "wasi")] mod app {
/// use fastly::{Error, Request, Response};
/// use tidegate_fastly::{ClientIpSource, Gate, Kv, Platform, Rules};
///
/// fn answer(request: Request) -> Result<Response, Error> {
///     let rules = Rules::parse("rules.json", include_str!("../examples/rules.json"))?;
///     let gate = Gate::new(rules, Kv::open("tidegate")?.limiter(), ClientIpSource::new(Platform::Fastly))?;
///     match tidegate_fastly::check(&gate, &request) {
///         Ok(pass) => Ok(tidegate_fastly::with_fields(request.send("origin")?, &pass.fields())),
///         Err(refused) => Ok(refused),
///     }
/// }
/// # }
/// ```
#[expect(clippy::result_large_err, reason = "it is sent, and not passed on")]
pub fn check(gate: &Gate<'_>, request: &Request) -> Result<Pass, Response> {
    outcome(block_on(gate.check(&Incoming::new(request).asked())))
}

/// What a gate reads of a request, for an app that knows more of it than its platform.
///
/// ```no_run
/// # #[cfg(target_os = "wasi")] mod app {
/// # use fastly::{Request, Response};
/// # use pollster::block_on;
/// # use tidegate_core::gate::{Gate, Pass};
/// # use tidegate_fastly::{Incoming, outcome};
/// # fn check(gate: &Gate<'_>, request: &Request) -> Result<Pass, Response> {
/// let incoming = Incoming::new(request);
/// outcome(block_on(gate.check(&incoming.asked().tier("staff").cost(5))))
/// # }
/// # }
/// ```
pub struct Incoming<'a>(&'a Request);

impl<'a> Incoming<'a> {
    /// Reads a request.
    #[must_use]
    pub const fn new(request: &'a Request) -> Self {
        Self(request)
    }

    /// The request as the gate sees it, now.
    #[must_use]
    pub fn asked(&self) -> GateRequest<'_> {
        let asked = GateRequest::new(self.0.get_method_str(), self.0.get_path(), self, UnixMillis::now())
            .clock(&UnixMillis::now);
        asked.with_host(self.0.get_url().host_str().unwrap_or_default()).peer(self.0.get_client_ip_addr())
    }
}

impl Headers for Incoming<'_> {
    fn values(&self, name: &str, read: &mut dyn FnMut(&[u8])) {
        self.0.get_header_all(name).for_each(|value| read(value.as_bytes()));
    }
}

/// The pass of a verdict, or the response to send in place of the app's. What the gate has to [tell](Verdict::notice) goes to the service's
/// log. An instance lives for one request, so while a store is down, each request is one line.
#[expect(clippy::result_large_err, reason = "it is sent, and not passed on")]
pub fn outcome(verdict: Verdict) -> Result<Pass, Response> {
    if let Some(notice) = verdict.notice() {
        println!("tidegate: {notice}");
    }
    match verdict {
        Verdict::Pass(pass) => {
            sleep(Duration::from_millis(pass.delay().get()));
            Ok(pass)
        }
        Verdict::Refuse(refusal) => {
            let (status, fields, body) = refusal.into_rejection().into_parts();
            Err(with_fields(Response::from_body(body).with_status(status), &fields))
        }
    }
}

/// Adds the fields of a [pass](Pass::fields) to a response, in place of those of the same names.
#[must_use]
pub fn with_fields(mut response: Response, fields: &ResponseFields) -> Response {
    for (name, value) in fields.iter() {
        response.set_header(name, value);
    }
    response
}
