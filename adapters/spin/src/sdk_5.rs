//! A gate in front of an app of `spin-sdk` 5.2.

use std::thread::sleep;
use std::time::Duration;

use spin_sdk::http::{IncomingRequest, Response};
use tidegate_core::ResponseFields;
use tidegate_core::gate::{Gate, Pass, Verdict};

use crate::incoming::Incoming;

/// Decides on a request. `Err` has the response to send in place of the app's.
///
/// The gate needs [`Platform::Spin`](tidegate_core::Platform::Spin). A request that a leaky bucket admits is held until its
/// turn.
///
/// ```
/// # #[cfg(target_arch = "wasm32")] mod app {
/// use spin_sdk::http::{IncomingRequest, Response};
/// use tidegate_spin::{ClientIpSource, Error, Gate, Platform, Rules, SpinAtomics};
///
/// async fn answer(request: IncomingRequest) -> Result<Response, Error> {
///     let rules = Rules::parse("rules.json", include_str!("../examples/rules.json"))?;
///     let store = SpinAtomics::open("default")?.limiter();
///     let gate = Gate::new(rules, store, ClientIpSource::new(Platform::Spin))?;
///     Ok(match tidegate_spin::check(&gate, &request).await {
///         Ok(pass) => tidegate_spin::with_fields(Response::new(200, "hello\n"), &pass.fields()),
///         Err(refused) => refused,
///     })
/// }
/// # }
/// ```
pub async fn check(gate: &Gate<'_>, request: &IncomingRequest) -> Result<Pass, Response> {
    outcome(gate.check(&Incoming::new(request).asked()).await)
}

impl From<&IncomingRequest> for Incoming {
    fn from(request: &IncomingRequest) -> Self {
        Self {
            method: request.method().to_string(),
            path: request.path_with_query().unwrap_or_default(),
            host: request.authority(),
            fields: request.headers().entries(),
        }
    }
}

/// The pass of a verdict, or the response to send in place of the app's. What the gate has to [tell](Verdict::notice) goes to the app's
/// log. An instance lives for one request, so while a store is down, each request is one line.
pub fn outcome(verdict: Verdict) -> Result<Pass, Response> {
    if let Some(notice) = verdict.notice() {
        eprintln!("tidegate: {notice}");
    }
    match verdict {
        Verdict::Pass(pass) => {
            sleep(Duration::from_millis(pass.delay().get()));
            Ok(pass)
        }
        Verdict::Refuse(refusal) => {
            let (status, fields, body) = refusal.into_rejection().into_parts();
            Err(with_fields(Response::new(status, body), &fields))
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
