//! Cloudflare's own way to an object: a fetch.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tollgate_core::{Error, ErrorKind, Millis};
use worker::js_sys::{Reflect, Uint8Array};
use worker::wasm_bindgen::{JsCast as _, JsValue};
use worker::wasm_bindgen_futures::JsFuture;
use worker::web_sys::{Request, RequestInit, Response};
use worker::worker_sys::DurableObject;
use worker::{Delay, ObjectNamespace, Stub};

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

/// Past `worker`'s own request and response, which would read a body of some bytes as a stream, chunk by chunk.
async fn fetch(namespace: &ObjectNamespace, object: Address<'_>, body: Vec<u8>) -> Result<Reply, Error> {
    let stub = stub(namespace, object).map_err(|error| not_bound(&error))?.into_rpc::<DurableObject>();
    let request = request(&body).map_err(|error| not_bound(&error.into()))?;
    answer(&stub, &request).await.map_err(|error| thrown(&error.into()).into())
}

async fn answer(stub: &DurableObject, request: &Request) -> Result<Reply, JsValue> {
    let response: Response = JsFuture::from(stub.fetch_with_request(request)?).await?.dyn_into()?;
    let body = JsFuture::from(response.array_buffer()?).await?;
    Ok(Reply { status: response.status(), body: Uint8Array::new(&body).to_vec() })
}

fn stub(namespace: &ObjectNamespace, object: Address<'_>) -> worker::Result<Stub> {
    match object.location_hint {
        Some(hint) => namespace.get_by_name_with_location_hint(object.name, hint),
        None => namespace.get_by_name(object.name),
    }
}

fn request(body: &[u8]) -> Result<Request, JsValue> {
    let init = RequestInit::new();
    init.set_method("POST");
    init.set_body(&Uint8Array::from(body));
    // The host is nobody's: the object looks at the body only.
    Request::new_with_str_and_init("https://tollgate.invalid/", &init)
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
