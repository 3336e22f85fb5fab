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

use spin_sdk::http::IntoResponse as _;
use spin_sdk::wasip3::exports::http::handler::Guest;
use spin_sdk::wasip3::http::types::{ErrorCode, Request, Response};
use tidegate_core::gate::{Gate, Verdict};
use tidegate_core::{Error, ErrorKind};
use tidegate_spin::Incoming;
use tidegate_spin::sdk_7::outcome;

use crate::settings::Settings;

struct Middleware;

spin_sdk::wasip3::http::service::export!(Middleware);

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
        match outcome(verdict).await {
            Ok(pass) => Ok(message::with_fields(message::next(request).await?, &pass.fields())),
            Err(refused) => refused.into_response(),
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
