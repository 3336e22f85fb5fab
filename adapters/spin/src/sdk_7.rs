//! A gate in front of an app of `spin-sdk` 7, which speaks WASI 0.3: Spin 4.1 and newer.

use std::time::Duration;

use spin_sdk_7::http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use spin_sdk_7::time::sleep;
use spin_sdk_7::wasip3::http::types;
use tidegate_core::ResponseFields;
use tidegate_core::gate::{Gate, Pass, Verdict};

use crate::incoming::Incoming;

/// Decides on a request. `Err` has the response to send in place of the app's.
///
/// The gate needs [`Platform::Spin`](tidegate_core::Platform::Spin). A request that a leaky bucket admits is held until its
/// turn; the instance answers others meanwhile.
///
/// ```
/// # #[cfg(target_arch = "wasm32")] mod app {
/// # use spin_sdk_7 as spin_sdk;
/// use spin_sdk::http::{Request, Response};
/// use tidegate_spin::sdk_7::{check, with_fields};
/// use tidegate_spin::{ClientIpSource, Error, Gate, Platform, Rules, SpinAtomics};
///
/// async fn answer(request: Request) -> Result<Response<String>, Error> {
///     let rules = Rules::parse("rules.json", include_str!("../examples/rules.json"))?;
///     let store = SpinAtomics::open("default")?.limiter();
///     let gate = Gate::new(rules, store, ClientIpSource::new(Platform::Spin))?;
///     Ok(match check(&gate, &request).await {
///         Ok(pass) => with_fields(Response::new("hello\n".into()), &pass.fields()),
///         Err(refused) => refused,
///     })
/// }
/// # }
/// ```
pub async fn check<B>(gate: &Gate<'_>, request: &Request<B>) -> Result<Pass, Response<String>> {
    outcome(gate.check(&Incoming::new(request).asked()).await).await
}

impl<B> From<&Request<B>> for Incoming {
    fn from(request: &Request<B>) -> Self {
        let fields = request.headers().iter();
        Self {
            method: request.method().to_string(),
            path: request.uri().path_and_query().map(ToString::to_string).unwrap_or_default(),
            host: request.uri().authority().map(ToString::to_string),
            fields: fields.map(|(name, value)| (name.to_string(), value.as_bytes().into())).collect(),
        }
    }
}

impl From<&types::Request> for Incoming {
    fn from(request: &types::Request) -> Self {
        Self {
            method: match request.get_method() {
                types::Method::Other(method) => method,
                known => Method::try_from(known).map(|method| method.to_string()).unwrap_or_default(),
            },
            path: request.get_path_with_query().unwrap_or_default(),
            host: request.get_authority(),
            fields: request.get_headers().copy_all(),
        }
    }
}

/// The pass of a verdict, or the response to send in place of the app's. What the gate has to [tell](Verdict::notice) goes to the app's
/// log.
pub async fn outcome(verdict: Verdict) -> Result<Pass, Response<String>> {
    if let Some(notice) = verdict.notice() {
        eprintln!("tidegate: {notice}");
    }
    match verdict {
        Verdict::Pass(pass) => {
            if pass.delay().get() > 0 {
                sleep(Duration::from_millis(pass.delay().get())).await;
            }
            Ok(pass)
        }
        Verdict::Refuse(refusal) => {
            let (status, fields, body) = refusal.into_rejection().into_parts();
            let mut response = with_fields(Response::new(body), &fields);
            *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            Err(response)
        }
    }
}

/// Adds the fields of a [pass](Pass::fields) to a response, in place of those of the same names.
#[must_use]
pub fn with_fields<B>(mut response: Response<B>, fields: &ResponseFields) -> Response<B> {
    for (name, value) in fields.iter() {
        match (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            (Ok(name), Ok(value)) => _ = response.headers_mut().insert(name, value),
            _ => eprintln!("tidegate: the response takes no field {name}"),
        }
    }
    response
}
