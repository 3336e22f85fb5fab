//! Cloudflare's own way to an object: a fetch.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tollgate_core::{Error, ErrorKind, Millis};
use worker::js_sys::{Reflect, Uint8Array};
use worker::wasm_bindgen::JsValue;
use worker::{Delay, Method, ObjectNamespace, Request, RequestInit, Stub};

use crate::error::{self, Thrown};
use crate::store::{Address, Namespace};
use crate::wire::Reply;

/// The least and the longest time to wait for an answer.
const DEADLINES: (Millis, Millis) = (Millis::new(1), Millis::from_secs(3_600));

impl Namespace for ObjectNamespace {
    async fn call(&self, object: Address<'_>, body: Vec<u8>) -> Result<Reply, Error> {
        let deadline = object.deadline.clamp(DEADLINES.0, DEADLINES.1);
        let mut call = pin!(fetch(self, object, body));
        let mut timer = pin!(Delay::from(Duration::from_millis(deadline.get())));
        poll_fn(|context| {
            if let Poll::Ready(reply) = call.as_mut().poll(context) {
                return Poll::Ready(reply);
            }
            timer.as_mut().poll(context).map(|()| Err(error::timeout(deadline)))
        })
        .await
    }
}

async fn fetch(namespace: &ObjectNamespace, object: Address<'_>, body: Vec<u8>) -> Result<Reply, Error> {
    let stub = stub(namespace, object).map_err(|error| not_bound(&error))?;
    let request = request(&body).map_err(|error| not_bound(&error))?;
    let mut response = stub.fetch_with_request(request).await.map_err(|error| Error::from(thrown(&error)))?;
    let status = response.status_code();
    let body = response.bytes().await.map_err(|error| Error::from(thrown(&error)))?;
    Ok(Reply { status, body })
}

fn stub(namespace: &ObjectNamespace, object: Address<'_>) -> worker::Result<Stub> {
    match object.location_hint {
        Some(hint) => namespace.get_by_name_with_location_hint(object.name, hint),
        None => namespace.get_by_name(object.name),
    }
}

fn request(body: &[u8]) -> worker::Result<Request> {
    let mut init = RequestInit::new();
    init.with_method(Method::Post).with_body(Some(Uint8Array::from(body).into()));
    // The host is nobody's: the object looks at the body only.
    Request::new_with_init("https://tollgate.invalid/", &init)
}

/// What was thrown, with the properties that the platform gives its own errors.
fn thrown(error: &worker::Error) -> Thrown {
    let value = error.to_js_value();
    let is = |property: &str| Reflect::get(&value, &JsValue::from_str(property)).is_ok_and(|it| it.is_truthy());
    Thrown {
        message: error.to_string(),
        overloaded: is("overloaded"),
        retryable: is("retryable"),
        remote: is("remote"),
    }
}

/// An error before anything was sent.
fn not_bound(error: &worker::Error) -> Error {
    let message = format!("durable object: no object of that namespace can be reached: {error}; nothing was charged");
    Error::new(ErrorKind::Refused, message)
}
