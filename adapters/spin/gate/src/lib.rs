//! Limits a Spin component, whatever it is written in. It is a middleware: `wasi:http/handler@0.3.0` on both sides, which Spin 4.1
//! composes with the app's component.
//!
//! What it does is configuration of the app; see the README of `tidegate-spin`. A gate
//! that is not configured answers each request with a 500, and logs what to write. It never lets a request pass by accident.
//!
//! With the feature `suite`, and the variable `tidegate_test_mode`, it also answers the conformance suite's routes. Never deploy that.
#![cfg(target_arch = "wasm32")]

mod message;
mod settings;
mod store;
#[cfg(feature = "suite")]
mod suite;

use std::cell::OnceCell;
use std::rc::Rc;

use spin_sdk::wasip3::clocks::monotonic_clock::wait_for;
use spin_sdk::wasip3::exports::http::handler::Guest;
use spin_sdk::wasip3::http::types::{ErrorCode, Request, Response};
use tidegate_core::gate::{Gate, Verdict};
use tidegate_core::{Error, ErrorKind};

use crate::message::Incoming;
use crate::settings::Settings;

struct Middleware;

spin_sdk::wasip3::http::service::export!(Middleware);

const NANOS_PER_MILLI: u64 = 1_000_000;

thread_local! {
    /// The gate of this instance, which answers many requests. `None` if its configuration is wrong.
    static GATE: OnceCell<Option<Rc<Gate<'static>>>> = const { OnceCell::new() };
}

impl Guest for Middleware {
    async fn handle(request: Request) -> Result<Response, ErrorCode> {
        #[cfg(feature = "suite")]
        if let Some(route) = suite::route(&request) {
            return suite::answer(route, request).await;
        }
        let verdict = match gate() {
            Some(gate) => gate.check(&Incoming::new(&request).asked()).await,
            None => Verdict::misconfigured(Error::new(ErrorKind::Invalid, "the log says what is wrong")),
        };
        if let Some(notice) = verdict.notice() {
            eprintln!("tidegate: {notice}");
        }
        match verdict {
            Verdict::Pass(pass) => {
                if pass.delay().get() > 0 {
                    wait_for(pass.delay().get().saturating_mul(NANOS_PER_MILLI)).await;
                }
                let response = message::next(request).await?;
                Ok(message::with_fields(response, &pass.fields()))
            }
            Verdict::Refuse(refusal) => {
                let (status, fields, body) = refusal.into_rejection().into_parts();
                message::response(status, fields.iter(), body.into())
            }
        }
    }
}

/// The gate. It is made, and a mistake in its configuration is logged, once for each instance.
fn gate() -> Option<Rc<Gate<'static>>> {
    GATE.with(|gate| {
        gate.get_or_init(|| {
            let gate = Settings::read().and_then(Settings::gate).map(Rc::new);
            gate.inspect_err(|error| eprintln!("tidegate: {error}")).ok()
        })
        .clone()
    })
}
